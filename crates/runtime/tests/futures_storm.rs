//! Thousands of async tasks at once: aborted at random, woken by ordinary threads, preempted all the time, parked in
//! polls. And a million idle ones.

mod common;

use common::two_workers;
use heddle_rt::futures::{self, AbortHandle, JoinHandle, spawn, yield_now};
use heddle_rt::no_preempt;
use heddle_rt::sync::{Mutex, Semaphore};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex as StdMutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Tasks alive at a time, tasks in all, and steps of each.
const TASKS: usize = 1000;
const ROUNDS: usize = 8;
const STEPS: u64 = 12;

/// Numbers that look random.
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

/// A place for wakers that ordinary threads empty all the time.
#[derive(Default)]
struct Bell {
    waiting: StdMutex<Vec<(Arc<AtomicBool>, Waker)>>,
    is_over: AtomicBool,
}

impl Bell {
    /// Waits until it has rung. The lock is held without preemption: see `futures_model.rs`.
    async fn rung(&self) {
        let has_rung = Arc::new(AtomicBool::new(false));
        poll_fn(|cx| {
            if has_rung.load(SeqCst) {
                return Poll::Ready(());
            }
            let waiting = (has_rung.clone(), cx.waker().clone());
            no_preempt(|| self.waiting.lock().unwrap().push(waiting));
            Poll::Pending
        })
        .await;
    }

