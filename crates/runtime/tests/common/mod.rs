//! What the tests share.
#![allow(dead_code, missing_docs)]

pub mod futures;
pub mod storm;

use heddle_policies::Info;
use heddle_rt::{Runtime, RuntimeBuilder};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

/// Every policy of the registry with its defaults, and those that have a quantum with a short one as well.
pub fn policies() -> Vec<String> {
    let has_quantum = |info: &&Info| info.params.iter().any(|param| param.key == "quantum");
    let short = |info: &Info| format!("{}:quantum=100us", info.name);
    let all = heddle_policies::list().iter();
    all.clone().map(|info| info.name.to_owned()).chain(all.filter(has_quantum).map(short)).collect()
}

/// A runtime with one worker.
pub fn runtime(policy: &str) -> Runtime {
    RuntimeBuilder::new().policy(policy).workers(1).build().unwrap()
}

/// CPUs for two workers, or one where there is only one.
pub fn cpus() -> usize {
    std::thread::available_parallelism().unwrap().get().min(2)
}

/// A runtime with two workers, or one where there is only one CPU.
pub fn two_workers(policy: &str) -> Runtime {
    RuntimeBuilder::new().policy(policy).workers(cpus()).build().unwrap()
}

/// Blocks the runtime's signal in the calling kernel thread.
pub fn block_preemption() {
    // SAFETY: a set on the stack; all-zero is a valid one.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGURG);
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()), 0);
    }
}

/// Spins until `done` says so.
pub fn spin_until(done: impl Fn() -> bool) {
    while !done() {
        std::hint::spin_loop();
    }
}

/// Spins for `time`.
pub fn spin_for(time: std::time::Duration) {
    let start = std::time::Instant::now();
    spin_until(|| start.elapsed() >= time);
}

/// Lets other threads run until `done` says so.
pub fn wait_until(done: impl Fn() -> bool) {
    while !done() {
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}

/// Names the test that a process of its own shall run.
const CHILD: &str = "HEDDLE_TEST_CHILD";

/// Whether this process was made to run `test` alone.
pub fn is_child(test: &str) -> bool {
    std::env::var(CHILD).is_ok_and(|t| t == test)
}

/// This program again, to run `test` alone.
pub fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, test);
    command
}

/// Runs `body` as `test` in a process of its own; what came out of it goes to `check`.
pub fn alone(test: &str, body: impl FnOnce(), check: impl FnOnce(Output)) {
    if is_child(test) {
        body();
    } else {
        check(child(test).output().unwrap());
    }
}

/// Fails unless the process ended well; shows what it printed.
pub fn assert_success(output: Output) {
    let text = text(&output);
    assert!(output.status.success(), "{:?} {:?}\n{text}", output.status, output.status.signal());
    // With --nocapture, for the figures that some print.
    text.lines().filter(|l| l.starts_with("measured:")).for_each(|l| println!("{l}"));
}

/// All that a process printed.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs `body` as `test` in a process for each way in which tasks get their thread-local storage.
pub fn in_both_modes(test: &str, body: fn()) {
    if is_child(test) {
        return body();
    }
    for mode in ["block", "donor"] {
        println!("HEDDLE_TLS={mode}");
        assert_success(child(test).env("HEDDLE_TLS", mode).output().unwrap());
    }
}
