//! Async tasks against a model: random programs of tasks that wake, await, abort and create each other.
//!
//! The model is two bounds for each task: what *must* happen, however the tasks interleave, and what *may*. They differ
//! only where the order of an abort and of the steps of its task is open. A run checks
//!
//! - that all that must end does end, so no wake is lost, and that nothing ends that may not;
//! - that a task ends as its steps say, or cancelled if a task may have aborted it;
//! - that polls of a task do not overlap, and that none follows its end; at most one follows an abort (it had begun);
//! - that each future and each value is dropped once, and the future before its handle is woken;
//! - that as many tasks have ended as were created.

mod common;

use heddle_rt::futures::{self, AbortHandle, JoinError, JoinHandle};
use heddle_rt::sync::{Mutex, Semaphore};
use heddle_rt::{Runtime, RuntimeBuilder, block_on, no_preempt};
use proptest::prelude::*;
use std::fmt;
use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex as StdMutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const EVENTS: usize = 3;

/// How many parties may be inside of the semaphore.
const PERMITS: usize = 2;

/// When a run counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

const POLICIES: [&str; 4] =
    ["work-stealing", "fifo", "two-queue:quantum=100us", "round-robin:quantum=20us"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Yield,
    /// Awaits a future that other parties' wakers made ready, for a moment.
    Sleep,
    /// Computes for so many microseconds.
    Compute(u8),
    /// Waits for an event, between polls.
    Wait(usize),
    /// Waits for an event in the poll, as a thread does.
    BlockOn(usize),
    Set(usize),
    /// An ordinary thread does it.
    SetOutside(usize),
    /// Creates its child.
    Spawn(usize),
    Await(usize),
    /// Waits for a child in the poll.
    Join(usize),
    /// Polls a child's handle with a waker that does nothing.
    Peek(usize),
    DropHandle(usize),
    /// Aborts any task, if it exists by now.
    Abort(usize),
    AbortOutside(usize),
    /// Adds to a count under a mutex, and yields in between.
    Lock,
    /// Holds a permit of a semaphore, and yields meanwhile.
    Permit,
    Panic,
}

/// A task of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Spec {
    /// `None` if it is created from outside.
    parent: Option<usize>,
    steps: Vec<Step>,
    /// The drop of its future panics.
    is_loud: bool,
}

/// How a run ends, once all that must end has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    /// All events happen.
    Release,
    /// The runtime is dropped.
    Drop,
}

#[derive(Clone)]
struct Program {
    tasks: Vec<Spec>,
    finish: Finish,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.finish)?;
        for (number, Spec { parent, steps, is_loud }) in self.tasks.iter().enumerate() {
            let loud = if *is_loud { ", panics when dropped" } else { "" };
            writeln!(f, "{number}, child of {parent:?}{loud}: {steps:?}")?;
        }
        Ok(())
    }
}

/// A step whose task is a number to be reduced to those that exist.
fn step() -> impl Strategy<Value = Step> {
    let (event, task) = (0..EVENTS, any::<prop::sample::Index>());
    let task = task.prop_map(|index| index.index(1 << 20));
    prop_oneof![
        3 => Just(Step::Yield),
        1 => Just(Step::Sleep),
        2 => (0..200u8).prop_map(Step::Compute),
        3 => event.clone().prop_map(Step::Wait),
        1 => event.clone().prop_map(Step::BlockOn),
        2 => event.clone().prop_map(Step::Set),
        1 => event.prop_map(Step::SetOutside),
        4 => task.clone().prop_map(Step::Await),
        1 => task.clone().prop_map(Step::Join),
        2 => task.clone().prop_map(Step::Peek),
        1 => task.clone().prop_map(Step::DropHandle),
        2 => task.clone().prop_map(Step::Abort),
        1 => task.prop_map(Step::AbortOutside),
        1 => Just(Step::Lock),
        1 => Just(Step::Permit),
        1 => prop::bool::weighted(0.5).prop_map(|panic| if panic { Step::Panic } else { Step::Yield }),
    ]
}

