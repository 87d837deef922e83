//! Loom models of the hand-over: the members' own code, with loom's atomics and a twin of the shared futex. Loom
//! reports a deadlock if a member sleeps and nothing will wake it, so each model also shows that no wish is lost (I2).
//! Memory that only the active member touches is loom's, which finds accesses that nothing orders (I1).
//!
//! A member that dies unwinds out of a call of [`Cpu`]. Only calls that others can notice are counted: to die between
//! two reads is to die before the next such call.

use super::handover::{self, Cpu, NO_APP, Woken};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};
use loom::sync::{Condvar, Mutex, Notify};
use loom::thread;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, atomic as plain};

/// Explores all runs with so many forced switches: more for two members, for three as many as take seconds.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// The kernel compares and queues under its own lock; so does this. Each waiter is a bit.
struct Futex {
    queued: Mutex<u32>,
    woken: Vec<Condvar>,
}

impl Futex {
    /// Sleeps as `waiter` until woken, if `asleep`.
    fn wait(&self, waiter: usize, asleep: impl FnOnce() -> bool) {
        let mut queued = self.queued.lock().unwrap();
        if asleep() {
            *queued |= 1 << waiter;
            while *queued & 1 << waiter != 0 {
                queued = self.woken[waiter].wait(queued).unwrap();
            }
        }
    }

    fn wake(&self, waiter: usize) {
        let mut queued = self.queued.lock().unwrap();
        if *queued & 1 << waiter != 0 {
            *queued &= !(1 << waiter);
            self.woken[waiter].notify_one();
        }
    }
}

/// Something for which one thread waits.
struct Event {
    happened: AtomicU32,
    notify: Notify,
}

impl Event {
    fn new() -> Event {
        Event { happened: AtomicU32::new(0), notify: Notify::new() }
    }

    fn happens(&self) {
        self.happened.store(1, Release);
        self.notify.notify();
    }

    fn wait(&self) {
        while self.happened.load(Acquire) == 0 {
            self.notify.wait();
        }
    }
}

struct Slot {
    word: AtomicU32,
    waits_on: AtomicU32,
    since: AtomicU64,
    futex: Futex,
    /// Its thread sleeps in the kernel, or is gone.
    absent: AtomicU32,
}

/// One CPU of a share, and what the kernel and the broker keep of it.
struct World {
    ranks: Vec<u32>,
    slots: Vec<Slot>,
    members: AtomicU32,
    /// What only the active member touches: how often any was active.
    entries: UnsafeCell<u32>,
    asked: Event,
    slept: Event,
    clock: plain::AtomicU64,
    /// Waiters do not sleep, as two do under the kernel's arbitration.
    yields: bool,
}

// SAFETY: loom runs one thread at a time, and reports accesses to the cell that nothing orders.
unsafe impl Sync for World {}

impl World {
    fn new(ranks: &[u32]) -> World {
        let slot = |_: &u32| Slot {
            word: AtomicU32::new(0),
            waits_on: AtomicU32::new(NO_APP),
            since: AtomicU64::new(0),
            futex: Futex {
                queued: Mutex::new(0),
                woken: ranks.iter().map(|_| Condvar::new()).collect(),
            },
            absent: AtomicU32::new(0),
        };
        World {
            ranks: ranks.into(),
            slots: ranks.iter().map(slot).collect(),
            members: AtomicU32::new((1 << ranks.len()) - 1),
            entries: UnsafeCell::new(0),
            asked: Event::new(),
            slept: Event::new(),
            clock: plain::AtomicU64::new(0),
            yields: false,
        }
    }

    fn shared(ranks: &[u32]) -> Arc<World> {
        Arc::new(World::new(ranks))
    }

    /// Wakes all that sleep on any word: by the broker, or because each waiter looks again after a while.
    fn wake_all(&self) {
        for on in &self.slots {
            (0..self.slots.len()).for_each(|waiter| on.futex.wake(waiter));
        }
    }

    /// What the broker does when an application has died.
    fn remove(&self, app: usize) {
        self.members.fetch_and(!(1 << app), AcqRel);
        self.slots[app].word.store(0, Release);
        fence(SeqCst);
        self.wake_all();
    }

