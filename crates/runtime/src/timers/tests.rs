//! Timers against a sorted map, and against themselves from several threads.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;

#[derive(Clone, Debug)]
enum Op {
    /// Sets a timer on this CPU, at this time from now; negative if overdue.
    Set(usize, i64),
    /// Cancels the nth timer that is set, modulo their number.
    Cancel(usize),
    /// Advances time and fires everything that is due.
    Pass(u64),
    /// Advances time and fires at most this many.
    Fire(u64, usize),
}

/// The task that a timer wakes.
fn task<W>(fired: Fired<W>) -> W {
    match fired {
        Fired::Task(who) => who,
        Fired::Future(_) => panic!("no future has a timer"),
    }
}

/// Times of every magnitude, many of them powers of two.
fn time() -> impl Strategy<Value = u64> {
    (0u32..44, any::<u64>(), any::<bool>()).prop_map(|(bits, noise, round)| {
        let at = 1u64 << bits;
        if round { at } else { at | noise & (at - 1) }
    })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0usize..3, time()).prop_map(|(cpu, ns)| Op::Set(cpu, ns as i64)),
        2 => (0usize..3, 0i64..300).prop_map(|(cpu, ns)| Op::Set(cpu, ns)),
        1 => (0usize..3, 0i64..100).prop_map(|(cpu, ns)| Op::Set(cpu, -ns)),
        4 => any::<usize>().prop_map(Op::Cancel),
        3 => time().prop_map(Op::Pass),
        3 => (time(), 1usize..3).prop_map(|(ns, n)| Op::Fire(ns, n)),
    ]
}

/// The timers under test and the sorted map, side by side.
struct Pair {
    timers: Timers<u64>,
    set: BTreeMap<(Ns, u64), Box<Timer<u64>>>,
    now: Ns,
    cpus: usize,
    cancelled: bool,
}

impl Pair {
    fn new(cpus: usize) -> Pair {
        let timers = Timers::new(cpus);
        // As after some days of uptime.
        Pair { timers, set: BTreeMap::new(), now: Ns(1 << 49), cpus, cancelled: false }
    }

    fn set(&mut self, number: u64, cpu: usize, after: i64) {
        let at = Ns(self.now.0.saturating_add_signed(after));
        let timer = Box::new(Timer::new(at, number));
        // SAFETY: it is cancelled, or popped, before it is dropped.
        let earliest = unsafe { self.timers.set(cpu % self.cpus, &timer) };
        let before = self.set.keys().next().map_or(Ns::MAX, |&(at, _)| at);
        assert!(earliest || at >= before || self.cancelled, "the earliest is announced");
        assert!(!earliest || at <= before, "and no other");
        self.set.insert((at, number), timer);
    }

    fn cancel(&mut self, place: usize) {
        let place = place % self.set.len().max(1);
        let Some(&key) = self.set.keys().nth(place) else { return };
        self.timers.cancel(&self.set.remove(&key).unwrap());
        self.cancelled = true;
    }

    fn fire(&mut self, at_most: usize) {
        for _ in 0..at_most {
            let first = self.set.first_entry().filter(|entry| entry.key().0 <= self.now);
            let expected = first.map(|entry| entry.remove_entry());
            let fired = self.timers.pop_due(self.now).map(task);
            match (fired, expected) {
                (None, None) => break,
                (Some(number), Some((_, timer))) if number == task(timer.link.who.who.fire()) => {
                    self.timers.cancel(&timer);
                }
                // Among equal deadlines on several CPUs, any may come first.
                (Some(number), Some(((at, other), timer))) if self.cpus > 1 => {
                    let theirs = self.set.remove(&(at, number)).expect("of the same deadline");
                    self.timers.cancel(&theirs);
                    self.set.insert((at, other), timer);
                }
                (fired, expected) => panic!("{fired:?} for {:?}", expected.map(|(key, _)| key)),
            }
        }
    }

    fn check_next(&self) {
        let truth = self.set.keys().next().map_or(Ns::MAX, |&(at, _)| at);
        assert!(self.timers.next() <= truth);
        assert!(self.cancelled || self.timers.next() == truth, "exact where nothing was cancelled");
        assert!(!self.set.is_empty() || truth == self.timers.next(), "and where nothing is left");
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.set.values().for_each(|timer| self.timers.cancel(timer));
    }
}

proptest! {
    #[test]
    fn timers_fire_as_a_sorted_map_says(
        cpus in prop_oneof![Just(1usize), Just(3)],
        ops in prop::collection::vec(op(), 1..200),
    ) {
        let mut pair = Pair::new(cpus);
        for (number, op) in ops.into_iter().enumerate() {
            match op {
                Op::Set(cpu, after) => pair.set(number as u64, cpu, after),
                Op::Cancel(place) => pair.cancel(place),
                Op::Pass(time) => {
                    pair.now += Ns(time);
                    pair.fire(usize::MAX);
                }
                Op::Fire(time, at_most) => {
                    pair.now += Ns(time);
                    pair.fire(at_most);
                }
            }
            pair.check_next();
        }
    }
}