fn program() -> impl Strategy<Value = Program> {
    let index = any::<prop::sample::Index>;
    let steps = prop::collection::vec(step(), 0..8);
    let task = (prop::option::of(index()), index(), steps, prop::bool::weighted(0.1));
    let tasks = prop::collection::vec(task, 1..10);
    (tasks, any::<bool>()).prop_map(|(tasks, drops)| {
        let count = tasks.len();
        let mut specs: Vec<Spec> = vec![];
        for (number, (parent, at, steps, is_loud)) in tasks.into_iter().enumerate() {
            let parent = parent.filter(|_| number > 0).map(|index| index.index(number));
            if let Some(parent) = parent {
                let steps = &mut specs[parent].steps;
                steps.insert(at.index(steps.len() + 1), Step::Spawn(number));
            }
            specs.push(Spec { parent, steps, is_loud });
        }
        let finish = if drops { Finish::Drop } else { Finish::Release };
        for number in 0..count {
            let children: Vec<usize> =
                (0..count).filter(|&child| specs[child].parent == Some(number)).collect();
            for step in &mut specs[number].steps {
                *step = resolve(*step, &children, count, finish);
            }
        }
        Program { tasks: specs, finish }
    })
}

/// Lets a step refer to tasks that exist: to children where it is about a handle.
fn resolve(step: Step, children: &[usize], count: usize, finish: Finish) -> Step {
    let child = |index: usize, step: fn(usize) -> Step| match children {
        [] => Step::Yield,
        _ => step(children[index % children.len()]),
    };
    match step {
        Step::Await(index) => child(index, Step::Await),
        Step::Join(index) => child(index, Step::Join),
        Step::Peek(index) => child(index, Step::Peek),
        Step::DropHandle(index) => child(index, Step::DropHandle),
        Step::Abort(index) => Step::Abort(index % count),
        Step::AbortOutside(index) => Step::AbortOutside(index % count),
        // Such a poll would never return.
        Step::BlockOn(event) if finish == Finish::Drop => Step::Wait(event),
        step => step,
    }
}

/// What the model says about a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bounds {
    exists: bool,
    ends: bool,
    is_aborted: bool,
}

impl Program {
    /// Returns what may happen. `released` if all events happen.
    fn may(&self, released: bool) -> Vec<Bounds> {
        self.fixpoint(
            released,
            |bounds, _| bounds.exists,
            |bounds, _| bounds.is_aborted,
            |_, _| true,
        )
    }

    /// Returns what must happen: a task that may be aborted is not counted on, except that it ends if it must be
    /// aborted and no poll of its may wait.
    fn must(&self, released: bool, may: &[Bounds]) -> Vec<Bounds> {
        let waits = |step: &Step| matches!(step, Step::BlockOn(_) | Step::Join(_));
        self.fixpoint(
            released,
            |bounds, task| bounds.exists && !may[task].is_aborted,
            |bounds, task| bounds.is_aborted && !self.tasks[task].steps.iter().any(waits),
            // Another task may not exist yet.
            |aborted, spawned| spawned.contains(&aborted),
        )
    }

    fn fixpoint(
        &self,
        released: bool,
        runs: impl Fn(&Bounds, usize) -> bool,
        ends_by_abort: impl Fn(&Bounds, usize) -> bool,
        aborts: impl Fn(usize, &[usize]) -> bool,
    ) -> Vec<Bounds> {
        let mut all = vec![Bounds::default(); self.tasks.len()];
        let mut events = [released; EVENTS];
        loop {
            let before = (all.clone(), events);
            for (task, spec) in self.tasks.iter().enumerate() {
                all[task].exists |= spec.parent.is_none();
                if !runs(&all[task], task) {
                    all[task].ends |= ends_by_abort(&all[task], task);
                    continue;
                }
                let mut spawned = vec![];
                let mut has_ended = true;
                for &step in &spec.steps {
                    match step {
                        Step::Wait(event) | Step::BlockOn(event) if !events[event] => {
                            has_ended = false
                        }
                        // If it has the handle.
                        Step::Await(child) | Step::Join(child)
                            if spawned.contains(&child) && !all[child].ends =>
                        {
                            has_ended = false;
                        }
                        Step::Set(event) | Step::SetOutside(event) => events[event] = true,
                        Step::Spawn(child) => {
                            all[child].exists = true;
                            spawned.push(child);
                        }
                        // What comes after the peek is the same either way: it took the handle of a task that ended.
                        Step::DropHandle(child) => spawned.retain(|&other| other != child),
                        Step::Abort(other) | Step::AbortOutside(other) => {
                            all[other].is_aborted |= aborts(other, &spawned);
                        }
                        Step::Panic => break,
                        _ => {}
                    }
                    if !has_ended {
                        break;
                    }
                }
                all[task].ends |= has_ended || ends_by_abort(&all[task], task);
            }
            if (all.clone(), events) == before {
                return all;
            }
        }
    }

