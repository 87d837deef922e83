//! `heddle bench posix` as a process: each part once and briefly. Figures of such short runs mean nothing, so none is
//! checked. Visibly skipped without a C compiler; Heddle's systems run if the library was built beside the command.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const HEDDLE: &str = env!("CARGO_BIN_EXE_heddle");
const TASKS: &str = "heddle/two-queue:quantum=100us";

fn bench(words: &[&str]) -> Output {
    let mut command = Command::new(HEDDLE);
    command.args(["bench", "posix"]).args(words);
    command.stdin(Stdio::null()).output().unwrap()
}

fn can_compile() -> bool {
    let found = Command::new("cc").arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: bench posix: no C compiler `cc`");
    }
    found
}

/// Returns the systems that can run here: Heddle's only with its library.
fn systems() -> (&'static str, Vec<&'static str>) {
    if Path::new(HEDDLE).with_file_name("libheddle_pthread.so").is_file() {
        return ("kernel,kernel-nice,heddle", vec!["kernel", TASKS]);
    }
    eprintln!("SKIPPED: bench posix, heddle: no libheddle_pthread.so beside the command");
    ("kernel,kernel-nice", vec!["kernel"])
}

/// Returns the rows of a part. On a busy machine a run may be invalid (exit code 3).
fn rows(part: &str, names: &str) -> Vec<Value> {
    let output = bench(&["--quick", "--json", "--only", part, "--systems", names]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{output:?}");
    let results: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let rows = results["rows"].as_array().unwrap().clone();
    assert!(!rows.is_empty(), "{part} failed: {said}");
    assert!(!results["machine"]["cpu"].as_str().unwrap().is_empty());
    rows
}

#[track_caller]
fn has(rows: &[Value], system: &str, case: &str, metric: &str) {
    let same =
        |row: &&Value| row["system"] == system && row["case"] == case && row["metric"] == metric;
    let row = rows.iter().find(same).unwrap_or_else(|| panic!("no {system} {case} {metric}"));
    // A program that failed has a row without runs; a busy machine makes rows with runs invalid.
    assert!(row["runs"].as_u64().unwrap() > 0, "{row}");
}

#[test]
fn operations_have_a_cost_on_each_system() {
    if !can_compile() {
        return;
    }
    let (names, systems) = systems();
    let rows = rows("micro", names);
    for system in systems {
        for case in ["create_join", "yield", "mutex", "cond", "sem", "futex", "child"] {
            has(&rows, system, case, "cpu_ns_per_op");
        }
        if system != "kernel" {
            has(&rows, system, "read_write", "over_kernel_ns");
            has(&rows, system, "recv_blocks", "of_kernel");
        }
    }
}

#[test]
fn wakeups_and_jobs_are_measured_on_each_system() {
    if !can_compile() {
        return;
    }
    let (names, systems) = systems();
    let rows = rows("schbench,compute", names);
    for system in systems {
        for case in ["schbench-1x", "schbench-2x", "schbench-4x"] {
            for metric in ["wakeup_p50_ns", "wakeup_p99_ns", "wakeup_p999_ns", "requests_per_s"] {
                has(&rows, system, case, metric);
            }
        }
        has(&rows, system, "compute", "jobs_per_s");
    }
}

#[test]
fn the_server_has_tails_on_each_system() {
    if !can_compile() {
        return;
    }
    let (names, systems) = systems();
    let rows = rows("server", names);
    for system in systems.into_iter().chain(["kernel-nice"]) {
        for metric in ["p50", "p99", "p99.9", "achieved"] {
            has(&rows, system, "server-get", metric);
        }
        if system != "kernel" {
            has(&rows, system, "server-get", "p99.9_gain");
        }
    }
    has(&rows, "calibration", "server-get", "saturation");
}

/// Returns whether a server of the distribution is here; if not, the bench must say what to install.
fn is_installed(part: &str, program: &str, package: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&paths).chain(["/usr/sbin".into()]);
    let found = folders.any(|folder| folder.join(program).is_file());
    if !found {
        let output = bench(&["--quick", "--only", part]);
        let text = String::from_utf8_lossy(&output.stdout);
        let why = format!("{package} is not installed (apt-get install {package})");
        assert!(text.contains(&format!("Skipped: {part}: {why}.")), "{output:?}");
        eprintln!("SKIPPED: bench posix: {why}");
    }
    found
}

