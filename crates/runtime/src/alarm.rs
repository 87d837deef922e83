//! A worker's alarm: the timer that ends quanta.
//!
//! Each worker under a policy with a quantum has its own timer, whose signal interrupts it on the CPU on which it
//! computes. When the timer fires, the task itself checks what waits and asks the policy
//! ([`crate::task::Scheduler::look_around`]).
//!
//! # States
//!
//! | state | `rings_at` | becomes |
//! |---|---|---|
//! | off | [`OFF`] | set: a turn begins while others wait; a thread that enqueues for this CPU asks ([`Alarm::ask`]) |
//! | set | a time stamp to come | put off, rung; off: the worker rests, blocks or has lost its CPU |
//! | late | set, and `is_late` | brought forward, to the end of the quantum, by a thread that enqueues for this CPU |
//! | rung | a time stamp that is past | set: by the look that it leads to, or by the next turn; off: nothing waits |
//! | none | [`NONE`], [`ONLY_RETRIES`] | nothing: no quantum, or no timer to be had |
//!
//! # The quantum is kept
//!
//! Setting a timer is a system call (1.5 us) and being interrupted costs 7 us, so neither happens once a turn: a turn
//! that begins keeps a timer that fires between a half and one and a half quanta from then, or 100 us after a quantum
//! if that is sooner. Turns shorter than that push it back, once in a quantum or two, and are never interrupted. If it
//! interrupts a turn younger than the quantum, it is set to the rest of it. So a task is asked to yield after one
//! quantum at the earliest, and so much later at the latest.
//!
//! A task that the policy lets run for longer, provided that nothing is enqueued meanwhile ([`Resched::Until`]), has a
//! late alarm: on a virtual machine an interrupt costs 40 us, so looking once a quantum takes a good part of the CPU.
//!
//! A task that arrives after the quantum is over needs no alarm: the thread that enqueues it interrupts the worker,
//! which costs less than a timer that is set to now.
//!
//! # Beside probes
//!
//! Tasks with probes ([`crate::probe`]) find out for themselves that their quantum is over. Then the alarm is the
//! backstop for code without probes: it fires a *grace* later than it would, and who enqueues sets the time at which
//! probes look instead of interrupting the worker.
//!
//! On a virtual machine setting a timer costs 10 us, which is much for tasks that are never interrupted. So the grace
//! grows while the timer is only put off, and is short again once it was needed.
//!
//! [`Resched::Until`]: heddle_core::Resched::Until
//!
//! # Without a CPU
//!
//! A worker whose task sleeps in the kernel loses its CPU, and its alarm is off: it would wake the task. The task comes
//! back eventually, and must queue like others. If it does so by itself all is well; if it computes, a second timer
//! interrupts it, which counts the thread's CPU time and so never wakes it ([`Alarm::recall`]).
//!
//! # No wait is forgotten
//!
//! Only the worker turns it off, after it has seen an empty queue, and checks the queue once more afterwards, with a
//! full fence in between. Likewise, a thread that enqueues writes the queue first and then checks the alarm. So one of
//! them sees the other. It becomes late in the same way: the worker first says so ([`Alarm::before_late`]), then looks
//! into the queue, and sets it late only if no thread has asked since. A turn that begins never turns it off. Anything
//! that still goes wrong (the number of timers is limited; a program deletes ours) is noticed by the ticker within a
//! millisecond or two.

use heddle_core::Ns;
use heddle_sys::clock;
use heddle_sys::timer::ThreadTimer;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering, fence};

/// The signal: ignored by default, so that a stray one does no harm.
pub(crate) const SIGNAL: i32 = libc::SIGURG;

/// Not set.
const OFF: u64 = u64::MAX;

/// There is no timer. Later than any time stamp, as [`OFF`] is.
const NONE: u64 = u64::MAX - 1;

/// There is one, but only to interrupt again a task that was found in the C library: the policy has no quantum.
const ONLY_RETRIES: u64 = u64::MAX - 2;

/// The pause before a task found in the C library is first interrupted again.
const FIRST_RETRY: Ns = Ns::from_us(20);

