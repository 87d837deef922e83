//! The program that the tests schedule: three threads that compute and two that sleep most of the time.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// In case the test is gone.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Runs until the file that `AGENT_TEST_END` names exists, and exits with 9. Does nothing if the variable is unset.
pub fn main() {
    let Some(end) = std::env::var_os("AGENT_TEST_END").map(PathBuf::from) else { return };
    let over = AtomicBool::new(false);
    let goes_on = || !over.load(Ordering::Relaxed);
    scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while goes_on() {
                    black_box((0..black_box(10_000u64)).sum::<u64>());
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                while goes_on() {
                    sleep(Duration::from_millis(2));
                }
            });
        }
        wait_for(&end);
        over.store(true, Ordering::Relaxed);
    });
    std::process::exit(9);
}

fn wait_for(end: &std::path::Path) {
    let begin = Instant::now();
    while !end.exists() && begin.elapsed() < LIMIT {
        sleep(Duration::from_millis(10));
    }
}
