//! Transactions and their outcomes.

use super::testbed::{Holder, Testbed, Worker, expect, until};
use heddle_agent::model::{Group, Kind, Outcome, Seq, State, Transaction};
use heddle_agent::{Backend as _, Takers};
use heddle_core::{CpuId, TaskId};

#[test]
fn a_thread_that_opts_in_is_parked_and_runs_when_it_is_committed() {
    let Some(testbed) = Testbed::new("park", &[1]) else { return };
    let worker = Worker::spinning();
    testbed.scx.join(worker.tid).unwrap();
    let created = expect(&testbed.scx, Kind::ThreadCreated);
    assert_eq!((created.tid, created.info), (worker.tid, 1));
    assert_eq!(testbed.state(created.thread), State::Parked);
    assert!(worker.stands_still(), "a parked thread runs");

    assert_eq!(
        testbed.try_one(Transaction::new(created.thread, created.tid, CpuId(0), created.tseq)),
        Outcome::Committed
    );
    testbed.run(created.thread, 0, &worker);
    assert_eq!(testbed.scx.cpu(CpuId(0)).current, Some(created.thread));
    assert!(testbed.scx.enclave().committed >= 1);
}

#[test]
fn a_transaction_on_old_messages_fails() {
    let Some(testbed) = Testbed::new("stale", &[1]) else { return };
    let worker = Worker::spinning();
    let task = testbed.join(&worker);
    let good = testbed.txn(task, 0);
    let old = Seq(good.tseq.unwrap().0 - 1);
    let queue = testbed.scx.default_queue();
    let aseq = testbed.scx.queue(queue).aseq;

    assert_eq!(testbed.try_one(Transaction { tseq: Some(old), ..good }), Outcome::Stale);
    assert_eq!(
        testbed.try_one(Transaction { aseq: Some((queue, Seq(aseq.0 - 1))), ..good }),
        Outcome::AgentStale
    );
    assert_eq!(testbed.try_one(Transaction { tid: good.tid + 1, ..good }), Outcome::NoThread);
    assert_eq!(testbed.try_one(Transaction { thread: TaskId(16_000), ..good }), Outcome::NoThread);
    assert_eq!(testbed.try_one(Transaction { thread: TaskId(1 << 20), ..good }), Outcome::Invalid);
    assert_eq!(testbed.try_one(Transaction { cpu: CpuId(9), ..good }), Outcome::Invalid);
    assert_eq!(testbed.state(task), State::Parked);
    testbed.is_silent();
    assert_eq!(testbed.scx.enclave().failed, 6);

    assert_eq!(
        testbed.try_one(Transaction { aseq: Some((queue, aseq)), ..good }),
        Outcome::Committed
    );
    testbed.run(task, 0, &worker);
    assert_eq!(testbed.try_one(testbed.txn(task, 0)), Outcome::OnCpu);
}

#[test]
fn only_the_agent_that_is_attached_may_commit() {
    let Some(testbed) = Testbed::new("detached", &[1]) else { return };
    let worker = Worker::spinning();
    let task = testbed.join(&worker);
    testbed.scx.detach();
    assert_eq!(testbed.try_one(testbed.txn(task, 0)), Outcome::NotYours);
    assert!(worker.stands_still());
    testbed.scx.attach().unwrap();
    testbed.scx.attach().unwrap_err();
    testbed.run(task, 0, &worker);
    assert_eq!(testbed.scx.enclave().generation, 2);
}

#[test]
fn a_thread_goes_only_where_it_may_run() {
    let Some(testbed) = Testbed::new("affinity", &[1, 2]) else { return };
    let worker = Worker::spinning();
    worker.pin(2);
    let task = testbed.join(&worker);
    assert_eq!(testbed.scx.affinity(task).iter().collect::<Vec<_>>(), [CpuId(1)]);
    assert_eq!(testbed.try_one(testbed.txn(task, 0)), Outcome::Affinity);
    testbed.run(task, 1, &worker);
    assert_eq!(testbed.scx.cpu(CpuId(1)).current, Some(task));

    worker.pin(1);
    expect(&testbed.scx, Kind::ThreadAffinity);
    until("it has left the CPU", || testbed.state(task) == State::Parked);
    assert_eq!(testbed.scx.affinity(task).iter().collect::<Vec<_>>(), [CpuId(0)]);
}

