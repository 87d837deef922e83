//! Receives signals to the process for the tasks, and interrupts tasks that have not attended: on the kernel thread of
//! the program's first thread while that is a task, else on a thread of its own.

use super::actions::{self, Kind};
use super::queue::{self, Pushed};
use super::{Set, UNBLOCKABLE, post, raise_default};
use crate::sys::{gettid, syscall};
use crate::thread::{Thread, first};
use crate::wait::Attend;
use heddle_core::Ns;
use heddle_rt::raw;
use heddle_sys::signal::{bit, change_mask};
use libc::siginfo_t;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Whether it has been started.
static EXISTS: AtomicBool = AtomicBool::new(false);
/// Its kernel number, once it runs.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Signals that no task accepted lately: it leaves them to the kernel until [`opened`].
static CLOSED: AtomicU64 = AtomicU64::new(!0);

/// Signals that workers have handed over.
static FORWARDED: AtomicU64 = AtomicU64::new(0);

/// How often others have waited for it to have received what was there ([`settle`]), and how often it has.
static ASKED: AtomicU32 = AtomicU32::new(0);
static SETTLED: AtomicU32 = AtomicU32::new(0);

/// Whether a task has ever got a signal that was sent to the process.
static HAS_ROUTED: AtomicBool = AtomicBool::new(false);

/// Tasks that must be interrupted until they have attended.
static NAGGED: [AtomicPtr<Thread>; 64] = [const { AtomicPtr::new(ptr::null_mut()) }; 64];
/// Whether it interrupts them without being notified.
static NAGS: AtomicBool = AtomicBool::new(false);

/// The pause between two interruptions, at first, and the factor by which it grows after every [`ROUNDS`] of them.
const PAUSE: Ns = Ns::from_ms(1);
const ROUNDS: u32 = 32;
const FACTOR: u64 = 8;

/// Starts a thread for it.
pub(crate) fn start() {
    // Without it, signals to the process go to kernel threads only, and a task that attends to nothing is not told.
    EXISTS.store(raw::kernel_thread("signals", serve).is_ok(), Ordering::SeqCst);
}

/// In the child of a fork there is none.
pub(super) fn forget() {
    EXISTS.store(false, Ordering::SeqCst);
    NUMBER.store(0, Ordering::SeqCst);
    NAGS.store(false, Ordering::SeqCst);
    CLOSED.store(!0, Ordering::SeqCst);
    FORWARDED.store(0, Ordering::SeqCst);
    SETTLED.store(ASKED.load(Ordering::SeqCst), Ordering::SeqCst);
    NAGGED.iter().for_each(|slot| slot.store(ptr::null_mut(), Ordering::SeqCst));
}

/// Makes the calling thread, the first one's kernel thread, the receiver. Returns once that goes back to it.
pub(crate) fn lead() {
    EXISTS.store(true, Ordering::SeqCst);
    serve();
}

fn serve() {
    change_mask(libc::SIG_SETMASK, !(bit(32) | bit(33)));
    NUMBER.store(gettid(), Ordering::SeqCst);
    let mut round = 0;
    loop {
        if first::goes_back() {
            NUMBER.store(0, Ordering::SeqCst);
            return;
        }
        let mut forwarded = FORWARDED.swap(0, Ordering::SeqCst);
        while forwarded != 0 {
            route(&queue::plain(forwarded.trailing_zeros() as c_int + 1));
            forwarded &= forwarded - 1;
        }
        settle_all();
        let is_nagging = nag();
        round = if is_nagging { round + 1 } else { 0 };
        let pause = PAUSE * FACTOR.pow((round / ROUNDS).min(2));
        let time = crate::clock::timespec(pause);
        let time = if is_nagging { &raw const time } else { ptr::null() };
        let accepted: Set =
            !(CLOSED.load(Ordering::SeqCst) | UNBLOCKABLE) | bit(raw::PREEMPT_SIGNAL);
        // SAFETY: all-zero is room for a description; the pointers are valid for the call.
        unsafe {
            let mut info: siginfo_t = std::mem::zeroed();
            let wait = libc::SYS_rt_sigtimedwait;
            let signal = syscall!(wait, &raw const accepted, &raw mut info, time, 8);
            let is_notification = info.si_signo == raw::PREEMPT_SIGNAL
                && info.si_code == libc::SI_TKILL
                && info.si_pid() == libc::getpid();
            if is_notification {
                round = 0;
            } else if signal > 0 {
                receive(&mut info);
            }
        }
    }
}

