//! A block is used only if the C library works on it: verified once per process, before the first task.

use super::block::Template;
use crate::libc_fn::LibcFn;
use heddle_arch::{Frame, fs_base, switch};
use std::cell::Cell;
use std::ffi::c_void;

thread_local! {
    /// Must read as its initial value on a fresh block, whatever this thread has stored.
    static FRESH: Cell<u64> = const { Cell::new(0x5ca1_ab1e) };
}

unsafe extern "C" {
    fn __ctype_b_loc() -> *const *const u16;
    fn __res_state() -> *mut c_void;
    fn __errno_location() -> *mut i32;
}

struct Trial {
    back: usize,
    back_fs: usize,
    here: usize,
    stack: (usize, usize),
    mutex: *mut libc::pthread_mutex_t,
    wrong: Option<&'static str>,
}

const STACK: usize = 256 * 1024;

/// Runs the checks on a block made from `template`; the error names the failure.
pub(super) fn verify(template: &Template) -> Result<(), String> {
    if !heddle_arch::fsgsbase_supported(heddle_sys::memory::hwcap2()) {
        return Err("this machine does not let user space set FS (FSGSBASE)".into());
    }
    let memory = heddle_sys::memory::reserve(STACK).map_err(|e| e.to_string())?;
    // SAFETY: fresh memory that is never given back.
    let area = unsafe { template.furnish(memory, STACK) }.map_err(|e| e.to_string())?;
    FRESH.set(1);
    let mut mutex = recursive_mutex();
    let mut trial = Trial {
        back: 0,
        back_fs: fs_base(),
        here: 0,
        stack: (memory as usize, STACK),
        mutex: &mut mutex,
        wrong: Some("the block did not run"),
    };
    let sp = area.usable_top - Frame::SIZE;
    // SAFETY: the frame lies in the block's own stack, aligned; the block is ours alone; this thread waits.
    unsafe {
        (sp as *mut Frame).write(Frame::new(run_trial, &raw mut trial as usize));
        switch(&raw mut trial.back, sp, area.fs);
        // The trial holds the mutex: it must appear taken, and not by this thread.
        if trial.wrong.is_none() && mutex_call(&TRYLOCK, trial.mutex) != libc::EBUSY {
            trial.wrong = Some("a recursive mutex can be taken by two tasks");
        }
    }
    FRESH.set(0x5ca1_ab1e);
    trial.wrong.map_or(Ok(()), |wrong| Err(wrong.into()))
}

static LOCK: LibcFn = LibcFn::new(c"pthread_mutex_lock");
static TRYLOCK: LibcFn = LibcFn::new(c"pthread_mutex_trylock");

/// Calls the C library's own function, whatever the program has put before it.
unsafe fn mutex_call(function: &LibcFn, mutex: *mut libc::pthread_mutex_t) -> i32 {
    // SAFETY: both symbols have this type; the mutex is valid.
    unsafe {
        let call: unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> i32 =
            std::mem::transmute(function.address());
        call(mutex)
    }
}

fn recursive_mutex() -> libc::pthread_mutex_t {
    let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    // SAFETY: initialised before use.
    unsafe {
        let mut attr: libc::pthread_mutexattr_t = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attr);
        libc::pthread_mutexattr_settype(&mut attr, libc::PTHREAD_MUTEX_RECURSIVE);
        libc::pthread_mutex_init(&mut mutex, &attr);
    }
    mutex
}

extern "C" fn run_trial(trial: usize) -> ! {
    // SAFETY: `verify` waits inside `switch` and keeps the trial alive.
    unsafe {
        let trial = trial as *mut Trial;
        (*trial).wrong = find_wrong(&*trial);
        switch(&raw mut (*trial).here, (*trial).back, (*trial).back_fs);
    }
    unreachable!("a trial runs once")
}

/// Each check names what would break.
unsafe fn find_wrong(trial: &Trial) -> Option<&'static str> {
    // SAFETY: calls of the C library as any program makes them; that they may misbehave is what is checked, in a
    // process that has not started to rely on it.
    unsafe {
        let this = libc::pthread_self() as usize;
        if this != fs_base() || this == trial.back_fs {
            return Some("pthread_self is not the block");
        }
        if FRESH.get() != 0x5ca1_ab1e {
            return Some("thread-local variables do not have their initial values");
        }
        let errno = __errno_location() as usize;
        if !(trial.stack.0..trial.stack.0 + trial.stack.1).contains(&errno) {
            return Some("errno is not the block's own");
        }
        if mutex_call(&LOCK, trial.mutex) != 0 || mutex_call(&LOCK, trial.mutex) != 0 {
            return Some("a recursive mutex cannot be locked");
        }
        if !cpu_is_right() {
            return Some("sched_getcpu is wrong");
        }
        if __ctype_b_loc().is_null() || (*__ctype_b_loc()).is_null() || __res_state().is_null() {
            return Some("the locale or the resolver is not set up");
        }
        if !keys_work() || !malloc_works() {
            return Some("pthread keys or malloc fail");
        }
    }
    None
}

/// The thread may migrate between the two questions, so one agreement in many tries is enough.
fn cpu_is_right() -> bool {
    (0..100).any(|_| {
        let mut cpu = 0u32;
        // SAFETY: one writable word.
        unsafe {
            libc::syscall(libc::SYS_getcpu, &raw mut cpu, 0, 0);
            libc::sched_getcpu() == cpu as i32
        }
    })
}

unsafe fn keys_work() -> bool {
    // SAFETY: a key of our own.
    unsafe {
        let mut key = 0;
        let value = &raw mut key as *mut c_void;
        let made = libc::pthread_key_create(&mut key, None) == 0;
        let set = made && libc::pthread_setspecific(key, value) == 0;
        let right = set && libc::pthread_getspecific(key) == value;
        libc::pthread_key_delete(key);
        right
    }
}

unsafe fn malloc_works() -> bool {
    [16usize, 1000, 300_000].into_iter().all(|size| {
        // SAFETY: freed once.
        unsafe {
            let memory = libc::malloc(size);
            libc::free(memory);
            !memory.is_null()
        }
    })
}
