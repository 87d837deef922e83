//! The model of a service: its parts as a caller describes them, and the state of a replay. Its public face, with the
//! explanation, is [`crate::service`].

mod background;
mod build;
mod check;
mod requests;
mod state;
mod steering;
mod timers;

pub use check::{ServiceError, Thread};
pub(crate) use state::{ServiceState, Wake};

use crate::workload::TraceRequest;
use heddle_core::{Class, CpuSet, Ns, SteeringPolicy};
use std::fmt;

/// A service on a host, to be replayed.
#[derive(Debug)]
pub struct Service<'p> {
    /// CPUs of the host, 1 to [`CpuSet::CAPACITY`].
    pub cpus: usize,
    /// The thread policy on the CPUs, as `heddle_policies::with_policy` reads it: `eevdf:slice=3ms,tick=4ms`.
    pub policy: String,
    /// Queues of requests: sockets. Each needs a worker.
    pub queues: usize,
    /// The threads that serve requests.
    pub workers: Vec<Worker>,
    /// All other threads on these CPUs.
    pub others: Vec<Background>,
    /// The requests, in order of arrival.
    pub requests: Vec<Request>,
    /// How a request gets its queue.
    pub steer: Steer<'p>,
    /// Times between a request's being there and a worker's running it.
    pub delays: Delays,
    /// Whether a connection's next request comes its recorded think time after the answer, so that faster answers bring
    /// more requests, instead of at its recorded time. The think time is from the recorded answer
    /// ([`Request::answered`]) to the next arrival; a request that was sent before that answer keeps its distance from
    /// the request before it.
    pub closed: bool,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl<'p> Service<'p> {
    /// Returns a host of `cpus` CPUs under `policy` with `queues` queues, without workers and requests; connections get
    /// their queues by hash.
    pub fn new(cpus: usize, policy: &str, queues: usize) -> Service<'p> {
        Service {
            cpus,
            policy: policy.into(),
            queues,
            workers: Vec::new(),
            others: Vec::new(),
            requests: Vec::new(),
            steer: Steer::HashConnection,
            delays: Delays::default(),
            closed: false,
            seed: 1,
        }
    }
}

/// A thread that takes requests from a queue.
///
/// Of several idle workers of a queue, the one that has been idle longest gets the next request; one that becomes free
/// takes the oldest that waits.
#[derive(Clone, Debug)]
pub struct Worker {
    /// The queue.
    pub queue: usize,
    /// What it does while a request waits.
    pub kind: WorkerKind,
    /// The CPUs where it may run.
    pub cpus: CpuSet,
    /// Its nice value, -20 to 19: its weight under policies that share by weight.
    pub nice: i32,
    /// The class that the thread policy sees.
    pub class: Class,
}

impl Worker {
    /// Returns a worker of `queue` that serves one request at a time, on any of `cpus` CPUs.
    pub fn sync(queue: usize, cpus: usize) -> Worker {
        let (kind, cpus) = (WorkerKind::Sync, CpuSet::first(cpus));
        Worker { queue, kind, cpus, nice: 0, class: Class::LC }
    }

    /// Returns a worker of `queue` that is an event loop, on any of `cpus` CPUs.
    pub fn event_loop(queue: usize, cpus: usize) -> Worker {
        Worker { kind: WorkerKind::EventLoop, ..Worker::sync(queue, cpus) }
    }
}

/// How a worker serves requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerKind {
    /// One request at a time, from taking it to its answer, waits included.
    Sync,
    /// Bursts of several requests in turn, in the order in which they become ready; a request's waits hold nothing.
    EventLoop,
}

/// A recorded request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// When it arrived, since the beginning of the recording.
    pub arrival: Ns,
    /// When it was answered in the recording; needed for closed loops only.
    pub answered: Option<Ns>,
    /// Its connection: any number.
    pub connection: u32,
    /// The queue in which it arrived, if known.
    pub recorded_queue: Option<u32>,
    /// Its kind, which a steering policy may look at.
    pub kind: usize,
    /// The class of its demand, for those who group results. The thread policy sees the worker's class.
    pub class: Class,
    /// What it needs, in order; the answer follows the last. Run-queue delays and waits for the worker must not be
    /// among them: the replay finds its own.
    pub phases: Vec<Phase>,
}

