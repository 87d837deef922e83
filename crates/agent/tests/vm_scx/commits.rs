//! Transactions and what comes of them.

use super::bench::{Bench, Holder, Worker, expect, until};
use heddle_agent::Backend as _;
use heddle_agent::model::{Group, Kind, Outcome, Seq, State, Transaction};
use heddle_core::{CpuId, TaskId};

#[test]
fn a_thread_that_opts_in_is_parked_and_runs_when_it_is_committed() {
    let Some(bench) = Bench::new("park", &[1]) else { return };
    let worker = Worker::spinning();
    bench.scx.join(worker.tid).unwrap();
    let created = expect(&bench.scx, Kind::ThreadCreated);
    assert_eq!((created.tid, created.info), (worker.tid, 1));
    assert_eq!(bench.state(created.thread), State::Parked);
    assert!(worker.stands_still(), "a parked thread runs");

    assert_eq!(
        bench.try_one(Transaction::new(created.thread, created.tid, CpuId(0), created.tseq)),
        Outcome::Committed
    );
    bench.run(created.thread, 0, &worker);
    assert_eq!(bench.scx.cpu(CpuId(0)).current, Some(created.thread));
    assert!(bench.scx.enclave().committed >= 1);
}

#[test]
fn what_rests_on_old_news_fails() {
    let Some(bench) = Bench::new("stale", &[1]) else { return };
    let worker = Worker::spinning();
    let task = bench.join(&worker);
    let good = bench.txn(task, 0);
    let old = Seq(good.tseq.unwrap().0 - 1);
    let queue = bench.scx.default_queue();
    let aseq = bench.scx.queue(queue).aseq;

    assert_eq!(bench.try_one(Transaction { tseq: Some(old), ..good }), Outcome::Stale);
    assert_eq!(
        bench.try_one(Transaction { aseq: Some((queue, Seq(aseq.0 - 1))), ..good }),
        Outcome::AgentStale
    );
    assert_eq!(bench.try_one(Transaction { tid: good.tid + 1, ..good }), Outcome::NoThread);
    assert_eq!(bench.try_one(Transaction { thread: TaskId(16_000), ..good }), Outcome::NoThread);
    assert_eq!(bench.try_one(Transaction { thread: TaskId(1 << 20), ..good }), Outcome::Invalid);
    assert_eq!(bench.try_one(Transaction { cpu: CpuId(9), ..good }), Outcome::Invalid);
    assert_eq!(bench.state(task), State::Parked);
    bench.is_silent();
    assert_eq!(bench.scx.enclave().failed, 6);

    assert_eq!(
        bench.try_one(Transaction { aseq: Some((queue, aseq)), ..good }),
        Outcome::Committed
    );
    bench.run(task, 0, &worker);
    assert_eq!(bench.try_one(bench.txn(task, 0)), Outcome::OnCpu);
}

#[test]
fn only_the_agent_that_is_attached_may_commit() {
    let Some(bench) = Bench::new("detached", &[1]) else { return };
    let worker = Worker::spinning();
    let task = bench.join(&worker);
    bench.scx.detach();
    assert_eq!(bench.try_one(bench.txn(task, 0)), Outcome::NotYours);
    assert!(worker.stands_still());
    bench.scx.attach().unwrap();
    bench.scx.attach().unwrap_err();
    bench.run(task, 0, &worker);
    assert_eq!(bench.scx.enclave().generation, 2);
}

#[test]
fn a_thread_goes_only_where_it_may_run() {
    let Some(bench) = Bench::new("affinity", &[1, 2]) else { return };
    let worker = Worker::spinning();
    worker.pin(2);
    let task = bench.join(&worker);
    assert_eq!(bench.scx.affinity(task).iter().collect::<Vec<_>>(), [CpuId(1)]);
    assert_eq!(bench.try_one(bench.txn(task, 0)), Outcome::Affinity);
    bench.run(task, 1, &worker);
    assert_eq!(bench.scx.cpu(CpuId(1)).current, Some(task));

    worker.pin(1);
    expect(&bench.scx, Kind::ThreadAffinity);
    until("it has left the CPU", || bench.state(task) == State::Parked);
    assert_eq!(bench.scx.affinity(task).iter().collect::<Vec<_>>(), [CpuId(0)]);
}

