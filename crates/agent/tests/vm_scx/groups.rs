//! All-or-nothing groups: whatever fails, at whatever step, latches and messages are as they were.

use super::testbed::{Holder, Testbed, Worker, expect, until};
use heddle_agent::Backend as _;
use heddle_agent::model::{Group, Kind, Outcome, QueueWord, Seq, State, ThreadWord, Transaction};
use heddle_core::{CpuId, TaskId};

/// Threads that spin when they get a CPU, and their slots.
struct Workers {
    workers: Vec<Worker>,
    tasks: Vec<TaskId>,
}

impl Workers {
    fn of(testbed: &Testbed, size: usize) -> Workers {
        let workers: Vec<Worker> = (0..size).map(|_| Worker::spinning()).collect();
        let tasks = workers.iter().map(|worker| testbed.join(worker)).collect();
        Workers { workers, tasks }
    }
}

/// An enclave of two occupied CPUs. One thread is latched to the second, and three more are parked.
struct Scene {
    testbed: Testbed,
    workers: Workers,
    holders: [Holder; 2],
}

/// A fault of a transaction, and its outcome.
type Fault = (fn(&mut Transaction), Outcome);

/// The state that agents can see.
type Snapshot = (Vec<ThreadWord>, [Option<TaskId>; 2], QueueWord);

impl Scene {
    fn new(name: &str) -> Option<Scene> {
        let testbed = Testbed::new(name, &[1, 2])?;
        let holders = [1, 2].map(Holder::ordinary);
        let workers = Workers::of(&testbed, 3);
        testbed.commit(workers.tasks[2], 1);
        Some(Scene { testbed, workers, holders })
    }

    /// The first thread to the free latch, the second to the taken one.
    fn group(&self) -> [Transaction; 2] {
        [0, 1].map(|at| self.testbed.txn(self.workers.tasks[at], at as u16))
    }

    fn snapshot(&self) -> Snapshot {
        let scx = &self.testbed.scx;
        let threads = self.workers.tasks.iter().map(|&task| scx.thread(task)).collect();
        let latched = [0, 1].map(|cpu| scx.cpu(CpuId(cpu)).latched);
        (threads, latched, scx.queue(scx.default_queue()))
    }

    /// Without a fault the group is committed, and the displaced thread gets a message.
    fn succeeds(self) {
        let Scene { testbed, workers, holders } = self;
        let mut group = [0, 1].map(|at| testbed.txn(workers.tasks[at], at as u16));
        assert_eq!(testbed.scx.commit(&mut group, Group::AllOrNothing), 2, "{group:?}");
        let message = expect(&testbed.scx, Kind::ThreadPreempted);
        assert_eq!((message.thread, message.info), (workers.tasks[2], 1));
        testbed.is_silent();
        let states: Vec<State> = workers.tasks.iter().map(|&task| testbed.state(task)).collect();
        assert_eq!(states, [State::Latched, State::Latched, State::Parked]);
        let group = || workers.tasks.iter().zip(&workers.workers).take(2);
        let before: Vec<_> = group().map(|(&task, worker)| testbed.ran(task, worker)).collect();
        drop(holders);
        for ((&task, worker), before) in group().zip(before) {
            testbed.runs_since(task, worker, before);
        }
        assert!(workers.workers[2].stands_still());
    }
}

#[test]
fn a_failed_group_unlatches_no_thread_and_sends_no_message() {
    let Some(scene) = Scene::new("nothing") else { return };
    let before = scene.snapshot();
    for at in 0..2 {
        let faults: [Fault; 4] = [
            (|one| one.tseq = Some(Seq(0)), Outcome::Stale),
            (|one| one.tid += 1, Outcome::NoThread),
            (|one| one.cpu = CpuId(7), Outcome::Invalid),
            (|one| one.only_free = true, Outcome::CpuBusy),
        ];
        for (spoil, why) in faults {
            // In either order: what is done before the fault must be undone.
            for reversed in [false, true] {
                let mut group = scene.group();
                spoil(&mut group[at]);
                let spoilt = if reversed { 1 - at } else { at };
                if reversed {
                    group.reverse();
                }
                assert_eq!(scene.testbed.scx.commit(&mut group, Group::AllOrNothing), 0);
                assert_eq!(group[spoilt].outcome, why, "{group:?}");
                assert_eq!(group[1 - spoilt].outcome, Outcome::Poisoned, "{group:?}");
                assert_eq!(scene.snapshot(), before, "{group:?}");
            }
        }
    }
    scene.testbed.is_silent();
    scene.succeeds();
}

#[test]
fn a_group_that_fails_at_any_step_leaves_everything_as_it_was() {
    let Some(scene) = Scene::new("steps") else { return };
    let before = scene.snapshot();
    let steps = (1..).take_while(|&step| {
        let mut group = scene.group();
        let failed = scene.testbed.scx.commit_with_fault(&mut group, step);
        if failed {
            assert!(group.iter().any(|one| one.outcome == Outcome::Again), "{step}: {group:?}");
            assert_eq!(scene.snapshot(), before, "step {step}: {group:?}");
        }
        failed
    });
    // For each thread: claimed, staged, verified; and the latched one claimed.
    assert_eq!(steps.count(), 7);
    // The last one was committed.
    until("both are latched", || {
        [0, 1].iter().all(|&at| scene.testbed.state(scene.workers.tasks[at]) == State::Latched)
    });
}

/// A latch once waited for a number in a table of 1,024, which the group 1,024 later overwrote.
#[test]
fn a_group_gets_its_cpu_however_many_groups_come_after_it() {
    let Some(testbed) = Testbed::new("many", &[1, 2]) else { return };
    let holders = [1, 2].map(Holder::ordinary);
    let workers = Workers::of(&testbed, 2);
    let mut first = [testbed.txn(workers.tasks[0], 0)];
    assert_eq!(testbed.scx.commit(&mut first, Group::AllOrNothing), 1);
    let other = testbed.txn(workers.tasks[1], 1);
    for _ in 0..1023 {
        let mut stale = [Transaction { tseq: Some(Seq(0)), ..other }];
        assert_eq!(testbed.scx.commit(&mut stale, Group::AllOrNothing), 0);
    }
    assert_eq!(testbed.scx.commit(&mut [other], Group::AllOrNothing), 1);
    let before = testbed.ran(workers.tasks[0], &workers.workers[0]);
    drop(holders);
    testbed.runs_since(workers.tasks[0], &workers.workers[0], before);
}
