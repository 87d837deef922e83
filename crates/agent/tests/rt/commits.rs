//! Transactions, and what is refused.

use crate::support::{Bench, Worker, mask, until, until_from};
use heddle_agent::Backend as _;
use heddle_agent::model::{Group, Kind, Outcome, Seq, State, Transaction};
use heddle_core::{CpuId, TaskId};
use heddle_sys::scheduling::{self, Class};

fn class(worker: &Worker) -> Class {
    scheduling::of(worker.tid).unwrap().class
}

/// A worker that spins, parked.
fn spinning(bench: &Bench) -> (Worker, TaskId) {
    let worker = Worker::start();
    let thread = bench.with(&worker);
    worker.spin();
    assert_eq!(bench.next(worker.tid).kind, Kind::ThreadWakeup);
    (worker, thread)
}

#[test]
fn what_rests_on_old_news_fails_and_changes_nothing() {
    let Some(bench) = Bench::on(&[1]) else { return };
    let (worker, thread) = spinning(&bench);
    let word = bench.rt.thread(thread);
    let right = Transaction::new(thread, worker.tid, CpuId(0), word.tseq);
    let aseq = bench.rt.queue(word.queue).aseq;
    let wrong = [
        (Transaction { tseq: Some(Seq(word.tseq.0 - 1)), ..right }, Outcome::Stale),
        (Transaction { aseq: Some((word.queue, Seq(aseq.0 - 1))), ..right }, Outcome::AgentStale),
        (Transaction { tid: worker.tid + 1, ..right }, Outcome::NoThread),
        (Transaction { cpu: CpuId(1), ..right }, Outcome::Invalid),
        (Transaction { thread: TaskId(u32::MAX), ..right }, Outcome::Invalid),
    ];
    for (transaction, outcome) in wrong {
        assert_eq!(bench.commit_one(transaction), outcome);
        assert_eq!((class(&worker), bench.rt.thread(thread).state), (Class::Idle, State::Parked));
    }
    let (before, failed) = (bench.rt.enclave(), wrong.len() as u64);
    assert_eq!((before.committed, before.failed), (0, failed));
    let fresh = Transaction { aseq: Some((word.queue, aseq)), ..right };
    assert_eq!(bench.commit_one(fresh), Outcome::Committed);
    assert_eq!(bench.rt.enclave().committed, 1);
}

#[test]
fn who_preempts_gets_the_cpu_and_the_other_hears_of_it() {
    let Some(bench) = Bench::on(&[1]) else { return };
    let ((first, one), (second, two)) = (spinning(&bench), spinning(&bench));
    assert_eq!(bench.commit(one, 0), Outcome::Committed);
    until("the first runs", || bench.rt.thread(one).state == State::OnCpu);
    let before = bench.rt.thread(one).tseq;
    assert_eq!(bench.commit(two, 0), Outcome::Committed);
    let preempted = bench.next(first.tid);
    assert_eq!((preempted.kind, preempted.info), (Kind::ThreadPreempted, 0));
    assert_eq!(preempted.tseq, before.next());
    until("the second runs", || bench.rt.thread(two).state == State::OnCpu);
    assert_eq!((class(&first), class(&second)), (Class::Idle, Class::Fifo));
    assert_eq!(bench.rt.cpu(CpuId(0)).current, Some(two));
}

#[test]
fn best_effort_threads_run_as_ordinary_ones_behind_those_in_a_hurry() {
    let Some(bench) = Bench::on(&[1]) else { return };
    let ((best_effort, one), (hurried, two)) = (spinning(&bench), spinning(&bench));
    let word = bench.rt.thread(one);
    let be = Transaction {
        class: heddle_core::Class::BE,
        ..Transaction::new(one, best_effort.tid, CpuId(0), word.tseq)
    };
    assert_eq!(bench.commit_one(be), Outcome::Committed);
    assert_eq!(class(&best_effort), Class::Other);
    until_from(0, "it runs", || bench.rt.thread(one).state == State::OnCpu);
    assert_eq!(bench.commit(two, 0), Outcome::Committed);
    assert_eq!((class(&best_effort), class(&hurried)), (Class::Idle, Class::Fifo));
}

