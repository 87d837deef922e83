//! The CPU time of tasks, for thread libraries ([`crate::raw::RawTask::cpu_time`]).
//!
//! It costs nothing before it is asked for: until then a switch loads one flag. From the first question on, each
//! worker has a meter, which charges what its thread has computed to the task whose turn it is.
//!
//! To read a thread's CPU time is a system call (0.5 us on a virtual machine), fifteen times a switch. So turns shorter
//! than [`SHORT`] are charged by the time stamp counter, and what the meter reads at the end of a longer one, or after
//! a pause, is the thread's CPU time since the last reading without what was charged meanwhile. A task that sleeps in
//! the kernel, or whose thread waits for a CPU, is charged for that only if it is over within [`SHORT`].

use heddle_core::Ns;
use heddle_sys::clock;
use std::hint::spin_loop;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// The longest turn that is charged by the time stamp counter.
const SHORT: Ns = Ns::from_us(20);

/// How many times a reader looks at a meter that is being written.
const LOOKS: u32 = 1000;

/// Whether anyone has asked.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

/// Returns whether CPU times are kept.
#[inline(always)]
pub(crate) fn is_kept() -> bool {
    IS_KEPT.load(Ordering::Relaxed)
}

/// Makes CPU times be kept from here on.
pub(crate) fn keep() {
    if !is_kept() {
        IS_KEPT.store(true, Ordering::Relaxed);
    }
}

/// The CPU time of a task, which is never unmapped.
#[derive(Debug, Default)]
pub(crate) struct CpuTime {
    /// In ns, without the turn that it has.
    charged: AtomicU64,
    /// The last answer: there is no smaller one.
    shown: AtomicU64,
}

impl CpuTime {
    /// A new task has used none. For the only owner of its block.
    #[inline]
    pub(crate) fn reset(&self) {
        if is_kept() {
            self.charged.store(0, Ordering::Relaxed);
            self.shown.store(0, Ordering::Relaxed);
        }
    }

    /// A new task has used `time` before it was one. For the only owner of its block.
    pub(crate) fn start_at(&self, time: Ns) {
        self.charged.store(time.0, Ordering::Relaxed);
        self.shown.store(0, Ordering::Relaxed);
    }

    /// Returns what has been charged: the task has no turn.
    pub(crate) fn get(&self) -> Ns {
        self.show(self.charged.load(Ordering::Relaxed))
    }

    fn show(&self, time: u64) -> Ns {
        Ns(self.shown.fetch_max(time, Ordering::Relaxed).max(time))
    }
}

/// A worker's meter: a sequence lock, which its own thread writes.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Odd while it is written.
    version: AtomicU32,
    /// Of the task whose turn it is: null in the worker's loop.
    task: AtomicPtr<CpuTime>,
    /// The time stamp at which the turn began.
    began: AtomicU64,
    /// The thread's CPU time in ns when it was read last.
    read: AtomicU64,
    /// What has been charged since, to tasks and to the loop.
    since: AtomicU64,
}

/// A meter at one time.
struct Reading {
    began: u64,
    read: u64,
    since: u64,
}