#[test]
fn a_second_commit_to_a_cpu_unlatches_the_first_and_a_latched_thread_can_be_recalled() {
    let Some(testbed) = Testbed::new("latch", &[1]) else { return };
    let (one, two) = (Worker::spinning(), Worker::spinning());
    let (first, second) = (testbed.join(&one), testbed.join(&two));
    let holder = Holder::realtime(1);
    testbed.commit(first, 0);
    assert_eq!(testbed.scx.cpu(CpuId(0)).latched, Some(first));
    assert_eq!(testbed.state(first), State::Latched);

    testbed.commit(second, 0);
    let message = expect(&testbed.scx, Kind::ThreadPreempted);
    assert_eq!((message.thread, message.info), (first, 1));
    assert_eq!((testbed.state(first), testbed.state(second)), (State::Parked, State::Latched));

    assert_eq!(testbed.scx.recall(CpuId(0)), Some(second));
    let message = expect(&testbed.scx, Kind::ThreadPreempted);
    assert_eq!((message.thread, message.info), (second, 1));
    assert_eq!(testbed.scx.cpu(CpuId(0)).latched, None);
    assert_eq!(testbed.scx.recall(CpuId(0)), None);

    testbed.commit(first, 0);
    let before = testbed.ran(first, &one);
    drop(holder);
    testbed.runs_since(first, &one, before);
    assert!(two.stands_still());
}

#[test]
fn a_commit_straight_to_the_cpu_cannot_be_recalled() {
    let Some(testbed) = Testbed::new("direct", &[1]) else { return };
    let (one, two) = (Worker::spinning(), Worker::spinning());
    let (first, second) = (testbed.join(&one), testbed.join(&two));
    let holder = Holder::realtime(1);
    assert_eq!(
        testbed.try_one(Transaction { direct: true, ..testbed.txn(first, 0) }),
        Outcome::Committed
    );
    assert_eq!(testbed.scx.recall(CpuId(0)), None);
    assert_eq!(testbed.try_one(testbed.txn(second, 0)), Outcome::Again);
    let before = testbed.ran(first, &one);
    drop(holder);
    testbed.runs_since(first, &one, before);
    // Straight to a CPU that a managed thread has.
    testbed.run(first, 0, &one);
    let before = testbed.ran(second, &two);
    assert_eq!(
        testbed.try_one(Transaction { direct: true, ..testbed.txn(second, 0) }),
        Outcome::Committed
    );
    testbed.runs_since(second, &two, before);
    assert_eq!(expect(&testbed.scx, Kind::ThreadPreempted).thread, first);
}

#[test]
fn a_running_thread_makes_way() {
    let Some(testbed) = Testbed::new("preempt", &[1]) else { return };
    let (one, two) = (Worker::spinning(), Worker::spinning());
    let (first, second) = (testbed.join(&one), testbed.join(&two));
    testbed.run(first, 0, &one);
    // Without preemption the second one waits; if the kernel's own threads interrupt the first, it takes its turn.
    until("the second has waited", || {
        testbed.run(first, 0, &one);
        let behind = Transaction { preempt: false, ..testbed.txn(second, 0) };
        let waits = testbed.try_one(behind).is_committed() && two.stands_still();
        let recalled = testbed.scx.recall(CpuId(0)) == Some(second);
        if !recalled {
            testbed.park(second, 0);
        }
        while testbed.scx.next(testbed.scx.default_queue()).is_some() {}
        waits && recalled
    });

    let before = testbed.ran(second, &two);
    testbed.commit(second, 0);
    testbed.runs_since(second, &two, before);
    let message = expect(&testbed.scx, Kind::ThreadPreempted);
    assert_eq!((message.thread, message.info), (first, 0));
    assert!(one.stands_still());

    testbed.run(second, 0, &two);
    assert!(testbed.scx.preempt(CpuId(0)));
    let message = expect(&testbed.scx, Kind::ThreadPreempted);
    assert_eq!((message.thread, message.info), (second, 0));
    assert!(two.stands_still());
    assert!(!testbed.scx.preempt(CpuId(0)));
    assert!(testbed.scx.thread(second).runtime.0 > 0);
}