#[test]
fn mariadb_has_tails_and_aggregates_on_each_system() {
    if !is_installed("mariadb", "mariadbd", "mariadb-server") {
        return;
    }
    let (names, systems) = systems();
    let rows = rows("mariadb", names);
    for system in systems.into_iter().chain(["kernel-nice"]) {
        for metric in ["p50", "p99", "p99.9", "achieved"] {
            has(&rows, system, "mariadb-select", metric);
        }
        if system != "kernel" {
            has(&rows, system, "mariadb-select", "p99.9_gain");
        }
    }
    // On a busy machine a short run of some system may end before its first aggregate.
    let counts = |row: &Value| row["metric"] == "aggregates_per_s" && row["runs"] != 0;
    assert!(rows.iter().any(counts), "{rows:?}");
}

#[test]
fn memcached_has_a_rate_and_tails_on_each_system() {
    if !is_installed("memcached", "memcached", "memcached") {
        return;
    }
    let (names, systems) = systems();
    let rows = rows("memcached", names);
    for system in systems {
        for case in ["memcached-t2", "memcached-t8"] {
            for metric in ["gets_per_s", "cpu_ns_per_get", "p50", "p99"] {
                has(&rows, system, case, metric);
            }
            if system != "kernel" {
                has(&rows, system, case, "gets_kept");
                has(&rows, system, case, "p99_of_kernel");
            }
        }
    }
}

/// Cargo builds the server with the tests of the whole workspace.
#[test]
fn tokio_has_tails_on_each_system() {
    let server = Path::new(HEDDLE).with_file_name("examples").join("tokio_server");
    if !server.is_file() {
        let output = bench(&["--quick", "--only", "tokio"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("Skipped: tokio: tokio_server is not built"), "{output:?}");
        return eprintln!("SKIPPED: bench posix: no {}", server.display());
    }
    let (names, systems) = systems();
    let rows = rows("tokio", names);
    for system in systems {
        for case in ["tokio-w2-get", "tokio-w8-get"] {
            has(&rows, system, case, "p99.9");
            if system != "kernel" {
                has(&rows, system, case, "p99.9_gain");
            }
        }
        has(&rows, system, "tokio-w8-scan", "p50");
    }
}

#[test]
fn without_a_compiler_the_parts_are_skipped_and_say_what_to_install() {
    let mut command = Command::new(HEDDLE);
    let compiled = ["--only", "micro,schbench,compute,server"];
    command.args(["bench", "posix", "--quick"]).args(compiled).env("PATH", "/nonexistent");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for part in ["micro", "schbench", "compute", "server"] {
        let line = format!("Skipped: {part}: no C compiler `cc`: install gcc libc6-dev");
        assert!(text.contains(&line), "{text}");
    }
}

#[test]
fn without_the_library_the_kernel_is_measured_and_the_reason_is_printed() {
    if !can_compile() {
        return;
    }
    let mut command = Command::new(HEDDLE);
    command.args(["bench", "posix", "--quick", "--only", "micro"]);
    let output = command.env("HEDDLE_PTHREAD_LIBRARY", "/nonexistent").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(&format!("Skipped: micro: without {TASKS}: ")), "{output:?}");
    assert!(text.contains("HEDDLE_PTHREAD_LIBRARY=/nonexistent"), "{text}");
    assert!(text.contains("create_join"), "{text}");
}

#[test]
fn wrong_options_are_wrong_usage_and_the_known_ones_are_named() {
    for (words, says) in [
        (["--only", "nginx"], "micro, schbench, compute, first, server, mariadb, memcached, tokio"),
        (["--systems", "linux"], "kernel, kernel-nice, heddle"),
        (["--policy", "two-quue"], "two-queue"),
        (["--policy", "two-queue:quantum=never"], "quantum"),
        (["--load", "0"], "1 to 100"),
        (["--scan", "2s"], "1us to 1s"),
        (["--operations", "0"], "1..=10000"),
    ] {
        let output = bench(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{words:?}: {output:?}");
    }
}
