//! One CPU as a member's own worker there reaches it: the protocol's words in shared memory, and how the kernel sees
//! the worker.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use heddle_core::Ns;
use heddle_sys::scheduling::{self, Scheduling};
use heddle_sys::{clock, futex, thread};

use super::{Local, Member};
use crate::abi::{self, APPS, CpuSlot, raised_priority};
use crate::handover::{self, Cpu, NO_APP, State, Woken};

/// How often a worker looks how much of its CPU real-time threads have used. If it was most of it, the worker computes
/// as an ordinary thread for a while: the kernel stops all real-time threads of a CPU that have used 95 % of a second,
/// for the rest of it, and since Linux 6.12 ordinary threads that wait get a twentieth, in one piece of 50 ms.
const WINDOW: Ns = Ns::from_ms(50);
/// That while, in CPU time; a tenth, since what counts as real time includes the kernel's work for such threads.
const REST: Ns = Ns::from_ms(6);
/// The same, in time, for a member that is before all others and loses the CPU meanwhile.
const BEST_REST: Ns = Ns::from_us(3500);

/// A sleep that is one: a timer that has expired before the thread is off its CPU lets it go on, and for the kernel it
/// has not slept.
const NAP: Ns = Ns::from_us(20);

pub(super) fn add(counter: &AtomicU64, more: u64) {
    // One writer.
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// One CPU, for the member's worker there.
pub(super) struct OwnCpu<'a> {
    pub(super) member: &'a Member,
    pub(super) cpu: usize,
}

