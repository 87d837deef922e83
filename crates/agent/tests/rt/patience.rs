//! Hung agents, and threads that an agent cannot help.

use crate::support::{Testbed, Worker, mask, until};
use heddle_agent::Backend as _;
use heddle_agent::model::{Outcome, Phase, State};
use heddle_core::Ns;
use heddle_sys::scheduling::{self, Scheduling};
use std::time::{Duration, Instant};

const PATIENCE: Ns = Ns::from_ms(200);

/// After four times the patience the enclave is as before.
fn stays(testbed: &Testbed) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(800) {
        testbed.rt.check_patience();
        assert_eq!(testbed.rt.enclave().phase, Phase::Active);
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_agent_that_leaves_a_thread_waiting_loses_its_enclave_when_patience_ends() {
    let Some(testbed) = Testbed::with_patience(&[1], Some(PATIENCE)) else { return };
    let worker = Worker::start();
    let thread = testbed.with(&worker);
    stays(&testbed);
    worker.spin();
    testbed.next(worker.tid);
    // It runs at SCHED_IDLE if the CPU is idle; that does not count.
    until("patience ends", || {
        testbed.rt.check_patience();
        testbed.rt.enclave().phase == Phase::Orphan
    });
    assert_eq!(testbed.rt.thread(thread).state, State::Parked);
    assert_eq!(testbed.commit(thread, 0), Outcome::NotYours);
    assert!(testbed.rt.attach().is_err());
    assert_eq!(testbed.rt.give_back().unwrap(), 1);
    assert_eq!(scheduling::of(worker.tid).unwrap(), Scheduling::ORDINARY);
}

#[test]
fn without_patience_an_agent_may_take_its_time() {
    let Some(testbed) = Testbed::with_patience(&[1], None) else { return };
    let worker = Worker::start();
    testbed.with(&worker);
    worker.spin();
    testbed.next(worker.tid);
    stays(&testbed);
}

/// Any member may go where no agent can commit it.
#[test]
fn a_thread_that_goes_to_other_cpus_ends_no_enclave() {
    let Some(testbed) = Testbed::with_patience(&[1], Some(PATIENCE)) else { return };
    let worker = Worker::start();
    let thread = testbed.with(&worker);
    scheduling::set_mask(worker.tid, &mask(&[0])).unwrap();
    worker.spin();
    until("it is seen", || testbed.rt.affinity(thread) == Default::default());
    stays(&testbed);
}