    /// Returns whether a poll of the task may be left as it is when the runtime is dropped, because it waits.
    fn may_be_left(&self, task: usize) -> bool {
        let waits = |step: &Step| matches!(step, Step::Join(_) | Step::Lock | Step::Permit);
        self.finish == Finish::Drop && self.tasks[task].steps.iter().any(waits)
    }

    /// Returns how a task ends that is not aborted.
    fn end_of(&self, task: usize) -> End {
        let Spec { steps, is_loud, .. } = &self.tasks[task];
        if *is_loud || steps.contains(&Step::Panic) { End::Panic } else { End::Value }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Value,
    Panic,
    Cancelled,
}

/// Something that happens once. Its lock is held without preemption: a runtime that ends leaves a poll that waits for
/// long where it is, and so perhaps who waits for its lock.
#[derive(Default)]
struct Event(StdMutex<(bool, Vec<Waker>)>);

impl Event {
    fn set(&self) {
        let wakers = no_preempt(|| {
            let mut state = self.0.lock().unwrap();
            state.0 = true;
            std::mem::take(&mut state.1)
        });
        wakers.into_iter().for_each(Waker::wake);
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        no_preempt(|| {
            let mut state = self.0.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            if !state.1.iter().any(|waker| waker.will_wake(cx.waker())) {
                state.1.push(cx.waker().clone());
            }
            Poll::Pending
        })
    }
}

/// What was seen of a task.
#[derive(Default)]
struct Observed {
    is_created: AtomicBool,
    is_polled: AtomicBool,
    has_ended: AtomicBool,
    /// How its last poll ended.
    has_value: AtomicBool,
    has_panicked: AtomicBool,
    /// Somebody's abort has returned.
    is_aborted: AtomicBool,
    polls_after_abort: AtomicUsize,
    future_drops: AtomicUsize,
    values: AtomicUsize,
    value_drops: AtomicUsize,
    /// What its handle said.
    answers: AtomicUsize,
    abort: StdMutex<Option<AbortHandle>>,
}

/// A request to an ordinary thread.
enum Ask {
    Set(usize),
    Abort(usize),
    End,
}

struct World {
    program: Program,
    seen: Vec<Observed>,
    events: [Event; EVENTS],
    outside: mpsc::Sender<Ask>,
    count: Mutex<usize>,
    counted: AtomicUsize,
    permits: Semaphore,
    inside: AtomicUsize,
    /// The first rule that was broken: a panic in a task would look like one of the program's.
    fault: StdMutex<Option<String>>,
}

impl World {
    fn check(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            let what = what();
            no_preempt(|| self.fault.lock().unwrap().get_or_insert(what).len());
        }
    }

    fn abort(&self, task: usize) {
        let seen = &self.seen[task];
        let handle = no_preempt(|| seen.abort.lock().unwrap().clone());
        if let Some(handle) = handle {
            handle.abort();
            seen.is_aborted.store(true, SeqCst);
        }
    }