impl OwnCpu<'_> {
    fn local(&self) -> &Local {
        &self.member.locals[self.cpu]
    }

    fn slot_of(&self, app: usize) -> &CpuSlot {
        match app == self.member.me() {
            true => self.member.slot(self.cpu),
            false => self.member.slot_in(&self.member.peers[app % APPS], self.cpu),
        }
    }

    /// Gives the calling worker, which is about to sleep, the priority of those that must be heard at once. One without
    /// equals needs none: it preempts the others, or runs when they sleep.
    pub(super) fn raise(&self) {
        let priority = self.member.priority.load(Ordering::Relaxed);
        let has_peer = || handover::has_peer_behind(self);
        if priority != 0 && !self.local().raised.load(Ordering::Relaxed) && has_peer() {
            self.local().raised.store(true, Ordering::Relaxed);
            self.local().ordinary.store(false, Ordering::Relaxed);
            set_priority(raised_priority(priority));
        }
    }

    /// Gives the calling worker the priority of those that compute.
    pub(super) fn lower(&self) {
        let priority = self.member.priority.load(Ordering::Relaxed);
        let local = self.local();
        if priority != 0 && local.raised.swap(false, Ordering::Relaxed) {
            set_priority(priority);
        } else if local.demoted.swap(false, Ordering::Relaxed) {
            let _ = scheduling::set(0, Scheduling::fifo(priority));
        }
    }

    /// Makes the calling worker, which has left the CPU, an ordinary thread that computes while no member does.
    pub(super) fn begin_rest(&self) {
        // For the kernel's limit of a thread's real-time, which begins anew when the thread has slept. Another member
        // has the CPU by then, and this one would be behind it.
        self.raise();
        thread::sleep(NAP);
        let local = self.local();
        local.raised.store(false, Ordering::Relaxed);
        local.cpu_time_then.store(self.cpu_time(), Ordering::Relaxed);
        local.rest_since.store(clock::now().0, Ordering::Relaxed);
        let _ = scheduling::set(0, Scheduling::ORDINARY);
    }

    /// Ends what [`OwnCpu::begin_rest`] began: the calling worker is about to want the CPU, or to sleep. Returns
    /// false if it did not rest.
    pub(super) fn end_rest(&self) -> bool {
        let local = self.local();
        let was = local.rest_since.swap(0, Ordering::Relaxed) != 0;
        let priority = self.member.priority.load(Ordering::Relaxed);
        if was && priority != 0 {
            let _ = scheduling::set(0, Scheduling::fifo(raised_priority(priority)));
            local.raised.store(true, Ordering::Relaxed);
            let now = clock::now().0;
            local.window_began.store(now, Ordering::Relaxed);
            local.busy_then.store(self.busy_before(), Ordering::Relaxed);
        }
        was
    }

    pub(super) fn is_resting(&self) -> bool {
        self.local().rest_since.load(Ordering::Relaxed) != 0
    }

    /// Returns whether ordinary threads have had the CPU for long enough since the worker is one: as far as it knows,
    /// it alone. One that is before others does not wait for long.
    pub(super) fn has_rested(&self) -> bool {
        let (local, now) = (self.local(), clock::now().0);
        let passed = now.saturating_sub(local.rest_since.load(Ordering::Relaxed));
        let ran = || self.cpu_time().saturating_sub(local.cpu_time_then.load(Ordering::Relaxed));
        match handover::has_better(self) {
            false => passed >= BEST_REST.0,
            true => passed >= WINDOW.0 || passed >= REST.0 && ran() >= REST.0,
        }
    }

    /// Returns whether the worker can be an ordinary thread: real-time priorities order it among equals only, and keep
    /// other programs from the CPU.
    pub(super) fn needs_no_priority(&self) -> bool {
        self.member.is_realtime() && self.rank(self.me()) != 0 && !handover::has_peer_behind(self)
    }

    /// Returns whether there is a member whose threads preempt this one's.
    pub(super) fn may_be_preempted(&self) -> bool {
        self.member.is_realtime() && handover::has_better(self)
    }

    /// Returns the CPU time of the worker.
    pub(super) fn cpu_time(&self) -> u64 {
        clock::cpu_time_of(self.slot_of(self.me()).tid.load(Ordering::Relaxed)).0
    }

    /// Returns whether real-time threads have used most of this CPU, once in each window: the worker had it or waited
    /// for it. While it did neither, the CPU was idle, or those behind the member see to that.
    pub(super) fn has_used_up_realtime(&self, now: u64) -> bool {
        let local = self.local();
        let elapsed = now.saturating_sub(local.window_began.load(Ordering::Relaxed));
        if elapsed < WINDOW.0 {
            return false;
        }
        let since = self.slot_of(self.me()).since.load(Ordering::Relaxed);
        let busy = self.busy_before() + now.saturating_sub(since);
        local.window_began.store(now, Ordering::Relaxed);
        let used = busy.saturating_sub(local.busy_then.swap(busy, Ordering::Relaxed));
        let idle_enough = match handover::has_better(self) {
            true => elapsed / 5,
            false => elapsed / 16,
        };
        used >= elapsed - idle_enough
    }

    /// Returns for how long the worker has had the CPU or waited for it, before its state began.
    fn busy_before(&self) -> u64 {
        let waited = &self.slot_of(self.me()).waited_ns;
        self.local().held_ns.load(Ordering::Relaxed) + waited.load(Ordering::Relaxed)
    }

    /// Returns whether the process of `app` exists.
    fn exists(&self, app: usize) -> bool {
        let pid = self.member.entry(app).pid.load(Ordering::Relaxed);
        thread::is_in(pid, pid)
    }

    /// Waits as a thread that could run: it does when the active one sleeps or yields. Only where there are two.
    fn yields(&self) -> bool {
        self.member.is_realtime() && self.members().count_ones() == 2
    }
}

/// Sets the calling thread's real-time priority; the broker or a watchdog may have taken that away.
fn set_priority(priority: u32) {
    if !scheduling::set_own_priority(priority) {
        let _ = scheduling::set(0, Scheduling::fifo(priority));
    }
}

/// Looks at a thread that seems not to run and is said to be runnable, before it is taken to sleep all the same.
const BELIEVED: u32 = 8;

/// Yields in a row after which a waiter sleeps, lest it spins beside one that is stopped.
const YIELDS: u32 = 100;

