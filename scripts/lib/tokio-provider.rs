//! A stand-in for Heddle, for tokio's own tests: the table `heddle_async` with a pool of kernel threads behind it.
//!
//! It keeps to the contract strictly and checks tokio's side of it: one poll for each wake, never two polls of a task
//! at once, no wake after the last poll, no wake outstanding at release. One of its threads is slow, so that polls
//! begin late and end late. Where all threads are in polls that block, there is soon another one.
//!
//! Build: `rustc -O --edition=2024 --crate-type=cdylib tokio-provider.rs`; preload the result.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;
use std::{process, ptr, thread};

type Poll = extern "C-unwind" fn(*mut c_void) -> i32;

#[repr(C)]
pub struct Table {
    version: u32,
    create: extern "C" fn(Poll, *mut c_void) -> *mut c_void,
    wake: extern "C" fn(*mut c_void, i32),
    release: extern "C" fn(*mut c_void),
    no_preempt_begin: extern "C" fn(),
    no_preempt_end: extern "C" fn(),
}

#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static heddle_async: Table =
    Table { version: 1, create, wake, release, no_preempt_begin, no_preempt_end };

/// A task. The creator has a reference until it releases the handle, and so has each wake until the end of its poll.
struct Task {
    poll: Poll,
    data: *mut c_void,
    state: Mutex<State>,
    references: AtomicUsize,
}

#[derive(Default)]
struct State {
    wakes: usize,
    is_polled: bool,
    is_done: bool,
    is_released: bool,
}

/// Woken tasks; each is in it at most once, and has a reference there.
static QUEUE: Mutex<VecDeque<usize>> = Mutex::new(VecDeque::new());
static WOKEN: Condvar = Condvar::new();
static POLLS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static NO_PREEMPT: Cell<isize> = const { Cell::new(0) };
}

extern "C" fn create(poll: Poll, data: *mut c_void) -> *mut c_void {
    start();
    // Now and then there is no memory.
    if std::env::var_os("HEDDLE_PROVIDER_NO_MEMORY").is_some() && data as usize & 0x380 == 0x180 {
        return ptr::null_mut();
    }
    let references = AtomicUsize::new(1);
    let state = Mutex::default();
    Box::into_raw(Box::new(Task { poll, data, state, references })).cast()
}

extern "C" fn wake(handle: *mut c_void, by_itself: i32) {
    // SAFETY: the creator has a reference until it releases the handle.
    let task = unsafe { &*handle.cast::<Task>() };
    let mut state = lock(&task.state);
    check(by_itself == 0 || by_itself == 1, "by_itself is neither 0 nor 1");
    check(by_itself == 0 || state.is_polled, "a task that is not polled woke itself");
    check(!state.is_done, "a wake after the last poll");
    check(!state.is_released, "a wake after the release");
    check(state.wakes == 0, "a second wake before the poll for the first");
    state.wakes += 1;
    task.references.fetch_add(1, Ordering::Relaxed);
    if !state.is_polled {
        push(handle);
    }
}

extern "C" fn release(handle: *mut c_void) {
    // SAFETY: this is the creator's reference.
    let task = unsafe { &*handle.cast::<Task>() };
    let mut state = lock(&task.state);
    check(!state.is_released, "a second release");
    check(state.wakes == 0, "a release while a wake is outstanding");
    state.is_released = true;
    drop(state);
    unreference(handle);
}

extern "C" fn no_preempt_begin() {
    NO_PREEMPT.set(NO_PREEMPT.get() + 1);
}

extern "C" fn no_preempt_end() {
    NO_PREEMPT.set(NO_PREEMPT.get() - 1);
    check(NO_PREEMPT.get() >= 0, "an end of a section that has not begun");
}

fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        for i in 0..4 {
            spawn(move || run(i == 0));
        }
        spawn(watch);
    });
}

fn spawn(body: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name("provider".into()).spawn(body).expect("a thread");
}

/// Adds a thread where none has begun a poll for a while, though some task waits.
fn watch() {
    let mut before = 0;
    loop {
        thread::sleep(Duration::from_millis(20));
        let polls = POLLS.load(Ordering::Relaxed);
        if polls == before && !lock(&QUEUE).is_empty() {
            spawn(|| run(false));
        }
        before = polls;
    }
}

fn push(handle: *mut c_void) {
    lock(&QUEUE).push_back(handle as usize);
    WOKEN.notify_one();
}

fn run(is_slow: bool) {
    loop {
        let mut queue = lock(&QUEUE);
        let handle = loop {
            match queue.pop_front() {
                Some(handle) => break handle as *mut c_void,
                None => queue = WOKEN.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(queue);
        if is_slow {
            thread::sleep(Duration::from_millis(2));
        }
        poll(handle, is_slow);
    }
}

fn poll(handle: *mut c_void, is_slow: bool) {
    // SAFETY: the wake has a reference.
    let task = unsafe { &*handle.cast::<Task>() };
    let mut state = lock(&task.state);
    check(!state.is_polled && state.wakes == 1, "a poll without a wake");
    (state.is_polled, state.wakes) = (true, 0);
    drop(state);
    POLLS.fetch_add(1, Ordering::Relaxed);
    let sections = NO_PREEMPT.get();
    let is_done = (task.poll)(task.data) == 1;
    check(NO_PREEMPT.get() == sections, "a poll ended within a section");
    if is_slow {
        thread::sleep(Duration::from_millis(2));
    }
    let mut state = lock(&task.state);
    (state.is_polled, state.is_done) = (false, is_done);
    check(!is_done || state.wakes == 0, "a wake after the last poll");
    if state.wakes > 0 {
        push(handle);
    }
    drop(state);
    unreference(handle);
}

fn unreference(handle: *mut c_void) {
    // SAFETY: the caller owns a reference.
    let task = unsafe { &*handle.cast::<Task>() };
    if task.references.fetch_sub(1, Ordering::AcqRel) == 1 {
        // SAFETY: that was the last one.
        drop(unsafe { Box::from_raw(handle.cast::<Task>()) });
    }
}

fn check(holds: bool, what: &str) {
    if !holds {
        eprintln!("tokio-provider: the contract is broken: {what}");
        process::abort();
    }
}

/// At the end, with `HEDDLE_PROVIDER_REPORT`: so many polls came here.
#[used]
#[unsafe(link_section = ".fini_array")]
static REPORT: extern "C" fn() = report;

extern "C" fn report() {
    if std::env::var_os("HEDDLE_PROVIDER_REPORT").is_some() {
        eprintln!("tokio-provider: {} polls", POLLS.load(Ordering::Relaxed));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