/// Each pause is twice the previous one. A task asleep in the kernel must not be kept awake: the pauses add up to 0.6
/// ms; after that the ticker decides whether the task computes or sleeps.
const RETRIES: u32 = 5;

/// CPU time after which a task is interrupted if its worker no longer has a CPU.
const RECALL: Ns = Ns::from_ms(1);

/// The longest grace, for tasks that never needed the timer.
const MOST_GRACE: Ns = Ns::from_ms(2);

/// How much later than a quantum from now a turn leaves an alarm that it finds set, at most.
const MOST_SLACK: Ns = Ns::from_us(100);

/// There is no second timer.
const NO_TIMER: i32 = -1;

/// See the module.
pub(crate) struct Alarm {
    /// The timer's number, while it exists.
    timer: AtomicI32,
    /// The number of the CPU-time timer.
    recall: AtomicI32,
    rings_at: AtomicU64,
    /// It is set later than the end of the quantum, or about to be, and no thread has asked since.
    is_late: AtomicBool,
    /// Ticks of the time stamp counter.
    quantum: AtomicU64,
    /// See [`Alarm::slack`]; without a grace.
    slack: AtomicU64,
    /// Ticks that it fires later because tasks have probes; zero if they have none.
    grace: AtomicU64,
    /// The shortest grace.
    least_grace: AtomicU64,
    /// How many times in a row it found its task in the C library.
    retries: AtomicU32,
}

impl Default for Alarm {
    fn default() -> Self {
        Alarm {
            timer: AtomicI32::new(0),
            recall: AtomicI32::new(NO_TIMER),
            rings_at: AtomicU64::new(NONE),
            is_late: AtomicBool::new(false),
            quantum: AtomicU64::new(0),
            slack: AtomicU64::new(0),
            grace: AtomicU64::new(0),
            least_grace: AtomicU64::new(0),
            retries: AtomicU32::new(0),
        }
    }
}

/// What came of asking an alarm to limit a task to its quantum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It does so already, or cannot.
    Nothing,
    /// It was set. The quantum is over at the time stamp `end`, which may be past if there is a grace.
    Set { end: u64 },
    /// The quantum is over, and the caller interrupts the worker itself, which costs less than a timer.
    Due,
}

impl Alarm {
    /// Creates the timer, for the calling thread, unless it is `given`. Without one the ticker enforces quanta, each
    /// millisecond.
    pub(crate) fn install(
        &self,
        signal: i32,
        given: Option<ThreadTimer>,
        quantum: u64,
        grace: u64,
    ) {
        self.grace.store(grace, Ordering::Relaxed);
        self.least_grace.store(grace, Ordering::Relaxed);
        if let Ok(timer) = given.map_or_else(|| ThreadTimer::new(signal), Ok) {
            self.timer.store(timer.number(), Ordering::Relaxed);
            self.quantum.store(quantum, Ordering::Relaxed);
            let slack = (quantum / 2).min(clock::ns_to_ticks(MOST_SLACK));
            self.slack.store(slack, Ordering::Relaxed);
            self.rings_at.store(OFF, Ordering::Release);
        }
        if let Ok(timer) = ThreadTimer::of_cpu_time(signal) {
            self.recall.store(timer.number(), Ordering::Release);
        }
    }

    /// Creates the timer, for the calling thread, under a policy without a quantum: other programs' workers interrupt
    /// it.
    pub(crate) fn install_for_retries(&self, signal: i32) {
        if let Ok(timer) = ThreadTimer::new(signal) {
            self.timer.store(timer.number(), Ordering::Relaxed);
            self.rings_at.store(ONLY_RETRIES, Ordering::Release);
        }
    }

    /// Deletes it when its thread ends.
    pub(crate) fn remove(&self) {
        if let Some(timer) = self.recall_timer() {
            self.recall.store(NO_TIMER, Ordering::Release);
            timer.delete();
        }
        if self.rings_at.swap(NONE, Ordering::AcqRel) != NONE {
            self.timer().delete();
        }
    }

    /// Returns whether tasks have probes.
    #[inline]
    pub(crate) fn has_grace(&self) -> bool {
        self.grace.load(Ordering::Relaxed) != 0
    }

