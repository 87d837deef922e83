//! What can be asked of Heddle's steering: by the command line, by programs, directly or through the daemon. The
//! descriptors that go with a request or an answer travel beside it, in the order that it names them.

mod bounded;

use serde::{Deserialize, Serialize};

use crate::hook::Hook;

pub(crate) use bounded::ROLES;

/// A policy to deploy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The name of a shipped policy, or what to call this one.
    #[serde(deserialize_with = "bounded::text")]
    pub name: String,
    /// Its parameters, by name.
    #[serde(deserialize_with = "bounded::parameters")]
    pub parameters: Vec<(String, String)>,
    /// The compiled file; `None` for a shipped policy.
    #[serde(default, deserialize_with = "bounded::object")]
    pub object: Option<Vec<u8>>,
}

/// What a descriptor that goes with a request is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// An executor: a socket of the reuseport group.
    Executor {
        /// Its index.
        index: u32,
        /// What to call it: `pid 812 fd 5`.
        #[serde(deserialize_with = "bounded::text")]
        label: String,
    },
    /// A bound socket: having it proves that the port may be steered.
    Claim,
    /// An AF_XDP socket of an executor, on one receive queue; an executor has one for each queue.
    XdpSocket {
        /// The executor's index.
        index: u32,
        /// The queue.
        queue: u32,
        /// What to call the executor.
        #[serde(deserialize_with = "bounded::text")]
        label: String,
    },
    /// The process (a pidfd) with whose end the attachment ends.
    Owner,
    /// A map that the policy uses in the place of one that it declares: so two policies share it. Whoever has a
    /// descriptor that may write can read and write the map anyway.
    Map {
        /// Its name in the policy.
        #[serde(deserialize_with = "bounded::text")]
        name: String,
    },
}

impl Role {
    /// Whether it is an executor.
    #[must_use]
    pub fn is_executor(&self) -> bool {
        matches!(self, Self::Executor { .. } | Self::XdpSocket { .. })
    }
}

/// Where packets are met, for the hooks below sockets. The interface is looked up in the network namespace of the claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketTarget {
    /// The interface.
    #[serde(deserialize_with = "bounded::text")]
    pub interface: String,
    /// The CPUs that are executors (CPU Redirect).
    #[serde(deserialize_with = "bounded::cpus")]
    pub cpus: Vec<u32>,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Deploy a policy. The descriptors are those of `roles`.
    Attach {
        /// What decides.
        policy: Policy,
        /// Where.
        hook: Hook,
        /// Where, below sockets.
        below: Option<PacketTarget>,
        /// The process that is steered, for people.
        pid: u32,
        /// Its command, for people.
        #[serde(deserialize_with = "bounded::text")]
        command: String,
        /// What the descriptors are.
        #[serde(deserialize_with = "bounded::roles")]
        roles: Vec<Role>,
    },
    /// Put an executor into an attachment; one descriptor.
    AddExecutor {
        /// The attachment.
        id: u32,
        /// Its index; `None`: the first free one.
        index: Option<u32>,
        /// What to call it.
        #[serde(deserialize_with = "bounded::text")]
        label: String,
    },
    /// Another policy in the place of an attachment's. Maps of the same name and shape keep their values.
    Replace {
        /// The attachment.
        id: u32,
        /// What decides from now on.
        policy: Policy,
    },
    /// End an attachment. With a socket of its group, the kernel's program comes off at once; without, it is left
    /// empty and goes with the group.
    Detach {
        /// The attachment.
        id: u32,
    },
    /// The attachments of the caller; for root, all: by number, from the first after `after` on.
    List {
        /// The last number that is known already; 0 at first.
        after: u32,
    },
    /// The attachments of the caller that ended by themselves; for root, all.
    Ended,
    /// How an attachment does.
    Stats {
        /// The attachment.
        id: u32,
        /// For how long to count run time, milliseconds, at most 2000; 0: not at all.
        sample_ms: u32,
    },
    /// The maps of an attachment that its user may have, one descriptor each: those that the policy declares, and the
    /// executors' lines. Heddle's own are for root only, for some of them hold addresses that the kernel then reads.
    Maps {
        /// The attachment.
        id: u32,
    },
}

/// What becomes of an attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// The policy decides.
    Active,
    /// It was taken away, and the kernel decides; the text says why.
    Evicted(String),
}

/// A process, told apart from later ones of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: u32,
    /// When it was started, in ticks since the machine was.
    pub started: u64,
}

/// The place of a policy on an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// The pins of the interface's root program.
    pub root: String,
    /// The slot that it jumps to.
    pub number: u32,
}

