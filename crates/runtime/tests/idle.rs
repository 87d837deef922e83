//! An idle runtime uses no CPU. Each case is a process of its own, so that other tests do not count.

mod common;

use common::{alone, assert_success, two_workers};
use heddle_rt::net::TcpListener;
use heddle_rt::{Ns, Runtime, sleep, spawn};
use std::time::Duration;

/// Fails if the process needs more than a millisecond of CPU in two seconds. It may need a while to come to rest.
fn assert_idle() {
    let used_in = |time: Duration| {
        let before = heddle_sys::clock::process_cpu_time();
        std::thread::sleep(time);
        heddle_sys::clock::process_cpu_time() - before
    };
    while used_in(Duration::from_millis(50)) > Ns::from_us(200) && started() < 100 {}
    let used = used_in(Duration::from_secs(2));
    println!("\nmeasured: {used} of CPU in 2 s of idleness");
    assert!(used <= Ns::from_ms(1), "{used}");
}

/// Counts attempts to come to rest: a runtime that never does must fail, not hang.
fn started() -> usize {
    static ATTEMPTS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    ATTEMPTS.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Runtimes of both kinds after some work.
fn used_runtimes() -> Vec<Runtime> {
    let policies = ["work-stealing", "two-queue:quantum=100us", "round-robin:quantum=100us"];
    let runtimes: Vec<_> = policies.iter().map(|p| two_workers(p)).collect();
    for rt in &runtimes {
        rt.run(|| {
            let tasks: Vec<_> = (0..100).map(|_| spawn(heddle_rt::yield_now)).collect();
            tasks.into_iter().for_each(|t| t.join().unwrap());
            sleep(Duration::from_millis(1));
            heddle_rt::blocking(|| ());
        });
    }
    runtimes
}

#[test]
fn idle_after_work() {
    let body = || {
        let _runtimes = used_runtimes();
        assert_idle();
    };
    alone("idle_after_work", body, assert_success);
}

#[test]
fn idle_with_an_open_listener_and_a_waiting_task() {
    let body = || {
        let runtimes = used_runtimes();
        for rt in &runtimes {
            rt.spawn(|| {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let _ = listener.accept();
            });
            // Workers that wake while a descriptor is open must not keep each other awake.
            rt.run(|| sleep(Duration::from_millis(1)));
        }
        assert_idle();
    };
    alone("idle_with_an_open_listener_and_a_waiting_task", body, assert_success);
}

#[test]
fn idle_with_a_far_timer() {
    let body = || {
        let runtimes = used_runtimes();
        for rt in &runtimes {
            rt.spawn(|| sleep(Duration::from_secs(3600)));
            rt.run(|| sleep(Duration::from_millis(1)));
        }
        assert_idle();
    };
    alone("idle_with_a_far_timer", body, assert_success);
}
