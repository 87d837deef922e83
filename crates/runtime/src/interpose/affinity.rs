//! The CPUs seen by a task and inherited by what it creates: those of the process, not the one its worker is pinned to.
//!
//! Threads and processes inherit the affinity of the thread that creates them. So a worker drops its own affinity while
//! one of its tasks calls a function that creates threads or processes; the child of `fork` drops it by itself. The
//! exceptions are `vfork` and bare system calls, whose children keep the worker's CPU.

use crate::cpu_list;
use crate::libc_fn::LibcFn;
use crate::preempt::NoPreempt;
use crate::task::Task;
use crate::worker::Worker;
use heddle_sys::thread::{self, CpuMask};
use std::ffi::{c_char, c_int, c_long, c_void};
use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The CPUs of the process when its first runtime started.
static PROCESS: OnceLock<CpuMask> = OnceLock::new();

/// Records the CPUs of the process, all of which the calling thread may use.
pub(super) fn remember() {
    extern "C" fn in_child() {
        // SAFETY: reads a register; a worker's thread has a block there, and no other has.
        let on_worker = heddle_arch::gs_base() != 0;
        if let Some(mask) = PROCESS.get().filter(|_| on_worker) {
            let _ = mask.apply();
        }
    }
    if let Ok(mask) = CpuMask::current() {
        let _ = PROCESS.set(mask);
        // SAFETY: the handler makes one system call, which a child may whatever other threads were doing.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

/// Lets the calling thread, a worker's copy in the child of a fork, use all CPUs of the process.
pub(crate) fn unpin() {
    if let Some(mask) = PROCESS.get() {
        let _ = mask.apply();
    }
}

/// Lets the thread `tid` use all CPUs of the process.
pub(crate) fn unpin_thread(tid: u32) {
    if let Some(mask) = PROCESS.get() {
        let _ = mask.apply_to(tid);
    }
}

/// Pins the calling task's worker to its CPU again after [`unpin`]. Preemption has been off in between.
pub(crate) fn pin_again() {
    if Task::current().is_some() {
        // SAFETY: a task runs on a worker, and preemption is off.
        unsafe { Worker::current() }.pin_again();
    }
}

/// A thread library's way to run a call that makes a process; see [`hook_makers`].
static AROUND: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// What runs a call that makes a process.
pub type Around = fn(&mut dyn FnMut());

/// Makes `around` run each call that makes a process: it calls its argument once.
pub fn hook_makers(around: Around) {
    AROUND.store(around as *mut (), Ordering::Release);
}

/// Calls `make` unpinned, by way of the thread library.
fn made<R>(make: impl FnOnce() -> R) -> R {
    let hook = AROUND.load(Ordering::Acquire);
    if hook.is_null() {
        return unpinned(make);
    }
    // SAFETY: `hook_makers` stored a function of this type.
    let around: Around = unsafe { std::mem::transmute(hook) };
    let (mut make, mut result) = (Some(make), None);
    around(&mut || result = make.take().map(unpinned));
    result.expect("a thread library makes the call")
}

/// The CPUs to report where they are shared with other programs, if they are.
static SHARED: OnceLock<Option<CpuMask>> = OnceLock::new();

/// Makes the process report these CPUs, by the system's numbers, as those that it may use.
pub(crate) fn report_shared(cpus: &[u32]) {
    let _ = SHARED.set(Some(CpuMask::of(cpus)));
}

/// Returns the CPUs that the process shares, also before its first runtime starts: many programs ask only once how
/// many there are, and create as many threads.
fn shared() -> Option<&'static CpuMask> {
    let from_environment = || {
        let text = std::env::var("HEDDLE_SHARE_CPUS").ok()?;
        Some(CpuMask::of(&cpu_list::parse(&text).ok()?))
    };
    SHARED.get_or_init(from_environment).as_ref()
}

/// Returns the CPUs of the process that the calling task, on its worker, does not have.
fn of_task() -> Option<&'static CpuMask> {
    Task::current().and_then(|_| PROCESS.get())
}

