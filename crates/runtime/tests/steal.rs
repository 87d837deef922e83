//! Waiting work is taken by any free worker, including the task woken last by a task that goes on computing.

mod common;

use common::{cpus, spin_until, two_workers};
use heddle_rt::spawn;
use heddle_rt::sync::{Mutex, Semaphore};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_woken_task_is_taken_from_a_waker_that_computes_on() {
    if cpus() < 2 {
        return println!("skipped: one CPU, so no other worker can take it");
    }
    // Without preemption: nothing but another worker can run the woken task.
    for policy in ["work-stealing", "fifo"] {
        let rt = two_workers(policy);
        for _ in 0..200 {
            rt.run(|| {
                let (call, done) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicBool::new(false)));
                let (called, set) = (call.clone(), done.clone());
                let woken = spawn(move || {
                    called.acquire().forget();
                    set.store(true, Ordering::Relaxed);
                });
                // Asleep before it is woken.
                while call.available() == 0 && !is_waiting(&woken) {
                    heddle_rt::yield_now();
                }
                call.release(1);
                spin_until(|| done.load(Ordering::Relaxed));
                woken.join().unwrap();
            });
        }
    }
}

/// Gives the task some turns to come to its wait; that it has come cannot be seen from outside.
fn is_waiting<T>(task: &heddle_rt::JoinHandle<T>) -> bool {
    (0..10).for_each(|_| heddle_rt::yield_now());
    !task.is_finished()
}

#[test]
fn new_tasks_are_taken_from_a_creator_that_computes_on() {
    if cpus() < 2 {
        return println!("skipped: one CPU, so no other worker can take them");
    }
    for policy in ["work-stealing", "fifo"] {
        two_workers(policy).run(|| {
            for _ in 0..100 {
                let left = Arc::new(Mutex::new(20));
                for _ in 0..20 {
                    let left = left.clone();
                    drop(spawn(move || *left.lock() -= 1));
                }
                spin_until(|| *left.lock() == 0);
            }
        });
    }
}
