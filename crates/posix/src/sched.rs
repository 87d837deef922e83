//! Names, CPUs and scheduling attributes of threads, answered from the thread's record.
//!
//! To the kernel, a task's thread is a worker. What a program asks of its threads' scheduling is a hint for the policy:
//! SCHED_BATCH, SCHED_IDLE and nice values above the process's make a thread best-effort.

use crate::classes;
use crate::errno;
use crate::real::real;
use crate::thread::Thread;
use heddle_core::Class;
use heddle_rt::raw::{Caller, Entry};
use libc::{pthread_t, sched_param};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

/// What a thread has been told of its scheduling.
pub(crate) struct Wishes {
    policy: AtomicI32,
    priority: AtomicI32,
    nice: AtomicI32,
    pub(crate) name: [AtomicU8; 16],
    /// The rule of classes for the module in which it began.
    of_module: AtomicU8,
}

impl Wishes {
    pub(crate) const fn new() -> Wishes {
        Wishes {
            policy: AtomicI32::new(libc::SCHED_OTHER),
            priority: AtomicI32::new(0),
            nice: AtomicI32::new(0),
            name: [const { AtomicU8::new(0) }; 16],
            of_module: AtomicU8::new(classes::NONE),
        }
    }

    /// Notes that the thread begins with `entry(argument)`.
    ///
    /// # Safety
    /// `argument` is what the thread gets.
    pub(crate) unsafe fn set_start(&self, entry: Entry, argument: *mut c_void) {
        if classes::exist() {
            // SAFETY: the caller's promise.
            let index = unsafe { classes::of_start(entry as usize, argument) };
            self.of_module.store(index, Ordering::Relaxed);
        }
    }