/// Passes on what the kernel has delivered.
fn receive(info: &mut siginfo_t) {
    queue::restore(info);
    match first::record().filter(|_| info.si_code == libc::SI_TKILL) {
        // By number, to this thread.
        Some(first) => drop(post(first, info)),
        None => route(info),
    }
}

/// Receives what is there already, if others wait for that.
fn settle_all() {
    let asked = ASKED.load(Ordering::SeqCst);
    if SETTLED.load(Ordering::SeqCst) == asked {
        return;
    }
    // A signal that no task takes is closed and given back, and must not come again.
    let accepted = || !(CLOSED.load(Ordering::SeqCst) | UNBLOCKABLE | bit(raw::PREEMPT_SIGNAL));
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: all-zero is room for a description; the pointers are valid for the calls.
    unsafe {
        let mut info: siginfo_t = std::mem::zeroed();
        let wait = libc::SYS_rt_sigtimedwait;
        loop {
            let set: Set = accepted();
            if syscall!(wait, &raw const set, &raw mut info, &raw const at_once, 8) <= 0 {
                break;
            }
            receive(&mut info);
        }
        SETTLED.store(asked, Ordering::SeqCst);
        let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        syscall!(libc::SYS_futex, SETTLED.as_ptr(), wake, i32::MAX);
    }
}

/// Waits until the thread has received what was sent before, and takes what is closed by now no more.
pub(super) fn settle() {
    if !EXISTS.load(Ordering::SeqCst) {
        return;
    }
    let own = ASKED.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
    notify();
    loop {
        let settled = SETTLED.load(Ordering::SeqCst);
        if (settled.wrapping_sub(own) as i32) >= 0 {
            return;
        }
        let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: a static word.
        unsafe { syscall!(libc::SYS_futex, SETTLED.as_ptr(), wait, settled, 0) };
    }
}

/// Called when a thread is about to end: what was sent before comes first, as in the kernel.
pub(crate) fn before_end() {
    if HAS_ROUTED.load(Ordering::Relaxed) {
        settle();
    }
}

/// Called when a thread has blocked `signals`: what no other accepts is the kernel's from here on.
pub(super) fn closed(signals: Set) {
    let mut rest = signals & !CLOSED.load(Ordering::SeqCst) & !UNBLOCKABLE;
    let mut closed = 0;
    while rest != 0 {
        let signal = rest.trailing_zeros() as c_int + 1;
        rest &= rest - 1;
        if taker(signal).is_none() {
            closed |= bit(signal);
        }
    }
    if closed != 0 {
        CLOSED.fetch_or(closed, Ordering::SeqCst);
        // One that has begun to accept it meanwhile has not seen it closed.
        let mut rest = closed;
        while rest != 0 {
            let signal = rest.trailing_zeros() as c_int + 1;
            rest &= rest - 1;
            if taker(signal).is_some() {
                opened(bit(signal));
            }
        }
        settle();
    }
}

/// Notifies the thread that there is something to do.
pub(crate) fn notify() {
    let number = NUMBER.load(Ordering::SeqCst);
    if number != 0 {
        // SAFETY: takes numbers only.
        unsafe { syscall!(libc::SYS_tgkill, libc::getpid(), number, raw::PREEMPT_SIGNAL) };
    }
}