/// A deployed policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Its number.
    pub id: u32,
    /// Where it decides.
    pub hook: Hook,
    /// What decides.
    pub policy: String,
    /// The policy's parameters.
    pub parameters: Vec<(String, String)>,
    /// Who deployed it.
    pub uid: u32,
    /// The process that is steered.
    pub pid: u32,
    /// Its command.
    pub command: String,
    /// `udp` or `tcp`.
    pub protocol: String,
    /// The address and port whose inputs it sees.
    pub address: String,
    /// The interface, below sockets.
    pub interface: Option<String>,
    /// The labels of its executors, by index.
    pub executors: Vec<String>,
    /// The inode numbers of their sockets; 0 for what is no socket.
    #[serde(default)]
    pub sockets: Vec<u64>,
    /// The number of the network namespace that those are in; 0 if it is not known.
    #[serde(default)]
    pub namespace: u64,
    /// Since when, milliseconds of the Unix clock.
    pub since_ms: u64,
    /// Whether it decides.
    pub status: Status,
    /// The process with whose end it ends.
    #[serde(default)]
    pub owner: Option<ProcessId>,
    /// Its place on the interface, below sockets.
    #[serde(default)]
    pub slot: Option<Slot>,
    /// Bytes of the maps that its policy declares.
    #[serde(default)]
    pub map_bytes: u64,
    /// Those maps one by one, in records only: attachments may share some.
    #[serde(default)]
    pub maps: Vec<CountedMap>,
}

/// A map that counts for whoever has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedMap {
    /// The kernel's number for it, which no other map has had.
    pub id: u32,
    /// What it takes.
    pub bytes: u64,
}

/// An attachment that ended by itself: nobody detached it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// What it was, without its executors.
    pub attachment: Attachment,
    /// When that was noticed, milliseconds of the Unix clock.
    pub at_ms: u64,
    /// Why it ended, and what to do.
    pub why: String,
}

impl Attachment {
    /// The port whose inputs it sees.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.address.rsplit(':').next().and_then(|port| port.parse().ok())
    }
}

/// How one executor did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorStats {
    /// Its index.
    pub index: u32,
    /// What it is called.
    pub label: String,
    /// Inputs that it got.
    pub selected: u64,
    /// Inputs that were chosen for it while it was not there, and that the kernel gave to whatever socket it liked.
    pub failed: u64,
    /// Inputs that were chosen for it while it was not there, and that went to another executor.
    #[serde(default)]
    pub moved: u64,
    /// Whether it is there.
    pub present: bool,
    /// The inode number of its socket; 0 if it is none, or not known.
    #[serde(default)]
    pub socket: u64,
}

/// How an attachment does. Counts are since it was attached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Of each executor.
    pub executors: Vec<ExecutorStats>,
    /// Inputs left to the kernel by the policy's wish.
    pub passed: u64,
    /// Inputs left to the kernel because the policy named no executor that there can be.
    pub wrong_index: u64,
    /// Inputs that the policy threw away.
    pub dropped: u64,
    /// Inputs a second, during the sample.
    pub per_second: Option<f64>,
    /// What a decision costs, enforcing it included, nanoseconds, during the sample.
    pub ns_per_decision: Option<f64>,
}

impl Stats {
    /// All inputs that were decided on.
    #[must_use]
    pub fn decisions(&self) -> u64 {
        let given: u64 =
            self.executors.iter().map(|executor| executor.selected + executor.failed).sum();
        given + self.passed + self.wrong_index + self.dropped
    }

    /// Inputs that went to another executor than the chosen one, whose socket is closed.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.executors.iter().map(|executor| executor.moved).sum()
    }

    /// Choices that the kernel could not follow.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.executors.iter().map(|executor| executor.failed).sum::<u64>() + self.wrong_index
    }

    /// The share of the busiest executor against an even one: 1 is even, the number of executors is all to one.
    #[must_use]
    pub fn skew(&self) -> Option<f64> {
        let counts = || self.executors.iter().filter(|e| e.present).map(|e| e.selected);
        let (sum, most, n) = (counts().sum::<u64>(), counts().max()?, counts().count());
        #[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
        (sum > 0).then(|| most as f64 * n as f64 / sum as f64)
    }
}

/// A map of an attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapInfo {
    /// Its name in the policy, or Heddle's.
    pub name: String,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// How many values it can hold.
    pub entries: u32,
    /// Whether it can be mapped into memory.
    pub mappable: bool,
}

/// What a request brings.
#[allow(clippy::large_enum_variant, reason = "there is one, and it is sent")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// The new attachment. No descriptors: [`Request::Maps`] brings them.
    Attached(Attachment),
    /// The index of the new executor.
    Executor(u32),
    /// It is done.
    Done,
    /// The attachments.
    List(Vec<Attachment>),
    /// Those that ended by themselves, the last one last.
    Ended(Vec<Ended>),
    /// How one does.
    Stats(Stats),
    /// The maps, whose descriptors come in this order.
    Maps(Vec<MapInfo>),
}

/// What kind of refusal an [`Error`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// What was asked makes no sense.
    Invalid,
    /// There is no such thing.
    NotFound,
    /// It is taken.
    Busy,
    /// The caller may not.
    Denied,
    /// This kernel or machine cannot.
    Unsupported,
    /// The kernel refused, or a file could not be read or written.
    System,
}

/// Why a request failed: what was wrong, with what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    /// What kind of refusal it is.
    pub kind: ErrorKind,
    /// For people.
    pub text: String,
}

impl Error {
    /// An error of a kind.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// A failure of the system, and what it was about.
    pub fn system(about: impl std::fmt::Display, error: &std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::ResourceBusy | std::io::ErrorKind::TimedOut => ErrorKind::Busy,
            _ => ErrorKind::System,
        };
        Self::new(kind, format!("{about}: {error}"))
    }
}