    /// Rings until it is over. Sometimes it wakes without having rung, or twice.
    fn ring(&self, mut dice: Dice) {
        let mut early = None::<Waker>;
        while !self.is_over.load(SeqCst) {
            let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
            for (has_rung, waker) in waiting {
                if dice.below(4) == 0 {
                    waker.wake_by_ref();
                }
                has_rung.store(true, SeqCst);
                waker.wake_by_ref();
                // Of a task that may have ended when it is used.
                if let Some(late) = early.replace(waker) {
                    late.wake();
                }
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// What all share.
#[derive(Default)]
struct World {
    bell: Bell,
    futures: AtomicUsize,
    future_drops: AtomicUsize,
    values: AtomicUsize,
    value_drops: AtomicUsize,
    count: Mutex<usize>,
    counted: AtomicUsize,
    permits: Option<Semaphore>,
    /// Of any task, for anyone to abort.
    aborts: StdMutex<Vec<AbortHandle>>,
}

/// Lives in a future.
struct Inside(Arc<World>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.future_drops.fetch_add(1, SeqCst);
    }
}

/// The value of a task.
struct Value(Arc<World>, usize);

impl Drop for Value {
    fn drop(&mut self) {
        self.0.value_drops.fetch_add(1, SeqCst);
    }
}

heddle_rt::task_local! {
    static NUMBER: usize;
}

thread_local! {
    static POLL: Cell<usize> = const { Cell::new(0) };
    static STEPS_OF_POLL: RefCell<Vec<u64>> = const { RefCell::new(vec![]) };
}

/// Computes, with variables of the thread that must stay as they are until the poll ends.
fn compute(number: usize) {
    POLL.set(number);
    STEPS_OF_POLL.with_borrow_mut(Vec::clear);
    let thread = std::thread::current().id();
    for step in 0..5 {
        common::spin_for(Duration::from_micros(10));
        STEPS_OF_POLL.with_borrow_mut(|steps| steps.push(step));
    }
    assert_eq!(POLL.get(), number);
    STEPS_OF_POLL.with_borrow(|steps| assert_eq!(steps[..], [0, 1, 2, 3, 4]));
    assert_eq!(std::thread::current().id(), thread);
}

/// Parks in the poll while it holds a lock or a permit.
fn park(world: &World, number: usize, dice: &mut Dice) {
    POLL.set(number);
    match dice.below(3) {
        0 => {
            let mut count = world.count.lock();
            let before = *count;
            heddle_rt::yield_now();
            *count = before + 1;
            world.counted.fetch_add(1, SeqCst);
        }
        1 => {
            let _permit = world.permits.as_ref().unwrap().acquire();
            heddle_rt::yield_now();
        }
        _ => heddle_rt::sleep(Duration::from_micros(dice.below(100))),
    }
    assert_eq!(POLL.get(), number);
}

/// Creates a task of the storm, number `number`.
fn create(world: &Arc<World>, number: usize) -> JoinHandle<Value> {
    world.futures.fetch_add(1, SeqCst);
    let inside = Inside(world.clone());
    let task = spawn(NUMBER.scope_async(number, async move {
        let world = inside.0.clone();
        let mut dice = Dice(number as u64);
        for _ in 0..STEPS {
            match dice.below(8) {
                0 | 1 => yield_now().await,
                2 => world.bell.rung().await,
                3 => compute(number),
                4 => park(&world, number, &mut dice),
                5 => heddle_rt::sleep_async(Duration::from_micros(dice.below(200))).await,
                6 => {
                    let aborts = world.aborts.lock().unwrap();
                    let any = aborts.get(dice.below(aborts.len() as u64 + 1) as usize).cloned();
                    drop(aborts);
                    // One in a few.
                    if let Some(any) = any.filter(|_| dice.below(8) == 0) {
                        any.abort();
                    }
                }
                _ => {
                    let room = [number as u64; 40];
                    let child = spawn(async move {
                        yield_now().await;
                        room[39] as usize
                    });
                    assert_eq!(child.await.unwrap(), number);
                }
            }
            assert_eq!(NUMBER.get(), number);
        }
        drop(inside);
        world.values.fetch_add(1, SeqCst);
        Value(world, number)
    }));
    let mut aborts = world.aborts.lock().unwrap();
    match aborts.len() < TASKS {
        true => aborts.push(task.abort_handle()),
        false => aborts[number % TASKS] = task.abort_handle(),
    }
    task
}

/// Tasks of the storm, some awaited and some not, by a task.
async fn storm(world: Arc<World>, first: usize) -> (usize, usize) {
    let (mut values, mut cancelled) = (0, 0);
    for round in 0..ROUNDS {
        let numbers = (0..TASKS / 2).map(|task| first + round * TASKS + task);
        let tasks: Vec<_> = numbers.map(|number| (number, create(&world, number))).collect();
        for (number, mut task) in tasks {
            if number % 7 == 0 {
                continue;
            }
            if number % 5 == 0 {
                let _ = std::pin::Pin::new(&mut task)
                    .poll(&mut Context::from_waker(Waker::noop()))
                    .map(drop);
            }
            if task.is_finished() && number % 5 == 0 {
                continue;
            }
            let answer = if number % 11 == 0 { task.join() } else { task.await };
            match answer {
                Ok(value) => {
                    assert_eq!(value.1, number);
                    values += 1;
                }
                Err(error) => {
                    assert!(error.is_cancelled(), "{error:?}");
                    cancelled += 1;
                }
            }
        }
    }
    (values, cancelled)
}

#[test]
fn a_storm_of_tasks_loses_nothing() {
    for policy in
        ["round-robin:quantum=20us", "two-queue:quantum=20us", "work-stealing:quantum=20us"]
    {
        let runtime = two_workers(policy);
        let world = Arc::new(World { permits: Some(Semaphore::new(2)), ..World::default() });
        let ringers = [1, 2].map(|seed| {
            let world = world.clone();
            std::thread::spawn(move || world.bell.ring(Dice(seed)))
        });
        let (values, cancelled) = runtime.block_on(async {
            let other = spawn(storm(world.clone(), TASKS / 2));
            let own = storm(world.clone(), 0).await;
            let other = other.await.unwrap();
            (own.0 + other.0, own.1 + other.1)
        });
        // Those that no task awaits.
        common::wait_until(|| world.future_drops.load(SeqCst) == world.futures.load(SeqCst));
        common::wait_until(|| world.value_drops.load(SeqCst) == world.values.load(SeqCst));
        common::wait_until(|| runtime.stats().spawned == runtime.stats().exited);
        world.bell.is_over.store(true, SeqCst);
        ringers.into_iter().for_each(|ringer| ringer.join().unwrap());
        let stats = runtime.stats();
        assert_eq!(world.futures.load(SeqCst), ROUNDS * TASKS);
        assert_eq!(*world.count.lock(), world.counted.load(SeqCst));
        assert!(values > 0 && cancelled > 0, "{values} values, {cancelled} cancelled");
        assert!(stats.preemptions > 0, "{stats:?}");
        println!("{policy}: {values} values, {cancelled} cancelled, {stats:?}");
        drop(runtime);
        assert_eq!(world.future_drops.load(SeqCst), world.futures.load(SeqCst));
        assert_eq!(world.value_drops.load(SeqCst), world.values.load(SeqCst));
    }
}

#[test]
fn a_runtime_that_is_dropped_in_a_storm_drops_all_futures() {
    for policy in
        ["round-robin:quantum=20us", "two-queue:quantum=20us", "work-stealing:quantum=20us"]
    {
        let world = Arc::new(World { permits: Some(Semaphore::new(2)), ..World::default() });
        for round in 0..20 {
            let runtime = two_workers(policy);
            let theirs = world.clone();
            // Awaits no child in a poll, and sleeps in none: those polls would end with the runtime.
            runtime.block_on(async move {
                for number in 0..200 {
                    theirs.futures.fetch_add(1, SeqCst);
                    let inside = Inside(theirs.clone());
                    drop(spawn(async move {
                        let world = inside.0.clone();
                        match number % 4 {
                            0 => compute(number),
                            1 => yield_now().await,
                            2 => world.bell.rung().await,
                            _ => {}
                        }
                        // While the runtime ends, perhaps.
                        for _ in 0..3 {
                            world.futures.fetch_add(1, SeqCst);
                            let inside = Inside(world.clone());
                            drop(spawn(async move { inside.0.bell.rung().await }));
                            compute(number);
                        }
                    }));
                }
                for _ in 0..round {
                    yield_now().await;
                }
            });
            drop(runtime);
            assert_eq!(world.future_drops.load(SeqCst), world.futures.load(SeqCst), "{policy}");
        }
    }
}

/// Counts the polls and drops of a million futures.
struct Idle {
    polls: &'static AtomicUsize,
    drops: &'static AtomicUsize,
    wakers: &'static StdMutex<Vec<Waker>>,
}

impl Future for Idle {
    type Output = ();

    fn poll(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.polls.fetch_add(1, SeqCst) < MILLION {
            no_preempt(|| self.wakers.lock().unwrap().push(cx.waker().clone()));
        }
        Poll::Pending
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.drops.fetch_add(1, SeqCst);
    }
}

const MILLION: usize = 1_000_000;

#[test]
fn a_million_idle_tasks_are_woken_and_dropped() {
    static POLLS: AtomicUsize = AtomicUsize::new(0);
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    static WAKERS: StdMutex<Vec<Waker>> = StdMutex::new(vec![]);
    let runtime = two_workers("work-stealing");
    WAKERS.lock().unwrap().reserve_exact(MILLION);
    for _ in 0..MILLION {
        let idle = Idle { polls: &POLLS, drops: &DROPS, wakers: &WAKERS };
        drop(futures::Builder::new().spawn_in(&runtime, idle).unwrap());
    }
    common::wait_until(|| WAKERS.lock().unwrap().len() == MILLION);
    let wakers = std::mem::take(&mut *WAKERS.lock().unwrap());
    wakers.iter().for_each(Waker::wake_by_ref);
    common::wait_until(|| POLLS.load(SeqCst) == 2 * MILLION);
    assert_eq!(DROPS.load(SeqCst), 0);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap());
    drop(runtime);
    assert_eq!((POLLS.load(SeqCst), DROPS.load(SeqCst)), (2 * MILLION, MILLION));
    // They outlive it.
    wakers.into_iter().for_each(Waker::wake);
}