#[test]
fn a_second_commit_to_a_cpu_unlatches_the_first_and_a_latched_thread_can_be_recalled() {
    let Some(bench) = Bench::new("latch", &[1]) else { return };
    let (one, two) = (Worker::spinning(), Worker::spinning());
    let (first, second) = (bench.join(&one), bench.join(&two));
    let holder = Holder::realtime(1);
    bench.commit(first, 0);
    assert_eq!(bench.scx.cpu(CpuId(0)).latched, Some(first));
    assert_eq!(bench.state(first), State::Latched);

    bench.commit(second, 0);
    let message = expect(&bench.scx, Kind::ThreadPreempted);
    assert_eq!((message.thread, message.info), (first, 1));
    assert_eq!((bench.state(first), bench.state(second)), (State::Parked, State::Latched));

    assert_eq!(bench.scx.recall(CpuId(0)), Some(second));
    let message = expect(&bench.scx, Kind::ThreadPreempted);
    assert_eq!((message.thread, message.info), (second, 1));
    assert_eq!(bench.scx.cpu(CpuId(0)).latched, None);
    assert_eq!(bench.scx.recall(CpuId(0)), None);

    bench.commit(first, 0);
    let before = bench.ran(first, &one);
    drop(holder);
    bench.runs_since(first, &one, before);
    assert!(two.stands_still());
}

#[test]
fn a_commit_straight_to_the_cpu_cannot_be_recalled() {
    let Some(bench) = Bench::new("direct", &[1]) else { return };
    let (one, two) = (Worker::spinning(), Worker::spinning());
    let (first, second) = (bench.join(&one), bench.join(&two));
    let holder = Holder::realtime(1);
    assert_eq!(
        bench.try_one(Transaction { direct: true, ..bench.txn(first, 0) }),
        Outcome::Committed
    );
    assert_eq!(bench.scx.recall(CpuId(0)), None);
    assert_eq!(bench.try_one(bench.txn(second, 0)), Outcome::Again);
    let before = bench.ran(first, &one);
    drop(holder);
    bench.runs_since(first, &one, before);
    // Straight to a CPU that a managed thread has.
    bench.run(first, 0, &one);
    let before = bench.ran(second, &two);
    assert_eq!(
        bench.try_one(Transaction { direct: true, ..bench.txn(second, 0) }),
        Outcome::Committed
    );
    bench.runs_since(second, &two, before);
    assert_eq!(expect(&bench.scx, Kind::ThreadPreempted).thread, first);
}

#[test]
fn a_running_thread_makes_way() {
    let Some(bench) = Bench::new("preempt", &[1]) else { return };
    let (one, two) = (Worker::spinning(), Worker::spinning());
    let (first, second) = (bench.join(&one), bench.join(&two));
    bench.run(first, 0, &one);
    // Without taking the CPU the second waits; should the kernel's own threads interrupt the first, it is its turn.
    until("the second has waited", || {
        bench.run(first, 0, &one);
        let behind = Transaction { preempt: false, ..bench.txn(second, 0) };
        let waits = bench.try_one(behind).is_committed() && two.stands_still();
        let recalled = bench.scx.recall(CpuId(0)) == Some(second);
        if !recalled {
            bench.park(second, 0);
        }
        while bench.scx.next(bench.scx.default_queue()).is_some() {}
        waits && recalled
    });

    let before = bench.ran(second, &two);
    bench.commit(second, 0);
    bench.runs_since(second, &two, before);
    let message = expect(&bench.scx, Kind::ThreadPreempted);
    assert_eq!((message.thread, message.info), (first, 0));
    assert!(one.stands_still());

    bench.run(second, 0, &two);
    assert!(bench.scx.preempt(CpuId(0)));
    let message = expect(&bench.scx, Kind::ThreadPreempted);
    assert_eq!((message.thread, message.info), (second, 0));
    assert!(two.stands_still());
    assert!(!bench.scx.preempt(CpuId(0)));
    assert!(bench.scx.thread(second).runtime.0 > 0);
}

#[test]
fn a_slice_ends() {
    let Some(bench) = Bench::new("slice", &[1]) else { return };
    let worker = Worker::spinning();
    let task = bench.join(&worker);
    let slice = Some(heddle_core::Ns(5_000_000));
    assert_eq!(bench.try_one(Transaction { slice, ..bench.txn(task, 0) }), Outcome::Committed);
    assert_eq!(expect(&bench.scx, Kind::ThreadPreempted).thread, task);
    assert_eq!(bench.state(task), State::Parked);
}

#[test]
fn ordinary_threads_come_first() {
    let Some(bench) = Bench::new("above", &[1]) else { return };
    let worker = Worker::spinning();
    let task = bench.join(&worker);
    bench.run(task, 0, &worker);

    let holder = Holder::ordinary(1);
    let message = expect(&bench.scx, Kind::ThreadPreempted);
    assert_eq!((message.thread, message.info), (task, 0));
    until("the word says who has the CPU", || {
        bench.scx.cpu(CpuId(0)).occupant == heddle_agent::model::Occupant::Ordinary
    });
    assert_eq!(
        bench.try_one(Transaction { only_free: true, ..bench.txn(task, 0) }),
        Outcome::CpuBusy
    );
    bench.commit(task, 0);
    holder.moves();
    let before = bench.ran(task, &worker);
    drop(holder);
    bench.runs_since(task, &worker, before);
}

