//! What a custom policy may ask of the runtime: that a running task makes way at once, and that an idle worker comes
//! back for a task that it may not take yet.

mod common;

use common::{child, cpus, is_child, text, wait_until};
use heddle_core::{Balance, CpuId, Cx, Enqueue, Model, Ns, ParamError, Params, Policy};
use heddle_core::{Class, Resched, TaskId, TaskList};
use heddle_rt::{Builder, JoinHandle, Runtime, RuntimeBuilder};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Best-effort tasks run while there is nothing else, and make way for everything else at once. No quantum: nothing but
/// `preempt` takes the CPU from a task.
struct Urgent;

#[derive(Default)]
struct Queues {
    urgent: TaskList,
    rest: TaskList,
}

impl Policy for Urgent {
    type Task = ();
    type Queue = Queues;

    const NAME: &'static str = "urgent";
    const MODEL: Model = Model::PerCpu;
    const WORK_CONSERVING: bool = false;
    const BALANCES: bool = false;
    const PREEMPTS: bool = true;

    fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(Urgent)
    }

    fn queue(&self) -> Queues {
        Queues::default()
    }

    fn len(&self, queue: &Queues) -> usize {
        queue.urgent.len() + queue.rest.len()
    }

    fn enqueue(&self, cx: &Cx<'_, ()>, queue: &mut Queues, task: TaskId, _: Enqueue) {
        let urgent = cx.task(task).attrs().class == Class::LC;
        let list = if urgent { &mut queue.urgent } else { &mut queue.rest };
        list.push_back(cx.tasks, task);
    }

    fn dequeue(&self, cx: &Cx<'_, ()>, queue: &mut Queues) -> Option<TaskId> {
        queue.urgent.pop_front(cx.tasks).or_else(|| queue.rest.pop_front(cx.tasks))
    }

    fn preempt(&self, cx: &Cx<'_, ()>, _: &mut Queues, task: TaskId) -> Option<CpuId> {
        (cx.task(task).attrs().class == Class::LC).then_some(cx.cpu)
    }

    fn tick(&self, _: &Cx<'_, ()>, _: &mut Queues, _: TaskId, _: Ns) -> Resched {
        Resched::Never
    }
}

fn spin_until_set(flag: Arc<AtomicBool>) -> impl FnOnce() + Send + 'static {
    move || common::spin_until(|| flag.load(Ordering::Relaxed))
}