/// Returns the CPUs that the caller may use, or its process if the caller is a task, by the system's numbers.
///
/// # Errors
/// The system's.
pub(crate) fn usable() -> io::Result<Vec<u32>> {
    of_task().map_or_else(thread::affinity, |mask| Ok(mask.cpus()))
}

/// Returns the mask to report to the caller about itself, if that is not the kernel's.
fn reported() -> Option<&'static CpuMask> {
    shared().or_else(of_task)
}

/// Calls `make`; in a task, on a worker that may meanwhile use all CPUs of the process.
fn unpinned<R>(make: impl FnOnce() -> R) -> R {
    let Some(mask) = of_task() else { return make() };
    let _guard = NoPreempt::new();
    // SAFETY: a task with preemption off.
    let worker = unsafe { Worker::current() };
    let _ = mask.apply();
    let made = make();
    worker.pin_again();
    made
}

/// Defines functions that create threads or processes: each calls the C library's function of that name, unpinned.
macro_rules! makers {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        /// Like the C library's; the new thread or process may use all CPUs of the process.
        ///
        /// # Safety
        /// The C library's contract.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            static REAL: LibcFn = LibcFn::named(concat!(stringify!($name), "\0"));
            // SAFETY: the symbol has this type; the caller's contract.
            unsafe {
                let real: unsafe extern "C" fn($($type),*) -> $result =
                    std::mem::transmute(REAL.address());
                made(|| real($($argument),*))
            }
        }
    )*};
}

/// The first function of a thread.
pub type Entry = extern "C" fn(*mut c_void) -> *mut c_void;

/// What a thread created on a worker runs.
struct Start {
    entry: Entry,
    argument: *mut c_void,
}