    /// Creates a task, in the caller's runtime if `runtime` is none.
    fn spawn(self: &Arc<World>, task: usize, runtime: Option<&Runtime>) -> Handle {
        self.seen[task].is_created.store(true, SeqCst);
        // Memory of several classes, and a box.
        match task % 3 {
            0 => self.spawn_sized::<0>(task, runtime),
            1 => self.spawn_sized::<300>(task, runtime),
            _ => self.spawn_sized::<5000>(task, runtime),
        }
    }

    fn spawn_sized<const N: usize>(
        self: &Arc<World>,
        task: usize,
        runtime: Option<&Runtime>,
    ) -> Handle {
        let future = Checked {
            world: self.clone(),
            task,
            steps: Box::pin(live(self.clone(), task)),
            _room: [0u8; N],
        };
        let handle = match runtime {
            Some(runtime) => futures::Builder::new().spawn_in(runtime, future).unwrap(),
            None => futures::spawn(future),
        };
        let abort = handle.abort_handle();
        no_preempt(|| *self.seen[task].abort.lock().unwrap() = Some(abort));
        Handle { task, handle }
    }

    /// Checks what the handle of `task` said.
    fn answer(&self, task: usize, answer: Result<Value, JoinError>) {
        let seen = &self.seen[task];
        self.check(seen.answers.fetch_add(1, SeqCst) == 0, || format!("{task} has answered twice"));
        let dropped = seen.future_drops.load(SeqCst) == 1 || self.program.may_be_left(task);
        self.check(dropped, || format!("the future of {task} is there at its end"));
        let (end, number) = match answer {
            Ok(value) => {
                let dropped = seen.value_drops.load(SeqCst) > 0;
                self.check(!dropped, || format!("the value of {task} was dropped"));
                (End::Value, value.task)
            }
            Err(error) if error.is_cancelled() => (End::Cancelled, task),
            Err(error) => {
                (End::Panic, *error.into_panic().downcast::<usize>().expect("a task's own panic"))
            }
        };
        self.check(number == task, || format!("{task} has answered for {number}"));
        self.check(end == self.end(task), || format!("{task}: {end:?}, not {:?}", self.end(task)));
    }

    /// Returns how a task whose future was dropped has ended.
    fn end(&self, task: usize) -> End {
        let seen = &self.seen[task];
        match (seen.has_panicked.load(SeqCst), seen.has_value.load(SeqCst)) {
            (true, _) => End::Panic,
            (false, true) => End::Value,
            (false, false) => End::Cancelled,
        }
    }
}

struct Handle {
    task: usize,
    handle: JoinHandle<Value>,
}

/// The value of a task; counts its drops.
struct Value {
    world: Arc<World>,
    task: usize,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.world.seen[self.task].value_drops.fetch_add(1, SeqCst);
    }
}

/// The future of a task, with checks.
struct Checked<const N: usize> {
    world: Arc<World>,
    task: usize,
    steps: Pin<Box<dyn Future<Output = Value> + Send>>,
    _room: [u8; N],
}

impl<const N: usize> Future for Checked<N> {
    type Output = Value;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Value> {
        let (world, task) = (self.world.clone(), self.task);
        let seen = &world.seen[task];
        let ended = seen.has_ended.load(SeqCst);
        world.check(!ended, || format!("{task} was polled after its end"));
        world.check(!seen.is_polled.swap(true, SeqCst), || {
            format!("{task} was polled twice at once")
        });
        if seen.is_aborted.load(SeqCst) {
            // It may have begun before that.
            let polls = seen.polls_after_abort.fetch_add(1, SeqCst);
            world.check(polls == 0, || format!("{task} was polled after its abort"));
        }
        let polled =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.steps.as_mut().poll(cx)));
        seen.has_ended.store(!matches!(polled, Ok(Poll::Pending)), SeqCst);
        seen.has_value.store(matches!(polled, Ok(Poll::Ready(_))), SeqCst);
        seen.has_panicked.store(polled.is_err(), SeqCst);
        seen.is_polled.store(false, SeqCst);
        polled.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl<const N: usize> Drop for Checked<N> {
    fn drop(&mut self) {
        let (world, task) = (&self.world, self.task);
        let seen = &world.seen[task];
        world.check(!seen.is_polled.load(SeqCst), || format!("{task} was dropped in a poll"));
        let drops = seen.future_drops.fetch_add(1, SeqCst);
        world.check(drops == 0, || format!("{task} was dropped twice"));
        seen.has_ended.store(true, SeqCst);
        if world.program.tasks[task].is_loud {
            seen.has_panicked.store(true, SeqCst);
            resume_unwind(Box::new(task));
        }
    }
}

