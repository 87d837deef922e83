//! Futexes of programs: waits of tasks that the kernel does not see.
//!
//! Rust's standard library, parking_lot, the guards and futures of C++ and many others wait by
//! `syscall(SYS_futex, ...)`. This crate defines `syscall` (`entry`). A task that waits for a futex parks, queued by
//! the address in one parking lot for the process ([`lot`]); who wakes that futex looks there and, as far as threads
//! may wait in the kernel, there too. All other calls go on to the kernel.
//!
//! What waits where is a matter of [`Rules`]: of a program that links the runtime (`linked`), or of one whose threads
//! all are tasks (`heddle-posix`).

mod entry;
mod linked;
pub mod lot;
mod time;

pub use entry::{Dispatch, hook_syscall, of_kernel};
pub use heddle_sys::syscall::call;
pub(crate) use linked::prepare;
pub use time::{deadline, span};

use crate::caller::Caller;
use heddle_core::Ns;
use libc::{c_long, timespec};
use std::arch::asm;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

/// Who waits where, and what else may wait for a futex.
pub trait Rules {
    /// Returns whether all calls of `caller` for this word are the kernel's: no task ever parks for it.
    fn is_kernels(op: Op, caller: Caller, word: usize) -> bool;

    /// Returns whether a wait of `caller` is not the kernel's.
    fn parks(caller: Caller) -> bool;

    /// Returns whether a wait that is not the kernel's by the other rules need not be, as no other process shares the
    /// word.
    fn is_alone(_op: Op, _word: usize) -> bool {
        true
    }

    /// Waits in the kernel, because the caller does not park.
    ///
    /// # Safety
    /// The call's contract.
    unsafe fn wait_in_kernel(raw: [usize; 6]) -> isize;

    /// Waits until it is woken, if `is_expected` holds once every waker would find it. Called if the caller
    /// [parks](Rules::parks).
    ///
    /// # Errors
    /// The kernel's: EAGAIN, ETIMEDOUT, EINTR.
    fn wait(
        key: usize,
        bits: u32,
        what: lot::For,
        deadline: Option<Ns>,
        is_expected: impl Fn() -> bool,
    ) -> Result<(), c_int>;

    /// Returns whether the kernel may have waiters for such a call.
    fn may_be_kernels(_op: Op) -> bool {
        true
    }

    /// Returns whether waiters in the kernel are woken first, this time.
    fn is_kernels_turn(_word: usize) -> bool {
        false
    }

    /// Called when something is about to wait in the kernel for a private futex by a call of another kind.
    fn note_other_wait() {}

    /// Runs a call that may block in the kernel.
    fn blocking<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
}

/// A call's operation.
#[derive(Clone, Copy, Debug)]
pub struct Op(c_int);

impl Op {
    fn command(self) -> c_int {
        self.0 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME)
    }

    /// Returns whether the futex belongs to this process alone.
    pub fn is_private(self) -> bool {
        self.0 & libc::FUTEX_PRIVATE_FLAG != 0
    }

    fn is_real_time(self) -> bool {
        self.0 & libc::FUTEX_CLOCK_REALTIME != 0
    }

    /// Returns another command with these flags.
    fn with(self, command: c_int) -> usize {
        (command | self.0 & libc::FUTEX_PRIVATE_FLAG) as usize
    }
}

/// What the word of a lock is while others wait for it, in the standard library of Rust and most others (Drepper,
/// "Futexes are tricky", section 6). Whatever else waits for such a value is taken for a lock, which does no harm.
const CONTENDED: u32 = 2;

/// The arguments of a call after the operation.
#[derive(Clone, Copy)]
struct Args {
    word: usize,
    value: u32,
    /// A time, or a second number.
    time: usize,
    other: usize,
    last: u32,
}

/// Orders all accesses before it before all after it, in half the time of `fence`'s `mfence`.
#[inline]
fn full_fence() {
    // SAFETY: leaves the word as it is, which is on the stack.
    unsafe { asm!("lock or dword ptr [rsp], 0") };
}

/// Returns what the kernel would: a negated error number.
fn error(number: c_int) -> isize {
    -(number as isize)
}

