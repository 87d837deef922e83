//! The requests of Heddle's steering: from the command line or programs, directly or through the daemon. The
//! descriptors of a request or an answer travel beside it, in the order in which it names them.

mod bounded;

use serde::{Deserialize, Serialize};

use crate::hook::Hook;

pub(crate) use bounded::ROLES;

/// A policy to deploy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The name of a shipped policy, or a label for this one.
    #[serde(deserialize_with = "bounded::text")]
    pub name: String,
    /// Its parameters, by name.
    #[serde(deserialize_with = "bounded::parameters")]
    pub parameters: Vec<(String, String)>,
    /// The compiled file; `None` for a shipped policy.
    #[serde(default, deserialize_with = "bounded::object")]
    pub object: Option<Vec<u8>>,
}

/// The role of a descriptor that comes with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// An executor: a socket of the reuseport group.
    Executor {
        /// Its index.
        index: u32,
        /// Its label: `pid 812 fd 5`.
        #[serde(deserialize_with = "bounded::text")]
        label: String,
    },
    /// A bound socket: proof that the sender may steer the port.
    Claim,
    /// An AF_XDP socket of an executor, on one receive queue; an executor has one for each queue.
    XdpSocket {
        /// The executor's index.
        index: u32,
        /// The queue.
        queue: u32,
        /// The executor's label.
        #[serde(deserialize_with = "bounded::text")]
        label: String,
    },
    /// The process (a pidfd) whose exit ends the attachment.
    Owner,
    /// A map that the policy uses instead of one that it declares: so two policies share it. A process with a
    /// writable descriptor can read and write the map anyway.
    Map {
        /// Its name in the policy.
        #[serde(deserialize_with = "bounded::text")]
        name: String,
    },
}

impl Role {
    /// Returns whether it is an executor.
    #[must_use]
    pub fn is_executor(&self) -> bool {
        matches!(self, Self::Executor { .. } | Self::XdpSocket { .. })
    }
}

/// Where packets are intercepted, for the hooks below sockets. The interface is looked up in the network
/// namespace of the claims.
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
        /// The policy.
        policy: Policy,
        /// The hook.
        hook: Hook,
        /// The interface, below sockets.
        below: Option<PacketTarget>,
        /// The process that is steered, for display.
        pid: u32,
        /// Its command, for display.
        #[serde(deserialize_with = "bounded::text")]
        command: String,
        /// The roles of the descriptors.
        #[serde(deserialize_with = "bounded::roles")]
        roles: Vec<Role>,
    },
    /// Add an executor to an attachment; one descriptor.
    AddExecutor {
        /// The attachment.
        id: u32,
        /// Its index; `None`: the first free one.
        index: Option<u32>,
        /// Its label.
        #[serde(deserialize_with = "bounded::text")]
        label: String,
    },
    /// Replace the policy of an attachment. Maps of the same name and shape keep their values.
    Replace {
        /// The attachment.
        id: u32,
        /// The new policy.
        policy: Policy,
    },
    /// End an attachment. Given a socket of its group, the kernel's program is detached at once; otherwise it
    /// stays, empty, until the group is gone.
    Detach {
        /// The attachment.
        id: u32,
    },
    /// List the attachments of the caller; for root, all: by id, starting with the first after `after`.
    List {
        /// The last known id; 0 at first.
        after: u32,
    },
    /// List the caller's attachments that ended by themselves; for root, all.
    Ended,
    /// Get statistics of an attachment.
    Stats {
        /// The attachment.
        id: u32,
        /// How long to count run time, milliseconds, at most 2000; 0 for not at all.
        sample_ms: u32,
    },
    /// Get the maps of an attachment that its user may have, one descriptor each: those that the policy
    /// declares, and the executors' lines. Heddle's own are for root only, as some hold addresses that the
    /// kernel reads.
    Maps {
        /// The attachment.
        id: u32,
    },
}

/// The state of an attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// The policy decides.
    Active,
    /// It was evicted, and the kernel decides; the text says why.
    Evicted(String),
}

/// A process, distinguished from later ones with its pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its pid.
    pub pid: u32,
    /// When it was started, in ticks since boot.
    pub started: u64,
}