#[test]
fn who_does_not_preempt_waits_latched_and_is_unlatched_by_the_next() {
    let Some(bench) = Bench::on(&[1]) else { return };
    let ((first, one), (second, two), (third, three)) =
        (spinning(&bench), spinning(&bench), spinning(&bench));
    assert_eq!(bench.commit(one, 0), Outcome::Committed);
    until("the first runs", || bench.rt.thread(one).state == State::OnCpu);
    let waits = |thread, worker: &Worker| Transaction {
        preempt: false,
        ..Transaction::new(thread, worker.tid, CpuId(0), bench.rt.thread(thread).tseq)
    };
    assert_eq!(bench.commit_one(waits(two, &second)), Outcome::Committed);
    let cpu = bench.rt.cpu(CpuId(0));
    assert_eq!((cpu.current, cpu.latched), (Some(one), Some(two)));
    assert_eq!(bench.rt.thread(two).state, State::Latched);
    assert_eq!(bench.rt.recall(CpuId(0)), None, "nothing is taken back here");

    assert_eq!(bench.commit_one(waits(three, &third)), Outcome::Committed);
    let unlatched = bench.next(second.tid);
    assert_eq!((unlatched.kind, unlatched.info), (Kind::ThreadPreempted, 1));
    assert_eq!(class(&second), Class::Idle);
    assert_eq!(bench.rt.cpu(CpuId(0)).latched, Some(three));
    first.rest();
    until("the third has the CPU", || bench.rt.cpu(CpuId(0)).current == Some(three));
}

/// The kernel may refuse the second half when the first is done, so there is not even a first.
#[test]
fn a_group_of_all_or_nothing_is_refused_and_changes_nothing() {
    let Some(bench) = Bench::on(&[1]) else { return };
    let ((first, one), (second, two)) = (spinning(&bench), spinning(&bench));
    assert!(!bench.rt.traits().groups);
    assert_eq!(bench.commit(one, 0), Outcome::Committed);
    let of = |thread, worker: &Worker| {
        Transaction::new(thread, worker.tid, CpuId(0), bench.rt.thread(thread).tseq)
    };
    let before = [one, two].map(|thread| bench.rt.thread(thread).tseq);
    let all = [of(two, &second), of(one, &first)];
    for size in 1..=all.len() {
        let mut group = all[..size].to_vec();
        assert_eq!(bench.rt.commit(&mut group, Group::AllOrNothing), 0);
        assert!(group.iter().all(|transaction| transaction.outcome == Outcome::Invalid));
        assert_eq!((class(&first), class(&second)), (Class::Fifo, Class::Idle));
        assert_eq!([one, two].map(|thread| bench.rt.thread(thread).tseq), before);
    }
}

#[test]
fn a_cpu_is_taken_from_the_thread_that_has_it() {
    let Some(bench) = Bench::on(&[1]) else { return };
    let (worker, thread) = spinning(&bench);
    assert!(!bench.rt.preempt(CpuId(0)), "a parked thread has no CPU");
    assert_eq!(bench.commit(thread, 0), Outcome::Committed);
    until("it runs", || bench.rt.thread(thread).state == State::OnCpu);
    assert!(bench.rt.preempt(CpuId(0)));
    assert_eq!(bench.next(worker.tid).kind, Kind::ThreadPreempted);
    assert_eq!((class(&worker), bench.rt.thread(thread).state), (Class::Idle, State::Parked));
    assert!(!bench.rt.preempt(CpuId(0)));
    assert!(!bench.rt.preempt(CpuId(9)));
}

#[test]
fn a_thread_is_committed_where_it_may_run_and_moves_there() {
    let Some(bench) = Bench::on(&[0, 1]) else { return };
    let worker = Worker::start();
    scheduling::set_mask(worker.tid, &mask(&[1])).unwrap();
    let confined = bench.with(&worker);
    worker.spin();
    assert_eq!(bench.next(worker.tid).kind, Kind::ThreadWakeup);
    assert_eq!(bench.commit(confined, 0), Outcome::Affinity);
    assert!(bench.rt.affinity(confined).iter().eq([CpuId(1)]));
    assert_eq!(bench.commit(confined, 1), Outcome::Committed);
    worker.rest();

    let (_free, thread) = spinning(&bench);
    assert!(bench.rt.affinity(thread).iter().eq([CpuId(0), CpuId(1)]));
    for cpu in [0, 1, 0] {
        assert_eq!(bench.commit(thread, cpu), Outcome::Committed);
        let is_there = || bench.rt.cpu(CpuId(cpu)).current == Some(thread);
        until_from(1 - u32::from(cpu), "it is there", is_there);
        assert!(bench.rt.preempt(CpuId(cpu)));
    }
}

#[test]
fn a_group_is_carried_out_one_by_one() {
    let Some(bench) = Bench::on(&[0, 1]) else { return };
    let ((first, one), (second, two)) = (spinning(&bench), spinning(&bench));
    let of = |thread, worker: &Worker, cpu| {
        Transaction::new(thread, worker.tid, CpuId(cpu), bench.rt.thread(thread).tseq)
    };
    let stale = Transaction { tseq: Some(Seq(0)), ..of(one, &first, 1) };
    let mut group = [of(one, &first, 0), stale, of(two, &second, 1)];
    assert_eq!(bench.rt.commit(&mut group, Group::Each), 2);
    let outcomes = group.map(|transaction| transaction.outcome);
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Stale, Outcome::Committed]);
    // Where they are now cannot be asked: both are in front of this thread, which may see no more than their end.
    let word = bench.rt.enclave();
    assert_eq!((word.committed, word.failed), (2, 1));
}
