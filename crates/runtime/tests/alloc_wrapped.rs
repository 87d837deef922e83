//! `heddle_rt::alloc::NoPreempt` keeps tasks from being preempted inside an allocator.

mod common;

use heddle_rt::alloc::NoPreempt;
use heddle_rt::in_task;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Notes tasks that come while another task is inside.
struct Watched;

static INSIDE: AtomicU32 = AtomicU32::new(0);
static MET: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system's allocator.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let task = u32::from(in_task());
        let before = INSIDE.fetch_add(task, Ordering::Relaxed);
        MET.fetch_add(u64::from(before * task), Ordering::Relaxed);
        CALLS.fetch_add(u64::from(task), Ordering::Relaxed);
        // Long enough to be found in here.
        (0..1000).for_each(|_| std::hint::spin_loop());
        INSIDE.fetch_sub(task, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: NoPreempt<Watched> = NoPreempt(Watched);

#[test]
fn no_task_is_preempted_inside_of_it() {
    // One worker: two tasks are inside at a time only if one was preempted there.
    let rt = common::runtime("round-robin:quantum=20us");
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let tasks: Vec<_> = (0..3u8)
        .map(|byte| {
            let stop = stop.clone();
            rt.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let block = vec![byte; 100];
                    assert!(std::hint::black_box(block).iter().all(|&b| b == byte));
                }
            })
        })
        .collect();
    common::wait_until(|| rt.stats().preemptions > 2_000 && CALLS.load(Ordering::Relaxed) > 2_000);
    stop.store(true, Ordering::Relaxed);
    tasks.into_iter().for_each(|task| task.join().unwrap());
    assert_eq!(MET.load(Ordering::Relaxed), 0, "preempted inside");
}