/// Hands over a signal to the process that the kernel gave to a worker. For signal handlers. The kernel does not let a
/// thread repeat to another what `kill` has said: the description is lost.
pub(super) fn forward(info: *const siginfo_t) {
    // SAFETY: a valid description, by the caller.
    FORWARDED.fetch_or(bit(unsafe { (*info).si_signo }), Ordering::SeqCst);
    notify();
}

/// Called when a thread accepts `signals` that it did not before.
pub(super) fn opened(signals: Set) {
    let signals = signals & !UNBLOCKABLE;
    if CLOSED.load(Ordering::SeqCst) & signals != 0 {
        CLOSED.fetch_and(!signals, Ordering::SeqCst);
        notify();
    }
}

/// Returns a task that waits for `signal`, or one that accepts it: the first thread, if it does.
fn taker(signal: c_int) -> Option<&'static Thread> {
    let alive = || Thread::all().filter(|thread| thread.is_alive());
    alive()
        .find(|thread| thread.signals.awaits(signal))
        .or_else(|| first::record().filter(|thread| thread.signals.accepts(signal)))
        .or_else(|| alive().find(|thread| thread.signals.accepts(signal)))
}

/// Gives a signal to a task, or back to the kernel.
fn route(info: &siginfo_t) {
    let signal = info.si_signo;
    loop {
        let Some(thread) = taker(signal) else {
            CLOSED.fetch_or(bit(signal), Ordering::SeqCst);
            // One that unblocks it from here on sees that.
            if taker(signal).is_none() {
                return queue::give_back(info);
            }
            CLOSED.fetch_and(!bit(signal), Ordering::SeqCst);
            continue;
        };
        if !thread.signals.awaits(signal) {
            match actions::get(signal).kind(signal) {
                Kind::Ignored => return,
                Kind::Default => return raise_default(signal),
                Kind::Handled => {}
            }
        }
        if queue::push(thread, info, true) != Pushed::New {
            return;
        }
        HAS_ROUTED.store(true, Ordering::Relaxed);
        if thread.signals.accepts(signal) || thread.signals.awaits(signal) {
            return thread.ask(Thread::SIGNAL);
        }
        // It has blocked it in between, and either has given it back, or this does.
        return queue::leave(thread, bit(signal));
    }
}

/// Makes `thread`, which has been asked to attend, be interrupted until it does.
pub(crate) fn insist(thread: &'static Thread) {
    let at = ptr::from_ref(thread).cast_mut();
    if NAGGED.iter().any(|slot| slot.load(Ordering::SeqCst) == at) {
        return;
    }
    let free = |slot: &&AtomicPtr<Thread>| {
        slot.compare_exchange(ptr::null_mut(), at, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    };
    NAGGED.iter().find(free);
    if !NAGS.swap(true, Ordering::SeqCst) {
        notify();
    }
}

/// Interrupts those that have not attended. Returns whether there are any.
fn nag() -> bool {
    if !NAGS.load(Ordering::SeqCst) {
        return false;
    }
    let round = || {
        let mut any = false;
        for slot in &NAGGED {
            // SAFETY: null, or a record, which is never freed.
            let Some(thread) = (unsafe { slot.load(Ordering::SeqCst).as_ref() }) else { continue };
            if thread.is_alive() && thread.must_attend(Attend::Cancel) {
                thread.task.interrupt();
                any = true;
            } else {
                slot.store(ptr::null_mut(), Ordering::SeqCst);
                // It may have been asked again before it was taken off.
                if thread.is_alive() && thread.must_attend(Attend::Cancel) {
                    slot.store(ptr::from_ref(thread).cast_mut(), Ordering::SeqCst);
                    any = true;
                }
            }
        }
        any
    };
    if round() {
        return true;
    }
    NAGS.store(false, Ordering::SeqCst);
    if round() {
        NAGS.store(true, Ordering::SeqCst);
        return true;
    }
    false
}
