//! What the tests share.
#![allow(dead_code, missing_docs)]

use heddle_rt::{Runtime, RuntimeBuilder};

/// One of each policy, those that preempt with a short quantum.
pub const POLICIES: [&str; 5] = [
    "fifo",
    "round-robin:quantum=100us",
    "work-stealing",
    "work-stealing:quantum=100us",
    "two-queue:quantum=100us,long=500us",
];

/// A runtime with one worker.
pub fn runtime(policy: &str) -> Runtime {
    RuntimeBuilder::new().policy(policy).workers(1).build().unwrap()
}

/// A runtime with two workers, or one where there is only one CPU.
pub fn two_workers(policy: &str) -> Runtime {
    let cpus = std::thread::available_parallelism().unwrap().get().min(2);
    RuntimeBuilder::new().policy(policy).workers(cpus).build().unwrap()
}

/// Spins until `done` says so.
pub fn spin_until(done: impl Fn() -> bool) {
    while !done() {
        std::hint::spin_loop();
    }
}
