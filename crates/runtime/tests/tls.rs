//! Thread-local variables belong to a task, in both ways of providing them.

mod common;

use common::{cpus, in_both_modes, runtime, spin_until, two_workers};
use heddle_rt::sync::Semaphore;
use heddle_rt::sync::mpsc::sync_channel;
use heddle_rt::{spawn, yield_now};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ThreadId;

thread_local! {
    static VALUE: Cell<u64> = const { Cell::new(7) };
    static LIST: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static COUNTED: RefCell<Option<Counted>> = const { RefCell::new(None) };
}

static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// Counts its own end.
struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn each_task_finds_initial_values() {
    in_both_modes("each_task_finds_initial_values", || {
        let rt = runtime("fifo");
        let places: Vec<usize> = (0..200)
            .map(|i| {
                rt.run(move || {
                    assert_eq!(VALUE.replace(i), 7);
                    LIST.with_borrow_mut(|l| {
                        assert!(l.is_empty(), "left by task {i}'s predecessor");
                        l.push(i);
                    });
                    VALUE.with(|v| v.as_ptr() as usize)
                })
            })
            .collect();
        let different: HashSet<_> = places.iter().collect();
        assert!(different.len() < places.len(), "some blocks served more than one task");
        assert_eq!(VALUE.get(), 7, "and this thread's is untouched");
    });
}

#[test]
fn destructors_run_before_the_task_is_joined() {
    in_both_modes("destructors_run_before_the_task_is_joined", || {
        let rt = two_workers("work-stealing");
        for i in 1..=300 {
            rt.run(|| spawn(|| COUNTED.set(Some(Counted))).join().unwrap());
            assert_eq!(DROPPED.load(Ordering::SeqCst), i);
        }
    });
}

#[test]
fn a_destructor_may_use_and_register_other_variables() {
    thread_local!(static LAST: Counted = const { Counted });
    struct Registers;
    impl Drop for Registers {
        fn drop(&mut self) {
            yield_now();
            LAST.with(|_| ());
        }
    }
    thread_local!(static FIRST: RefCell<Option<Registers>> = const { RefCell::new(None) });
    in_both_modes("a_destructor_may_use_and_register_other_variables", || {
        let rt = runtime("fifo");
        for i in 1..=20 {
            rt.run(|| FIRST.set(Some(Registers)));
            assert_eq!(DROPPED.load(Ordering::SeqCst), i);
        }
    });
}

#[test]
fn the_result_of_a_detached_task_is_dropped_before_its_variables() {
    /// Uses a variable that has a destructor, and says what it found.
    struct Result(Arc<AtomicUsize>);
    impl Drop for Result {
        fn drop(&mut self) {
            let found = LIST.try_with(|list| list.borrow().len());
            self.0.store(found.map_or(usize::MAX, |len| len + 1), Ordering::SeqCst);
        }
    }
    in_both_modes("the_result_of_a_detached_task_is_dropped_before_its_variables", || {
        let rt = runtime("fifo");
        for _ in 0..20 {
            let found = Arc::new(AtomicUsize::new(0));
            let set = found.clone();
            let (dropped, wait) = sync_channel(1);
            drop(rt.spawn(move || {
                LIST.with_borrow_mut(|list| list.extend([1, 2]));
                // Or the handle finds the result, and drops it here.
                wait.recv().unwrap();
                Result(set)
            }));
            dropped.send(()).unwrap();
            common::wait_until(|| found.load(Ordering::SeqCst) != 0);
            assert_eq!(found.load(Ordering::SeqCst), 3, "the list of two, still there");
        }
    });
}

#[test]
fn a_borrow_is_held_across_yields_and_preemptions() {
    in_both_modes("a_borrow_is_held_across_yields_and_preemptions", || {
        let rt = runtime("round-robin:quantum=50us");
        let stop = Arc::new(AtomicBool::new(false));
        let hold = |id: u64, stop: Arc<AtomicBool>| {
            LIST.with_borrow_mut(|list| {
                while !stop.load(Ordering::Relaxed) {
                    list.push(id);
                    if list.len().is_multiple_of(1_000_000) {
                        yield_now();
                        assert!(list.iter().all(|&n| n == id), "another task's value");
                        list.clear();
                    }
                }
            })
        };
        let tasks: Vec<_> = (0..4)
            .map(|id| {
                let stop = stop.clone();
                rt.spawn(move || hold(id, stop))
            })
            .collect();
        common::wait_until(|| rt.stats().preemptions > 300);
        stop.store(true, Ordering::SeqCst);
        tasks.into_iter().for_each(|t| t.join().unwrap());
    });
}

/// Where the calling worker is.
fn cpu() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::sched_getcpu() }
}

/// Moves the calling task to another worker: a task that has just woken it goes on computing, so another worker takes
/// it.
fn move_to_another_worker() {
    let from = cpu();
    while cpu() == from {
        let (called, back) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicBool::new(false)));
        let (call, seen) = (called.clone(), back.clone());
        let hog = spawn(move || {
            call.release(1);
            spin_until(|| seen.load(Ordering::Relaxed));
        });
        called.acquire().forget();
        if cpu() != from {
            back.store(true, Ordering::Relaxed);
            return hog.join().unwrap();
        }
        back.store(true, Ordering::Relaxed);
        hog.join().unwrap();
    }
}

#[test]
fn an_address_stays_right_when_the_task_moves() {
    in_both_modes("an_address_stays_right_when_the_task_moves", || {
        if cpus() < 2 {
            return println!("one CPU: tasks cannot move");
        }
        let rt = two_workers("work-stealing");
        rt.run(|| {
            // The closure keeps the address that was computed before; the compiler may do so in any function.
            VALUE.with(|value| {
                for i in 0..20 {
                    value.set(i);
                    move_to_another_worker();
                    assert_eq!(value.get(), i);
                    assert_eq!(VALUE.get(), i);
                    assert_eq!(VALUE.with(|v| v.as_ptr()), value.as_ptr());
                }
            });
        });
    });
}

#[test]
fn every_task_is_another_thread_to_std() {
    in_both_modes("every_task_is_another_thread_to_std", || {
        let rt = two_workers("work-stealing");
        let id = || std::thread::current().id();
        let ids: HashSet<ThreadId> = rt.run(move || {
            let tasks: Vec<_> = (0..50)
                .map(|_| {
                    spawn(move || {
                        yield_now();
                        id()
                    })
                })
                .collect();
            tasks.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(ids.len(), 50);
        let later = rt.run(id);
        assert!(!ids.contains(&later) && later != id());
    });
}

/// Runs while its task unwinds.
struct Unwinding<'a>(&'a AtomicBool);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        while !self.0.load(Ordering::SeqCst) {
            assert!(std::thread::panicking());
            yield_now();
        }
    }
}

#[test]
fn panics_count_per_task() {
    in_both_modes("panics_count_per_task", || {
        runtime("fifo").run(|| {
            let other_done = Arc::new(AtomicBool::new(false));
            let seen = other_done.clone();
            let unwinding = spawn(move || {
                let _guard = Unwinding(&seen);
                panic!("first");
            });
            let second = spawn(|| {
                assert!(!std::thread::panicking());
                // With a count that is shared this would be a panic within a panic: an abort.
                panic!("second");
            });
            let message =
                |r: std::thread::Result<()>| heddle_rt::panic_message(&*r.unwrap_err()).to_owned();
            assert_eq!(message(second.join()), "second");
            other_done.store(true, Ordering::SeqCst);
            assert_eq!(message(unwinding.join()), "first");
        });
    });
}
