//! What a service must be.

use super::{Service, steering};
use heddle_core::{CpuSet, Ns};

/// Why a service cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// No CPUs, or too many.
    #[error("a host of {0} CPUs; expected 1 to {most}", most = CpuSet::CAPACITY)]
    Cpus(usize),
    /// A queue without workers: its requests would wait forever.
    #[error("queue {0} has no worker; expected at least one for each queue")]
    NoWorker(usize),
    /// No queue at all.
    #[error("no queues; expected at least 1")]
    NoQueue,
    /// A worker of a queue that does not exist.
    #[error("worker {worker} serves queue {queue}; expected one of {queues} queues, from 0")]
    NoSuchQueue {
        /// The worker.
        worker: usize,
        /// Its queue.
        queue: usize,
        /// How many queues there are.
        queues: usize,
    },
    /// A thread that may run on no CPU of the host.
    #[error("{0} may run on no CPU of this host")]
    Nowhere(Thread),
    /// A nice value that does not exist.
    #[error("{0} has nice {1}; expected -20 to 19")]
    Nice(Thread, i32),
    /// Another thread that neither sleeps nor runs.
    #[error("other thread {0} takes no time; expected bursts of which one sleeps or runs")]
    NoTime(usize),
    /// Requests out of order.
    #[error(
        "request {request} arrives at {at}, before the one above it, {previous}; expected requests in order"
    )]
    OutOfOrder {
        /// The request.
        request: usize,
        /// Its arrival.
        at: Ns,
        /// The arrival of the request before it.
        previous: Ns,
    },
    /// A request whose queue was not recorded, or does not exist.
    #[error("request {request} was recorded in {}; expected one of {queues} queues, from 0, or other steering",
        queue.map_or("no queue".into(), |queue| format!("queue {queue}")))]
    RecordedQueue {
        /// The request.
        request: usize,
        /// Its recorded queue.
        queue: Option<u32>,
        /// How many queues there are.
        queues: usize,
    },
    /// A closed loop without the time of an answer.
    #[error(
        "request {0} has no recorded answer, and another of its connection follows; a closed loop needs it"
    )]
    NoAnswer(usize),
    /// More requests than can be numbered.
    #[error("{0} requests; expected fewer than 2^32 - 1")]
    TooMany(usize),
    /// Restricted threads under a policy that cannot honour it.
    #[error(
        "`{policy}` has one queue for all CPUs, from which any CPU takes any thread, and {thread} may not run on all; \
         expected a policy with a queue per CPU, such as eevdf"
    )]
    Restricted {
        /// The policy's name.
        policy: &'static str,
        /// The first such thread.
        thread: Thread,
    },
}

/// A thread, in errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    /// A worker, from 0.
    Worker(usize),
    /// Another thread, from 0.
    Other(usize),
}

impl std::fmt::Display for Thread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Thread::Worker(i) => write!(f, "worker {i}"),
            Thread::Other(i) => write!(f, "other thread {i}"),
        }
    }
}

impl Thread {
    /// Returns the thread at `index` of all: workers first.
    pub fn at(index: usize, workers: usize) -> Thread {
        if index < workers { Thread::Worker(index) } else { Thread::Other(index - workers) }
    }
}

/// Returns what is wrong with `service`, if anything.
pub fn check(service: &Service<'_>) -> Result<(), ServiceError> {
    let Service { cpus, queues, .. } = *service;
    if !(1..=CpuSet::CAPACITY).contains(&cpus) {
        return Err(ServiceError::Cpus(cpus));
    }
    if queues == 0 {
        return Err(ServiceError::NoQueue);
    }
    threads(service)?;
    let mut served = vec![false; queues];
    for (worker, of) in service.workers.iter().enumerate() {
        let queue = of.queue;
        *served.get_mut(queue).ok_or(ServiceError::NoSuchQueue { worker, queue, queues })? = true;
    }
    if let Some(queue) = served.iter().position(|served| !served) {
        return Err(ServiceError::NoWorker(queue));
    }
    requests(service)
}

fn threads(service: &Service<'_>) -> Result<(), ServiceError> {
    let workers = service.workers.iter().map(|worker| (worker.nice, worker.cpus));
    let others = service.others.iter().map(|thread| (thread.nice, thread.cpus));
    let all = CpuSet::first(service.cpus);
    for (i, (nice, cpus)) in workers.chain(others).enumerate() {
        let thread = Thread::at(i, service.workers.len());
        if !(-20..=19).contains(&nice) {
            return Err(ServiceError::Nice(thread, nice));
        }
        if cpus.and(&all).is_empty() {
            return Err(ServiceError::Nowhere(thread));
        }
    }
    let idle = |bursts: &[(Ns, Ns)]| bursts.iter().all(|&(slept, ran)| slept + ran == Ns::ZERO);
    match service.others.iter().position(|thread| idle(&thread.bursts)) {
        Some(thread) => Err(ServiceError::NoTime(thread)),
        None => Ok(()),
    }
}

fn requests(service: &Service<'_>) -> Result<(), ServiceError> {
    let (queues, mut previous) = (service.queues, Ns::ZERO);
    if service.requests.len() >= u32::MAX as usize {
        return Err(ServiceError::TooMany(service.requests.len()));
    }
    for (request, of) in service.requests.iter().enumerate() {
        let at = of.arrival;
        if at < previous {
            return Err(ServiceError::OutOfOrder { request, at, previous });
        }
        previous = at;
        let queue = of.recorded_queue;
        if steering::is_recorded(service) && queue.is_none_or(|queue| queue as usize >= queues) {
            return Err(ServiceError::RecordedQueue { request, queue, queues });
        }
    }
    Ok(())
}
