//! The rules of futexes in a program that links the runtime.
//!
//! A task that may park waits in the lot. Everything else waits in the kernel, as it would without the runtime: kernel
//! threads, the runtime itself, and tasks that hold preemption off, which may hold a lock of a run queue. So wakes look
//! in both places. The kernel is asked even if it seems to have no waiter: a thread may wait there by another way than
//! `syscall`.

use super::{Op, Rules, call, lot};
use crate::caller::Caller;
use crate::task::{GUARD, Task};
use heddle_core::Ns;
use std::ffi::c_int;
use std::hint::black_box;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// See the module.
pub(super) struct Linked;

/// Those of the addresses of one hash that wait in the kernel. A waker that may wake one of two parties, a task and a
/// kernel thread, would let the other starve if it always chose the same.
struct Sleepers {
    /// How many there are: a hint, as a thread may end while it waits.
    count: AtomicU32,
    /// Incremented by each wake that found any; odd if the kernel's are next.
    turn: AtomicU32,
}

const HASHES: usize = 256;
static SLEEPERS: [Sleepers; HASHES] =
    [const { Sleepers { count: AtomicU32::new(0), turn: AtomicU32::new(0) } }; HASHES];

fn sleepers(word: usize) -> &'static Sleepers {
    &SLEEPERS[(word >> 2) % HASHES]
}

impl Rules for Linked {
    #[inline]
    fn is_kernels(op: Op, _: Caller, _: usize) -> bool {
        !op.is_private()
    }

    #[inline]
    fn parks(caller: Caller) -> bool {
        caller == Caller::Task && is_on_own_stack()
    }

    unsafe fn wait_in_kernel(raw: [usize; 6]) -> isize {
        let count = &sleepers(raw[0]).count;
        count.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        let result = unsafe { call(libc::SYS_futex, raw) };
        count.fetch_sub(1, Ordering::Relaxed);
        result
    }

    fn wait(
        key: usize,
        bits: u32,
        what: lot::For,
        deadline: Option<Ns>,
        is_expected: impl Fn() -> bool,
    ) -> Result<(), c_int> {
        match lot::wait_as_task(key, bits, what, deadline, || false, is_expected).0 {
            lot::Outcome::Woken => Ok(()),
            lot::Outcome::Changed => Err(libc::EAGAIN),
            lot::Outcome::TimedOut => Err(libc::ETIMEDOUT),
            lot::Outcome::Interrupted => unreachable!("nothing asks it to stop"),
        }
    }

    #[inline]
    fn is_kernels_turn(word: usize) -> bool {
        let sleepers = sleepers(word);
        sleepers.count.load(Ordering::Relaxed) > 0
            && sleepers.turn.fetch_add(1, Ordering::Relaxed) % 2 == 1
    }
}

/// Returns whether the calling task runs on its own stack: the handler of a signal, which may run on the worker's, must
/// not park there.
fn is_on_own_stack() -> bool {
    let here = black_box(0u8);
    let at = &raw const here as usize;
    Task::current().is_some_and(|task| (task.stack.base + GUARD..task.top.get()).contains(&at))
}

/// Prepares the process before its first worker starts.
pub(crate) fn prepare() {
    extern "C" fn in_child() {
        // SAFETY: the child has no other thread.
        unsafe { lot::LOT.release() };
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only touches the lot.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        // The definition is linked with whatever is in the same file of the archive as this reference.
        black_box(super::entry::syscall as *const ());
    });
}