/// The location of a policy on an interface.
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
    /// Its id.
    pub id: u32,
    /// Its hook.
    pub hook: Hook,
    /// The name of the policy.
    pub policy: String,
    /// The policy's parameters.
    pub parameters: Vec<(String, String)>,
    /// The user who deployed it.
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
    /// The inode numbers of their sockets; 0 for executors without one.
    #[serde(default)]
    pub sockets: Vec<u64>,
    /// The inode of their network namespace; 0 if unknown.
    #[serde(default)]
    pub namespace: u64,
    /// When it was attached, milliseconds of the Unix clock.
    pub since_ms: u64,
    /// Whether it decides.
    pub status: Status,
    /// The process whose exit ends it.
    #[serde(default)]
    pub owner: Option<ProcessId>,
    /// Its location on the interface, below sockets.
    #[serde(default)]
    pub slot: Option<Slot>,
    /// Bytes of the maps that its policy declares.
    #[serde(default)]
    pub map_bytes: u64,
    /// Those maps one by one, in records only: attachments may share some.
    #[serde(default)]
    pub maps: Vec<CountedMap>,
}

/// A map that counts against the quota of its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedMap {
    /// The kernel's id for it, never reused.
    pub id: u32,
    /// Its size in bytes.
    pub bytes: u64,
}

/// An attachment that ended by itself, without being detached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The former attachment, without its executors.
    pub attachment: Attachment,
    /// When this was noticed, milliseconds of the Unix clock.
    pub at_ms: u64,
    /// Why it ended, and what to do.
    pub why: String,
}

impl Attachment {
    /// Returns the port whose inputs it sees.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.address.rsplit(':').next().and_then(|port| port.parse().ok())
    }
}

/// Statistics of one executor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorStats {
    /// Its index.
    pub index: u32,
    /// Its label.
    pub label: String,
    /// Inputs that it got.
    pub selected: u64,
    /// Inputs chosen for it while it was absent, which the kernel delivered to a socket of its choice.
    pub failed: u64,
    /// Inputs chosen for it while it was absent, which went to another executor.
    #[serde(default)]
    pub moved: u64,
    /// Whether it is present.
    pub present: bool,
    /// The inode number of its socket; 0 if it has none, or unknown.
    #[serde(default)]
    pub socket: u64,
}

/// Statistics of an attachment. Counts are since it was attached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Per executor.
    pub executors: Vec<ExecutorStats>,
    /// Inputs that the policy left to the kernel.
    pub passed: u64,
    /// Inputs left to the kernel because the policy returned an invalid index.
    pub wrong_index: u64,
    /// Inputs that the policy dropped.
    pub dropped: u64,
    /// Inputs per second, during the sample.
    pub per_second: Option<f64>,
    /// The cost of a decision, including its enforcement, nanoseconds, during the sample.
    pub ns_per_decision: Option<f64>,
}

impl Stats {
    /// Returns the number of all inputs decided on.
    #[must_use]
    pub fn decisions(&self) -> u64 {
        let given: u64 =
            self.executors.iter().map(|executor| executor.selected + executor.failed).sum();
        given + self.passed + self.wrong_index + self.dropped
    }

    /// Returns the inputs that went to another executor because the chosen one's socket is closed.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.executors.iter().map(|executor| executor.moved).sum()
    }

    /// Returns the choices that the kernel could not follow.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.executors.iter().map(|executor| executor.failed).sum::<u64>() + self.wrong_index
    }

    /// Returns the busiest executor's share relative to an even one: 1 is even; the number of executors means
    /// one gets everything.
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
    /// Maximum number of values.
    pub entries: u32,
    /// Whether it can be mapped into memory.
    pub mappable: bool,
}

/// The answer to a request.
#[allow(clippy::large_enum_variant, reason = "there is one, and it is sent")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// The new attachment. No descriptors: [`Request::Maps`] brings them.
    Attached(Attachment),
    /// The index of the new executor.
    Executor(u32),
    /// The request is done.
    Done,
    /// The attachments.
    List(Vec<Attachment>),
    /// Those that ended by themselves, oldest first.
    Ended(Vec<Ended>),
    /// Statistics of one.
    Stats(Stats),
    /// The maps, whose descriptors come in this order.
    Maps(Vec<MapInfo>),
}

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The request is malformed.
    Invalid,
    /// There is no such thing.
    NotFound,
    /// It is taken or busy.
    Busy,
    /// The caller lacks the permission.
    Denied,
    /// This kernel or machine does not support it.
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
    /// The message for people.
    pub text: String,
}

impl Error {
    /// Creates an error of a kind.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Creates an error from a system failure, and what it was about.
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
