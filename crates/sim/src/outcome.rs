//! The outcome of a run.

use heddle_core::Ns;
use heddle_metrics::{Histogram, Slowdown};
use std::fmt;

/// A measured value and its uncertainty: the 95 % confidence interval is `value` plus and minus
/// `half_width`, from the spread between batches of consecutive requests (20, Student's t).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The value over all measured requests.
    pub value: f64,
    /// Half of the interval's width; infinite if there are too few requests.
    pub half_width: f64,
}

/// What the requests of one part experienced.
#[derive(Clone, Debug, PartialEq)]
pub struct PartOutcome {
    /// The part's name in the mix; `all` for all of them together.
    pub name: String,
    /// Times from arrival to end.
    pub response: Histogram,
    /// Response over service time.
    pub slowdown: Slowdown,
}

/// How often things happened, warm-up included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that arrived.
    pub arrivals: u64,
    /// Requests that a steering policy dropped; no other number includes them.
    pub dropped: u64,
    /// Times a task got a CPU.
    pub starts: u64,
    /// Requests that were done.
    pub done: u64,
    /// Times a task was taken off its CPU.
    pub preemptions: u64,
    /// Messages that interrupted a task without effect.
    pub interrupts: u64,
    /// Tasks taken from another CPU's queue.
    pub steals: u64,
    /// Starts on a different CPU than before.
    pub migrations: u64,
    /// Starts of a task of another application than the CPU's last one.
    pub app_switches: u64,
}

impl Counts {
    /// Returns the number of task events: arrivals, starts, ends and preemptions. The measure of the
    /// simulator's speed.
    pub fn events(&self) -> u64 {
        self.arrivals + self.starts + self.done + self.preemptions
    }
}

/// Where the CPUs' time went; the shares sum to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// To the work of requests.
    pub requests: f64,
    /// To best-effort work.
    pub batch: f64,
    /// To switches, messages and migrations.
    pub overhead: f64,
    /// To nothing.
    pub idle: f64,
}

/// Why a run has no steady state that could be quoted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unstable {
    /// During the measured requests, far more arrived than were done.
    Growing {
        /// Tasks in the system when the first measured request arrived.
        before: usize,
        /// Tasks in the system when the last one arrived.
        after: usize,
    },
    /// Requests and their scheduling costs left the CPUs no idle time: the slow kind of overload, which
    /// hardly shows in the queues of a short run.
    Saturated,
    /// The run was aborted with this many tasks in the system.
    TooManyTasks(usize),
    /// Requests that count were still waiting after twice as many had arrived: some starve.
    Unfinished,
    /// Tasks wait and no CPU ever takes them.
    Stuck,
}

impl fmt::Display for Unstable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unstable::Growing { before, after } => {
                write!(f, "unstable: the tasks in the system grew from {before} to {after}")
            }
            Unstable::Saturated => f.write_str("unstable: the CPUs had no time left"),
            Unstable::TooManyTasks(tasks) => {
                write!(f, "unstable: given up with {tasks} tasks in the system")
            }
            Unstable::Unfinished => {
                f.write_str("requests still wait although as many again have come: some starve")
            }
            Unstable::Stuck => f.write_str("tasks wait, and no CPU ever takes them"),
        }
    }
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Requests per second that arrive in the long run; for a closed loop or a trace, those that did
    /// arrive.
    pub offered: f64,
    /// Requests done per second, over the whole run.
    pub throughput: f64,
    /// The parts of the mix, in its order.
    pub parts: Vec<PartOutcome>,
    /// All requests together.
    pub all: PartOutcome,
    /// Times from arrival until a request first ran.
    pub wait: Histogram,
    /// The mean response time, ns.
    pub mean: Estimate,
    /// The response time that 99 % do not exceed, ns.
    pub p99: Estimate,
    /// The response time that 99.9 % do not exceed, ns.
    pub p999: Estimate,
    /// The slowdown that 99.9 % do not exceed.
    pub slowdown_p999: Estimate,
    /// Where the CPUs' time went.
    pub shares: Shares,
    /// How much less time the least busy CPU spent on requests than the busiest, as a share of the
    /// busiest CPU's time.
    pub imbalance: f64,
    /// How often things happened.
    pub counts: Counts,
    /// Simulated time.
    pub time: Ns,
    /// Why the run must not be quoted; `None` if it may.
    pub unstable: Option<Unstable>,
}