/// What `syscall(SYS_futex, ...)` does. Returns what the kernel would.
///
/// # Safety
/// futex(2), except that addresses that do not exist fault where a call compares or changes what is there itself.
pub unsafe fn futex<R: Rules>(raw: [usize; 6]) -> isize {
    let (op, caller) = (Op(raw[1] as c_int), Caller::here());
    let args = Args {
        word: raw[0],
        value: raw[2] as u32,
        time: raw[3],
        other: raw[4],
        last: raw[5] as u32,
    };
    // SAFETY: the caller's contract.
    unsafe {
        if R::is_kernels(op, caller, args.word) {
            return in_kernel(raw);
        }
        match op.command() {
            libc::FUTEX_WAIT if op.is_real_time() => error(libc::ENOSYS),
            libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET if !R::parks(caller) => {
                R::wait_in_kernel(raw)
            }
            libc::FUTEX_WAIT => wait_for::<R>(op, args, u32::MAX, raw),
            libc::FUTEX_WAIT_BITSET => wait_for::<R>(op, args, args.last, raw),
            _ if op.is_real_time() => blocking_in_kernel::<R>(raw),
            libc::FUTEX_WAKE => wake_some::<R>(op, args.word, args.value, u32::MAX),
            libc::FUTEX_WAKE_BITSET => wake_some::<R>(op, args.word, args.value, args.last),
            libc::FUTEX_REQUEUE => requeue::<R>(op, args, raw, false),
            libc::FUTEX_CMP_REQUEUE => requeue::<R>(op, args, raw, true),
            libc::FUTEX_WAKE_OP => wake_op::<R>(op, args),
            _ => blocking_in_kernel::<R>(raw),
        }
    }
}

unsafe fn in_kernel(args: [usize; 6]) -> isize {
    // SAFETY: the caller's contract.
    unsafe { call(libc::SYS_futex, args) }
}

/// Makes a call that may block, in ways that only the kernel knows.
#[cold]
unsafe fn blocking_in_kernel<R: Rules>(args: [usize; 6]) -> isize {
    if Op(args[1] as c_int).command() == libc::FUTEX_WAIT_REQUEUE_PI {
        // The word that it waits for is an ordinary futex.
        R::note_other_wait();
    }
    // SAFETY: the caller's contract.
    R::blocking(|| unsafe { in_kernel(args) })
}

unsafe fn wait_for<R: Rules>(op: Op, args: Args, bits: u32, raw: [usize; 6]) -> isize {
    // SAFETY: the caller's contract: null or a time.
    let until = match unsafe { (args.time as *const timespec).as_ref() } {
        None => None,
        Some(time) => match end_of_wait(op, time) {
            None => return error(libc::EINVAL),
            at => at,
        },
    };
    if bits == 0 || !args.word.is_multiple_of(4) {
        return error(libc::EINVAL);
    }
    if args.word == 0 {
        return error(libc::EFAULT);
    }
    // SAFETY: the caller's word, which is aligned.
    let word = unsafe { &*(args.word as *const AtomicU32) };
    let is_expected = || word.load(Ordering::SeqCst) == args.value;
    if !is_expected() {
        return error(libc::EAGAIN);
    }
    if !R::is_alone(op, args.word) {
        // SAFETY: the caller's contract.
        return R::blocking(|| unsafe { in_kernel(raw) });
    }
    let what = if args.value == CONTENDED { lot::For::Lock } else { lot::For::Event };
    match R::wait(args.word, bits, what, until, is_expected) {
        Ok(()) => 0,
        Err(number) => error(number),
    }
}

/// Returns when the wait ends, or `None` if the time is none: WAIT's is a span, the other's a point in time.
fn end_of_wait(op: Op, time: &timespec) -> Option<Ns> {
    let span = span(time)?;
    Some(match op.command() {
        libc::FUTEX_WAIT => Ns(heddle_sys::clock::now().0.saturating_add(span.0)),
        _ if op.is_real_time() => deadline(libc::CLOCK_REALTIME, time).ok()?,
        _ => span,
    })
}

/// Wakes up to `most` waiters, at least one. Returns how many.
unsafe fn wake_some<R: Rules>(op: Op, word: usize, most: u32, bits: u32) -> isize {
    if bits == 0 || !word.is_multiple_of(4) {
        return error(libc::EINVAL);
    }
    // A negative number is none at all to the kernel, too.
    let most = (most as i32).max(1) as usize;
    let wake = op.with(libc::FUTEX_WAKE_BITSET);
    // SAFETY: the address is only a key.
    let in_kernel = |most| unsafe { in_kernel([word, wake, most, 0, 0, bits as usize]) };
    // The program may have changed the word by a plain store.
    full_fence();
    if !lot::has_waiters(word) {
        return if R::may_be_kernels(op) { in_kernel(most) } else { 0 };
    }
    if R::is_kernels_turn(word) {
        let woken = in_kernel(most).max(0);
        let rest = most - woken as usize;
        return woken + if rest > 0 { lot::wake(word, rest, bits) as isize } else { 0 };
    }
    let woken = lot::wake(word, most, bits);
    if woken == most || !R::may_be_kernels(op) {
        return woken as isize;
    }
    let more = in_kernel(most - woken);
    if more < 0 && woken == 0 { more } else { woken as isize + more.max(0) }
}

