//! Sleeping, intervals and time limits.

mod common;

use common::{runtime, two_workers};
use heddle_rt::sync::{Condvar, Mutex};
use heddle_rt::{Ns, interval, now, sleep, sleep_until, spawn, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines() {
    runtime("fifo").run(|| {
        let order = Arc::new(Mutex::new(vec![]));
        // Far enough ahead for all to queue before the first is due; otherwise they would run at once, in turn.
        let start = now() + Ns::from_ms(50);
        let sleeper = |i: u64| {
            let order = order.clone();
            move || {
                sleep_until(start + Ns::from_ms(i * 3));
                order.lock().push(i);
            }
        };
        let tasks: Vec<_> = [3, 1, 4, 0, 2].map(|i| spawn(sleeper(i))).into();
        tasks.into_iter().for_each(|t| t.join().unwrap());
        let order = order.lock().clone();
        assert!(order.is_sorted() || now() > start + Ns::from_ms(15), "{order:?}");
        assert_eq!(order.len(), 5);
    });
}

#[test]
fn no_sleeper_wakes_early() {
    let rt = two_workers("work-stealing:quantum=100us");
    rt.run(|| {
        let sleeper = |i: u64| {
            move || {
                let until = now() + Ns::from_us(i * 50);
                sleep(Duration::from_micros(i * 50));
                assert!(now() >= until);
            }
        };
        let tasks: Vec<_> = (0..200).map(|i| spawn(sleeper(i))).collect();
        tasks.into_iter().for_each(|t| t.join().unwrap());
    });
    let until = now() + Ns::from_ms(2);
    sleep(Duration::from_millis(2));
    assert!(now() >= until, "an ordinary thread");
}

#[test]
fn thousands_sleep_at_once() {
    for rt in [runtime("round-robin:quantum=100us"), two_workers("work-stealing")] {
        let woken = Arc::new(AtomicUsize::new(0));
        let count = woken.clone();
        rt.run(move || {
            let sleeper = |i: u64| {
                let count = count.clone();
                move || {
                    sleep(Duration::from_micros(1000 + i % 7 * 500));
                    count.fetch_add(1, Ordering::Relaxed);
                }
            };
            let tasks: Vec<_> = (0..5_000).map(|i| spawn(sleeper(i))).collect();
            tasks.into_iter().for_each(|t| t.join().unwrap());
        });
        assert_eq!(woken.load(Ordering::Relaxed), 5_000);
    }
}

#[test]
fn a_sleeper_wakes_while_another_task_computes_on_the_only_busy_worker() {
    if common::cpus() < 2 {
        return println!("one CPU: without preemption it cannot");
    }
    // Without preemption the other worker must serve the timer.
    let rt = two_workers("work-stealing");
    for _ in 0..20 {
        let done = Arc::new(AtomicUsize::new(0));
        let (set, seen) = (done.clone(), done.clone());
        let sleeper = rt.spawn(move || {
            let busy = spawn(move || common::spin_until(|| seen.load(Ordering::Relaxed) == 1));
            sleep(Duration::from_millis(2));
            set.store(1, Ordering::Relaxed);
            busy.join().unwrap();
        });
        sleeper.join().unwrap();
    }
}

#[test]
fn a_timer_is_taken_back_when_its_task_is_woken() {
    runtime("fifo").run(|| {
        for _ in 0..200 {
            let shared = Arc::new((Mutex::new(false), Condvar::new()));
            let theirs = shared.clone();
            let waiter = spawn(move || {
                let mut flag = theirs.0.lock();
                while !*flag {
                    assert!(theirs.1.wait_for(&mut flag, Duration::from_secs(3600)), "notified");
                }
            });
            heddle_rt::yield_now();
            *shared.0.lock() = true;
            shared.1.notify_one();
            waiter.join().unwrap();
            // A timer left behind would end this sleep of the next task on that block after an hour, not now.
            sleep(Duration::from_micros(10));
        }
    });
}

#[test]
fn an_interval_skips_what_it_missed() {
    runtime("fifo").run(|| {
        let period = Duration::from_millis(4);
        let mut ticks = interval(period);
        let first = ticks.tick();
        let second = ticks.tick();
        assert!(second > first && (second - first).0.is_multiple_of(Ns::from(period).0));
        sleep(Duration::from_millis(20));
        let late = ticks.tick();
        let next = ticks.tick();
        assert!(next > late && now() >= next, "no burst");
        assert!((next - first).0.is_multiple_of(Ns::from(period).0), "the phase is kept");
        // At least the four ticks that passed meanwhile are missing between these two.
        assert!(next - second >= Ns::from_ms(20));
    });
    assert!(std::panic::catch_unwind(|| interval(Duration::ZERO)).is_err());
}

/// A worker looks at timers every 61 direct switches. If each of these takes long, another thread must look.
#[test]
fn without_a_quantum_a_sleeper_is_queued_though_no_worker_looks() {
    let rt = runtime("fifo");
    let woken = Arc::new(AtomicBool::new(false));
    let seen = woken.clone();
    let turns = rt.run(move || {
        let sleeper = spawn(move || {
            sleep(Duration::from_millis(1));
            woken.store(true, Ordering::SeqCst);
        });
        // The sleeper sleeps from here on.
        yield_now();
        let other = seen.clone();
        let other = spawn(move || {
            while !other.load(Ordering::SeqCst) {
                yield_now();
            }
        });
        let mut turns = 0;
        while !seen.load(Ordering::SeqCst) {
            let begin = now();
            while now() - begin < Ns::from_ms(20) {}
            turns += 1;
            yield_now();
        }
        other.join().unwrap();
        sleeper.join().unwrap();
        turns
    });
    assert!(turns < 25, "queued at the worker's own look only: {turns}");
}