    /// Takes over those of the creator, as a new thread does.
    pub(crate) fn inherit(&self, creator: Option<&Thread>) {
        let Some(Thread { wishes, .. }) = creator else {
            self.policy.store(libc::SCHED_OTHER, Ordering::Relaxed);
            self.priority.store(0, Ordering::Relaxed);
            self.nice.store(base_nice(), Ordering::Relaxed);
            let mut name = [0; 16];
            // SAFETY: room for the 16 bytes that the kernel writes.
            unsafe { crate::sys::syscall!(libc::SYS_prctl, libc::PR_GET_NAME, name.as_mut_ptr()) };
            return self.set_name(&name);
        };
        self.policy.store(wishes.policy.load(Ordering::Relaxed), Ordering::Relaxed);
        self.priority.store(wishes.priority.load(Ordering::Relaxed), Ordering::Relaxed);
        self.nice.store(wishes.nice.load(Ordering::Relaxed), Ordering::Relaxed);
        for (own, its) in self.name.iter().zip(&wishes.name) {
            own.store(its.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn set_name(&self, name: &[u8; 16]) {
        self.name.iter().zip(name).for_each(|(own, &byte)| own.store(byte, Ordering::Relaxed));
    }

    /// The name, and zeros.
    fn name(&self) -> [u8; 16] {
        std::array::from_fn(|i| self.name[i].load(Ordering::Relaxed))
    }

    /// Whether the thread has asked to give way to others.
    fn is_best_effort(&self) -> bool {
        self.nice.load(Ordering::Relaxed) > base_nice()
            || matches!(self.policy.load(Ordering::Relaxed), libc::SCHED_BATCH | libc::SCHED_IDLE)
    }

    /// Returns the class that name, start routine and attributes give.
    pub(crate) fn class(&self) -> Class {
        let default = if self.is_best_effort() { Class::BE } else { Class::LC };
        if !classes::exist() {
            return default;
        }
        let name = self.name();
        let text = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy();
        classes::of(&text, self.of_module.load(Ordering::Relaxed)).unwrap_or(default)
    }
}

/// Returns the nice value of the kernel thread that first asks: the one that the process has when its runtime starts.
fn base_nice() -> c_int {
    static BASE: OnceLock<c_int> = OnceLock::new();
    // SAFETY: numbers.
    *BASE.get_or_init(|| unsafe { getpriority(libc::PRIO_PROCESS, 0) })
}

/// Tells the policy what the attributes of `thread` have become.
fn reclassify(thread: &Thread) {
    thread.task.set_class(thread.wishes.class());
}

/// Shows the first thread's name where others look for that of the process, at its kernel thread.
fn show_name(name: &[u8]) {
    let path = c"/proc/self/comm".as_ptr();
    let flags = libc::O_WRONLY | libc::O_CLOEXEC;
    // SAFETY: a path, and a buffer that stays. Without /proc, none looks there.
    unsafe {
        let file = crate::sys::syscall!(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0);
        if file >= 0 {
            crate::sys::syscall!(libc::SYS_write, file, name.as_ptr(), name.len());
            crate::sys::syscall!(libc::SYS_close, file);
        }
    }
}

/// Linux's `prctl`: the name is the calling task's.
///
/// # Safety
/// Linux's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    let thread = Thread::current();
    // SAFETY: the caller's contract: a name, of which 15 bytes count, or room for 16.
    unsafe {
        match (option, thread) {
            (libc::PR_SET_NAME, Some(thread)) => {
                let name = a as *const c_char;
                let len = libc::strnlen(name, 15);
                rename(thread, std::slice::from_raw_parts(name.cast(), len));
                0
            }
            (libc::PR_GET_NAME, Some(thread)) => {
                (a as *mut [u8; 16]).write(thread.wishes.name());
                0
            }
            _ => {
                errno::of_kernel(crate::sys::syscall!(libc::SYS_prctl, option, a, b, c, d)) as c_int
            }
        }
    }
}

/// Names a thread; `name` has at most 15 bytes.
fn rename(thread: &Thread, name: &[u8]) {
    let mut padded = [0; 16];
    padded[..name.len()].copy_from_slice(name);
    thread.wishes.set_name(&padded);
    reclassify(thread);
    if thread.is_first() {
        show_name(name);
    }
}

/// POSIX's draft `pthread_setname_np`.
///
/// # Safety
/// glibc's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setname_np(thread: pthread_t, name: *const c_char) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        let Some(record) = Thread::find(thread) else {
            return real!(pthread_setname_np(thread: pthread_t, name: *const c_char) -> c_int);
        };
        let bytes = CStr::from_ptr(name).to_bytes();
        if bytes.len() > 15 {
            return libc::ERANGE;
        }
        rename(record, bytes);
    }
    0
}

/// glibc's `pthread_getname_np`.
///
/// # Safety
/// glibc's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getname_np(
    thread: pthread_t,
    name: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        let Some(record) = Thread::find(thread) else {
            return real!(pthread_getname_np(
                thread: pthread_t,
                name: *mut c_char,
                size: usize,
            ) -> c_int);
        };
        let own = record.wishes.name();
        let len = own.iter().position(|&byte| byte == 0).unwrap_or(15) + 1;
        if size < len {
            return libc::ERANGE;
        }
        name.cast::<u8>().copy_from_nonoverlapping(own.as_ptr(), len);
    }
    0
}

/// glibc's `pthread_setaffinity_np`: which CPU a task runs on is the policy's choice, so a set that has any CPU of the
/// process is accepted and not acted upon.
///
/// # Safety
/// glibc's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setaffinity_np(
    thread: pthread_t,
    size: usize,
    set: *const libc::cpu_set_t,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        match Thread::find(thread) {
            Some(_) => accept(size, set),
            None => real!(pthread_setaffinity_np(
                thread: pthread_t,
                size: usize,
                set: *const libc::cpu_set_t,
            ) -> c_int),
        }
    }
}

