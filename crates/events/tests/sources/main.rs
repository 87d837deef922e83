//! Events that do not stand for the readiness of a program's descriptor, end to end. No test depends on how
//! long anything takes.

mod files;
mod limits;
mod processes;
mod signals;
mod timers;

use heddle_events::{Worker, block_signals};
use rustix::process::Signal;
use std::process::Command;
use std::time::Duration;

/// The longest wait for something that should come soon.
const HANG: Option<Duration> = Some(heddle_test_support::PATIENCE);
const ALONE: &str = "HEDDLE_TEST_ALONE";
const USR1: i32 = Signal::USR1.as_raw();
const USR2: i32 = Signal::USR2.as_raw();

/// Returns the command that gives a test its own namespaces, in which it is root. None, with a message, if
/// that is not allowed.
fn unshare() -> Option<&'static str> {
    const UNSHARE: &str = "unshare --user --map-root-user --mount";
    let can = Command::new("sh").args(["-c", &format!("{UNSHARE} true")]).output().unwrap();
    if !can.status.success() {
        println!("SKIPPED: no user namespaces: {}", String::from_utf8_lossy(&can.stderr));
    }
    can.status.success().then_some(UNSHARE)
}

/// Returns tokens and data of the next `n` events, in order of delivery.
fn delivered(worker: &mut Worker, n: usize) -> Vec<(u64, u64)> {
    let mut delivered = Vec::new();
    while delivered.len() < n {
        let batch = worker.wait(HANG).unwrap();
        assert!(!batch.is_empty(), "only {delivered:?} came");
        delivered.extend(batch.map(|event| (event.token(), event.data())));
    }
    delivered
}

/// Returns what is delivered at once.
fn delivered_now(worker: &mut Worker) -> Vec<(u64, u64)> {
    worker.wait(Some(Duration::ZERO)).unwrap().map(|event| (event.token(), event.data())).collect()
}

/// Whether this process runs only `test`, which would disturb others. If not, runs it in a process of its
/// own, with the signals blocked from the start, as in a program that calls `block_signals` first in `main`.
/// `before` is shell code that prepares the process.
fn is_alone(test: &str, before: &str) -> bool {
    if std::env::var(ALONE).is_ok() {
        return true;
    }
    block_signals(&[USR1, USR2, Signal::CHILD.as_raw()]).unwrap();
    let script = format!("{before} exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(std::env::current_exe().unwrap());
    let run = command.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    let complaint = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && said.contains("1 passed"), "{said}{complaint}");
    false
}
