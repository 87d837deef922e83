//! The life of threads, and its messages.

use crate::support::{CHILD, Testbed, Worker, until};
use heddle_agent::Backend as _;
use heddle_agent::model::{CpuOccupant, Kind, Outcome, Seq, State, Transaction};
use heddle_core::CpuId;
use heddle_sys::scheduling::{self, Class, Scheduling};
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn a_thread_sleeps_wakes_runs_and_sleeps_again() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let worker = Worker::start();
    let thread = testbed.with(&worker);
    assert_eq!(testbed.rt.thread(thread).state, State::Blocked);
    assert_eq!(scheduling::of(worker.tid).unwrap(), Scheduling::IDLE);
    assert_eq!(testbed.commit(thread, 0), Outcome::NotRunnable);

    worker.spin();
    let woken = testbed.next(worker.tid);
    assert_eq!((woken.kind, woken.tseq), (Kind::ThreadWakeup, Seq(2)));
    assert_eq!(testbed.commit(thread, 0), Outcome::Committed);
    assert_eq!(scheduling::of(worker.tid).unwrap(), Scheduling::fifo(1));
    until("it runs", || testbed.rt.thread(thread).state == State::OnCpu);
    let cpu = testbed.rt.cpu(CpuId(0));
    assert_eq!(
        (cpu.occupant, cpu.current, cpu.latched),
        (CpuOccupant::Managed, Some(thread), None)
    );
    assert_eq!(testbed.commit(thread, 0), Outcome::OnCpu);

    worker.rest();
    let blocked = testbed.next(worker.tid);
    assert_eq!((blocked.kind, blocked.tseq), (Kind::ThreadBlocked, Seq(3)));
    assert_eq!(scheduling::of(worker.tid).unwrap().class, Class::Idle, "its turn is over");
    assert_eq!(testbed.rt.thread(thread).state, State::Blocked);
    assert_eq!(testbed.rt.cpu(CpuId(0)).current, None);
    assert!(testbed.rt.thread(thread).runtime.0 > 0);
}

#[test]
fn a_parked_thread_runs_on_an_idle_cpu_which_counts_as_idle() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let worker = Worker::start();
    let thread = testbed.with(&worker);
    worker.spin();
    assert_eq!(testbed.next(worker.tid).kind, Kind::ThreadWakeup);
    until("it runs all the same", || worker.spins.load(Relaxed));
    assert_eq!(testbed.rt.thread(thread).state, State::Parked);
    let cpu = testbed.rt.cpu(CpuId(0));
    assert_eq!((cpu.current, cpu.latched), (None, None));
    assert_ne!(cpu.occupant, CpuOccupant::Managed);
    worker.rest();
    assert_eq!(testbed.next(worker.tid).kind, Kind::ThreadBlocked);
}

#[test]
fn a_thread_of_an_offline_cpu_is_parked_and_none_is_committed_there() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let worker = Worker::start();
    let thread = testbed.with(&worker);
    worker.spin();
    testbed.next(worker.tid);
    assert_eq!(testbed.commit(thread, 0), Outcome::Committed);
    until("it runs", || testbed.rt.thread(thread).state == State::OnCpu);
    testbed.rt.set_online(&[0, 1].into());
    assert_eq!((testbed.rt.cpu(CpuId(0)).current, testbed.drain()), (Some(thread), vec![]));
    for _ in 0..2 {
        testbed.rt.set_online(&[0].into());
        assert!(!testbed.rt.cpu(CpuId(0)).online);
    }
    let preempted = testbed.next(worker.tid);
    assert_eq!((preempted.kind, preempted.tseq), (Kind::ThreadPreempted, Seq(3)), "once");
    assert_eq!(testbed.rt.thread(thread).state, State::Parked);
    assert_eq!(scheduling::of(worker.tid).unwrap(), Scheduling::IDLE);
    assert_eq!(testbed.commit(thread, 0), Outcome::CpuOffline);
    testbed.rt.set_online(&[0, 1].into());
    assert_eq!(testbed.commit(thread, 0), Outcome::Committed);
    worker.rest();
}

#[test]
fn a_thread_that_ends_is_dead_and_its_slot_free() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let mut worker = Worker::start();
    let thread = testbed.with(&worker);
    assert_eq!(testbed.rt.enclave().threads, 1);
    worker.end();
    let dead = testbed.expect(|message| message.kind == Kind::ThreadDead);
    assert_eq!((dead.tid, dead.thread), (worker.tid, thread));
    assert_eq!(testbed.rt.thread(thread).state, State::Free);
    assert_eq!((testbed.rt.threads(), testbed.rt.enclave().threads), (vec![], 0));
    let transaction = Transaction::new(thread, worker.tid, CpuId(0), dead.tseq);
    assert_eq!(testbed.commit_one(transaction), Outcome::NoThread);
}

#[test]
fn a_child_is_managed_and_parked_and_never_real_time() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let worker = Worker::start();
    scheduling::set_nice(worker.tid, -3).unwrap();
    let thread = testbed.with(&worker);
    worker.order(b'c');
    let woken = testbed.next(worker.tid);
    // Committed or not, it may have made its child already; the result for the child is the same.
    let word = testbed.rt.thread(thread);
    let _ = testbed.commit_one(Transaction::new(thread, worker.tid, CpuId(0), word.tseq));
    assert_eq!(woken.kind, Kind::ThreadWakeup);
    let created = testbed.expect(|message| message.kind == Kind::ThreadCreated);
    assert_ne!(created.tid, worker.tid);
    assert_eq!(created.info, 1, "it can run");
    assert_eq!(scheduling::of(created.tid).unwrap(), Scheduling::IDLE);
    assert_eq!(scheduling::nice(created.tid).unwrap(), -3, "its parent's");
    until("it has said who it is", || CHILD.load(Relaxed) == created.tid);
    assert_eq!(testbed.rt.thread(created.thread).tid, created.tid);
    CHILD.store(0, Relaxed);
    assert_eq!(
        testbed.expect(|m| m.tid == created.tid && m.kind == Kind::ThreadDead).thread,
        created.thread
    );
}

#[test]
fn a_yield_sends_no_message_and_costs_a_thread_nothing() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let worker = Worker::start();
    testbed.with(&worker);
    worker.order(b'y');
    assert_eq!(testbed.next(worker.tid).kind, Kind::ThreadWakeup);
    assert_eq!(testbed.next(worker.tid).kind, Kind::ThreadBlocked);
}

#[test]
fn a_thread_is_in_one_enclave_once() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let worker = Worker::start();
    testbed.with(&worker);
    testbed.rt.join(worker.tid).unwrap();
    assert_eq!(testbed.rt.enclave().threads, 1);
    let other = crate::support::create(&[0]);
    let error = other.join(worker.tid).unwrap_err().to_string();
    assert!(error.contains(testbed.rt.name()), "{error}");
    assert!(other.join(u32::MAX / 2).unwrap_err().to_string().contains("there is no thread"));
}