    /// The thread of `app` is not on the CPU from now on, which those that wait find when they look again.
    fn goes_absent(&self, app: usize) {
        self.slots[app].absent.store(1, Release);
        fence(SeqCst);
        (0..self.slots.len()).for_each(|waiter| self.slots[app].futex.wake(waiter));
    }

    /// The caller is active: touches what no other may touch meanwhile. Returns how often members were active
    /// before.
    fn touch(&self) -> u32 {
        self.entries.with_mut(|entries| {
            // SAFETY: loom checks that no other access is concurrent.
            unsafe {
                *entries += 1;
                *entries - 1
            }
        })
    }
}

/// A member, in its thread.
struct Actor {
    world: Arc<World>,
    me: usize,
    /// The calls until it dies.
    left: Cell<u32>,
}

/// It dies in a call.
struct Died;

impl Actor {
    fn new(world: &Arc<World>, me: usize) -> Actor {
        Actor { world: world.clone(), me, left: Cell::new(u32::MAX) }
    }

    fn slot(&self) -> &Slot {
        &self.world.slots[self.me]
    }

    /// A call that others can notice begins.
    fn acts(&self) {
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 {
            resume_unwind(Box::new(Died));
        }
    }

    /// Enters, touches, and leaves. Returns how often members were active before.
    fn works(&self) -> u32 {
        handover::enter(self);
        let before = self.world.touch();
        handover::leave(self);
        before
    }

    /// Calls `body`, and dies in its `n`th noticeable call. Returns whether it does.
    fn dies_in(&self, n: u32, body: impl FnOnce(&Actor)) -> bool {
        self.left.set(n);
        let died = catch_unwind(AssertUnwindSafe(|| body(self)));
        match died {
            Ok(()) => false,
            Err(payload) if payload.is::<Died>() => true,
            Err(payload) => resume_unwind(payload),
        }
    }
}

impl Cpu for Actor {
    fn me(&self) -> usize {
        self.me
    }

    fn members(&self) -> u32 {
        self.world.members.load(Acquire) | 1 << self.me
    }

    fn rank(&self, app: usize) -> u32 {
        self.world.ranks[app]
    }

    fn word(&self, app: usize) -> u32 {
        self.world.slots[app].word.load(Acquire)
    }

    fn set_word(&self, word: u32) {
        self.acts();
        self.slot().word.store(word, Release);
        fence(SeqCst);
    }

    fn since(&self, app: usize) -> u64 {
        self.world.slots[app].since.load(Relaxed)
    }

    fn begin_want(&self) {
        self.acts();
        let now = self.world.clock.fetch_add(1, plain::Ordering::Relaxed);
        self.slot().since.store(now, Relaxed);
        self.slot().waits_on.store(NO_APP, Relaxed);
    }

    // Threads here run beside each other; `explore` models priorities.
    fn preempts(&self, _: usize) -> bool {
        false
    }

    fn waits_on(&self, app: usize) -> u32 {
        self.world.slots[app].waits_on.load(Acquire)
    }

    fn sleep(&self, app: usize, word: u32) -> Woken {
        self.acts();
        let on = if self.world.yields { NO_APP } else { app as u32 };
        self.slot().waits_on.store(on, Release);
        fence(SeqCst);
        self.world.slept.happens();
        // To die asleep is to die here: the kernel takes it off the queue.
        self.acts();
        let awaited = &self.world.slots[app];
        let is_absent = || awaited.absent.load(Acquire) != 0;
        let stays = || self.word(app) == word;
        if self.world.yields {
            thread::yield_now();
        } else {
            awaited.futex.wait(self.me, || stays() && !is_absent());
        }
        if is_absent() && stays() { Woken::StandIn } else { Woken::Moved }
    }

    fn wake(&self, app: usize, waiter: usize) {
        self.acts();
        self.world.slots[app].futex.wake(waiter);
    }

    fn ask(&self, _: usize) {
        self.acts();
        self.world.asked.happens();
    }

    fn broke_rule(&self) {}

    fn stands_in(&self) {}
}

