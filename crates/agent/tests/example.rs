//! Runs the example of an agent in Rust on its simulated enclave. Cargo builds examples for the tests of a package.

use std::path::Path;
use std::process::Command;

#[test]
fn the_example_gives_the_cpu_of_a_thread_that_sleeps_to_the_next() {
    let this = std::env::current_exe().expect("a program");
    let folder = this.parent().and_then(Path::parent).expect("cargo's folder");
    let output = Command::new(folder.join("examples/agent-fifo")).output();
    let output = output.expect("built: cargo test -p heddle-agent --examples");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "cpu0 runs task2, cpu1 runs task1\n");
}
