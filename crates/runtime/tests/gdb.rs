//! What gdb sees of programs with a runtime: probes are hit where their names say, with the arguments that
//! `docs/observe.md` lists, and `scripts/gdb/heddle.py` shows tasks that wait.
#![cfg(not(virtual_time))]
#![allow(missing_docs)]

mod common;

use common::{is_child, runtime, spin_until};
use heddle_core::Ns;
use heddle_rt::sync::Semaphore;
use heddle_rt::{Builder, RuntimeBuilder, spawn, yield_now};
use heddle_test_support::{find_program, workspace_root};
use std::collections::BTreeSet;
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Runs `test` in a process of its own under gdb until it gets to `place`, and there these commands. Returns what gdb
/// printed; `None` if it is not here, or may not trace programs.
fn gdb(test: &str, place: &str, commands: &[&str]) -> Option<String> {
    let mut gdb = Command::new(find_program("gdb", "apt-get install gdb")?);
    gdb.env_remove("DEBUGINFOD_URLS").args(["-nx", "-batch"]);
    let child = format!("set environment HEDDLE_TEST_CHILD {test}");
    let start = [
        "set startup-with-shell off",
        "set language c",
        // The runtime's own signals.
        "handle SIGURG SIGSEGV nostop noprint pass",
        &child,
        place,
        "run",
    ];
    for command in start.iter().chain(commands).chain(&["kill"]) {
        gdb.args(["-ex", command]);
    }
    let program = std::env::current_exe().unwrap();
    gdb.arg("--args").arg(program).args([test, "--exact", "--nocapture", "--test-threads=1"]);
    let text = common::text(&gdb.output().expect("gdb starts"));
    if text.contains("Operation not permitted") {
        eprintln!("skipped: gdb may not trace programs here: {text}");
        return None;
    }
    Some(text)
}

/// Runs `test` under gdb until it hits `probe`, which has `N` arguments. Returns these; `None` as [`gdb`].
fn arguments<const N: usize>(test: &str, probe: &str) -> Option<[i64; N]> {
    let values: String = (0..N).map(|n| format!(", $_probe_arg{n}")).collect();
    let print = format!("printf \"hit %d{}\\n\", $_probe_argc{values}", " %ld".repeat(N));
    let text = gdb(test, &format!("break -probe-stap heddle:{probe}"), &[&print])?;
    let hit = text.lines().find_map(|line| line.strip_prefix("hit "));
    let hit = hit.unwrap_or_else(|| panic!("{probe} was not hit:\n{text}"));
    let mut numbers = hit.split(' ').map(|number| number.parse().expect("a number"));
    assert_eq!(numbers.next(), Some(N as i64), "{text}");
    Some(std::array::from_fn(|_| numbers.next().expect("an argument")))
}

#[test]
fn a_program_with_a_runtime_has_the_runtimes_probes_and_no_others() {
    let Some(gdb) = find_program("gdb", "apt-get install gdb") else { return };
    let mut gdb = Command::new(gdb);
    gdb.env_remove("DEBUGINFOD_URLS").args(["-nx", "-batch", "-ex", "info probes stap heddle"]);
    let text = common::text(&gdb.arg(std::env::current_exe().unwrap()).output().unwrap());
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let probes = lines.filter(|line| line.starts_with(&["stap", "heddle"]));
    let names: BTreeSet<_> = probes.map(|line| line[2].to_owned()).collect();
    let expected = ["preempt_sent", "stack_overflow", "worker_stuck"].map(str::to_owned);
    assert_eq!(names, BTreeSet::from(expected), "{text}");
}

#[test]
fn a_signal_that_preempts_is_a_probe() {
    let test = "a_signal_that_preempts_is_a_probe";
    if is_child(test) {
        // Under a policy without a quantum the ticker ends a turn.
        let runtime = RuntimeBuilder::new().policy("fifo").workers(1).slice(Ns::from_ms(2));
        return runtime.build().unwrap().run(|| {
            let done = Arc::new(AtomicBool::new(false));
            let is_done = done.clone();
            let waiter = spawn(move || spin_until(|| is_done.load(Ordering::Relaxed)));
            yield_now();
            done.store(true, Ordering::Relaxed);
            waiter.join().unwrap();
        });
    }
    let Some([cpu, tid]) = arguments(test, "preempt_sent") else { return };
    assert!(cpu == 0 && tid > 1, "{cpu} {tid}");
}

#[test]
fn a_worker_that_sleeps_in_the_kernel_is_a_probe() {
    let test = "a_worker_that_sleeps_in_the_kernel_is_a_probe";
    if is_child(test) {
        return runtime("fifo").run(|| {
            let sleeper = spawn(|| std::thread::sleep(Duration::from_millis(500)));
            yield_now();
            sleeper.join().unwrap();
        });
    }
    let Some([cpu, tid, _task, call]) = arguments(test, "worker_stuck") else { return };
    assert!(cpu == 0 && tid > 1, "{cpu} {tid}");
    assert!([-1, libc::SYS_clock_nanosleep].contains(&call), "{call}");
}

/// Uses more stack than any task has.
#[inline(never)]
fn descend(depth: u64) -> u64 {
    let frame = black_box([depth; 128]);
    if depth == 0 { 0 } else { descend(depth - 1) + frame[depth as usize % 128] }
}

#[test]
fn a_stack_overflow_is_a_probe() {
    let test = "a_stack_overflow_is_a_probe";
    if is_child(test) {
        let deep = || black_box(descend(1 << 20));
        let task = move || Builder::new().stack_size(60 << 10).spawn(deep);
        let _ = runtime("fifo").run(move || task().unwrap().join());
        return;
    }
    let Some([_task, address, size]) = arguments(test, "stack_overflow") else { return };
    assert!(address != 0 && size == 64 << 10, "{address:#x} {size}");
}

/// Where gdb stops.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn heddle_test_stop() {
    black_box(());
}

#[inline(never)]
fn waits_for_a_permit(permits: &Semaphore) {
    let _permit = permits.acquire();
    black_box(permits);
}

#[test]
fn tasks_that_wait_are_listed_with_their_frames() {
    const TASKS: usize = 5;
    let test = "tasks_that_wait_are_listed_with_their_frames";
    if is_child(test) {
        return runtime("fifo").run(|| {
            let permits = Arc::new(Semaphore::new(0));
            for number in 0..TASKS {
                let permits = permits.clone();
                let task = Builder::new().name(format!("waiter-{number}"));
                task.spawn(move || waits_for_a_permit(&permits)).unwrap();
            }
            // With one worker, each has run until it waits.
            yield_now();
            heddle_test_stop();
        });
    }
    let source = format!("source {}", workspace_root().join("scripts/gdb/heddle.py").display());
    let commands = [&source, "heddle tasks", "heddle bt all"];
    let Some(text) = gdb(test, "break heddle_test_stop", &commands) else { return };
    let lines = |parts: &[&str]| {
        text.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count()
    };
    // Once in the list, and once before the frames.
    assert_eq!(lines(&["waiter-", "waiting"]), 2 * TASKS, "{text}");
    assert_eq!(lines(&["#", "waits_for_a_permit"]), TASKS, "{text}");
    assert_eq!(lines(&["running on worker 0 (LWP "]), 2, "{text}");
}
