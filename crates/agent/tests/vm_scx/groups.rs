//! All-or-nothing groups: whatever fails, and at whatever step, latches and news are as they were.

use super::bench::{Bench, Holder, Worker, expect, until};
use heddle_agent::Backend as _;
use heddle_agent::model::{Group, Kind, Outcome, QueueWord, Seq, State, ThreadWord, Transaction};
use heddle_core::{CpuId, TaskId};

/// Threads that spin if they get a CPU, and their slots.
struct Crew {
    workers: Vec<Worker>,
    tasks: Vec<TaskId>,
}

impl Crew {
    fn of(bench: &Bench, size: usize) -> Crew {
        let workers: Vec<Worker> = (0..size).map(|_| Worker::spinning()).collect();
        let tasks = workers.iter().map(|worker| bench.join(worker)).collect();
        Crew { workers, tasks }
    }
}

/// An enclave of two CPUs that others have. One thread is latched to the second, and three more are parked.
struct Scene {
    bench: Bench,
    crew: Crew,
    holders: [Holder; 2],
}

/// Something wrong with a transaction, and what comes of it.
type Fault = (fn(&mut Transaction), Outcome);

/// What agents can see of it.
type Snapshot = (Vec<ThreadWord>, [Option<TaskId>; 2], QueueWord);

impl Scene {
    fn new(name: &str) -> Option<Scene> {
        let bench = Bench::new(name, &[1, 2])?;
        let holders = [1, 2].map(Holder::ordinary);
        let crew = Crew::of(&bench, 3);
        bench.commit(crew.tasks[2], 1);
        Some(Scene { bench, crew, holders })
    }

    /// The first thread to the free latch, the second to the one that is taken.
    fn group(&self) -> [Transaction; 2] {
        [0, 1].map(|at| self.bench.txn(self.crew.tasks[at], at as u16))
    }

    fn snapshot(&self) -> Snapshot {
        let scx = &self.bench.scx;
        let threads = self.crew.tasks.iter().map(|&task| scx.thread(task)).collect();
        let latched = [0, 1].map(|cpu| scx.cpu(CpuId(cpu)).latched);
        (threads, latched, scx.queue(scx.default_queue()))
    }

    /// The group as it should be is committed, and who was latched is told.
    fn succeeds(self) {
        let Scene { bench, crew, holders } = self;
        let mut group = [0, 1].map(|at| bench.txn(crew.tasks[at], at as u16));
        assert_eq!(bench.scx.commit(&mut group, Group::AllOrNothing), 2, "{group:?}");
        let news = expect(&bench.scx, Kind::ThreadPreempted);
        assert_eq!((news.thread, news.info), (crew.tasks[2], 1));
        bench.is_silent();
        let states: Vec<State> = crew.tasks.iter().map(|&task| bench.state(task)).collect();
        assert_eq!(states, [State::Latched, State::Latched, State::Parked]);
        let group = || crew.tasks.iter().zip(&crew.workers).take(2);
        let before: Vec<_> = group().map(|(&task, worker)| bench.ran(task, worker)).collect();
        drop(holders);
        for ((&task, worker), before) in group().zip(before) {
            bench.runs_since(task, worker, before);
        }
        assert!(crew.workers[2].stands_still());
    }
}

#[test]
fn a_group_of_which_one_fails_unlatches_and_tells_nobody() {
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
            // Either order: what is done before the fault has to be undone.
            for reversed in [false, true] {
                let mut group = scene.group();
                spoil(&mut group[at]);
                let spoilt = if reversed { 1 - at } else { at };
                if reversed {
                    group.reverse();
                }
                assert_eq!(scene.bench.scx.commit(&mut group, Group::AllOrNothing), 0);
                assert_eq!(group[spoilt].outcome, why, "{group:?}");
                assert_eq!(group[1 - spoilt].outcome, Outcome::Poisoned, "{group:?}");
                assert_eq!(scene.snapshot(), before, "{group:?}");
            }
        }
    }
    scene.bench.is_silent();
    scene.succeeds();
}

#[test]
fn a_group_that_fails_at_any_step_leaves_everything_as_it_was() {
    let Some(scene) = Scene::new("steps") else { return };
    let before = scene.snapshot();
    let steps = (1..).take_while(|&step| {
        let mut group = scene.group();
        let failed = scene.bench.scx.commit_with_fault(&mut group, step);
        if failed {
            assert!(group.iter().any(|one| one.outcome == Outcome::Again), "{step}: {group:?}");
            assert_eq!(scene.snapshot(), before, "step {step}: {group:?}");
        }
        failed
    });
    // Of each thread: claimed, staged, verified; and who is latched, claimed.
    assert_eq!(steps.count(), 7);
    // The last one was committed.
    until("both are latched", || {
        [0, 1].iter().all(|&at| scene.bench.state(scene.crew.tasks[at]) == State::Latched)
    });
}

/// What a latch waits for was once a number in a table of 1,024, which the group 1,024 later overwrote.
#[test]
fn a_group_gets_its_cpu_however_many_groups_come_after_it() {
    let Some(bench) = Bench::new("many", &[1, 2]) else { return };
    let holders = [1, 2].map(Holder::ordinary);
    let crew = Crew::of(&bench, 2);
    let mut first = [bench.txn(crew.tasks[0], 0)];
    assert_eq!(bench.scx.commit(&mut first, Group::AllOrNothing), 1);
    let other = bench.txn(crew.tasks[1], 1);
    for _ in 0..1023 {
        let mut stale = [Transaction { tseq: Some(Seq(0)), ..other }];
        assert_eq!(bench.scx.commit(&mut stale, Group::AllOrNothing), 0);
    }
    assert_eq!(bench.scx.commit(&mut [other], Group::AllOrNothing), 1);
    let before = bench.ran(crew.tasks[0], &crew.workers[0]);
    drop(holders);
    bench.runs_since(crew.tasks[0], &crew.workers[0], before);
}
