//! Futexes of programs: the C library's `syscall`.
//!
//! Rust's standard library, the guards and futures of C++, parking_lot and many others wait by
//! `syscall(SYS_futex, ...)`. Such a call is handled as follows:
//!
//! 1. Calls of this library itself (the runtime's, its standard library's) are the kernel's: a worker's loop never
//!    waits as a task. They are known by their return address or by their word, which lie in the library ([`image`]).
//!    A function that ends in such a call leaves its caller's return address: no function here that the program calls
//!    does, as each returns a value. What is called between two tasks is the kernel's, too.
//! 2. Waits on words that are *private* to the process are ours. So the kernel has no waiter for such a wake.
//! 3. A call without the private flag may be meant for another process. If the word lies in memory of this process
//!    alone ([`is_alone`]; the guards and futures of C++ lack the flag), its wait is ours. Any other is the kernel's,
//!    and meanwhile the CPU is given away. A wake looks for both.
//! 4. Futexes with priority inheritance (whose owner, to the kernel, is the kernel thread) and the calls of `futex2`
//!    are the kernel's. Once one has waited there, private wakes look for both as well ([`KERNEL_WAITS`]).
//!
//! In the archive, the library's data is the program's: words do not tell. There, what is called while preemption is
//! held off waits in the kernel, too, and all wakes look for both.

mod call;

use crate::cancel::{self, Attended};
use crate::clock;
use crate::image;
use crate::sys::{self, syscall};
use crate::wait::{self, Attend, Limit, Outcome};
use heddle_core::Ns;
use heddle_rt::raw::{Caller, RawTask};
use libc::{c_long, timespec};
use std::arch::asm;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Set once anything of the program may wait for private futexes in the kernel.
static KERNEL_WAITS: AtomicBool = AtomicBool::new(false);

/// A call's operation.
#[derive(Clone, Copy)]
struct Op(c_int);

impl Op {
    fn command(self) -> c_int {
        self.0 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME)
    }

    fn is_private(self) -> bool {
        self.0 & libc::FUTEX_PRIVATE_FLAG != 0
    }

    fn is_real_time(self) -> bool {
        self.0 & libc::FUTEX_CLOCK_REALTIME != 0
    }

    /// Returns another command with these flags.
    fn with(self, command: c_int) -> usize {
        (command | self.0 & libc::FUTEX_PRIVATE_FLAG) as usize
    }

    /// Returns whether the kernel may have waiters for it.
    fn is_for_kernel(self) -> bool {
        !self.is_private() || KERNEL_WAITS.load(Ordering::Relaxed) || image::is_archive()
    }
}

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
/// futex(2), except that addresses that do not exist fault.
unsafe fn futex(raw: [usize; 6]) -> isize {
    let (op, caller) = (Op(raw[1] as c_int), Caller::here());
    let args = Args {
        word: raw[0],
        value: raw[2] as u32,
        time: raw[3],
        other: raw[4],
        last: raw[5] as u32,
    };
    let is_own = image::is_own_word(args.word) || caller == Caller::Runtime && !image::is_archive();
    // SAFETY: the caller's contract.
    unsafe {
        if is_own {
            return in_kernel(raw);
        }
        match op.command() {
            libc::FUTEX_WAIT if op.is_real_time() => error(libc::ENOSYS),
            libc::FUTEX_WAIT if waits_in_kernel(caller) => in_kernel(raw),
            libc::FUTEX_WAIT_BITSET if waits_in_kernel(caller) => in_kernel(raw),
            libc::FUTEX_WAIT => wait_for(op, args, u32::MAX, raw),
            libc::FUTEX_WAIT_BITSET => wait_for(op, args, args.last, raw),
            _ if op.is_real_time() => blocking_in_kernel(raw),
            libc::FUTEX_WAKE => wake_some(op, args.word, args.value, u32::MAX),
            libc::FUTEX_WAKE_BITSET => wake_some(op, args.word, args.value, args.last),
            libc::FUTEX_REQUEUE => requeue(op, args, false),
            libc::FUTEX_CMP_REQUEUE => requeue(op, args, true),
            libc::FUTEX_WAKE_OP => wake_op(op, args),
            _ => blocking_in_kernel(raw),
        }
    }
}