/// A best-effort task that has the only worker of a runtime and never gives it up by itself until the flag is set.
fn hog() -> (Runtime, Arc<AtomicBool>) {
    let runtime = RuntimeBuilder::new().workers(1).build_with(Urgent).unwrap();
    let (started, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (set, spin) = (started.clone(), spin_until_set(stop.clone()));
    runtime.run(move || {
        let hog = Builder::new().class(Class::BE).spawn(move || {
            set.store(true, Ordering::Relaxed);
            spin();
        });
        drop(hog.unwrap());
    });
    wait_until(|| started.load(Ordering::Relaxed));
    (runtime, stop)
}

#[test]
fn a_running_task_makes_way_at_once_for_one_that_comes_from_outside() {
    let (runtime, stop) = hog();
    // Each returns only if it gets the CPU from the one that spins.
    (0..100).for_each(|i| assert_eq!(runtime.spawn(move || i).join().unwrap(), i));
    assert!(runtime.stats().preemptions >= 100);
    stop.store(true, Ordering::Relaxed);
}

#[test]
fn a_task_makes_way_at_once_for_one_that_it_creates_itself() {
    let runtime = RuntimeBuilder::new().workers(1).build_with(Urgent).unwrap();
    let low = || {
        let done = Arc::new(AtomicBool::new(false));
        let set = done.clone();
        let urgent = Builder::new().spawn(move || set.store(true, Ordering::Relaxed)).unwrap();
        // Already: the creator was preempted where its call into the runtime ended.
        let was_done = done.load(Ordering::Relaxed);
        urgent.join().unwrap();
        was_done
    };
    let made_way = runtime.run(move || {
        let low: JoinHandle<bool> = Builder::new().class(Class::BE).spawn(low).unwrap();
        low.join().unwrap()
    });
    assert!(made_way);
}

#[test]
fn a_woken_task_gets_the_cpu_from_a_lesser_one_at_once() {
    let (runtime, stop) = hog();
    let bell = Arc::new(heddle_rt::sync::Semaphore::new(0));
    let rung = Arc::new(AtomicU32::new(0));
    let (theirs, count) = (bell.clone(), rung.clone());
    let sleeper = runtime.spawn(move || {
        for _ in 0..100 {
            theirs.acquire().forget();
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    for i in 0..100 {
        bell.release(1);
        wait_until(|| rung.load(Ordering::Relaxed) > i);
    }
    sleeper.join().unwrap();
    stop.store(true, Ordering::Relaxed);
}

/// The first task of a runtime may come, and be worth a preemption, while the worker's thread is about to begin.
#[test]
fn a_worker_that_was_asked_to_preempt_before_it_began_can_be_asked_again() {
    for i in 0..50 {
        let (runtime, stop) = hog();
        assert_eq!(runtime.spawn(move || i).join().unwrap(), i);
        stop.store(true, Ordering::Relaxed);
    }
}

/// The C library may hold a lock, so a preemption that comes there is put off; this task ends no section in which it
/// would be taken, and the policy has no quantum after which the ticker would look.
#[test]
fn a_task_found_in_the_c_library_makes_way_when_it_computes_again() {
    let runtime = RuntimeBuilder::new().workers(1).build_with(Urgent).unwrap();
    let (sleeps, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (set, spin) = (sleeps.clone(), spin_until_set(stop.clone()));
    let hog = move || {
        set.store(true, Ordering::Relaxed);
        let second = libc::timespec { tv_sec: 1, tv_nsec: 0 };
        // SAFETY: the time is valid, and the remaining time is not wanted.
        unsafe { libc::nanosleep(&second, std::ptr::null_mut()) };
        spin();
    };
    let hog = runtime.run(move || Builder::new().class(Class::BE).spawn(hog).unwrap());
    wait_until(|| sleeps.load(Ordering::Relaxed));
    // Until it does.
    std::thread::sleep(std::time::Duration::from_millis(20));
    // Returns only if it gets the CPU from the one that spins, having slept.
    runtime.spawn(|| ()).join().unwrap();
    stop.store(true, Ordering::Relaxed);
    hog.join().unwrap();
}

/// One queue per CPU; a task may be taken from another one's only when an idle CPU asks for the second time.
#[derive(Default)]
struct Patient {
    refused: AtomicU32,
}

impl Policy for Patient {
    type Task = ();
    type Queue = TaskList;

    const NAME: &'static str = "patient";
    const MODEL: Model = Model::PerCpu;
    const WORK_CONSERVING: bool = false;

    fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(Patient::default())
    }

    fn queue(&self) -> TaskList {
        TaskList::default()
    }

    fn len(&self, queue: &TaskList) -> usize {
        queue.len()
    }

    fn enqueue(&self, cx: &Cx<'_, ()>, queue: &mut TaskList, task: TaskId, _: Enqueue) {
        queue.push_back(cx.tasks, task);
    }

    fn dequeue(&self, cx: &Cx<'_, ()>, queue: &mut TaskList) -> Option<TaskId> {
        queue.pop_front(cx.tasks)
    }

    fn balance(&self, cx: &Cx<'_, ()>, attempt: usize) -> Balance {
        match cx.nearest_waiting(cx.cpu, 0) {
            Some(victim) if attempt == 0 => Balance::From(victim),
            Some(_) => Balance::Later(Ns::from_us(100)),
            None => Balance::Nowhere,
        }
    }

    fn steal(&self, cx: &Cx<'_, ()>, _: CpuId, victim: &mut TaskList) -> Option<TaskId> {
        match self.refused.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            true => None,
            false => victim.pop_front(cx.tasks),
        }
    }
}

#[test]
fn an_idle_worker_comes_back_for_a_task_that_it_could_not_take_at_first() {
    if cpus() < 2 {
        return println!("skipped: one CPU, so no other worker can come back");
    }
    let runtime = RuntimeBuilder::new().workers(2).build_with(Patient::default()).unwrap();
    for round in 0..50 {
        runtime.run(move || {
            let done = Arc::new(AtomicBool::new(false));
            let set = done.clone();
            let waits = heddle_rt::spawn(move || set.store(true, Ordering::Relaxed));
            // The task waits in the queue of this worker, which stays busy until the other one has run it.
            spin_until_set(done)();
            waits.join().unwrap();
            round
        });
    }
    assert!(runtime.stats().steals >= 50);
}

/// One queue for all, but each task may run on one CPU only: that with the number of its class.
#[derive(Default)]
struct PerClassQueues {
    asked: Arc<AtomicU32>,
}

impl Policy for PerClassQueues {
    type Task = ();
    type Queue = [TaskList; 2];

    const NAME: &'static str = "lanes";
    const MODEL: Model = Model::Central;
    const WORK_CONSERVING: bool = false;

    fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(PerClassQueues::default())
    }

    fn queue(&self) -> Self::Queue {
        Default::default()
    }

    fn len(&self, queue: &Self::Queue) -> usize {
        queue.iter().map(TaskList::len).sum()
    }

    fn enqueue(&self, cx: &Cx<'_, ()>, queue: &mut Self::Queue, task: TaskId, _: Enqueue) {
        queue[usize::from(cx.task(task).attrs().class.0)].push_back(cx.tasks, task);
    }

    fn dequeue(&self, cx: &Cx<'_, ()>, queue: &mut Self::Queue) -> Option<TaskId> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        queue[cx.cpu.index()].pop_front(cx.tasks)
    }
}

/// Spawns a task that lives in the class of `class` from a task of the other.
fn spawn_in_class<T: Send + 'static>(
    class: u8,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    Builder::new().class(Class(class)).spawn(f).unwrap()
}

#[test]
fn a_task_that_one_worker_may_run_is_found_by_that_one() {
    if cpus() < 2 {
        return println!("one CPU: one class");
    }
    let runtime = RuntimeBuilder::new().workers(2).build_with(PerClassQueues::default()).unwrap();
    fn through(class: u8, rest: u32) -> u32 {
        let next = move || if rest == 0 { 0 } else { 1 + through(1 - class, rest - 1) };
        spawn_in_class(class, next).join().unwrap()
    }
    // From one class to the other and back, each task waiting for the next.
    for _ in 0..200 {
        assert_eq!(runtime.spawn(|| through(1, 6)).join().unwrap(), 6);
    }
}

#[test]
fn a_worker_rests_while_only_tasks_wait_that_it_may_not_run() {
    if cpus() < 2 {
        return println!("one CPU: one class");
    }
    let asked = Arc::new(AtomicU32::new(0));
    let runtime = RuntimeBuilder::new()
        .workers(2)
        .build_with(PerClassQueues { asked: asked.clone() })
        .unwrap();
    let (started, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (set, spin) = (started.clone(), spin_until_set(stop.clone()));
    let all = runtime.spawn(move || {
        let busy = spawn_in_class(1, move || {
            set.store(true, Ordering::Relaxed);
            spin();
        });
        // Waits behind it, and the worker of this class may not have it.
        spawn_in_class(1, || ()).join().unwrap();
        busy.join().unwrap();
    });
    wait_until(|| started.load(Ordering::Relaxed));
    let before = asked.load(Ordering::Relaxed);
    std::thread::sleep(std::time::Duration::from_millis(50));
    let questions = asked.load(Ordering::Relaxed) - before;
    stop.store(true, Ordering::Relaxed);
    all.join().unwrap();
    // A worker that does not rest asks hundreds of thousands of times.
    assert!(questions < 100, "asked {questions} times in vain");
}

#[test]
fn an_environment_that_cannot_be_understood_is_refused() {
    let test = "an_environment_that_cannot_be_understood_is_refused";
    if is_child(test) {
        return println!("refused: {}", RuntimeBuilder::new().workers(1).build().err().unwrap());
    }
    for (name, value, expected) in [
        ("HEDDLE_TLS", "dnor", "HEDDLE_TLS=dnor: there are: block, donor"),
        ("HEDDLE_MECHANISM", "magic", "HEDDLE_MECHANISM=magic: no preemption mechanism `magic`"),
        ("HEDDLE_STACK_SIZE", "1MiB", "HEDDLE_STACK_SIZE=1MiB: not a whole number"),
        ("HEDDLE_CPUS", "0-", "HEDDLE_CPUS=0-: CPUs are numbers and ranges"),
        ("HEDDLE_DISPATCHER", "first", "HEDDLE_DISPATCHER=first: not a CPU number"),
    ] {
        let output = child(test).env(name, value).output().unwrap();
        assert!(text(&output).contains(&format!("refused: {expected}")), "{}", text(&output));
    }
}
