//! One receiver, many workers: the policy chooses the ring that a request goes into.
//!
//! ```text
//!  socket or ring -> receiver: Dispatcher::send -> policy -> ring of worker k -> Worker::next
//!                                                    ^                             |
//!                                                    '-- depth, sleeps, line k <---'
//! ```
//!
//! - **I1** Every ring is bounded; what does not fit is handed back to the receiver and counted.
//! - **I2** A ring has one sender, so what a worker gets is in the order in which it was sent.
//! - **I3** A worker counts as idle only while its ring is empty and it waits in [`Worker::next`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError, bounded};
use heddle_steer_abi::{Input, Lines, MAX_EXECUTORS, View};

use super::{Decision, NativePolicy, Random};

/// The outcome of sending a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent<T> {
    /// It waits for this worker.
    To(usize),
    /// The policy dropped it.
    Dropped(T),
    /// This worker's ring is full, or the worker is gone.
    Full(usize, T),
}

/// How many requests went where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests sent, per worker.
    pub sent: Vec<u64>,
    /// Requests that did not fit, per worker.
    pub full: Vec<u64>,
    /// Requests that the policy left to the default, the hash of the flow.
    pub passed: u64,
    /// Requests that the policy dropped.
    pub dropped: u64,
    /// Requests for which the policy returned an invalid index; they went by the hash.
    pub wrong: u64,
}

struct Ring<T> {
    sender: Sender<T>,
    sleeps: Arc<AtomicBool>,
}

/// What the policy sees of the workers.
struct Rings<T> {
    rings: Vec<Ring<T>>,
    begin: Instant,
    random: Random,
    cpu: u32,
}

impl<T> View for Rings<T> {
    fn executors(&self) -> u32 {
        self.rings.len() as u32
    }

    fn idle(&mut self, k: u32) -> bool {
        let ring = self.rings.get(k as usize);
        ring.is_some_and(|ring| ring.sender.is_empty() && ring.sleeps.load(Ordering::Relaxed))
    }

    fn queue_length(&mut self, k: u32) -> u32 {
        self.rings.get(k as usize).map_or(0, |ring| ring.sender.len() as u32)
    }

    fn now(&mut self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    fn random(&mut self) -> u32 {
        self.random.number()
    }

    fn cpu(&mut self) -> u32 {
        self.cpu
    }
}

/// The receiver's end.
pub struct Dispatcher<T> {
    policy: NativePolicy,
    rings: Rings<T>,
    counts: Counts,
}

/// A worker's end.
#[derive(Debug)]
pub struct Worker<T> {
    index: usize,
    receiver: Receiver<T>,
    sleeps: Arc<AtomicBool>,
    lines: Arc<Lines>,
}

impl<T> Dispatcher<T> {
    /// Creates a dispatcher and the ends of its `workers`, each with a ring for `depth` requests.
    ///
    /// # Panics
    /// If there are no workers, more than [`MAX_EXECUTORS`], or `depth` is 0.
    #[must_use]
    pub fn new(policy: NativePolicy, workers: usize, depth: usize) -> (Self, Vec<Worker<T>>) {
        assert!((1..=MAX_EXECUTORS).contains(&workers), "{workers} workers");
        assert!(depth > 0, "a ring for no request");
        let (mut rings, mut ends) = (Vec::new(), Vec::new());
        for index in 0..workers {
            let (sender, receiver) = bounded(depth);
            let sleeps = Arc::new(AtomicBool::new(false));
            rings.push(Ring { sender, sleeps: sleeps.clone() });
            ends.push(Worker { index, receiver, sleeps, lines: policy.lines().clone() });
        }
        let seed = std::process::id().into();
        let rings = Rings { rings, begin: Instant::now(), random: Random::new(seed), cpu: 0 };
        let none = vec![0; workers];
        let counts = Counts { sent: none.clone(), full: none, ..Counts::default() };
        (Self { policy, rings, counts }, ends)
    }

    /// Sends `request`; the policy sees `input`.
    pub fn send(&mut self, input: &mut Input, request: T) -> Sent<T> {
        self.rings.cpu = rustix::thread::sched_getcpu() as u32;
        let default = input.hash as usize % self.rings.rings.len();
        let to = match self.policy.decide(input, &mut self.rings) {
            Decision::Executor(index) => index,
            Decision::Drop => {
                self.counts.dropped += 1;
                return Sent::Dropped(request);
            }
            Decision::Pass => {
                self.counts.passed += 1;
                default
            }
            Decision::Wrong(_) => {
                self.counts.wrong += 1;
                default
            }
        };
        match self.rings.rings[to].sender.try_send(request) {
            Ok(()) => {
                self.counts.sent[to] += 1;
                Sent::To(to)
            }
            Err(TrySendError::Full(request) | TrySendError::Disconnected(request)) => {
                self.counts.full[to] += 1;
                Sent::Full(to, request)
            }
        }
    }

    /// Returns what was sent so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the policy, to open its maps.
    #[must_use]
    pub fn policy(&self) -> &NativePolicy {
        &self.policy
    }
}

impl<T> Worker<T> {
    /// Returns the worker's index.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the next request; sleeps until there is one. `None` when the dispatcher is gone and the ring
    /// is empty.
    #[must_use]
    pub fn next(&self) -> Option<T> {
        match self.receiver.try_recv() {
            Ok(request) => return Some(request),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => {}
        }
        self.sleeps.store(true, Ordering::Relaxed);
        let request = self.receiver.recv().ok();
        self.sleeps.store(false, Ordering::Relaxed);
        request
    }

    /// Marks the worker busy with a request of `class` for the policy; 0 means idle.
    pub fn mark(&self, class: u32) {
        self.lines[self.index].class.store(class, Ordering::Relaxed);
    }

    /// Sets the CPU that the policy sees it on.
    pub fn mark_cpu(&self, cpu: u32) {
        self.lines[self.index].cpu.store(cpu + 1, Ordering::Relaxed);
    }
}