/// Returns whether the library itself may be the caller, so that its wait is the kernel's: rule 1, in the archive.
fn waits_in_kernel(caller: Caller) -> bool {
    match caller {
        Caller::Task => false,
        Caller::Thread => image::is_archive() && RawTask::current().is_some(),
        Caller::Runtime => true,
    }
}

unsafe fn in_kernel(args: [usize; 6]) -> isize {
    // SAFETY: the caller's contract.
    unsafe { sys::call(libc::SYS_futex, args) }
}

/// Makes a call that may block, in ways that only the kernel knows.
#[cold]
unsafe fn blocking_in_kernel(args: [usize; 6]) -> isize {
    if Op(args[1] as c_int).command() == libc::FUTEX_WAIT_REQUEUE_PI {
        // The word that it waits for is an ordinary futex.
        KERNEL_WAITS.store(true, Ordering::SeqCst);
    }
    // SAFETY: the caller's contract.
    heddle_rt::blocking(|| unsafe { in_kernel(args) })
}

unsafe fn wait_for(op: Op, args: Args, bits: u32, raw: [usize; 6]) -> isize {
    // SAFETY: the caller's contract: null or a time.
    let deadline = match unsafe { (args.time as *const timespec).as_ref() } {
        None => None,
        Some(time) => match deadline(op, time) {
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
    if word.load(Ordering::SeqCst) != args.value {
        return error(libc::EAGAIN);
    }
    if !op.is_private() && !is_alone(args.word) {
        // SAFETY: the caller's contract.
        return heddle_rt::blocking(|| unsafe { in_kernel(raw) });
    }
    let limit = Limit { deadline, attend: Attend::Signals };
    loop {
        let is_expected = || word.load(Ordering::SeqCst) == args.value;
        match wait::wait(args.word, bits, limit, is_expected) {
            Outcome::Woken => return 0,
            Outcome::Changed => return error(libc::EAGAIN),
            Outcome::TimedOut => return error(libc::ETIMEDOUT),
            Outcome::Interrupted => match cancel::attend(Attend::Signals) {
                Attended::Interrupt => return error(libc::EINTR),
                // As in the kernel, which cannot restart a wait with a time.
                Attended::Restart if deadline.is_some() => return error(libc::EINTR),
                Attended::Restart | Attended::Nothing => {}
            },
        }
    }
}

/// Returns when the wait ends, or `None` if the time is none: WAIT's is a span, the other's a point in time.
fn deadline(op: Op, time: &timespec) -> Option<Ns> {
    let span = clock::span(time)?;
    Some(match op.command() {
        libc::FUTEX_WAIT => Ns(heddle_sys::clock::now().0.saturating_add(span.0)),
        _ if op.is_real_time() => clock::deadline(libc::CLOCK_REALTIME, time).ok()?,
        _ => span,
    })
}

/// Returns whether the memory at `address` is certainly this process's alone: a page that exists and belongs to no file
/// and no shared mapping. Costs some microseconds, as the descriptor cannot be kept: programs close descriptors that
/// they do not know.
#[cold]
fn is_alone(address: usize) -> bool {
    const PAGE: usize = 4096;
    const IS_PRESENT: u64 = 1 << 63;
    const IS_FILE_OR_SHARED: u64 = 1 << 61;
    let mut entry = 0u64;
    let path = c"/proc/self/pagemap".as_ptr();
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let entry_at = &raw mut entry;
    // SAFETY: calls with a valid path, a descriptor of our own and room for the entry.
    let read = unsafe {
        let fd = syscall!(libc::SYS_openat, libc::AT_FDCWD, path, flags);
        if fd < 0 {
            return false;
        }
        let read = syscall!(libc::SYS_pread64, fd, entry_at, 8, address / PAGE * 8);
        syscall!(libc::SYS_close, fd);
        read
    };
    read == 8 && entry & (IS_PRESENT | IS_FILE_OR_SHARED) == IS_PRESENT
}

/// Wakes up to `most` waiters, at least one, ours first. Returns how many.
unsafe fn wake_some(op: Op, word: usize, most: u32, bits: u32) -> isize {
    if bits == 0 || !word.is_multiple_of(4) {
        return error(libc::EINVAL);
    }
    // A negative number is none at all to the kernel, too.
    let most = (most as i32).max(1) as usize;
    // The program may have changed the word by a plain store.
    full_fence();
    let woken = wait::wake(word, most, bits);
    if woken == most || !op.is_for_kernel() {
        return woken as isize;
    }
    let wake = op.with(libc::FUTEX_WAKE_BITSET);
    // SAFETY: the address is only a key.
    let more = unsafe { in_kernel([word, wake, most - woken, 0, 0, bits as usize]) };
    if more < 0 && woken == 0 { more } else { woken as isize + more.max(0) }
}

/// Wakes some waiters and makes others wait for another word, if the first word is as the caller thinks or it does not
/// say.
unsafe fn requeue(op: Op, args: Args, compares: bool) -> isize {
    let number = |given: u32| usize::try_from(given as i32);
    let (Ok(wake), Ok(most)) = (number(args.value), number(args.time as u32)) else {
        return error(libc::EINVAL);
    };
    if !args.word.is_multiple_of(4) || !args.other.is_multiple_of(4) {
        return error(libc::EINVAL);
    }
    if compares && args.word == 0 {
        return error(libc::EFAULT);
    }
    // SAFETY: the caller's word, which is aligned, if it compares.
    let read = || unsafe { &*(args.word as *const AtomicU32) }.load(Ordering::SeqCst);
    let is_expected = || !compares || read() == args.last;
    full_fence();
    let done = wait::requeue(args.word, args.other, (wake, most), is_expected, || ());
    let Some((woken, moved)) = done else { return error(libc::EAGAIN) };
    let (wake, most) = (wake - woken, most - moved);
    if wake + most == 0 || !op.is_for_kernel() {
        return (woken + moved) as isize;
    }
    let command = op.with(op.command());
    // SAFETY: the caller's contract.
    let more =
        unsafe { in_kernel([args.word, command, wake, most, args.other, args.last as usize]) };
    if more < 0 && woken + moved == 0 { more } else { (woken + moved) as isize + more.max(0) }
}

/// Changes the other word, wakes waiters for the first, and also for the other if that was as the caller hoped.
unsafe fn wake_op(op: Op, args: Args) -> isize {
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
        let woken = wake_some(op, args.word, args.value, u32::MAX);
        if !also || woken < 0 {
            return woken;
        }
        woken + wake_some(op, args.other, args.time as u32, u32::MAX).max(0)
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

const FUTEX2_WAITV: c_long = 449;
const FUTEX2_WAKE: c_long = 454;
const FUTEX2_WAIT: c_long = 455;
const FUTEX2_REQUEUE: c_long = 456;

/// Makes a call of `futex2`: rule 4. Returns what the kernel would.
///
/// # Safety
/// The call's contract.
#[cold]
unsafe fn futex2(number: c_long, args: [usize; 6]) -> isize {
    let waits = matches!(number, FUTEX2_WAIT | FUTEX2_WAITV | FUTEX2_REQUEUE);
    if waits {
        KERNEL_WAITS.store(true, Ordering::SeqCst);
    }
    // SAFETY: the caller's contract.
    let result = unsafe {
        match number {
            FUTEX2_WAIT | FUTEX2_WAITV => heddle_rt::blocking(|| sys::call(number, args)),
            _ => sys::call(number, args),
        }
    };
    let most = args[2] as i32;
    if number == FUTEX2_WAKE && result >= 0 && (result as i32) < most {
        full_fence();
        let rest = (most as isize - result) as usize;
        return result + wait::wake(args[0], rest, args[1] as u32) as isize;
    }
    result
}
