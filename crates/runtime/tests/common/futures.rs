//! What the tests of async tasks share.

use heddle_rt::{Runtime, RuntimeBuilder};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Policies of each kind: with and without a quantum, a queue for each CPU and a central one.
pub const POLICIES: [&str; 5] = [
    "work-stealing",
    "fifo",
    "two-queue:quantum=100us",
    "round-robin:quantum=20us",
    "shinjuku-shenango:quantum=50us",
];

pub fn runtime(policy: &str, workers: usize) -> Runtime {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    RuntimeBuilder::new().policy(policy).workers(workers.min(cpus)).build().unwrap()
}

/// Runs `test` under each policy with one and with two workers.
pub fn with_each(test: impl Fn(&Runtime)) {
    for policy in POLICIES {
        for workers in [1, 2] {
            test(&runtime(policy, workers));
        }
    }
}

/// Counts its drops.
pub struct Counted(pub Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
