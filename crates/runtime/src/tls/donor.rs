//! Control blocks of real threads.
//!
//! A donor is a thread on the task's own memory that sleeps forever right after its start. Its descriptor lies at the
//! upper end, its few frames below that, and the task's stack begins under them. It blocks all signals and holds no
//! lock, so nothing can distinguish it from a thread that computes; only the kernel knows that another thread runs with
//! its FS.

use super::Area;
use heddle_sys::syscall::call;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, ptr};

/// Starts a thread on the memory `base..base + size`.
pub(super) fn thread_on(
    base: usize,
    size: usize,
    entry: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> io::Result<libc::pthread_t> {
    // SAFETY: the attribute is initialised before use and destroyed after; the memory outlives the thread.
    unsafe {
        let mut attr: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_attr_init(&mut attr);
        let mut thread = 0;
        let error = match libc::pthread_attr_setstack(&mut attr, base as *mut c_void, size) {
            0 => libc::pthread_create(&mut thread, &attr, entry, argument),
            error => error,
        };
        libc::pthread_attr_destroy(&mut attr);
        match error {
            0 => Ok(thread),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// What the donor reports before it goes to sleep.
#[derive(Default)]
struct DonorInfo {
    fs: usize,
    stack_pointer: usize,
    given: AtomicU32,
}

/// Bytes under the donor's frame that it may use: for its sleep, and for the C library's handler of `setuid`, which no
/// thread can block.
fn reserved() -> usize {
    heddle_sys::memory::signal_frame_size() + 4096
}

extern "C" fn donate(info: *mut c_void) -> *mut c_void {
    heddle_sys::signal::block_all();
    unregister_rseq();
    let marker = 0u8;
    let given;
    {
        // SAFETY: `furnish` keeps the info until `given` is set.
        let info = unsafe { &mut *info.cast::<DonorInfo>() };
        info.fs = heddle_arch::fs_base();
        info.stack_pointer = &raw const marker as usize;
        given = info.given.as_ptr() as usize;
        info.given.store(1, Ordering::Release);
    }
    // From here on tasks use this thread's storage, and these calls touch no thread-local variable.
    let wake = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: the address is only a key; the other call sleeps.
    unsafe {
        call(libc::SYS_futex, [given, wake, 1, 0, 0, 0]);
        loop {
            call(libc::SYS_pause, [0; 6]);
        }
    }
}

/// Stops the kernel from writing the donor's CPU into the area that tasks read.
fn unregister_rseq() {
    let symbol = |name: &std::ffi::CStr| {
        // SAFETY: a lookup by name.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
    };
    let (offset, size) = (symbol(c"__rseq_offset"), symbol(c"__rseq_size"));
    if offset.is_null() || size.is_null() {
        return;
    }
    const UNREGISTER: i32 = 1;
    const SIGNATURE: u32 = 0x5305_3053;
    // SAFETY: glibc's public symbols locate its registration in this thread's block.
    unsafe {
        let area =
            (heddle_arch::fs_base() as isize + ptr::read(offset.cast::<isize>())) as *mut i32;
        // Registered with at least 32 bytes, whatever size is in use.
        libc::syscall(libc::SYS_rseq, area, 32, UNREGISTER, SIGNATURE);
        area.add(1).write(-2);
    }
}

/// Starts a donor on the memory.
///
/// # Safety
/// As [`super::furnish`].
pub(super) unsafe fn furnish(base: *mut u8, size: usize) -> io::Result<Area> {
    let mut info = DonorInfo::default();
    let thread = thread_on(base as usize, size, donate, (&raw mut info).cast()).map_err(|e| {
        let advice = "each live task needs a kernel thread in this mode: \
                      see kernel.pid_max, kernel.threads-max, RLIMIT_NPROC";
        io::Error::new(e.kind(), format!("cannot start a donor thread ({e}); {advice}"))
    })?;
    // SAFETY: a joinable thread that is never joined.
    unsafe { libc::pthread_detach(thread) };
    while info.given.load(Ordering::Acquire) == 0 {
        heddle_sys::futex::wait(&info.given, 0, None);
    }
    Ok(Area { fs: info.fs, usable_top: (info.stack_pointer - reserved()) & !63 })
}
