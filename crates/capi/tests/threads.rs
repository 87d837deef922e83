//! Threads in C: every call, the example, and what gdb shows of them.

mod common;

use common::link;
use heddle_test_support::{find_program, run, temp_dir, workspace_root};
use std::path::Path;
use std::process::Command;

#[test]
fn a_c_program_makes_all_calls() {
    let folder = temp_dir();
    let program = folder.path().join("threads");
    link(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/threads.c"), &program);
    assert_eq!(run(&mut Command::new(&program)), "fine\n");
}

#[test]
fn the_example_answers_all_requests() {
    let folder = temp_dir();
    let program = folder.path().join("example");
    link(&workspace_root().join("examples/threads-c/threads.c"), &program);
    for policy in ["fifo", "two-queue:quantum=100us"] {
        let said = run(Command::new(&program).arg(policy));
        let is_whole = said.starts_with("200 requests, ") && said.ends_with("; 25997 primes\n");
        assert!(is_whole, "under {policy}: {said}");
    }
}

/// Waits in the tasks `first` and `second`, and stops in `ready` while they do.
const WAITING: &str = r#"
#include <heddle/thread.h>
static hd_mutex lock = HD_MUTEX_INIT;
static hd_cond never = HD_COND_INIT;
static int waiting;
__attribute__((noinline)) void ready(void)
{
    __asm__ volatile("");
}
__attribute__((noinline)) void *wait_here(void *argument)
{
    hd_mutex_lock(&lock);
    waiting++;
    for (;;)
        hd_cond_wait(&never, &lock);
    return argument;
}
static void *last(void *argument)
{
    for (int has_all = 0; !has_all; hd_task_yield()) {
        hd_mutex_lock(&lock);
        has_all = waiting == 2;
        hd_mutex_unlock(&lock);
    }
    ready();
    return argument;
}
int main(void)
{
    hd_runtime *runtime = hd_runtime_start("fifo", 1);
    struct hd_task_attr first = {.name = "first"}, second = {.name = "second"};
    hd_task_spawn(runtime, &first, wait_here, 0);
    hd_task_spawn(runtime, &second, wait_here, 0);
    return hd_task_join(hd_task_spawn(runtime, 0, last, 0), 0);
}
"#;

#[test]
fn gdb_lists_tasks_and_prints_their_frames() {
    let Some(gdb) = find_program("gdb", "apt-get install gdb") else { return };
    let folder = temp_dir();
    let (source, program) = (folder.path().join("waiting.c"), folder.path().join("waiting"));
    std::fs::write(&source, WAITING).expect("written");
    link(&source, &program);
    let script = workspace_root().join("scripts/gdb/heddle.py");
    let mut command = Command::new(gdb);
    command.env_remove("DEBUGINFOD_URLS");
    command.args(["-nx", "-batch", "-x"]).arg(script);
    let apply = "heddle apply all frame function wait_here";
    for step in ["break ready", "run", "heddle tasks", "heddle bt all", apply] {
        command.args(["-ex", step]);
    }
    let output = command.arg(&program).output().expect("gdb starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    if complaints.contains("Operation not permitted") {
        eprintln!("SKIPPED: gdb may not trace programs here: {complaints}");
        return;
    }
    for name in ["first", "second"] {
        let listed = said.lines().any(|line| line.contains(name) && line.ends_with("waiting"));
        assert!(listed, "{name} is listed\n{said}{complaints}");
    }
    let runs = said.lines().filter(|line| line.contains("running on worker 0 (LWP ")).count();
    assert!(runs > 0, "the task at the breakpoint is listed\n{said}{complaints}");
    let frames = said.lines().filter(|line| line.contains(" in wait_here (")).count();
    assert!(frames >= 2, "two tasks wait in wait_here\n{said}{complaints}");
}