/// Linux's `sched_setaffinity`; for a task as [`pthread_setaffinity_np`].
///
/// # Safety
/// Linux's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_setaffinity(
    pid: libc::pid_t,
    size: usize,
    set: *const libc::cpu_set_t,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if Caller::here() == Caller::Task && is_own(pid) {
            return match accept(size, set) {
                0 => 0,
                error => errno::fail(error),
            };
        }
        errno::of_kernel(crate::sys::syscall!(libc::SYS_sched_setaffinity, pid, size, set)) as c_int
    }
}

/// Returns EINVAL if the set has no CPU of the process, else 0.
unsafe fn accept(size: usize, set: *const libc::cpu_set_t) -> c_int {
    let mut usable = [0u8; size_of::<libc::cpu_set_t>()];
    // SAFETY: room for a set; the caller's set has `size` bytes.
    let shared = unsafe {
        let got = libc::sched_getaffinity(0, usable.len(), usable.as_mut_ptr().cast());
        let asked = std::slice::from_raw_parts(set.cast::<u8>(), size);
        got == 0 && asked.iter().zip(&usable).any(|(a, b)| a & b != 0)
    };
    if shared { 0 } else { libc::EINVAL }
}

/// Returns whether `pid` stands for the calling task.
fn is_own(pid: libc::pid_t) -> bool {
    pid == 0 || Thread::current().is_some_and(|thread| thread.tid() == pid as u32)
}

/// Returns EINVAL unless the kernel knows `policy` and its priorities include `priority`; EPERM if the process may not
/// have it.
fn check(policy: c_int, priority: c_int) -> Result<(), c_int> {
    let policy = policy & !libc::SCHED_RESET_ON_FORK;
    let range = match policy {
        libc::SCHED_FIFO | libc::SCHED_RR => 1..=99,
        libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE => 0..=0,
        _ => return Err(libc::EINVAL),
    };
    if !range.contains(&priority) {
        return Err(libc::EINVAL);
    }
    // SAFETY: no arguments.
    if *range.end() > 0 && unsafe { libc::geteuid() } != 0 {
        return Err(libc::EPERM);
    }
    Ok(())
}

/// Sets policy and priority of a task.
fn set(thread: &Thread, policy: c_int, priority: c_int) -> c_int {
    if let Err(error) = check(policy, priority) {
        return error;
    }
    thread.wishes.policy.store(policy & !libc::SCHED_RESET_ON_FORK, Ordering::Relaxed);
    thread.wishes.priority.store(priority, Ordering::Relaxed);
    reclassify(thread);
    0
}

/// POSIX's `pthread_setschedparam`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setschedparam(
    thread: pthread_t,
    policy: c_int,
    param: *const sched_param,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        match Thread::find(thread) {
            Some(record) => set(record, policy, (*param).sched_priority),
            None => real!(pthread_setschedparam(
                thread: pthread_t,
                policy: c_int,
                param: *const sched_param,
            ) -> c_int),
        }
    }
}

/// POSIX's `pthread_getschedparam`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getschedparam(
    thread: pthread_t,
    policy: *mut c_int,
    param: *mut sched_param,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        let Some(record) = Thread::find(thread) else {
            return real!(pthread_getschedparam(
                thread: pthread_t,
                policy: *mut c_int,
                param: *mut sched_param,
            ) -> c_int);
        };
        policy.write(record.wishes.policy.load(Ordering::Relaxed));
        (*param).sched_priority = record.wishes.priority.load(Ordering::Relaxed);
    }
    0
}

/// POSIX's `pthread_setschedprio`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setschedprio(thread: pthread_t, priority: c_int) -> c_int {
    match Thread::find(thread) {
        Some(record) => set(record, record.wishes.policy.load(Ordering::Relaxed), priority),
        // SAFETY: the caller's contract.
        None => unsafe { real!(pthread_setschedprio(thread: pthread_t, priority: c_int) -> c_int) },
    }
}