#[test]
fn a_slice_ends() {
    let Some(testbed) = Testbed::new("slice", &[1]) else { return };
    let worker = Worker::spinning();
    let task = testbed.join(&worker);
    let slice = Some(heddle_core::Ns(5_000_000));
    assert_eq!(testbed.try_one(Transaction { slice, ..testbed.txn(task, 0) }), Outcome::Committed);
    assert_eq!(expect(&testbed.scx, Kind::ThreadPreempted).thread, task);
    assert_eq!(testbed.state(task), State::Parked);
}

#[test]
fn ordinary_threads_come_first() {
    let Some(testbed) = Testbed::new("above", &[1]) else { return };
    let worker = Worker::spinning();
    let task = testbed.join(&worker);
    testbed.run(task, 0, &worker);

    let holder = Holder::ordinary(1);
    let message = expect(&testbed.scx, Kind::ThreadPreempted);
    assert_eq!((message.thread, message.info), (task, 0));
    until("the word says who has the CPU", || {
        testbed.scx.cpu(CpuId(0)).occupant == heddle_agent::model::CpuOccupant::Ordinary
    });
    assert_eq!(
        testbed.try_one(Transaction { only_free: true, ..testbed.txn(task, 0) }),
        Outcome::CpuBusy
    );
    testbed.commit(task, 0);
    holder.moves();
    let before = testbed.ran(task, &worker);
    drop(holder);
    testbed.runs_since(task, &worker, before);
}

#[test]
fn a_realtime_thread_comes_first() {
    let Some(testbed) = Testbed::new("realtime", &[1]) else { return };
    let worker = Worker::spinning();
    let task = testbed.join(&worker);
    let holder = Holder::realtime(1);
    until("the word says who has the CPU", || {
        testbed.scx.cpu(CpuId(0)).occupant == heddle_agent::model::CpuOccupant::Realtime
    });
    assert_eq!(
        testbed.try_one(Transaction { only_free: true, ..testbed.txn(task, 0) }),
        Outcome::CpuBusy
    );
    testbed.commit(task, 0);
    assert!(worker.stands_still());
    let before = testbed.ran(task, &worker);
    drop(holder);
    testbed.runs_since(task, &worker, before);
}

#[test]
fn a_group_is_committed_as_one_or_not_at_all() {
    let Some(testbed) = Testbed::new("group", &[1, 2]) else { return };
    let (one, two) = (Worker::spinning(), Worker::spinning());
    let (first, second) = (testbed.join(&one), testbed.join(&two));
    let stale = Transaction { tseq: Some(Seq(0)), ..testbed.txn(second, 1) };
    let mut group = [testbed.txn(first, 0), stale];
    assert_eq!(testbed.scx.commit(&mut group, Group::AllOrNothing), 0);
    assert_eq!((group[0].outcome, group[1].outcome), (Outcome::Poisoned, Outcome::Stale));
    assert_eq!((testbed.state(first), testbed.state(second)), (State::Parked, State::Parked));
    assert!(one.stands_still());
    testbed.is_silent();
    assert_eq!(testbed.scx.cpu(CpuId(0)).latched, None);

    // Two of one group cannot have one CPU.
    let mut group = [testbed.txn(first, 0), testbed.txn(second, 0)];
    assert_eq!(testbed.scx.commit(&mut group, Group::AllOrNothing), 0);
    assert_eq!((group[0].outcome, group[1].outcome), (Outcome::Poisoned, Outcome::Invalid));

    let before = (testbed.ran(first, &one), testbed.ran(second, &two));
    let mut group = [testbed.txn(first, 0), testbed.txn(second, 1)];
    assert_eq!(testbed.scx.commit(&mut group, Group::AllOrNothing), 2);
    testbed.runs_since(first, &one, before.0);
    testbed.runs_since(second, &two, before.1);
}

