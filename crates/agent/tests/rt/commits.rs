//! Transactions, and refusals.

use crate::support::{Testbed, Worker, mask, until, until_from};
use heddle_agent::Backend as _;
use heddle_agent::model::{Group, Kind, Outcome, Seq, State, Transaction};
use heddle_core::{CpuId, TaskId};
use heddle_sys::scheduling::{self, Class};

fn class(worker: &Worker) -> Class {
    scheduling::of(worker.tid).unwrap().class
}

/// Returns a spinning worker, parked.
fn spinning(testbed: &Testbed) -> (Worker, TaskId) {
    let worker = Worker::start();
    let thread = testbed.with(&worker);
    worker.spin();
    assert_eq!(testbed.next(worker.tid).kind, Kind::ThreadWakeup);
    (worker, thread)
}

#[test]
fn a_transaction_on_old_messages_fails_and_changes_nothing() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let (worker, thread) = spinning(&testbed);
    let word = testbed.rt.thread(thread);
    let right = Transaction::new(thread, worker.tid, CpuId(0), word.tseq);
    let aseq = testbed.rt.queue(word.queue).aseq;
    let wrong = [
        (Transaction { tseq: Some(Seq(word.tseq.0 - 1)), ..right }, Outcome::Stale),
        (Transaction { aseq: Some((word.queue, Seq(aseq.0 - 1))), ..right }, Outcome::AgentStale),
        (Transaction { tid: worker.tid + 1, ..right }, Outcome::NoThread),
        (Transaction { cpu: CpuId(1), ..right }, Outcome::Invalid),
        (Transaction { thread: TaskId(u32::MAX), ..right }, Outcome::Invalid),
    ];
    for (transaction, outcome) in wrong {
        assert_eq!(testbed.commit_one(transaction), outcome);
        assert_eq!((class(&worker), testbed.rt.thread(thread).state), (Class::Idle, State::Parked));
    }
    let (before, failed) = (testbed.rt.enclave(), wrong.len() as u64);
    assert_eq!((before.committed, before.failed), (0, failed));
    let fresh = Transaction { aseq: Some((word.queue, aseq)), ..right };
    assert_eq!(testbed.commit_one(fresh), Outcome::Committed);
    assert_eq!(testbed.rt.enclave().committed, 1);
}

#[test]
fn a_preempting_commit_gets_the_cpu_and_the_other_thread_a_message() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let ((first, one), (second, two)) = (spinning(&testbed), spinning(&testbed));
    assert_eq!(testbed.commit(one, 0), Outcome::Committed);
    until("the first runs", || testbed.rt.thread(one).state == State::OnCpu);
    let before = testbed.rt.thread(one).tseq;
    assert_eq!(testbed.commit(two, 0), Outcome::Committed);
    let preempted = testbed.next(first.tid);
    assert_eq!((preempted.kind, preempted.info), (Kind::ThreadPreempted, 0));
    assert_eq!(preempted.tseq, before.next());
    until("the second runs", || testbed.rt.thread(two).state == State::OnCpu);
    assert_eq!((class(&first), class(&second)), (Class::Idle, Class::Fifo));
    assert_eq!(testbed.rt.cpu(CpuId(0)).current, Some(two));
}

#[test]
fn best_effort_threads_run_as_ordinary_ones_behind_latency_critical_ones() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let ((best_effort, one), (hurried, two)) = (spinning(&testbed), spinning(&testbed));
    let word = testbed.rt.thread(one);
    let be = Transaction {
        class: heddle_core::Class::BE,
        ..Transaction::new(one, best_effort.tid, CpuId(0), word.tseq)
    };
    assert_eq!(testbed.commit_one(be), Outcome::Committed);
    assert_eq!(class(&best_effort), Class::Other);
    until_from(0, "it runs", || testbed.rt.thread(one).state == State::OnCpu);
    assert_eq!(testbed.commit(two, 0), Outcome::Committed);
    assert_eq!((class(&best_effort), class(&hurried)), (Class::Idle, Class::Fifo));
}

#[test]
fn without_preemption_a_commit_waits_latched_until_the_next_unlatches_it() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let ((first, one), (second, two), (third, three)) =
        (spinning(&testbed), spinning(&testbed), spinning(&testbed));
    assert_eq!(testbed.commit(one, 0), Outcome::Committed);
    until("the first runs", || testbed.rt.thread(one).state == State::OnCpu);
    let waits = |thread, worker: &Worker| Transaction {
        preempt: false,
        ..Transaction::new(thread, worker.tid, CpuId(0), testbed.rt.thread(thread).tseq)
    };
    assert_eq!(testbed.commit_one(waits(two, &second)), Outcome::Committed);
    let cpu = testbed.rt.cpu(CpuId(0));
    assert_eq!((cpu.current, cpu.latched), (Some(one), Some(two)));
    assert_eq!(testbed.rt.thread(two).state, State::Latched);
    assert_eq!(testbed.rt.recall(CpuId(0)), None, "nothing is taken back here");

    assert_eq!(testbed.commit_one(waits(three, &third)), Outcome::Committed);
    let unlatched = testbed.next(second.tid);
    assert_eq!((unlatched.kind, unlatched.info), (Kind::ThreadPreempted, 1));
    assert_eq!(class(&second), Class::Idle);
    assert_eq!(testbed.rt.cpu(CpuId(0)).latched, Some(three));
    first.rest();
    until("the third has the CPU", || testbed.rt.cpu(CpuId(0)).current == Some(three));
}