#[test]
fn a_realtime_thread_comes_first() {
    let Some(bench) = Bench::new("realtime", &[1]) else { return };
    let worker = Worker::spinning();
    let task = bench.join(&worker);
    let holder = Holder::realtime(1);
    until("the word says who has the CPU", || {
        bench.scx.cpu(CpuId(0)).occupant == heddle_agent::model::Occupant::Realtime
    });
    assert_eq!(
        bench.try_one(Transaction { only_free: true, ..bench.txn(task, 0) }),
        Outcome::CpuBusy
    );
    bench.commit(task, 0);
    assert!(worker.stands_still());
    let before = bench.ran(task, &worker);
    drop(holder);
    bench.runs_since(task, &worker, before);
}

#[test]
fn a_group_is_committed_as_one_or_not_at_all() {
    let Some(bench) = Bench::new("group", &[1, 2]) else { return };
    let (one, two) = (Worker::spinning(), Worker::spinning());
    let (first, second) = (bench.join(&one), bench.join(&two));
    let stale = Transaction { tseq: Some(Seq(0)), ..bench.txn(second, 1) };
    let mut group = [bench.txn(first, 0), stale];
    assert_eq!(bench.scx.commit(&mut group, Group::AllOrNothing), 0);
    assert_eq!((group[0].outcome, group[1].outcome), (Outcome::Poisoned, Outcome::Stale));
    assert_eq!((bench.state(first), bench.state(second)), (State::Parked, State::Parked));
    assert!(one.stands_still());
    bench.is_silent();
    assert_eq!(bench.scx.cpu(CpuId(0)).latched, None);

    // Two of one group cannot have one CPU.
    let mut group = [bench.txn(first, 0), bench.txn(second, 0)];
    assert_eq!(bench.scx.commit(&mut group, Group::AllOrNothing), 0);
    assert_eq!((group[0].outcome, group[1].outcome), (Outcome::Poisoned, Outcome::Invalid));

    let before = (bench.ran(first, &one), bench.ran(second, &two));
    let mut group = [bench.txn(first, 0), bench.txn(second, 1)];
    assert_eq!(bench.scx.commit(&mut group, Group::AllOrNothing), 2);
    bench.runs_since(first, &one, before.0);
    bench.runs_since(second, &two, before.1);
}

#[test]
fn a_group_larger_than_a_lane_is_committed_in_one_call() {
    let Some(bench) = Bench::new("large", &[1]) else { return };
    let worker = Worker::spinning();
    let task = bench.join(&worker);
    let stale = Transaction { tseq: Some(Seq(0)), ..bench.txn(task, 0) };
    let mut many = vec![stale; 1200];
    many[1100] = bench.txn(task, 0);
    assert_eq!(bench.scx.commit(&mut many, Group::Each), 1);
    assert_eq!(many[1100].outcome, Outcome::Committed);
    assert!(many.iter().enumerate().all(|(at, one)| at == 1100 || one.outcome == Outcome::Stale));
    let mut many = vec![stale; 600];
    assert_eq!(bench.scx.commit(&mut many, Group::AllOrNothing), 0);
    assert!(many.iter().all(|one| one.outcome == Outcome::Invalid));
}

#[test]
fn offered_threads_are_taken_by_idle_cpus_and_can_be_revoked() {
    let Some(bench) = Bench::new("fast", &[1]) else { return };
    bench.scx.tell(heddle_agent::scx::News { fast_path: true, ..Default::default() });
    let worker = Worker::spinning();
    let task = bench.join(&worker);
    let tseq = bench.scx.thread(task).tseq;
    let holder = Holder::realtime(1);
    assert!(!bench.scx.offer(task, CpuId(0), Seq(tseq.0 - 1)).unwrap());
    assert!(bench.scx.offer(task, CpuId(0), tseq).unwrap());
    assert_eq!(bench.try_one(bench.txn(task, 0)), Outcome::OnCpu);
    assert!(bench.scx.revoke(task).unwrap());
    assert!(!bench.scx.revoke(task).unwrap());
    assert_eq!(bench.state(task), State::Parked);
    assert!(bench.scx.offer(task, CpuId(0), tseq).unwrap());
    let before = bench.ran(task, &worker);
    drop(holder);
    bench.runs_since(task, &worker, before);
    if bench.state(task) != State::OnCpu {
        let message = expect(&bench.scx, Kind::ThreadPreempted);
        assert_eq!((message.thread, message.info), (task, 0), "it was interrupted");
    }
    assert!(!bench.scx.revoke(task).unwrap());
}