/// A new thread inherits the GS base of its creator, and would be mistaken for that worker.
extern "C" fn without_worker(start: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` below boxed it for this thread. Zero means no block.
    let Start { entry, argument } = unsafe {
        heddle_arch::set_gs_base(0);
        *Box::from_raw(start.cast::<Start>())
    };
    entry(argument)
}

/// Like the C library's; the thread may use all CPUs of the process, and is not a worker.
///
/// # Safety
/// The C library's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attr: *const libc::pthread_attr_t,
    entry: Entry,
    argument: *mut c_void,
) -> c_int {
    let hook = CREATE.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: `hook_create_thread` stored a function of this type; the caller's contract.
        return unsafe {
            std::mem::transmute::<*mut (), Create>(hook)(thread, attr, entry, argument)
        };
    }
    // SAFETY: the caller's contract.
    unsafe { create_foreign_thread(thread, attr, entry, argument) }
}

/// A thread library's `pthread_create`; see [`hook_create_thread`].
static CREATE: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Makes `create` what `pthread_create` does. It calls [`create_foreign_thread`] for threads that are not tasks.
pub fn hook_create_thread(create: Create) {
    CREATE.store(create as *mut (), Ordering::Release);
}

/// Like the C library's `pthread_create`; the thread may use all CPUs of the process, and is not a worker.
///
/// # Safety
/// The C library's contract.
pub unsafe fn create_foreign_thread(
    thread: *mut libc::pthread_t,
    attr: *const libc::pthread_attr_t,
    entry: Entry,
    argument: *mut c_void,
) -> c_int {
    let real = real_create();
    // SAFETY: the caller's contract. A thread that was not made has not taken its box.
    unsafe {
        if PROCESS.get().is_none() || heddle_arch::gs_base() == 0 {
            return real(thread, attr, entry, argument);
        }
        let start = Box::into_raw(Box::new(Start { entry, argument })).cast();
        let error = unpinned(|| real(thread, attr, without_worker, start));
        if error != 0 {
            drop(Box::from_raw(start.cast::<Start>()));
        }
        error
    }
}

/// The type of `pthread_create`.
pub type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    Entry,
    *mut c_void,
) -> c_int;

/// Returns the C library's `pthread_create`.
pub(super) fn real_create() -> Create {
    static REAL: LibcFn = LibcFn::new(c"pthread_create");
    // SAFETY: the symbol has this type.
    unsafe { std::mem::transmute(REAL.address()) }
}

/// Like `pthread_create`, for the runtime's own threads: allocates nothing. The thread may use all CPUs of the process,
/// and sets its GS base to zero itself.
///
/// # Safety
/// The C library's contract.
pub(crate) unsafe fn create_thread(
    attr: *const libc::pthread_attr_t,
    entry: Entry,
    argument: *mut c_void,
) -> c_int {
    let mut thread = 0;
    // SAFETY: the caller's contract.
    unpinned(|| unsafe { real_create()(&mut thread, attr, entry, argument) })
}

type Strings = *const *mut c_char;

makers! {
    posix_spawn(
        pid: *mut libc::pid_t,
        path: *const c_char,
        actions: *const c_void,
        attr: *const c_void,
        argv: Strings,
        envp: Strings
    ) -> c_int;
    posix_spawnp(
        pid: *mut libc::pid_t,
        file: *const c_char,
        actions: *const c_void,
        attr: *const c_void,
        argv: Strings,
        envp: Strings
    ) -> c_int;
    system(command: *const c_char) -> c_int;
    popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE;
}

/// Reports the CPUs of its process to a task.
///
/// # Safety
/// The C library's contract: `set` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_getaffinity(
    pid: libc::pid_t,
    size: usize,
    set: *mut libc::cpu_set_t,
) -> c_int {
    static REAL: LibcFn = LibcFn::new(c"sched_getaffinity");
    if let Some(mask) = reported().filter(|_| pid == 0 || pid as u32 == thread::id()) {
        // SAFETY: the caller's memory.
        return unsafe { answer(mask, size, set) };
    }
    // SAFETY: the symbol has this type; the caller's contract.
    unsafe {
        let real: unsafe extern "C" fn(libc::pid_t, usize, *mut libc::cpu_set_t) -> c_int =
            std::mem::transmute(REAL.address());
        real(pid, size, set)
    }
}

unsafe extern "C" {
    /// The C library's `sysconf`, by its other name.
    fn __sysconf(name: c_int) -> c_long;
}

/// Reports the number of CPUs that the process shares as those that there are; passes other questions on.
#[unsafe(no_mangle)]
pub extern "C" fn sysconf(name: c_int) -> c_long {
    if name == libc::_SC_NPROCESSORS_ONLN
        && let Some(mask) = shared()
    {
        return mask.cpus().len() as c_long;
    }
    // SAFETY: any number may be asked for.
    unsafe { __sysconf(name) }
}

/// As `sysconf(_SC_NPROCESSORS_ONLN)`.
#[unsafe(no_mangle)]
pub extern "C" fn get_nprocs() -> c_int {
    sysconf(libc::_SC_NPROCESSORS_ONLN) as c_int
}

/// Reports the CPUs of its process to a task; passes questions about other threads on.
///
/// # Safety
/// The C library's contract: `set` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getaffinity_np(
    thread: libc::pthread_t,
    size: usize,
    set: *mut libc::cpu_set_t,
) -> c_int {
    static REAL: LibcFn = LibcFn::new(c"pthread_getaffinity_np");
    // SAFETY: no arguments, no failure.
    let is_caller = unsafe { libc::pthread_self() } == thread;
    if let Some(mask) = reported().filter(|_| is_caller) {
        // SAFETY: the caller's memory.
        return unsafe { answer(mask, size, set) };
    }
    // SAFETY: the symbol has this type; the caller's contract.
    unsafe {
        let real: unsafe extern "C" fn(libc::pthread_t, usize, *mut libc::cpu_set_t) -> c_int =
            std::mem::transmute(REAL.address());
        real(thread, size, set)
    }
}

/// Writes `mask` into `size` bytes at `set`, the rest zero.
unsafe fn answer(mask: &CpuMask, size: usize, set: *mut libc::cpu_set_t) -> c_int {
    let bytes = mask.bytes();
    let shared = size.min(bytes.len());
    // SAFETY: the caller has room for `size` bytes, and they do not overlap ours.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), set.cast::<u8>(), shared);
        set.cast::<u8>().add(shared).write_bytes(0, size - shared);
    }
    0
}
