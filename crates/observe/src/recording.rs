//! A service, watched for a while.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use heddle_core::Ns;
use serde::{Deserialize, Serialize};

use crate::{Runtime, Span};

/// What was seen of a service and its machine. A file of it is the input of `heddle advise`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recording {
    /// The machine.
    pub host: Host,
    /// The service.
    pub service: Service,
    /// When requests were watched: all of them, if the budget allowed it.
    pub windows: Vec<Window>,
    /// The requests, in order of arrival.
    pub spans: Vec<Span>,
    /// Every thread that ran on the service's CPUs, the service's own included.
    pub threads: Vec<ThreadUse>,
    /// What was missed.
    pub lost: Lost,
    /// The CPU time that watching took in the kernel's programs.
    pub cost: Ns,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// The processor's name.
    pub processor: String,
    /// The kernel's release.
    pub kernel: String,
    /// CPUs that are online.
    pub cpus: u32,
}

/// The service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// The name of its first process.
    pub name: String,
    /// Its processes.
    pub processes: Vec<u32>,
    /// Its listening sockets, and its datagram sockets with a port.
    pub sockets: Vec<Socket>,
    /// For how long its cgroup's quota of CPU time stopped it (`throttled_usec` in `cpu.stat`).
    pub throttled: Ns,
    /// The runtime that runs its tasks, if its process has one.
    pub runtime: Option<Runtime>,
    /// The policy of Heddle's event queue at which its threads wait, if it has one.
    pub event_queue: Option<String>,
}

/// A socket to which a service's requests come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Socket {
    /// Its inode, as in `/proc/PID/fd`.
    pub inode: u64,
    /// Its cookie, as in [`Span::queue`]; 0 if unknown.
    pub cookie: u64,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Its port.
    pub port: u16,
    /// The processes that have it open.
    pub owners: Vec<u32>,
    /// Whether it was bound with `SO_REUSEPORT`, so that several can share the port.
    pub shares_port: bool,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Connections.
    #[default]
    Tcp,
    /// Datagrams.
    Udp,
}

/// A time in which every request was watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// When it began, by `CLOCK_MONOTONIC`.
    pub from: Ns,
    /// When it ended.
    pub to: Ns,
}

/// A thread over the whole recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadUse {
    /// Its id.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// Its name.
    pub name: String,
    /// Its scheduling policy, as numbered by the kernel (0 other, 1 FIFO, 2 RR, 3 batch, 5 idle, 6 deadline).
    pub policy: u32,
    /// Its nice value.
    pub nice: i32,
    /// The group as a part of which it shares CPUs with others.
    pub group: Group,
    /// The CPUs that it may use, as a list (`0-3`).
    pub cpus: String,
    /// CPU time.
    pub cpu: Ns,
    /// Time in which it was runnable and did not run.
    pub run_queue: Ns,
    /// Times that it got a CPU.
    pub switches: u64,
    /// Times that it was taken off while runnable.
    pub preempted: u64,
    /// How long it ran at a time and slept before, for a sample of its turns in order of time.
    pub bursts: Vec<Burst>,
    /// For threads that ran while one of the service's was runnable and waited on the same CPU: for how long.
    pub delayed_service: Ns,
}

/// Threads that the kernel gives CPU time as one: nice values count only within a group. All fields are empty for the
/// threads of the root group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    /// A cgroup's path, or the name of an automatic group (`sched(7)`, a group for each session).
    pub name: String,
    /// The file that holds its weight.
    pub file: String,
    /// What that file holds.
    pub weight: String,
}

/// One turn of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// How long it had slept before: zero if it was only preempted.
    pub slept: Ns,
    /// How long it ran until it slept.
    pub ran: Ns,
}

/// What was missed, each counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// Records for which a ring had no room.
    pub records: u64,
    /// Requests without an answer in the windows.
    pub unanswered: u64,
    /// What else could not be seen, in words: a missing privilege, a tracepoint that this kernel lacks.
    pub notes: Vec<String>,
}

/// Why a recording cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be opened, read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The file is not a recording.
    #[error("{}: not a recording of heddle observe: {error}", path.display())]
    Format {
        /// Which.
        path: PathBuf,
        /// Where, and what was expected.
        #[source]
        error: serde_json::Error,
    },
}

impl Recording {
    /// Reads a recording from a file of JSON.
    ///
    /// # Errors
    /// [`RecordingError`] with the file's name, and the line of the first fault.
    pub fn read(path: &Path) -> Result<Recording, RecordingError> {
        let wrong = |error| RecordingError::File { path: path.into(), error };
        let file = File::open(path).map_err(wrong)?;
        serde_json::from_reader(BufReader::new(file))
            .map_err(|error| RecordingError::Format { path: path.into(), error })
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    /// [`RecordingError`] with the file's name.
    pub fn write(&self, path: &Path) -> Result<(), RecordingError> {
        let wrong = |error| RecordingError::File { path: path.into(), error };
        let mut out = BufWriter::new(File::create(path).map_err(wrong)?);
        serde_json::to_writer(&mut out, self).map_err(|error| wrong(error.into()))?;
        out.flush().map_err(wrong)
    }

    /// Returns how long requests were watched.
    #[must_use]
    pub fn watched(&self) -> Ns {
        self.windows
            .iter()
            .map(|window| window.to - window.from)
            .fold(Ns::ZERO, |sum, one| sum + one)
    }

    /// Returns the CPU time of each process, that of its threads together.
    #[must_use]
    pub fn processes(&self) -> BTreeMap<u32, Ns> {
        let mut sums = BTreeMap::new();
        for thread in &self.threads {
            let sum = sums.entry(thread.process).or_insert(Ns::ZERO);
            *sum += thread.cpu;
        }
        sums
    }
}
