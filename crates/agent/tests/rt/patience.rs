//! Agents that hang, and threads for which an agent can do nothing.

use crate::support::{Bench, Worker, mask, until};
use heddle_agent::Backend as _;
use heddle_agent::model::{Outcome, Phase, State};
use heddle_core::Ns;
use heddle_sys::scheduling::{self, Scheduling};
use std::time::{Duration, Instant};

const PATIENCE: Ns = Ns::from_ms(200);

/// Four times the patience passes, and the enclave is as before.
fn stays(bench: &Bench) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(800) {
        bench.rt.look();
        assert_eq!(bench.rt.enclave().phase, Phase::Active);
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_agent_that_leaves_a_thread_waiting_loses_its_enclave_when_patience_ends() {
    let Some(bench) = Bench::with_patience(&[1], Some(PATIENCE)) else { return };
    let worker = Worker::start();
    let thread = bench.with(&worker);
    stays(&bench);
    worker.spin();
    bench.next(worker.tid);
    // It runs at SCHED_IDLE where the CPU is idle; that is no excuse.
    until("patience ends", || {
        bench.rt.look();
        bench.rt.enclave().phase == Phase::Orphan
    });
    assert_eq!(bench.rt.thread(thread).state, State::Parked);
    assert_eq!(bench.commit(thread, 0), Outcome::NotYours);
    assert!(bench.rt.attach().is_err());
    assert_eq!(bench.rt.give_back().unwrap(), 1);
    assert_eq!(scheduling::of(worker.tid).unwrap(), Scheduling::ORDINARY);
}

#[test]
fn without_patience_an_agent_may_take_its_time() {
    let Some(bench) = Bench::with_patience(&[1], None) else { return };
    let worker = Worker::start();
    bench.with(&worker);
    worker.spin();
    bench.next(worker.tid);
    stays(&bench);
}

/// Any member may go where no agent can commit it.
#[test]
fn a_thread_that_goes_to_other_cpus_ends_nobodys_enclave() {
    let Some(bench) = Bench::with_patience(&[1], Some(PATIENCE)) else { return };
    let worker = Worker::start();
    let thread = bench.with(&worker);
    scheduling::set_mask(worker.tid, &mask(&[0])).unwrap();
    worker.spin();
    until("it is seen", || bench.rt.affinity(thread) == Default::default());
    stays(&bench);
}
