//! How things are, as the broker reports it in JSON. `schema` is 1.

use serde::{Deserialize, Serialize};

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The version of this form.
    pub schema: u32,
    /// The share.
    pub share: ShareReport,
    /// Its applications.
    pub apps: Vec<AppReport>,
    /// Its CPUs.
    pub cores: Vec<CoreReport>,
    /// The last notable events, the latest last.
    pub events: Vec<EventReport>,
}

/// A share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareReport {
    /// The broker's socket.
    pub socket: String,
    /// The file that describes the share.
    pub file: String,
    /// The broker's process.
    pub pid: u32,
    /// The CPUs.
    pub cpus: Vec<u32>,
    /// The policy.
    pub policy: String,
    /// Whether workers are real-time threads.
    pub realtime: bool,
    /// The real-time priority of active workers; 0 if there is none.
    pub priority: u32,
    /// How long a member of weight 1024 keeps a CPU for which equals wait.
    pub slice_ns: u64,
    /// How long the broker has run.
    pub uptime_ms: u64,
}

/// An application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppReport {
    /// Its number.
    pub app: u32,
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its class: `lc` or `be`.
    pub class: String,
    /// Its user.
    pub user: u32,
    /// Lower ones go first.
    pub rank: u32,
    /// Its share among those of its rank; 1024 is the usual one.
    pub weight: u32,
    /// Whether it takes part: it has mapped its memory.
    pub ready: bool,
    /// How long ago it joined.
    pub joined_ms_ago: u64,
    /// Times that the broker took a CPU from it.
    pub demotions: u64,
    /// The CPU time of its process, all threads together.
    pub cpu_time_ns: u64,
    /// What it says of each CPU.
    pub cpus: Vec<CpuReport>,
}

/// A CPU, as an application describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuReport {
    /// The CPU.
    pub cpu: u32,
    /// `idle`, `wanting`, `active` or `preempted` (active but for a latency-critical one that has the CPU).
    pub state: String,
    /// How long ago that began.
    pub since_ns_ago: u64,
    /// For how long it was active, until now.
    pub active_ns: u64,
    /// For how long it waited, without the present wait.
    pub waited_ns: u64,
    /// Its longest wait.
    pub longest_wait_ns: u64,
    /// Times that the CPU came from another application.
    pub switches: u64,
    /// Hand-overs that broke the Single Binding Rule.
    pub broken: u64,
    /// Requests to others to make way.
    pub asked: u64,
    /// Times that it made way.
    pub made_way: u64,
    /// Times that it took the CPU from an application that slept in the kernel.
    pub stood_in: u64,
}

/// A CPU: which application is active there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreReport {
    /// The CPU.
    pub cpu: u32,
    /// The application that is active there, by its number.
    pub active: Option<u32>,
    /// The reason.
    pub why: String,
    /// The applications that wait, by their numbers.
    pub waiting: Vec<u32>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventReport {
    /// How long ago.
    pub ms_ago: u64,
    /// `joined`, `left`, `died`, `demoted` or `removed`.
    pub event: String,
    /// The application.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// The reason, if there is one.
    pub why: String,
}