fn join_all<T>(threads: impl IntoIterator<Item = thread::JoinHandle<T>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Runs members that each enter and leave so many times.
fn all_work(world: &Arc<World>, times: &[u32]) {
    let run = |(me, &times): (usize, &u32)| {
        let actor = Actor::new(world, me);
        thread::spawn(move || (0..times).map(|_| actor.works()).last())
    };
    let threads: Vec<_> = times.iter().enumerate().map(run).collect();
    join_all(threads);
    assert_eq!(world.touch(), times.iter().sum::<u32>());
}

#[test]
fn of_two_equals_one_is_active_and_both_get_in() {
    check(5, || all_work(&World::shared(&[0, 0]), &[1, 1]));
}

#[test]
fn of_two_of_different_rank_one_is_active_and_both_get_in() {
    check(5, || all_work(&World::shared(&[1, 0]), &[1, 1]));
}

#[test]
fn two_get_in_again_and_again() {
    check(3, || all_work(&World::shared(&[1, 0]), &[2, 2]));
}

#[test]
fn of_two_that_yield_one_is_active_and_both_get_in() {
    check(5, || all_work(&Arc::new(World { yields: true, ..World::new(&[1, 0]) }), &[1, 1]));
}

#[test]
fn of_three_one_is_active_and_all_get_in() {
    check(3, || all_work(&World::shared(&[2, 1, 0]), &[1, 1, 1]));
}

/// Both also leave while others enter.
#[test]
fn three_get_in_when_one_comes_twice() {
    check(2, || all_work(&World::shared(&[1, 0, 0]), &[2, 1, 1]));
}

/// Asking tells the active member of a rival, and making way lets it in first.
#[test]
fn who_is_asked_has_a_rival_and_lets_it_in_first() {
    check(4, || {
        let world = World::shared(&[1, 0]);
        let active = Actor::new(&world, 0);
        handover::enter(&active);
        let better = Actor::new(&world, 1);
        let better = thread::spawn(move || better.works());
        world.asked.wait();
        assert_eq!(handover::rival(&active), Some(1));
        handover::make_way(&active);
        assert_eq!(world.touch(), 1, "it went on before its rival was active");
        handover::leave(&active);
        assert_eq!(better.join().unwrap(), 0);
    });
}

/// Makes way while a better one enters or leaves, or has not come: a rival has been active after.
#[test]
fn making_way_gives_the_cpu_to_a_rival_at_any_time() {
    check(4, || {
        let world = World::shared(&[1, 0]);
        let better = Actor::new(&world, 1);
        let better = thread::spawn(move || better.works());
        let active = Actor::new(&world, 0);
        handover::enter(&active);
        let before = world.touch();
        let is_rival = handover::rival(&active) == Some(1);
        handover::make_way(&active);
        assert!(world.touch() == before + 2 || !is_rival);
        handover::leave(&active);
        better.join().unwrap();
    });
}

/// Of three, the active one makes way; one that is better than both others may come at any time.
#[test]
fn making_way_among_three_loses_none() {
    check(3, || {
        let world = World::shared(&[2, 1, 0]);
        let others = [Actor::new(&world, 1), Actor::new(&world, 2)];
        let active = Actor::new(&world, 0);
        handover::enter(&active);
        let others = others.map(|other| thread::spawn(move || other.works()));
        world.touch();
        handover::make_way(&active);
        world.touch();
        handover::leave(&active);
        join_all(others);
        assert_eq!(world.touch(), 4);
    });
}

/// The second comes when the first sleeps.
#[test]
fn equals_have_the_cpu_in_the_order_in_which_they_came() {
    check(3, || {
        let world = World::shared(&[0, 0, 0]);
        let (active, first) = (Actor::new(&world, 0), Actor::new(&world, 2));
        handover::enter(&active);
        let first = thread::spawn(move || {
            let before = first.works();
            first.world.slept.happens();
            before
        });
        let second = Actor::new(&world, 1);
        let second = thread::spawn(move || {
            second.world.slept.wait();
            second.works()
        });
        handover::leave(&active);
        assert_eq!(first.join().unwrap(), 0);
        assert_eq!(second.join().unwrap(), 1);
    });
}

/// Checks `model`, which is told in which noticeable call a member dies, for each call until it ends before it dies.
fn check_each_death(
    preemptions: usize,
    model: impl Fn(u32) -> bool + Send + Sync + Copy + 'static,
) {
    for call in 1.. {
        let died = Arc::new(plain::AtomicBool::new(false));
        let dies = died.clone();
        check(preemptions, move || {
            dies.fetch_or(model(call), plain::Ordering::Relaxed);
        });
        if !died.load(plain::Ordering::Relaxed) {
            assert!(call > 5);
            return;
        }
    }
}

/// A life with each kind of call.
fn live(actor: &Actor) {
    handover::enter(actor);
    actor.world.touch();
    handover::make_way(actor);
    actor.world.touch();
    handover::leave(actor);
}

/// Runs a member that dies in its `call`th call, and then what the broker does, beside others that live.
fn die_beside(ranks: &[u32], call: u32) -> bool {
    let world = World::shared(ranks);
    let survive = |me| {
        let actor = Actor::new(&world, me);
        thread::spawn(move || actor.works())
    };
    let survivors: Vec<_> = (1..ranks.len()).map(survive).collect();
    let died = Actor::new(&world, 0).dies_in(call, live);
    if died {
        world.remove(0);
    }
    join_all(survivors);
    died
}

#[test]
fn one_gets_in_when_a_worse_one_dies_in_any_call() {
    check_each_death(3, |call| die_beside(&[1, 0], call));
}

#[test]
fn one_gets_in_when_a_better_one_dies_in_any_call() {
    check_each_death(3, |call| die_beside(&[0, 1], call));
}

#[test]
fn two_get_in_when_the_worst_dies_in_any_call() {
    check_each_death(2, |call| die_beside(&[2, 1, 0], call));
}

#[test]
fn two_get_in_when_the_best_dies_in_any_call() {
    check_each_death(2, |call| die_beside(&[0, 1, 2], call));
}

#[test]
fn two_get_in_when_the_one_between_them_dies_in_any_call() {
    check_each_death(2, |call| die_beside(&[1, 0, 2], call));
}

/// No broker cleans up: the survivor looks after a while, and finds that nothing has moved and that it runs all the
/// same.
#[test]
fn one_gets_in_when_another_dies_in_any_call_and_no_broker_is_there() {
    check_each_death(3, |call| {
        let world = World::shared(&[0, 0]);
        let survivor = Actor::new(&world, 1);
        let survivor = thread::spawn(move || survivor.works());
        let died = Actor::new(&world, 0).dies_in(call, live);
        if died {
            world.goes_absent(0);
        }
        survivor.join().unwrap();
        died
    });
}

/// The active one sleeps in the kernel for a while, as far as the others can tell, and comes back beside one that
/// stands in for it. Of all others one is active, and of all when it has come back and has left.
fn absent_beside(ranks: &[u32]) {
    let world = World::shared(ranks);
    let active = Actor::new(&world, 0);
    handover::enter(&active);
    let enter = |me| {
        let actor = Actor::new(&world, me);
        thread::spawn(move || actor.works())
    };
    let others: Vec<_> = (1..ranks.len()).map(enter).collect();
    world.goes_absent(0);
    world.slots[0].absent.store(0, Release);
    handover::leave(&active);
    active.works();
    join_all(others);
    assert_eq!(world.touch() as usize, ranks.len());
}

#[test]
fn one_stands_in_for_an_active_one_that_sleeps_in_the_kernel() {
    check(4, || absent_beside(&[0, 0]));
}

#[test]
fn one_of_two_stands_in_for_an_active_one_that_sleeps_in_the_kernel() {
    check(2, || absent_beside(&[0, 1, 2]));
}

/// The active one, and one that waits and is better than the third, sleep in the kernel for good.
#[test]
fn one_stands_in_for_two_that_sleep_in_the_kernel() {
    check(5, || {
        let world = World::shared(&[0, 0, 1]);
        handover::enter(&Actor::new(&world, 0));
        let (better, last) = (Actor::new(&world, 1), Actor::new(&world, 2));
        let last = thread::spawn(move || handover::enter(&last));
        // It dies where it would sleep, after all have heard that it waits.
        assert!(better.dies_in(4, live));
        world.goes_absent(0);
        world.goes_absent(1);
        last.join().unwrap();
    });
}