/// Takes the steps of `me`.
async fn live(world: Arc<World>, me: usize) -> Value {
    let mut handles: Vec<Handle> = vec![];
    let take = |handles: &mut Vec<Handle>, task| {
        handles.iter().position(|handle| handle.task == task).map(|at| handles.swap_remove(at))
    };
    for number in 0..world.program.tasks[me].steps.len() {
        match world.program.tasks[me].steps[number] {
            Step::Yield => futures::yield_now().await,
            Step::Sleep => heddle_rt::sleep_async(Duration::from_micros(50)).await,
            Step::Compute(micros) => common::spin_for(Duration::from_micros(micros.into())),
            Step::Wait(event) => poll_fn(|cx| world.events[event].poll(cx)).await,
            Step::BlockOn(event) => block_on(poll_fn(|cx| world.events[event].poll(cx))),
            Step::Set(event) => world.events[event].set(),
            Step::SetOutside(event) => no_preempt(|| world.outside.send(Ask::Set(event)).unwrap()),
            Step::Spawn(child) => handles.push(world.spawn(child, None)),
            Step::Await(child) => {
                if let Some(handle) = take(&mut handles, child) {
                    let answer = handle.handle.await;
                    world.answer(child, answer);
                }
            }
            Step::Join(child) => {
                if let Some(handle) = take(&mut handles, child) {
                    world.answer(child, handle.handle.join());
                }
            }
            Step::Peek(child) => {
                if let Some(mut handle) = take(&mut handles, child) {
                    let mut cx = Context::from_waker(Waker::noop());
                    match Pin::new(&mut handle.handle).poll(&mut cx) {
                        Poll::Ready(answer) => world.answer(child, answer),
                        Poll::Pending => handles.push(handle),
                    }
                }
            }
            Step::DropHandle(child) => drop(take(&mut handles, child)),
            Step::Abort(other) => world.abort(other),
            Step::AbortOutside(other) => {
                no_preempt(|| world.outside.send(Ask::Abort(other)).unwrap())
            }
            Step::Lock => {
                let mut count = world.count.lock();
                let before = *count;
                heddle_rt::yield_now();
                *count = before + 1;
                world.counted.fetch_add(1, SeqCst);
            }
            Step::Permit => {
                let _permit = world.permits.acquire();
                let inside = world.inside.fetch_add(1, SeqCst);
                world.check(inside < PERMITS, || "too many permits".to_owned());
                heddle_rt::yield_now();
                world.inside.fetch_sub(1, SeqCst);
            }
            Step::Panic => resume_unwind(Box::new(me)),
        }
    }
    world.seen[me].values.fetch_add(1, SeqCst);
    Value { world: world.clone(), task: me }
}

