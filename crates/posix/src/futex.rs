//! Futexes of programs: the C library's `syscall`.
//!
//! The runtime defines it, with what the calls do (`heddle_rt::raw::futex`). Here are the rules by which the calls of a
//! program are handled whose threads all are tasks:
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
use crate::image;
use crate::sys::{self, syscall};
use crate::wait::{self, Attend, For, Limit, Outcome};
use heddle_core::Ns;
use heddle_rt::raw::{Caller, Op, RawTask, Rules};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set once anything of the program may wait for private futexes in the kernel.
static KERNEL_WAITS: AtomicBool = AtomicBool::new(false);

/// See the module.
struct Threads;

impl Rules for Threads {
    #[inline]
    fn is_kernels(_: Op, caller: Caller, word: usize) -> bool {
        image::is_own_word(word) || caller == Caller::Runtime && !image::is_archive()
    }

    /// In the archive the library itself may be the caller.
    #[inline]
    fn parks(caller: Caller) -> bool {
        match caller {
            Caller::Task => true,
            Caller::Thread => !image::is_archive() || RawTask::current().is_none(),
            Caller::Runtime => false,
        }
    }

    fn is_alone(op: Op, word: usize) -> bool {
        op.is_private() || is_alone(word)
    }

    unsafe fn wait_in_kernel(raw: [usize; 6]) -> isize {
        // SAFETY: the caller's contract.
        unsafe { sys::call(libc::SYS_futex, raw) }
    }

    fn wait(
        key: usize,
        bits: u32,
        what: For,
        deadline: Option<Ns>,
        is_expected: impl Fn() -> bool,
    ) -> Result<(), c_int> {
        let limit = Limit { deadline, attend: Attend::Signals };
        loop {
            match wait::wait(key, bits, what, limit, &is_expected) {
                Outcome::Woken => return Ok(()),
                Outcome::Changed => return Err(libc::EAGAIN),
                Outcome::TimedOut => return Err(libc::ETIMEDOUT),
                Outcome::Interrupted => match cancel::attend(Attend::Signals) {
                    Attended::Interrupt => return Err(libc::EINTR),
                    // As in the kernel, which cannot restart a wait with a time.
                    Attended::Restart if deadline.is_some() => return Err(libc::EINTR),
                    Attended::Restart | Attended::Nothing => {}
                },
            }
        }
    }

    #[inline]
    fn may_be_kernels(op: Op) -> bool {
        !op.is_private() || KERNEL_WAITS.load(Ordering::Relaxed) || image::is_archive()
    }

    fn note_other_wait() {
        KERNEL_WAITS.store(true, Ordering::SeqCst);
    }

    fn blocking<R>(f: impl FnOnce() -> R) -> R {
        heddle_rt::blocking(f)
    }
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