impl Cpu for OwnCpu<'_> {
    fn me(&self) -> usize {
        self.member.me()
    }

    fn members(&self) -> u32 {
        let members = self.member.header().members.load(Ordering::Acquire);
        members & self.member.mapped.load(Ordering::Acquire) | 1 << self.me()
    }

    fn rank(&self, app: usize) -> u32 {
        self.member.entry(app).rank.load(Ordering::Relaxed)
    }

    fn word(&self, app: usize) -> u32 {
        self.slot_of(app).state.load(Ordering::Acquire)
    }

    fn set_word(&self, word: u32) {
        self.slot_of(self.me()).state.store(word, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    fn since(&self, app: usize) -> u64 {
        self.slot_of(app).since.load(Ordering::Relaxed)
    }

    fn preempts(&self, app: usize) -> bool {
        self.member.is_realtime() && abi::preempts(self.rank(self.me()), self.rank(app))
    }

    fn begin_want(&self) {
        let slot = self.slot_of(self.me());
        // One that was active has just noted when it stopped.
        if State::of(slot.state.load(Ordering::Relaxed)) != State::Active {
            slot.since.store(clock::now().0, Ordering::Relaxed);
        }
        slot.waits_on.store(NO_APP, Ordering::Relaxed);
        self.local().idle_yields.store(0, Ordering::Relaxed);
        self.local().nudged.store(false, Ordering::Relaxed);
    }

    fn waits_on(&self, app: usize) -> u32 {
        self.slot_of(app).waits_on.load(Ordering::Acquire)
    }

    fn sleep(&self, app: usize, word: u32) -> Woken {
        self.lower();
        let idle_yields = &self.local().idle_yields;
        let yields = self.yields() && idle_yields.load(Ordering::Relaxed) < YIELDS;
        let on = if yields { NO_APP } else { app as u32 };
        self.slot_of(self.me()).waits_on.store(on, Ordering::Release);
        fence(Ordering::SeqCst);
        let moved = || self.word(app) != word;
        if yields {
            if !moved() {
                scheduling::yield_to_equals();
            }
        } else {
            // Without a time limit, which costs as much as the hand-over: see `Member::nudge`.
            futex::wait_shared(&self.slot_of(app).state, word, 1 << self.me(), None);
            if !self.local().nudged.swap(false, Ordering::Relaxed) {
                idle_yields.store(0, Ordering::Relaxed);
                return Woken::Moved;
            }
        }
        let is_realtime = self.member.is_realtime();
        // Among ordinary threads the waiter can run beside it; but not if its process is gone, and the broker with it.
        if moved() || !is_realtime && self.exists(app) {
            return Woken::Moved;
        }
        let idle = idle_yields.fetch_add(1, Ordering::Relaxed);
        // It may have yielded in the middle of its work. It says itself which thread that is, so it is not believed for
        // long.
        let tid = self.slot_of(app).tid.load(Ordering::Relaxed);
        match is_realtime && idle < BELIEVED && thread::is_runnable(tid) {
            true => Woken::Moved,
            false => Woken::StandIn,
        }
    }

    fn wake(&self, app: usize, waiter: usize) {
        futex::wake_shared(&self.slot_of(app % APPS).state, 1 << (waiter % APPS));
    }

    fn ask(&self, app: usize) {
        add(&self.slot_of(self.me()).asked, 1);
        let pipe = &self.member.pipes[(app % APPS) * self.member.cpus.len() + self.cpu];
        write_byte(pipe.load(Ordering::Relaxed));
    }

    fn broke_rule(&self) {
        add(&self.slot_of(self.me()).broken, 1);
    }

    fn stands_in(&self) {
        add(&self.slot_of(self.me()).stood_in, 1);
    }
}

/// Writes to a pipe that the reader has not emptied, or to no pipe at all: then nothing happens.
fn write_byte(fd: RawFd) {
    if fd >= 0 {
        let byte = [0_u8];
        let args = [fd as usize, byte.as_ptr() as usize, 1, 0, 0, 0];
        // SAFETY: the kernel reads one byte; the descriptor is a pipe's or `/dev/null`'s for the rest of the process.
        unsafe { heddle_sys::syscall::call(libc::SYS_write, args) };
    }
}