#[test]
fn a_group_larger_than_a_region_is_committed_in_one_call() {
    let Some(testbed) = Testbed::new("large", &[1]) else { return };
    let worker = Worker::spinning();
    let task = testbed.join(&worker);
    let stale = Transaction { tseq: Some(Seq(0)), ..testbed.txn(task, 0) };
    let mut many = vec![stale; 1200];
    many[1100] = testbed.txn(task, 0);
    assert_eq!(testbed.scx.commit(&mut many, Group::Each), 1);
    assert_eq!(many[1100].outcome, Outcome::Committed);
    assert!(many.iter().enumerate().all(|(at, one)| at == 1100 || one.outcome == Outcome::Stale));
    let mut many = vec![stale; 600];
    assert_eq!(testbed.scx.commit(&mut many, Group::AllOrNothing), 0);
    assert!(many.iter().all(|one| one.outcome == Outcome::Invalid));
}

#[test]
fn offered_threads_are_taken_by_idle_cpus_and_can_be_revoked() {
    for takers in [Takers::Node(CpuId(0)), Takers::Cpu(CpuId(0))] {
        let Some(testbed) = Testbed::new("offers", &[1]) else { return };
        let worker = Worker::spinning();
        let task = testbed.join(&worker);
        let tseq = testbed.scx.thread(task).tseq;
        let holder = Holder::realtime(1);
        assert!(!testbed.scx.offer(task, Seq(tseq.0 - 1), takers));
        assert!(testbed.scx.offer(task, tseq, takers));
        assert!(testbed.scx.thread(task).is_offered());
        assert_eq!(testbed.try_one(testbed.txn(task, 0)), Outcome::OnCpu);
        assert!(testbed.scx.revoke(task));
        assert!(!testbed.scx.revoke(task));
        assert_eq!(testbed.state(task), State::Parked);
        assert!(testbed.scx.offer(task, tseq, takers));
        let before = testbed.ran(task, &worker);
        drop(holder);
        testbed.runs_since(task, &worker, before);
        let taken = expect(&testbed.scx, Kind::ThreadTaken);
        assert_eq!((taken.thread, taken.os_cpu, taken.tseq), (task, 1, tseq.next()));
        if testbed.state(task) != State::OnCpu {
            let message = expect(&testbed.scx, Kind::ThreadPreempted);
            assert_eq!((message.thread, message.info), (task, 0), "it was interrupted");
        }
        assert!(!testbed.scx.revoke(task));
    }
}

#[test]
fn a_cpu_takes_what_was_offered_to_it_before_what_was_offered_to_its_node() {
    let Some(testbed) = Testbed::new("order", &[1]) else { return };
    let workers: Vec<Worker> = (0..3).map(|_| Worker::spinning()).collect();
    let tasks: Vec<TaskId> = workers.iter().map(|worker| testbed.join(worker)).collect();
    let holder = Holder::realtime(1);
    let (node, own) = (Takers::Node(CpuId(0)), Takers::Cpu(CpuId(0)));
    for (&task, takers) in tasks.iter().zip([node, node, own]) {
        assert!(testbed.scx.offer(task, testbed.scx.thread(task).tseq, takers));
    }
    drop(holder);
    let mut order = Vec::new();
    while order.len() < 3 {
        let taken = expect(&testbed.scx, Kind::ThreadTaken);
        order.push(taken.thread);
        // It makes way for the next.
        until("the CPU is preempted", || {
            testbed.scx.preempt(CpuId(0)) || testbed.state(taken.thread) == State::Parked
        });
    }
    assert_eq!(order, [tasks[2], tasks[0], tasks[1]]);
}