impl Request {
    /// Returns a request of a trace: it runs for its service time, then waits. `connection` is used if the trace gives
    /// none.
    pub fn of_trace(request: &TraceRequest, connection: u32) -> Request {
        let TraceRequest { arrival, service, class, kind, executor, wait, .. } = *request;
        let wait = Some(Phase::Wait(wait)).filter(|_| wait > Ns::ZERO);
        Request {
            arrival,
            answered: None,
            connection: request.connection.unwrap_or(connection),
            recorded_queue: executor,
            kind,
            class,
            phases: [Phase::Run(service)].into_iter().chain(wait).collect(),
        }
    }
}

/// One thing that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// To run on a CPU for this long.
    Run(Ns),
    /// To wait for something else: a disk, another service, a timer.
    Wait(Ns),
}

/// How a request gets its queue.
pub enum Steer<'p> {
    /// As recorded: each request has its [`Request::recorded_queue`].
    Recorded,
    /// By a hash of the connection, which stays there. The hash depends on the seed.
    HashConnection,
    /// As this policy decides; its executors are the queues. Keys of requests are not known: it sees random ones.
    Policy {
        /// The policy. Where it passes, the connection's hash decides; what it drops is never answered.
        policy: &'p mut dyn SteeringPolicy,
        /// Whether it is asked once for each connection, which then stays with its queue (TCP), instead of for each
        /// request (UDP). A drop is not remembered.
        per_connection: bool,
    },
}

impl fmt::Debug for Steer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Steer::Recorded => f.write_str("Recorded"),
            Steer::HashConnection => f.write_str("HashConnection"),
            Steer::Policy { per_connection, .. } => f
                .debug_struct("Policy")
                .field("per_connection", per_connection)
                .finish_non_exhaustive(),
        }
    }
}

/// A thread that serves no requests.
#[derive(Clone, Debug)]
pub struct Background {
    /// How long it sleeps, then runs, repeated forever from an offset that the seed chooses. A hog never sleeps: one
    /// burst that sleeps 0.
    pub bursts: Vec<(Ns, Ns)>,
    /// Its nice value, -20 to 19.
    pub nice: i32,
    /// The CPUs where it may run.
    pub cpus: CpuSet,
    /// The class that the thread policy sees.
    pub class: Class,
}

impl Background {
    /// Returns a thread that never sleeps, at `nice`, on any of `cpus` CPUs; best-effort work for policies by class.
    pub fn hog(nice: i32, cpus: usize) -> Background {
        let (bursts, cpus) = (vec![(Ns::ZERO, Ns::from_secs(1))], CpuSet::first(cpus));
        Background { bursts, nice, cpus, class: Class::BE }
    }
}

/// Measured delays that are part of neither phases nor scheduling; each is drawn uniformly, and an empty list means
/// zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// From the arrival of a request at an idle worker until that worker is runnable. It takes no CPU time.
    pub wake: Vec<Ns>,
    /// From an answer until the worker takes the next request, if one waits. The worker runs meanwhile (it writes,
    /// closes, accepts and reads), so no [`Phase::Run`] may contain it.
    pub turnaround: Vec<Ns>,
}

/// What came of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// For each request, from its arrival to its answer; [`Ns::MAX`] if it had none.
    pub responses: Vec<Ns>,
    /// For each request, from its arrival until a worker first ran it; [`Ns::MAX`] if none finished its first burst.
    pub waits: Vec<Ns>,
    /// For each worker, how long it held requests, waits for CPUs and delays included; of an event loop, how long it
    /// had something to run.
    pub worker_busy: Vec<Ns>,
    /// For each worker, how long it ran.
    pub worker_ran: Vec<Ns>,
    /// For each CPU, how long it ran threads.
    pub cpu_busy: Vec<Ns>,
    /// For each other thread, how long it ran.
    pub others_ran: Vec<Ns>,
    /// Requests without an answer: still waiting at the end, or dropped.
    pub unanswered: u64,
    /// Those of them that the steering policy dropped.
    pub dropped: u64,
    /// The simulated time.
    pub time: Ns,
}