#[test]
fn a_timer_can_be_set_to_the_first_and_last_times() {
    let timers: Timers<u32> = Timers::new(1);
    let all = [u64::MAX - 1, 0, 1 << 63, 1].map(|at| Timer::new(Ns(at), at.count_ones()));
    // SAFETY: they are cancelled below.
    let earliest = all.each_ref().map(|timer| unsafe { timers.set(0, timer) });
    assert_eq!(earliest, [true, true, false, false]);
    assert_eq!(timers.next(), Ns::ZERO);
    let fired: Vec<u32> =
        std::iter::from_fn(|| timers.pop_due(Ns(u64::MAX - 2)).map(task)).collect();
    assert_eq!(fired, [0, 1, 1]);
    assert_eq!(timers.next(), Ns(u64::MAX - 1));
    all.iter().for_each(|timer| timers.cancel(timer));
    assert_eq!(timers.next(), Ns::MAX);
}

/// Several threads set timers, on any CPU, and cancel them; one more thread fires them. A timer that fired after it was
/// cancelled would count its owner's round twice, or access a frame that is gone.
#[test]
fn a_timer_fires_once_or_is_cancelled() {
    const THREADS: usize = 3;
    let timers: Timers<&AtomicUsize> = Timers::new(2);
    let running = AtomicUsize::new(THREADS);
    let fired: Vec<AtomicUsize> = (0..THREADS).map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|scope| {
        for mine in &fired {
            let (timers, running) = (&timers, &running);
            scope.spawn(move || {
                let mut seen = 0;
                for round in 0..20_000usize {
                    let timer = Timer::new(Ns(round as u64 % 7 * 100), mine);
                    // SAFETY: it is cancelled before the frame ends.
                    unsafe { timers.set(round % 2, &timer) };
                    for _ in 0..round % 50 {
                        std::hint::spin_loop();
                    }
                    timers.cancel(&timer);
                    seen += usize::from(timer.link.who.fired.load(Ordering::Relaxed));
                }
                // The firing thread counts after it has marked the last timer.
                while mine.load(Ordering::Acquire) < seen {
                    std::thread::yield_now();
                }
                assert_eq!(mine.load(Ordering::Acquire), seen);
                running.fetch_sub(1, Ordering::Release);
            });
        }
        while running.load(Ordering::Acquire) > 0 {
            while let Some(owner) = timers.pop_due(Ns(350)).map(task) {
                owner.fetch_add(1, Ordering::Release);
            }
        }
    });
    assert_eq!(timers.next(), Ns::MAX);
}

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl std::task::Wake for Count {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn closed_timers_wake_futures_and_take_no_more() {
    let counts: [std::sync::Arc<Count>; 3] = Default::default();
    let woken = || counts.each_ref().map(|count| count.0.load(Ordering::Relaxed));
    let future = |at, which: usize| Timer::of_future(Ns(at), counts[which].clone().into());
    let timers: Timers<u32> = Timers::new(2);
    let (first, late, refused) = (future(10, 0), future(1 << 50, 1), future(5, 2));
    let slept = Timer::new(Ns(20), 7);
    // SAFETY: they are popped or cancelled before the end of the test, and closed before that.
    unsafe {
        assert_eq!(timers.set_of_future(0, &first), Some(true));
        assert_eq!(timers.set_of_future(1, &late), Some(false));
        timers.set(1, &slept);
    }
    assert!(matches!(timers.pop_due(Ns(11)), Some(Fired::Future(Some(_)))));
    assert!(first.has_fired() && !late.has_fired());
    assert!(first.into_waker().is_none(), "taken out");
    timers.close(Waker::wake);
    assert!(late.has_fired() && slept.has_fired());
    assert_eq!(woken(), [0, 1, 0]);
    // SAFETY: as above.
    assert_eq!(unsafe { timers.set_of_future(0, &refused) }, None);
    assert!(!refused.has_fired());
    assert_eq!(timers.next(), Ns::MAX);
    let after = Timer::new(Ns(3), 8);
    // SAFETY: as above.
    unsafe { timers.set(0, &after) };
    assert_eq!(timers.next(), Ns(3), "tasks may still set theirs");
    timers.cancel(&after);
}

#[test]
fn a_waker_is_replaced_while_its_timer_is_set() {
    let [old, new]: [std::sync::Arc<Count>; 2] = Default::default();
    let timers: Timers<u32> = Timers::new(1);
    let wakers = [old.clone(), new.clone()].map(Waker::from);
    let timer = Timer::of_future(Ns(10), wakers[0].clone());
    // SAFETY: it is popped below.
    unsafe { timers.set_of_future(0, &timer) };
    assert!(timers.will_wake(&timer, &wakers[0]) && !timers.will_wake(&timer, &wakers[1]));
    drop(timers.replace_waker(&timer, wakers[1].clone()));
    assert!(timers.will_wake(&timer, &wakers[1]));
    let Some(Fired::Future(Some(waker))) = timers.pop_due(Ns(10)) else { panic!("it is due") };
    waker.wake();
    assert_eq!([old, new].map(|count| count.0.load(Ordering::Relaxed)), [0, 1]);
    assert!(!timers.will_wake(&timer, &wakers[1]));
    let back = timers.replace_waker(&timer, wakers[0].clone());
    assert!(back.will_wake(&wakers[0]), "it has fired, and keeps none");
}