impl Meter {
    /// Charges the turn that ends, and begins that of `next`, or of the worker's loop. For the worker's own thread with
    /// preemption off.
    #[cold]
    pub(crate) fn turn_to(&self, next: Option<&'static CpuTime>) {
        let now = clock::ticks();
        let turn = self.reading();
        let (charge, read) = turn.charge(now, clock::thread_cpu_time);
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        // SAFETY: null, or stored below.
        if let Some(task) = unsafe { self.task.load(Ordering::Relaxed).as_ref() } {
            let charged = task.charged.load(Ordering::Relaxed) + charge;
            task.charged.store(charged, Ordering::Relaxed);
        }
        let next = next.map_or(ptr::null_mut(), |task| ptr::from_ref(task).cast_mut());
        self.task.store(next, Ordering::Relaxed);
        self.began.store(now, Ordering::Relaxed);
        self.read.store(read.unwrap_or(turn.read), Ordering::Relaxed);
        let since = if read.is_some() { 0 } else { turn.since + charge };
        self.since.store(since, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Called when `task` is interrupted: begins its turn if it has lasted since before CPU times were kept.
    #[inline]
    pub(crate) fn on_interrupt(&self, task: &'static CpuTime) {
        if is_kept() && !ptr::eq(self.task.load(Ordering::Relaxed), task) {
            self.turn_to(Some(task));
        }
    }

    /// Returns the CPU time of `task` if it is its turn, on the worker whose thread's CPU time is `thread`.
    pub(crate) fn of_turn(&self, task: &CpuTime, thread: impl FnOnce() -> Ns) -> Option<Ns> {
        let (charged, turn) = self.look_at(task)?;
        let (charge, _) = turn.charge(clock::ticks(), thread);
        Some(task.show(charged + charge))
    }

    fn reading(&self) -> Reading {
        Reading {
            began: self.began.load(Ordering::Relaxed),
            read: self.read.load(Ordering::Relaxed),
            since: self.since.load(Ordering::Relaxed),
        }
    }

    /// Returns what `task` has been charged, and the meter if it is its turn.
    fn look_at(&self, task: &CpuTime) -> Option<(u64, Reading)> {
        for _ in 0..LOOKS {
            let version = self.version.load(Ordering::Acquire);
            let is_its_turn = ptr::eq(self.task.load(Ordering::Relaxed), task);
            let charged = task.charged.load(Ordering::Relaxed);
            let reading = self.reading();
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return is_its_turn.then_some((charged, reading));
            }
            spin_loop();
        }
        None
    }
}

impl Reading {
    /// Returns what a turn costs that ends at the time stamp `now`, in ns, and the thread's CPU time if it was read.
    fn charge(&self, now: u64, cpu_time: impl FnOnce() -> Ns) -> (u64, Option<u64>) {
        let lasted = clock::ticks_to_ns(now.saturating_sub(self.began));
        if lasted < SHORT {
            return (lasted.0, None);
        }
        let read = cpu_time().0;
        let own = read.saturating_sub(self.read + self.since).min(lasted.0);
        (own, Some(read))
    }
}

#[cfg(all(test, not(virtual_time)))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn task() -> &'static CpuTime {
        Box::leak(Box::default())
    }

    #[test]
    fn a_short_turn_is_charged_by_the_clock_and_a_long_one_by_the_thread_s_time() {
        let turn = Reading { began: 1000, read: 5 * MS, since: MS };
        let after = |ns| 1000 + clock::ns_to_ticks(Ns(ns));
        let (charge, read) = turn.charge(after(10_000), || panic!("a system call"));
        assert!((9_900..=10_100).contains(&charge) && read.is_none(), "{charge}");
        // It slept: of 9 ms the thread computed 2, one of which was charged before.
        let asleep = turn.charge(after(9 * MS), || Ns(7 * MS));
        assert_eq!(asleep, (MS, Some(7 * MS)));
        // The clocks differ a little: no turn is longer than it lasted, none is negative.
        assert_eq!(turn.charge(after(9 * MS), || Ns(5 * MS)), (0, Some(5 * MS)));
        let (charge, _) = turn.charge(after(MS), || Ns(100 * MS));
        assert!(charge <= MS + MS / 100, "{charge}");
    }

    #[test]
    fn each_turn_goes_to_its_own_task() {
        let (meter, first, second) = (Meter::default(), task(), task());
        let compute = || {
            let end = clock::thread_cpu_time() + Ns::from_ms(1);
            while clock::thread_cpu_time() < end {}
        };
        let charged = |task: &CpuTime| task.charged.load(Ordering::Relaxed);
        meter.turn_to(Some(first));
        compute();
        assert!(meter.look_at(first).is_some() && meter.look_at(second).is_none());
        meter.turn_to(Some(second));
        let of_first = charged(first);
        assert!(of_first >= MS, "{of_first}");
        compute();
        meter.turn_to(None);
        compute();
        meter.turn_to(Some(first));
        assert!(charged(second) >= MS);
        assert_eq!(charged(first), of_first, "the loop's time is nobody's");
        let spent = clock::thread_cpu_time();
        assert!(of_first + charged(second) <= spent.0);
    }

    #[test]
    fn no_answer_is_smaller_than_the_one_before() {
        let time = CpuTime::default();
        assert_eq!((time.show(5), time.show(3), time.show(6)), (Ns(5), Ns(5), Ns(6)));
    }
}
