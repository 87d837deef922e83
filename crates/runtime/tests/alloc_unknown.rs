//! An allocator whose code is unknown: tasks are preempted inside of it and keep its lock. They get to release it all
//! the same, because the runtime's own threads do not allocate, and those that wait for the lock lose their CPU.

mod common;

use common::{alone, assert_success, cpus, runtime, spin_until, storm, text, two_workers};
use heddle_rt::{Builder, JoinHandle, blocking, in_task, no_preempt, yield_now};
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// One lock for all, held longer than the C library's code takes.
struct OneLock(Mutex<u64>);

impl OneLock {
    /// Runs `f` with the lock held, and some computation besides.
    #[inline(never)]
    fn locked<R>(&self, f: impl FnOnce() -> R) -> R {
        refuse_threads_without_a_task();
        let mut calls = self.0.lock().unwrap();
        *calls = compute(*calls);
        f()
    }
}

/// Half a microsecond or so.
#[inline(never)]
fn compute(seed: u64) -> u64 {
    (0..300).fold(seed, |x, y| black_box(x ^ y)) | 1
}

/// Ends the process if a thread of a runtime allocates or frees while it carries no task.
fn refuse_threads_without_a_task() {
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes 16 bytes at most.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    if name.starts_with(b"heddle-") && !in_task() {
        let text = b"a thread of the runtime that carries no task has used the allocator: ";
        for part in [&text[..], &name, b"\n"] {
            // SAFETY: initialised bytes.
            unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
        }
        std::process::abort();
    }
}

// SAFETY: the system's allocator under a lock.
unsafe impl GlobalAlloc for OneLock {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        self.locked(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        self.locked(|| unsafe { System.dealloc(at, layout) })
    }
}

#[global_allocator]
static ALLOCATOR: OneLock = OneLock(Mutex::new(0));

#[test]
fn tasks_allocate_and_free_each_others_memory() {
    let storms = || {
        storm::storm("two-queue:quantum=20us");
        storm::storm("round-robin:quantum=20us");
    };
    alone("tasks_allocate_and_free_each_others_memory", storms, assert_success);
}

/// How many tasks wait for the allocator while one that was preempted has it.
const WAITING: usize = 160;

/// A task holds the allocator until all others wait for it, and it must have the only CPU again and again for that:
/// each of them blocks a worker, and each worker needs another one in its place.
#[test]
fn workers_are_replaced_while_a_preempted_task_has_the_allocator() {
    static HELD: AtomicBool = AtomicBool::new(false);
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    fn allocate() {
        STARTED.fetch_add(1, Ordering::SeqCst);
        drop(black_box(Box::new(7)));
    }
    let wait = |i: usize| {
        move || {
            while !HELD.load(Ordering::SeqCst) {
                yield_now();
            }
            // Without being preempted between the two, so that they do wait.
            if i.is_multiple_of(2) { no_preempt(allocate) } else { blocking(allocate) }
        }
    };
    let hold = || {
        let held = ALLOCATOR.0.lock().unwrap();
        HELD.store(true, Ordering::SeqCst);
        spin_until(|| STARTED.load(Ordering::SeqCst) == WAITING);
        drop(held);
    };
    let body = || {
        let rt = runtime("round-robin:quantum=20us");
        let waiting: Vec<JoinHandle<()>> = (0..WAITING).map(|i| rt.spawn(wait(i))).collect();
        rt.spawn(hold).join().unwrap();
        waiting.into_iter().for_each(|task| task.join().unwrap());
        let stats = rt.stats();
        // All but the last one of those that did not say that they would block.
        assert!(stats.takeovers >= WAITING as u64 / 2 - 1, "{stats:?}");
    };
    let check = |output: Output| {
        let text = text(&output);
        assert!(text.contains("heddle_rt::alloc::NoPreempt"), "the cure is named: {text}");
        assert_success(output);
    };
    alone("workers_are_replaced_while_a_preempted_task_has_the_allocator", body, check);
}

/// Runtimes that begin, rest and end, whose tasks block, are joined by threads and by tasks, and have names.
#[test]
fn threads_of_a_runtime_that_carry_no_task_never_allocate() {
    const MOMENT: Duration = Duration::from_millis(1);
    let sleeps = || heddle_rt::sleep(MOMENT);
    let named = move |i: usize| Builder::new().name(i.to_string()).spawn(sleeps).unwrap();
    let body = || {
        for policy in ["work-stealing:quantum=100us", "two-queue:quantum=100us", "fifo"] {
            let rt = two_workers(policy);
            let tasks: Vec<JoinHandle<()>> = (0..50 * cpus())
                .map(|i| {
                    rt.spawn(move || match i % 4 {
                        0 => blocking(sleeps),
                        1 => std::thread::sleep(MOMENT),
                        2 => named(i).join().unwrap(),
                        _ => drop(named(i)),
                    })
                })
                .collect();
            tasks.into_iter().for_each(|task| task.join().unwrap());
            // A spare for each CPU stays; the others end.
            common::wait_until(|| rt.stats().kernel_threads <= 2 * cpus());
        }
    };
    alone("threads_of_a_runtime_that_carry_no_task_never_allocate", body, assert_success);
}