/// Waits until `done`, and fails if that takes too long.
fn until(what: &str, world: &World, runtime: &Runtime, done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        if begin.elapsed() >= PATIENCE {
            let left = (0..world.seen.len())
                .filter(|&task| world.seen[task].future_drops.load(SeqCst) == 0);
            let (left, stats) = (left.collect::<Vec<_>>(), runtime.stats());
            panic!(
                "{what}: {left:?} have not ended under {}, {stats:?}, in\n{:?}",
                runtime.policy(),
                world.program
            );
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Runs `program` and compares it with the model.
fn run(program: &Program, policy: &str, workers: usize) {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = RuntimeBuilder::new().policy(policy).workers(workers.min(cpus)).build().unwrap();
    let (outside, asked) = mpsc::channel();
    let count = program.tasks.len();
    let world = Arc::new(World {
        program: program.clone(),
        seen: (0..count).map(|_| Observed::default()).collect(),
        events: Default::default(),
        outside: outside.clone(),
        count: Mutex::new(0),
        counted: AtomicUsize::new(0),
        permits: Semaphore::new(PERMITS),
        inside: AtomicUsize::new(0),
        fault: StdMutex::default(),
    });
    let thread = std::thread::spawn({
        let world = world.clone();
        move || {
            for ask in asked {
                match ask {
                    Ask::Set(event) => world.events[event].set(),
                    Ask::Abort(task) => world.abort(task),
                    Ask::End => return,
                }
            }
        }
    });
    let roots = (0..count).filter(|&task| program.tasks[task].parent.is_none());
    let handles: Vec<Handle> = roots.map(|task| world.spawn(task, Some(&runtime))).collect();
    let seen = |task: usize| &world.seen[task];
    let is_dropped = |task: usize| seen(task).future_drops.load(SeqCst) > 0;

    let must = |released: bool, may: &[Bounds]| -> Vec<usize> {
        let must = program.must(released, may);
        (0..count).filter(|&task| must[task].exists && must[task].ends).collect()
    };
    let may = program.may(false);
    let ended_early = must(false, &may);
    until("before the events", &world, &runtime, || {
        ended_early.iter().all(|&task| is_dropped(task))
    });
    for task in (0..count).filter(|&task| !may[task].ends || !may[task].exists) {
        assert!(!is_dropped(task), "{task} has ended too early");
    }
    match program.finish {
        Finish::Release => {
            world.events.iter().for_each(Event::set);
            let created_are_dropped =
                || (0..count).all(|task| !seen(task).is_created.load(SeqCst) || is_dropped(task));
            let may = program.may(true);
            until("after the events", &world, &runtime, || {
                must(true, &may).into_iter().all(is_dropped) && created_are_dropped()
            });
            for handle in handles {
                world.answer(handle.task, handle.handle.join());
            }
            // A task is counted as ended after its handle was woken.
            let counts = || (runtime.stats().spawned, runtime.stats().exited);
            until("counts", &world, &runtime, || counts().0 == counts().1);
            let created = (0..count).filter(|&task| seen(task).is_created.load(SeqCst)).count();
            assert!(counts().0 >= created as u64, "{:?}, {created} created", counts());
            drop(runtime);
        }
        Finish::Drop => {
            drop(runtime);
            for handle in handles {
                world.answer(handle.task, handle.handle.join());
            }
        }
    }
    outside.send(Ask::End).unwrap();
    thread.join().unwrap();

    if let Some(fault) = world.fault.lock().unwrap().take() {
        panic!("{fault}");
    }
    // As the runtime is dropped, a poll that waits for a child may go on.
    let exist = program.may(true);
    let may = program.may(program.finish == Finish::Release);
    for (task, seen) in world.seen.iter().enumerate() {
        let created = seen.is_created.load(SeqCst);
        assert!(exist[task].exists || !created, "{task} exists");
        let drops = seen.future_drops.load(SeqCst);
        let is_left = created && drops == 0 && program.may_be_left(task);
        assert!(drops == usize::from(created) || is_left, "{drops} drops of the future of {task}");
        assert_eq!(
            seen.values.load(SeqCst),
            seen.value_drops.load(SeqCst),
            "drops of the value of {task}"
        );
        if created && !is_left {
            let (end, expected) = (world.end(task), program.end_of(task));
            let is_late = program.finish == Finish::Drop && !ended_early.contains(&task);
            let may_be_cancelled = may[task].is_aborted || is_late;
            assert!(
                end == expected || may_be_cancelled && end == End::Cancelled,
                "{task}: {end:?}, not {expected:?}"
            );
        }
    }
    if program.finish == Finish::Release {
        assert_eq!(*world.count.lock(), world.counted.load(SeqCst));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        max_shrink_iters: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn tasks_do_what_the_model_says(program in program()) {
        for policy in POLICIES {
            for workers in [1, 2] {
                let failed = std::panic::catch_unwind(|| run(&program, policy, workers));
                if let Err(panic) = failed {
                    eprintln!("under {policy} with {workers}");
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
}
