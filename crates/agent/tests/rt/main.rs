//! The real-time backend against the real kernel. Needs root; says so where it is missing.

mod support;

use heddle_agent::Backend as _;
use heddle_agent::model::{Kind, Occupant, Outcome, Seq, State};
use heddle_core::CpuId;
use heddle_sys::scheduling::{self, Class, Scheduling};
use support::{Bench, Worker, until};

#[test]
fn a_thread_sleeps_wakes_runs_and_sleeps_again() {
    let Some(bench) = Bench::on(&[1]) else { return };
    let worker = Worker::start();
    let thread = bench.with(&worker);
    assert_eq!(bench.rt.thread(thread).state, State::Blocked);
    assert_eq!(scheduling::of(worker.tid).unwrap(), Scheduling::IDLE);
    assert_eq!(bench.commit(thread, 0), Outcome::NotRunnable);

    worker.spin();
    let woken = bench.next(worker.tid);
    assert_eq!((woken.kind, woken.tseq), (Kind::ThreadWakeup, Seq(2)));
    assert_eq!(bench.commit(thread, 0), Outcome::Committed);
    assert_eq!(scheduling::of(worker.tid).unwrap(), Scheduling::fifo(1));
    until("it runs", || bench.rt.thread(thread).state == State::OnCpu);
    let cpu = bench.rt.cpu(CpuId(0));
    assert_eq!((cpu.occupant, cpu.current, cpu.latched), (Occupant::Managed, Some(thread), None));

    worker.rest();
    let blocked = bench.next(worker.tid);
    assert_eq!((blocked.kind, blocked.tseq), (Kind::ThreadBlocked, Seq(3)));
    assert_eq!(scheduling::of(worker.tid).unwrap().class, Class::Idle, "its turn is over");
    assert_eq!(bench.rt.thread(thread).state, State::Blocked);
    assert_eq!(bench.rt.cpu(CpuId(0)).current, None);
}