    /// Returns when it fires for a quantum that ends at the time stamp `end`.
    #[inline]
    pub(crate) fn with_grace(&self, end: u64) -> u64 {
        end.saturating_add(self.grace.load(Ordering::Relaxed))
    }

    /// Returns how many ticks later than a quantum from now it may be set where a turn begins.
    #[inline]
    fn slack(&self) -> u64 {
        self.slack.load(Ordering::Relaxed) + self.grace.load(Ordering::Relaxed) / 2
    }

    fn timer(&self) -> ThreadTimer {
        ThreadTimer::from_number(self.timer.load(Ordering::Relaxed))
    }

    fn recall_timer(&self) -> Option<ThreadTimer> {
        let number = self.recall.load(Ordering::Acquire);
        (number != NO_TIMER).then(|| ThreadTimer::from_number(number))
    }

    /// Called when its worker is about to lose its CPU: interrupts the worker's task once it computes, until
    /// [`Alarm::recalled`].
    pub(crate) fn recall(&self) {
        if let Some(timer) = self.recall_timer() {
            timer.repeat(RECALL);
        }
    }

    /// Called when its worker no longer has a task, or keeps its CPU.
    pub(crate) fn recalled(&self) {
        if let Some(timer) = self.recall_timer() {
            timer.stop();
        }
    }

    /// Returns whether there is a timer.
    #[inline]
    pub(crate) fn exists(&self) -> bool {
        !matches!(self.rings_at.load(Ordering::Relaxed), NONE | ONLY_RETRIES)
    }

    /// A turn begins at the time stamp `now`. `waits` says whether anything else wants the CPU; `late`, which calls
    /// [`Alarm::before_late`] first, how long the task may run if nothing is enqueued, if that is more than a quantum.
    #[inline(always)]
    pub(crate) fn turn_begins(
        &self,
        now: u64,
        quantum: u64,
        waits: impl FnOnce() -> bool,
        late: impl FnOnce() -> Option<Ns>,
    ) {
        let rings_at = self.rings_at.load(Ordering::Relaxed);
        let quantum = self.with_grace(quantum);
        let slack = self.slack();
        // One comparison: not sooner than half a quantum from now, and not much later than a quantum.
        if rings_at.wrapping_sub(now + quantum / 2) > quantum / 2 + slack
            && rings_at != NONE
            && (rings_at != OFF || waits())
        {
            self.put_off(now, quantum, rings_at, late);
        }
    }

    #[cold]
    fn put_off(&self, now: u64, quantum: u64, rings_at: u64, late: impl FnOnce() -> Option<Ns>) {
        self.retries.store(0, Ordering::Relaxed);
        // Short turns set it once a quantum; if it has fired, turns are not short.
        if now < rings_at && rings_at < now + quantum / 2 {
            let longer = 2 * self.grace.load(Ordering::Relaxed);
            self.grace.store(longer.min(clock::ns_to_ticks(MOST_GRACE)), Ordering::Relaxed);
            return self.set(now, quantum + self.slack());
        }
        match late() {
            Some(limit) => {
                self.set_late(now, self.with_grace(clock::ns_to_ticks(limit)), quantum);
            }
            None => self.set(now, quantum),
        }
    }

    /// Sets it to fire `ticks` from `now`.
    fn set(&self, now: u64, ticks: u64) {
        self.is_late.store(false, Ordering::Relaxed);
        self.set_timer(now, ticks);
    }

    fn set_timer(&self, now: u64, ticks: u64) {
        self.rings_at.store(now + ticks, Ordering::Relaxed);
        self.timer().set(clock::ticks_to_ns(ticks));
    }

