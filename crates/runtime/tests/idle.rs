//! An idle runtime uses no CPU: none of its threads wakes. Each case is a process of its own, so that other tests do
//! not count.

mod common;

use common::{alone, assert_success, two_workers};
use heddle_rt::net::TcpListener;
use heddle_rt::{Runtime, sleep, spawn};
use std::time::Duration;

/// Fails if a thread of this process wakes in two seconds, the caller excepted. It may take a while to come to rest.
fn assert_idle() {
    let in_a_row = |time: Duration| {
        let before = wakeups();
        std::thread::sleep(time);
        wakeups() - before
    };
    while in_a_row(Duration::from_millis(50)) > 0 && started() < 100 {}
    let cpu = heddle_sys::clock::process_cpu_time();
    let woken = in_a_row(Duration::from_secs(2));
    let cpu = heddle_sys::clock::process_cpu_time() - cpu;
    println!("\nmeasured: {woken} wakeups and {cpu} of CPU in 2 s of idleness");
    assert_eq!(woken, 0);
}

/// How often the kernel has switched away from the other threads of this process: each wakeup ends with one.
fn wakeups() -> u64 {
    let own = heddle_sys::thread::id().to_string();
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let others = threads.filter(|thread| thread.file_name() != own.as_str());
    let switches = |status: String| -> u64 {
        let counts = status.lines().filter(|line| line.contains("voluntary_ctxt_switches:"));
        counts.filter_map(|line| line.rsplit('\t').next()?.parse::<u64>().ok()).sum()
    };
    others
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok())
        .map(switches)
        .sum()
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