/// Wakes some waiters and makes others wait for another word, if the first word is as the caller thinks or it does not
/// say.
unsafe fn requeue<R: Rules>(op: Op, args: Args, raw: [usize; 6], compares: bool) -> isize {
    let number = |given: u32| usize::try_from(given as i32);
    let (Ok(wake), Ok(most)) = (number(args.value), number(args.time as u32)) else {
        return error(libc::EINVAL);
    };
    if !args.word.is_multiple_of(4) || !args.other.is_multiple_of(4) {
        return error(libc::EINVAL);
    }
    full_fence();
    if R::may_be_kernels(op) && !lot::has_waiters(args.word) {
        // SAFETY: the caller's contract.
        return unsafe { in_kernel(raw) };
    }
    if compares && args.word == 0 {
        return error(libc::EFAULT);
    }
    // SAFETY: the caller's word, which is aligned, if it compares.
    let read = || unsafe { &*(args.word as *const AtomicU32) }.load(Ordering::SeqCst);
    let is_expected = || !compares || read() == args.last;
    let done = lot::requeue(args.word, args.other, (wake, most), is_expected, || ());
    let Some((woken, moved)) = done else { return error(libc::EAGAIN) };
    let (wake, most) = (wake - woken, most - moved);
    if wake + most == 0 || !R::may_be_kernels(op) {
        return (woken + moved) as isize;
    }
    let command = op.with(op.command());
    // SAFETY: the caller's contract.
    let more =
        unsafe { in_kernel([args.word, command, wake, most, args.other, args.last as usize]) };
    if more < 0 && woken + moved == 0 { more } else { (woken + moved) as isize + more.max(0) }
}

/// Changes the other word, wakes waiters for the first, and also for the other if that was as the caller hoped.
unsafe fn wake_op<R: Rules>(op: Op, args: Args) -> isize {
    if !args.word.is_multiple_of(4) || !args.other.is_multiple_of(4) {
        return error(libc::EINVAL);
    }
    if args.other == 0 {
        return error(libc::EFAULT);
    }
    // SAFETY: the caller's word, which is aligned.
    let other = unsafe { &*(args.other as *const AtomicU32) };
    let Some(also) = change(other, args.last) else { return error(libc::ENOSYS) };
    // SAFETY: the caller's contract.
    unsafe {
        let woken = wake_some::<R>(op, args.word, args.value, u32::MAX);
        if !also || woken < 0 {
            return woken;
        }
        woken + wake_some::<R>(op, args.other, args.time as u32, u32::MAX).max(0)
    }
}

/// Applies `code`, which FUTEX_OP makes, to the word. Returns how its comparison with the former value came out, or
/// `None` if the kernel does not know the code.
fn change(word: &AtomicU32, code: u32) -> Option<bool> {
    // Two signed numbers of 12 bits.
    let signed = |bits: u32| (bits << 20) as i32 >> 20;
    let (operand, other) = (signed(code >> 12 & 0xfff), signed(code & 0xfff));
    let operand = if code >> 31 != 0 { 1 << (operand & 31) } else { operand as u32 };
    let compare: fn(&i32, &i32) -> bool = match code >> 24 & 0xf {
        0 => i32::eq,
        1 => i32::ne,
        2 => i32::lt,
        3 => i32::le,
        4 => i32::gt,
        5 => i32::ge,
        _ => return None,
    };
    let before = match code >> 28 & 0x7 {
        0 => word.swap(operand, Ordering::SeqCst),
        1 => word.fetch_add(operand, Ordering::SeqCst),
        2 => word.fetch_or(operand, Ordering::SeqCst),
        3 => word.fetch_and(!operand, Ordering::SeqCst),
        4 => word.fetch_xor(operand, Ordering::SeqCst),
        _ => return None,
    };
    Some(compare(&(before as i32), &other))
}

/// The calls of `futex2`, from the first to the last.
pub const FUTEX2_WAITV: c_long = 449;
const FUTEX2_WAKE: c_long = 454;
const FUTEX2_WAIT: c_long = 455;
/// See [`FUTEX2_WAITV`].
pub const FUTEX2_REQUEUE: c_long = 456;

/// Makes a call of `futex2`, if it is one, or another. Its waits are the kernel's; its wakes look in the lot, too.
/// Returns what the kernel would.
///
/// # Safety
/// The call's contract.
#[cold]
pub unsafe fn futex2<R: Rules>(number: c_long, args: [usize; 6]) -> isize {
    let waits = matches!(number, FUTEX2_WAIT | FUTEX2_WAITV | FUTEX2_REQUEUE);
    if waits {
        R::note_other_wait();
    }
    // SAFETY: the caller's contract.
    let result = unsafe {
        match number {
            FUTEX2_WAIT | FUTEX2_WAITV => R::blocking(|| call(number, args)),
            _ => call(number, args),
        }
    };
    let most = args[2] as i32;
    if number == FUTEX2_WAKE && result >= 0 && (result as i32) < most {
        full_fence();
        let rest = (most as isize - result) as usize;
        return result + lot::wake(args[0], rest, args[1] as u32) as isize;
    }
    result
}
