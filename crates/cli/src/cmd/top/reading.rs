//! What is known of each service at one moment. Counts are since the service began, or since this program did.

use std::time::Instant;

use heddle_core::Histogram;

/// Why something is shown as a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A process with a Heddle runtime.
    Runtime,
    /// An event queue of a process.
    Events,
    /// A Go program with Heddle's scheduler.
    Go,
    /// A server under a steering policy.
    Steering,
    /// An enclave of an agent.
    Agent,
    /// A share of CPUs, of which applications are the parts.
    Share,
    /// A program's own network.
    Net,
    /// A process that was named.
    Process,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Runtime => "runtime",
            Kind::Events => "events",
            Kind::Go => "go",
            Kind::Steering => "steering",
            Kind::Agent => "agent",
            Kind::Share => "share",
            Kind::Net => "net",
            Kind::Process => "process",
        }
    }
}

/// What was counted; `None` for what a source does not know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// CPU time.
    pub cpu_ns: Option<u64>,
    /// Inputs that were given to executors: requests, switches to tasks, commits.
    pub inputs: Option<u64>,
    /// Inputs that wait now.
    pub waiting: Option<u64>,
    /// How long inputs waited.
    pub wait: Option<Histogram>,
    /// How long they took.
    pub service: Option<Histogram>,
    /// How long threads waited in run queues.
    pub run_queue: Option<Histogram>,
    /// The sum of the same, and of how many turns, where there is no histogram.
    pub delays: Option<(u64, u64)>,
    /// How often a running task or thread was taken off.
    pub preempted: Option<u64>,
    /// Inputs and events that were lost.
    pub lost: Option<u64>,
}

/// Adds numbers that may be unknown: what is known counts.
fn sum(one: Option<u64>, two: Option<u64>) -> Option<u64> {
    one.map_or(two, |one| Some(one.saturating_add(two.unwrap_or(0))))
}

fn both(one: Option<Histogram>, two: Option<&Histogram>) -> Option<Histogram> {
    match (one, two) {
        (Some(mut one), Some(two)) => {
            one.merge(two);
            Some(one)
        }
        (one, two) => one.or_else(|| two.cloned()),
    }
}

impl Counts {
    /// Returns the sum of both.
    pub fn and(self, other: &Counts) -> Counts {
        let delays = match (self.delays, other.delays) {
            (Some(one), Some(two)) => Some((one.0 + two.0, one.1 + two.1)),
            (one, two) => one.or(two),
        };
        Counts {
            cpu_ns: sum(self.cpu_ns, other.cpu_ns),
            inputs: sum(self.inputs, other.inputs),
            waiting: sum(self.waiting, other.waiting),
            wait: both(self.wait, other.wait.as_ref()),
            service: both(self.service, other.service.as_ref()),
            run_queue: both(self.run_queue, other.run_queue.as_ref()),
            delays,
            preempted: sum(self.preempted, other.preempted),
            lost: sum(self.lost, other.lost),
        }
    }
}

/// A part of a service: an executor, a class or a thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    pub name: String,
    pub counts: Counts,
}

/// A service.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// What stays the same between two readings.
    pub id: String,
    pub name: String,
    pub kind: Kind,
    /// The policy with its parameters; empty if unknown.
    pub policy: String,
    pub pids: Vec<u32>,
    pub counts: Counts,
    pub parts: Vec<Part>,
}

/// How long threads of watched services waited while another ran on their CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    pub tid: u32,
    pub name: String,
    pub delayed_ns: u64,
}

/// Everything at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    pub at: Instant,
    pub services: Vec<Service>,
    /// `None` if it is not known.
    pub culprits: Option<Vec<Culprit>>,
    /// What could not be read, and why, a sentence each.
    pub missing: Vec<String>,
}