    /// For its worker, before it looks into the queue: a thread that enqueues from now on is noticed by
    /// [`Alarm::set_late`].
    pub(crate) fn before_late(&self) {
        self.is_late.store(self.exists(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The look into the queue found that it is not to be late.
    pub(crate) fn not_late(&self) {
        self.is_late.store(false, Ordering::Relaxed);
    }

    /// Sets it to fire `limit` ticks from `now`, or `soon` ticks if a thread has enqueued a task since
    /// [`Alarm::before_late`].
    fn set_late(&self, now: u64, limit: u64, soon: u64) {
        // It may be set so already; a system call is dearer than a look that comes a little early.
        let (rings_at, at) = (self.rings_at.load(Ordering::Relaxed), now + limit);
        let is_set = now < rings_at && rings_at <= at && at - rings_at <= soon / 2;
        if !is_set {
            self.set_timer(now, limit);
        }
        if !self.is_late() {
            self.set_timer(now, soon);
        }
    }

    /// As [`Alarm::set_late`], from now.
    pub(crate) fn set_late_after(&self, limit: Ns, soon: Ns) {
        if self.exists() {
            let ticks = |time| self.with_grace(clock::ns_to_ticks(time));
            self.set_late(clock::ticks(), ticks(limit), ticks(soon));
        }
    }

    /// Returns whether its task may run for longer than a quantum if nothing is enqueued.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// Sets it to fire after `time`, and the grace.
    pub(crate) fn set_after(&self, time: Ns) {
        self.set_again(clock::ticks(), self.with_grace(clock::ns_to_ticks(time)));
    }

    /// Sets it to fire `ticks` after `now`.
    pub(crate) fn set_again(&self, now: u64, ticks: u64) {
        if self.exists() {
            self.set(now, ticks);
        }
    }

    /// Probes were asked to look at once: sets it to fire after the grace, for the case that none does. For any thread.
    /// Returns false if it cannot.
    pub(crate) fn remind(&self) -> bool {
        let possible = self.has_grace() && self.exists();
        if possible {
            self.set_timer(clock::ticks(), self.grace.load(Ordering::Relaxed));
        }
        possible
    }

    /// Turns it off. For its worker while it runs no preemptible task, and for the thread that takes the worker's CPU.
    pub(crate) fn off(&self) {
        let rings_at = self.rings_at.load(Ordering::Relaxed);
        if matches!(rings_at, OFF | NONE | ONLY_RETRIES) {
            return;
        }
        if rings_at > clock::ticks() {
            self.timer().stop();
        }
        self.rings_at.store(OFF, Ordering::Relaxed);
        self.not_late();
    }

    /// A task waits for the CPU of a task whose turn began at the time stamp `began`: sets the alarm to the end of that
    /// quantum. So is a late one. For any thread.
    #[inline]
    pub(crate) fn ask(&self, began: impl FnOnce() -> u64) -> Asked {
        if self.is_late() {
            self.bring_forward(began())
        } else if self.rings_at.load(Ordering::Relaxed) == OFF {
            self.summon(began())
        } else {
            Asked::Nothing
        }
    }

    #[cold]
    fn bring_forward(&self, began: u64) -> Asked {
        if !self.is_late.swap(false, Ordering::Relaxed) {
            return Asked::Nothing;
        }
        let (now, end) = self.end_of(began);
        let at = self.with_grace(end);
        // The worker may be setting it, too. Too early, it is set to the rest of the quantum.
        if at < self.rings_at.load(Ordering::Relaxed) {
            self.rings_at.store(at, Ordering::Relaxed);
            return self.rings_now(now, at, end);
        }
        Asked::Set { end }
    }

    #[cold]
    fn summon(&self, began: u64) -> Asked {
        let (now, end) = self.end_of(began);
        let at = self.with_grace(end);
        // Several threads may ask; one wins.
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        match self.rings_at.compare_exchange(OFF, at, order.0, order.1) {
            Ok(_) => self.rings_now(now, at, end),
            Err(_) => Asked::Nothing,
        }
    }

    /// Returns now, and when the quantum of a turn that `began` then is over, which is not before now.
    fn end_of(&self, began: u64) -> (u64, u64) {
        let now = clock::ticks();
        (now, now.max(began + self.quantum.load(Ordering::Relaxed)))
    }

    /// Sets the timer unless the time to fire, `at`, has come. In virtual time only timers fire.
    fn rings_now(&self, now: u64, at: u64, end: u64) -> Asked {
        if at <= now && !cfg!(virtual_time) {
            return Asked::Due;
        }
        self.timer().set(clock::ticks_to_ns(at - now));
        Asked::Set { end }
    }

    /// It found its task in the C library: sets it to fire again, a few times. For its worker.
    pub(crate) fn retry(&self) {
        let retries = self.retries.load(Ordering::Relaxed);
        if retries < RETRIES {
            self.retries.store(retries + 1, Ordering::Relaxed);
            let pause = FIRST_RETRY * (1 << retries);
            match self.rings_at.load(Ordering::Relaxed) {
                ONLY_RETRIES => self.timer().set(pause),
                _ => self.set_after(pause),
            }
        }
    }

    /// Called when its task was found where it can be preempted.
    pub(crate) fn was_heard(&self) {
        self.retries.store(0, Ordering::Relaxed);
    }

    /// Called when it has ended a turn.
    pub(crate) fn was_needed(&self) {
        self.grace.store(self.least_grace.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Returns when it fires; never if it is not set. Only the driver of virtual time uses it then.
    #[cfg(virtual_time)]
    pub(crate) fn rings_at(&self) -> Ns {
        match self.rings_at.load(Ordering::Relaxed) {
            OFF | NONE | ONLY_RETRIES => Ns::MAX,
            at => Ns(at),
        }
    }

    /// Not set.
    pub(crate) fn is_off(&self) -> bool {
        self.rings_at.load(Ordering::Relaxed) == OFF
    }

    /// Returns whether it is going to fire.
    pub(crate) fn is_set(&self) -> bool {
        (clock::ticks()..NONE).contains(&self.rings_at.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(virtual_time)))]
mod tests {
    use super::*;
    use heddle_core::Rng;

    const Q: u64 = 100_000;

    /// One whose timer is none: only what it notes counts.
    fn alarm() -> Alarm {
        let alarm = Alarm { timer: AtomicI32::new(-1), ..Alarm::default() };
        alarm.quantum.store(Q, Ordering::Relaxed);
        alarm.rings_at.store(OFF, Ordering::Relaxed);
        alarm
    }

    fn rings_at(alarm: &Alarm) -> u64 {
        alarm.rings_at.load(Ordering::Relaxed)
    }

    /// Whatever came before, a turn with waiters ends between a half and one and a half quanta from its beginning, and
    /// a turn found younger than a quantum gets the rest of it.
    #[test]
    fn every_turn_that_others_wait_for_has_an_alarm_within_a_quantum_and_a_half() {
        let (alarm, rng) = (alarm(), Rng::new(7));
        let mut now = 1_000_000_000;
        for _ in 0..100_000 {
            now += rng.below(2 * Q as usize) as u64;
            match rng.below(20) {
                0 => alarm.rings_at.store(OFF, Ordering::Relaxed),
                1 => alarm
                    .rings_at
                    .store(now + rng.below(100 * Q as usize) as u64, Ordering::Relaxed),
                _ => {}
            }
            alarm.turn_begins(now, Q, || true, || None);
            let after = rings_at(&alarm) - now;
            assert!((Q / 2..=Q + Q / 2).contains(&after), "{after}");
        }
    }

    #[test]
    fn short_turns_set_it_twice_in_a_quantum_at_most_and_never_let_it_ring() {
        let (alarm, mut set) = (alarm(), 0);
        for turn in 0..1000 {
            let (now, before) = (1_000_000_000 + turn * Q / 100, rings_at(&alarm));
            alarm.turn_begins(now, Q, || true, || None);
            set += u64::from(rings_at(&alarm) != before);
            assert!(before > now);
        }
        assert!(set <= 2 * 1000 / 100 + 2, "{set}");
    }

    #[test]
    fn long_turns_have_exactly_a_quantum() {
        let (alarm, now) = (alarm(), 1_000_000_000);
        alarm.turn_begins(now, Q, || true, || None);
        assert_eq!(rings_at(&alarm), now + Q);
        alarm.turn_begins(now + Q + 1, Q, || true, || None);
        assert_eq!(rings_at(&alarm), now + 2 * Q + 1);
    }

    #[test]
    fn it_stays_off_while_no_task_waits_and_is_set_for_one_that_arrives() {
        let (alarm, now) = (alarm(), clock::ticks());
        alarm.turn_begins(now, Q, || false, || None);
        assert!(alarm.is_off());
        let later = now + (1 << 40);
        assert_ne!(alarm.ask(|| later), Asked::Due);
        assert_eq!((rings_at(&alarm), alarm.is_set()), (later + Q, true));
        assert_ne!(alarm.ask(|| now), Asked::Due);
        assert_eq!(rings_at(&alarm), later + Q, "asked already");
        alarm.off();
        assert!(alarm.is_off() && !alarm.is_set());
        assert_eq!(alarm.ask(|| 0), Asked::Due, "overdue");
        assert!(!alarm.is_set() && !alarm.is_off());
        assert_eq!(alarm.ask(|| 0), Asked::Nothing, "asked already");
    }

    #[test]
    fn a_late_alarm_is_brought_forward_once_to_the_end_of_the_quantum() {
        let (alarm, later) = (alarm(), clock::ticks() + (1 << 40));
        alarm.turn_begins(
            later,
            Q,
            || true,
            || {
                alarm.before_late();
                Some(clock::ticks_to_ns(10 * Q))
            },
        );
        let late = rings_at(&alarm) - later;
        assert!((10 * Q - 10..=10 * Q).contains(&late), "{late}");
        assert_ne!(alarm.ask(|| later), Asked::Due);
        assert_eq!((rings_at(&alarm), alarm.is_late()), (later + Q, false));
        assert_ne!(alarm.ask(|| later - Q / 2), Asked::Due);
        assert_eq!(rings_at(&alarm), later + Q, "asked already");
    }

    #[test]
    fn one_that_has_rung_is_set_again_however_little_of_the_turn_is_left() {
        let (alarm, now) = (alarm(), clock::ticks());
        alarm.before_late();
        alarm.rings_at.store(now, Ordering::Relaxed);
        alarm.set_late(now, 10, Q);
        assert_eq!(rings_at(&alarm), now + 10);
        // It rings somewhat before the end: that is soon enough.
        alarm.set_late(now - Q / 4, Q / 4 + 20, Q);
        assert_eq!(rings_at(&alarm), now + 10);
        alarm.set_late(now - Q / 4, Q, Q);
        assert_eq!(rings_at(&alarm), now + Q - Q / 4);
    }

    #[test]
    fn an_alarm_is_not_late_if_a_task_is_enqueued_after_the_look() {
        for was_off in [true, false] {
            let (alarm, later) = (alarm(), clock::ticks() + (1 << 40));
            if !was_off {
                alarm.turn_begins(later - 3 * Q, Q, || true, || None);
            }
            alarm.turn_begins(
                later,
                Q,
                || true,
                || {
                    alarm.before_late();
                    assert_ne!(alarm.ask(|| later), Asked::Due);
                    Some(clock::ticks_to_ns(10 * Q))
                },
            );
            assert_eq!((rings_at(&alarm), alarm.is_late()), (later + Q, false));
        }
    }

    #[test]
    fn a_worker_without_a_quantum_has_none() {
        let alarm = Alarm::default();
        alarm.turn_begins(clock::ticks(), Q, || true, || None);
        alarm.before_late();
        alarm.set_late_after(Ns::ZERO, Ns::ZERO);
        assert_ne!(alarm.ask(|| 0), Asked::Due);
        alarm.set_after(Ns::ZERO);
        alarm.off();
        assert!(!alarm.exists());
    }

    #[test]
    fn it_looks_for_a_task_in_the_c_library_some_times() {
        let alarm = alarm();
        let retries = (0..10).filter(|_| {
            alarm.rings_at.store(0, Ordering::Relaxed);
            alarm.retry();
            // Set, although it may have fired by now.
            alarm.rings_at.load(Ordering::Relaxed) != 0
        });
        assert_eq!(retries.count(), RETRIES as usize);
        alarm.was_heard();
        alarm.rings_at.store(0, Ordering::Relaxed);
        alarm.retry();
        assert_ne!(alarm.rings_at.load(Ordering::Relaxed), 0);
    }
}