/// The kernel may refuse the second half when the first is done, so not even the first is tried.
#[test]
fn an_all_or_nothing_group_is_refused_and_changes_nothing() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let ((first, one), (second, two)) = (spinning(&testbed), spinning(&testbed));
    assert!(!testbed.rt.traits().groups);
    assert_eq!(testbed.commit(one, 0), Outcome::Committed);
    let of = |thread, worker: &Worker| {
        Transaction::new(thread, worker.tid, CpuId(0), testbed.rt.thread(thread).tseq)
    };
    let before = [one, two].map(|thread| testbed.rt.thread(thread).tseq);
    let all = [of(two, &second), of(one, &first)];
    for size in 1..=all.len() {
        let mut group = all[..size].to_vec();
        assert_eq!(testbed.rt.commit(&mut group, Group::AllOrNothing), 0);
        assert!(group.iter().all(|transaction| transaction.outcome == Outcome::Invalid));
        assert_eq!((class(&first), class(&second)), (Class::Fifo, Class::Idle));
        assert_eq!([one, two].map(|thread| testbed.rt.thread(thread).tseq), before);
    }
}

#[test]
fn a_cpu_is_taken_from_the_thread_that_has_it() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let (worker, thread) = spinning(&testbed);
    assert!(!testbed.rt.preempt(CpuId(0)), "a parked thread has no CPU");
    assert_eq!(testbed.commit(thread, 0), Outcome::Committed);
    until("it runs", || testbed.rt.thread(thread).state == State::OnCpu);
    assert!(testbed.rt.preempt(CpuId(0)));
    assert_eq!(testbed.next(worker.tid).kind, Kind::ThreadPreempted);
    assert_eq!((class(&worker), testbed.rt.thread(thread).state), (Class::Idle, State::Parked));
    assert!(!testbed.rt.preempt(CpuId(0)));
    assert!(!testbed.rt.preempt(CpuId(9)));
}

#[test]
fn a_thread_is_committed_where_it_may_run_and_moves_there() {
    let Some(testbed) = Testbed::on(&[0, 1]) else { return };
    let worker = Worker::start();
    scheduling::set_mask(worker.tid, &mask(&[1])).unwrap();
    let confined = testbed.with(&worker);
    worker.spin();
    assert_eq!(testbed.next(worker.tid).kind, Kind::ThreadWakeup);
    assert_eq!(testbed.commit(confined, 0), Outcome::Affinity);
    assert!(testbed.rt.affinity(confined).iter().eq([CpuId(1)]));
    assert_eq!(testbed.commit(confined, 1), Outcome::Committed);
    worker.rest();

    let (_free, thread) = spinning(&testbed);
    assert!(testbed.rt.affinity(thread).iter().eq([CpuId(0), CpuId(1)]));
    for cpu in [0, 1, 0] {
        assert_eq!(testbed.commit(thread, cpu), Outcome::Committed);
        let is_there = || testbed.rt.cpu(CpuId(cpu)).current == Some(thread);
        until_from(1 - u32::from(cpu), "it is there", is_there);
        assert!(testbed.rt.preempt(CpuId(cpu)));
    }
}

#[test]
fn a_group_is_carried_out_one_by_one() {
    let Some(testbed) = Testbed::on(&[0, 1]) else { return };
    let ((first, one), (second, two)) = (spinning(&testbed), spinning(&testbed));
    let of = |thread, worker: &Worker, cpu| {
        Transaction::new(thread, worker.tid, CpuId(cpu), testbed.rt.thread(thread).tseq)
    };
    let stale = Transaction { tseq: Some(Seq(0)), ..of(one, &first, 1) };
    let mut group = [of(one, &first, 0), stale, of(two, &second, 1)];
    assert_eq!(testbed.rt.commit(&mut group, Group::Each), 2);
    let outcomes = group.map(|transaction| transaction.outcome);
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Stale, Outcome::Committed]);
    // Where they are now cannot be checked: both preempt this thread, which may see only their end.
    let word = testbed.rt.enclave();
    assert_eq!((word.committed, word.failed), (2, 1));
}