/// POSIX's `sched_setscheduler`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_setscheduler(
    pid: libc::pid_t,
    policy: c_int,
    param: *const sched_param,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if let Some(thread) = own(pid) {
            return match set(thread, policy, (*param).sched_priority) {
                0 => 0,
                error => errno::fail(error),
            };
        }
        errno::of_kernel(crate::sys::syscall!(libc::SYS_sched_setscheduler, pid, policy, param))
            as c_int
    }
}

/// POSIX's `sched_getscheduler`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_getscheduler(pid: libc::pid_t) -> c_int {
    match own(pid) {
        Some(thread) => thread.wishes.policy.load(Ordering::Relaxed),
        // SAFETY: a number.
        None => unsafe {
            errno::of_kernel(crate::sys::syscall!(libc::SYS_sched_getscheduler, pid)) as c_int
        },
    }
}

/// POSIX's `sched_setparam`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_setparam(pid: libc::pid_t, param: *const sched_param) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if let Some(thread) = own(pid) {
            let policy = thread.wishes.policy.load(Ordering::Relaxed);
            return sched_setscheduler(pid, policy, param);
        }
        errno::of_kernel(crate::sys::syscall!(libc::SYS_sched_setparam, pid, param)) as c_int
    }
}

/// POSIX's `sched_getparam`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_getparam(pid: libc::pid_t, param: *mut sched_param) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if let Some(thread) = own(pid) {
            (*param).sched_priority = thread.wishes.priority.load(Ordering::Relaxed);
            return 0;
        }
        errno::of_kernel(crate::sys::syscall!(libc::SYS_sched_getparam, pid, param)) as c_int
    }
}

/// Returns the calling task if `pid` stands for it.
fn own(pid: libc::pid_t) -> Option<&'static Thread> {
    Thread::current().filter(|_| is_own(pid))
}

/// POSIX's `setpriority`: for a task itself, its nice value.
///
/// # Safety
/// None beyond the C type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setpriority(which: c_uint, who: libc::id_t, nice: c_int) -> c_int {
    if let Some(thread) = own(who as libc::pid_t).filter(|_| which == libc::PRIO_PROCESS) {
        let nice = nice.clamp(-20, 19);
        // SAFETY: no arguments.
        if nice < thread.wishes.nice.load(Ordering::Relaxed) && unsafe { libc::geteuid() } != 0 {
            return errno::fail(libc::EACCES);
        }
        thread.wishes.nice.store(nice, Ordering::Relaxed);
        reclassify(thread);
        return 0;
    }
    // SAFETY: numbers.
    unsafe {
        errno::of_kernel(crate::sys::syscall!(libc::SYS_setpriority, which, who, nice)) as c_int
    }
}

/// POSIX's `getpriority`.
///
/// # Safety
/// None beyond the C type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpriority(which: c_uint, who: libc::id_t) -> c_int {
    if let Some(thread) = own(who as libc::pid_t).filter(|_| which == libc::PRIO_PROCESS) {
        return thread.wishes.nice.load(Ordering::Relaxed);
    }
    // SAFETY: numbers.
    match unsafe { crate::sys::syscall!(libc::SYS_getpriority, which, who) } {
        // The kernel returns 40 to 1 for -20 to 19.
        result if result > 0 => 20 - result as c_int,
        result => errno::of_kernel(result) as c_int,
    }
}

/// POSIX's `nice`.
///
/// # Safety
/// None beyond the C type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nice(by: c_int) -> c_int {
    let Some(thread) = Thread::current() else {
        // SAFETY: the function has this type.
        return unsafe { real!(nice(by: c_int) -> c_int) };
    };
    let now = thread.wishes.nice.load(Ordering::Relaxed).saturating_add(by).clamp(-20, 19);
    // SAFETY: numbers.
    match unsafe { setpriority(libc::PRIO_PROCESS, 0, now) } {
        0 => now,
        _ => errno::fail(libc::EPERM),
    }
}
