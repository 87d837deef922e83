//! Start: nothing but names until a thread is created.

use crate::thread::first;
use crate::{image, process, report, signals, thread};
use heddle_core::Ns;
use heddle_rt::RuntimeBuilder;
use heddle_rt::raw;
use heddle_sync::SpinLock;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Set while the runtime starts: threads created then are its own.
static STARTING: AtomicBool = AtomicBool::new(false);
static STARTED: AtomicBool = AtomicBool::new(false);

/// Held by the thread that starts the runtime.
static LOCK: SpinLock = SpinLock::new();

/// The longest turn of a thread while others wait, under a policy without a quantum, as long as the kernel's: a thread
/// that spins until another has done something waits that long, and not forever. An interrupt each 3 ms costs 1 %.
const SLICE: Ns = Ns::from_ms(3);

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

/// Runs when the library is loaded, before the program.
extern "C" fn construct() {
    image::find();
    first::note();
    // Two runtimes in a process would take each other's workers for threads. Without its `pthread_create` the library
    // stays out of the way: all callers are kernel threads to it.
    if !image::is_beside_another_runtime() {
        raw::hook_create_thread(thread::create);
        process::register();
        thread::adopt_carriers();
    }
    if std::env::var_os("HEDDLE_PTHREAD_FOLLOW").is_some_and(|follow| follow == "0") {
        // SAFETY: no other thread exists yet.
        unsafe { std::env::remove_var("LD_PRELOAD") };
    }
}

/// Returns whether the runtime is being started, by the calling thread.
pub(crate) fn is_starting() -> bool {
    STARTING.load(Ordering::Relaxed)
}

/// Returns whether there is a runtime.
pub(crate) fn has_started() -> bool {
    STARTED.load(Ordering::Acquire)
}

/// Starts the runtime, unless it runs; the program's first thread is a task from then on. Ends the process with an
/// explanation if it cannot be started.
#[inline]
pub(crate) fn runtime() {
    if !has_started() {
        start();
    }
}

#[cold]
fn start() {
    // Not a `Once`: the child of a fork starts anew.
    LOCK.lock();
    let starts = !has_started();
    if starts {
        if !image::is_known() {
            fail(format_args!(
                "the program is linked with the archive that cargo makes, in which Heddle's code cannot be told from \
                 the program's; link it with the one that scripts/archive makes"
            ));
        }
        STARTING.store(true, Ordering::Relaxed);
        process::start();
        signals::start_with(|| {
            if let Err(error) = raw::start(RuntimeBuilder::new().slice(SLICE)) {
                fail(format_args!("cannot start the runtime: {error}"));
            }
        });
        raw::hook_take_over(report::on_take_over);
        report::at_exit();
        STARTING.store(false, Ordering::Relaxed);
        STARTED.store(true, Ordering::Release);
    }
    LOCK.unlock();
    if starts && !first::adopt() {
        signals::receiver::start();
    }
}

/// Returns whether the program's first thread is to be left to the kernel.
pub(crate) fn is_main_the_kernels() -> bool {
    match std::env::var_os("HEDDLE_PTHREAD_MAIN") {
        None => false,
        Some(main) if main == "task" => false,
        Some(main) if main == "kernel" => true,
        Some(main) => {
            fail(format_args!("HEDDLE_PTHREAD_MAIN={}: there are: task, kernel", main.display()))
        }
    }
}

/// Ends the process: the program was promised a policy and must not run without it.
fn fail(why: std::fmt::Arguments<'_>) -> ! {
    eprintln!("heddle run: {why}");
    // SAFETY: ends the process.
    unsafe { libc::_exit(2) }
}

/// In the child of a fork: the runtime is gone.
pub(crate) fn forget() {
    STARTED.store(false, Ordering::Release);
}

/// Calls `f` when the calling kernel thread, which leaves by `pthread_exit`, has run its destructors, if it is the
/// program's first.
pub(crate) fn when_main_ends(f: fn()) {
    static THEN: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
    unsafe extern "C" fn then(_: *mut c_void) {
        let f = THEN.load(Ordering::Acquire);
        // SAFETY: stored below, of this type.
        unsafe { std::mem::transmute::<*mut (), fn()>(f)() }
    }
    // SAFETY: a system call without arguments.
    if crate::sys::gettid() != unsafe { libc::getpid() } as u32 {
        return;
    }
    THEN.store(f as *mut (), Ordering::Release);
    let mut key = 0;
    // SAFETY: a key of our own; its destructor is called with the value below.
    unsafe {
        if libc::pthread_key_create(&mut key, Some(then)) == 0 {
            libc::pthread_setspecific(key, std::ptr::from_ref(&THEN).cast());
        }
    }
}
