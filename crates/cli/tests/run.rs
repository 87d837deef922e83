//! `heddle run` through the built command: what it refuses, what it checks, and what a program gets. A stub stands in
//! for the preloaded library; crates/posix tests programs on the real one.

#[path = "run/refusals.rs"]
mod refusals;
#[path = "run/sandbox.rs"]
mod sandbox;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sandbox::{NOTHING, STUB, Sandbox, assert_refused, plain, text};

#[test]
fn scripts_are_followed_to_their_interpreter() {
    let sandbox = Sandbox::new();
    let interpreter = sandbox.compile(NOTHING, "interpreter", &["-static"]);
    let inner = sandbox.script("inner", &format!("#! {interpreter} -x\n"));
    let outer = sandbox.script("outer", &format!("#!{inner}\n"));
    for script in [&inner, &outer] {
        sandbox.refuses_program(script, "static", &["interpreter is linked statically"]);
    }
    let lost = sandbox.script("lost", "#!/usr/bin/env no-such-program\n");
    sandbox.refuses_program(&lost, "not-found", &["lost names an interpreter", "no-such-program"]);
    let circle = sandbox.script("circle", &format!("#!{}\n", sandbox.text("circle")));
    sandbox.refuses_program(&circle, "not-elf", &["without end"]);
    for line in ["#!/bin/sh", "#!/usr/bin/env sh", "#!/usr/bin/env -S sh -e"] {
        let script = sandbox.script("script", &format!("{line}\necho \"$1\" \"$LD_PRELOAD\"\n"));
        let output = sandbox.output(&[&script, "--report"]);
        let expected = format!("--report {}\n", sandbox.text("stub.so"));
        assert_eq!(text(&output.stdout), expected, "{line}: {}", text(&output.stderr));
    }
}

#[test]
fn wrong_settings_are_refused_before_the_program_starts() {
    let sandbox = Sandbox::new();
    for (option, value, says) in [
        ("--policy", "two-quue", ["`two-quue`", "two-queue"]),
        ("--policy", "two-queue:quantum=never", ["two-queue", "quantum"]),
        ("--policy", "two-queue:quantum=1us", ["1us", "HEDDLE_MECHANISM=none"]),
        ("--workers", "0", ["at least one worker", ""]),
        ("--workers", "100000", ["100000 workers", "CPUs"]),
        ("--workers", "many", ["many", "--workers"]),
        ("--cpus", "3-1", ["`3-1`", "list of CPUs"]),
        ("--cpus", "4000", ["CPU 4000", "usable"]),
        ("--class", "compact*", ["`compact*`", "CLASS=PATTERN"]),
        ("--class", "urgent=x", ["`urgent`", "use lc, be"]),
        ("--class", "be=", ["`be=`", "CLASS=PATTERN"]),
        ("--class", "be=sixteen-letters-*", ["sixteen-letters-*", "15 bytes"]),
        ("--class", "be=pid:7", ["be=pid:7", "name of threads"]),
        ("--class", "be=a;b", ["be=a;b", "name of threads"]),
        ("--class", "be=module:", ["be=module:", "librocksdb.so*"]),
        ("--class", "be=module:/lib/x.so", ["/lib/x.so", "without its folder"]),
        ("--class", "be=module:a;b", ["module:a;b", "without `;`"]),
        ("--class", "urgent=module:x", ["`urgent` in `urgent=module:x`", "use lc, be"]),
        ("--class", "=module:x", ["`=module:x`", "CLASS=PATTERN"]),
    ] {
        sandbox.refuses(&[option, value, "--", "true"], &says);
    }
    for (name, value, says) in [
        ("HEDDLE_POLICY", "fivo", "fifo"),
        ("HEDDLE_WORKERS", "x", "HEDDLE_WORKERS=x"),
        ("HEDDLE_CPUS", "x", "HEDDLE_CPUS=x"),
        ("HEDDLE_MECHANISM", "interrupt", "HEDDLE_MECHANISM=interrupt"),
    ] {
        assert_refused(sandbox.command(&["--", "true"]).env(name, value), &[says]);
    }
    let mut dispatcher = sandbox.command(&["--policy", "work-stealing", "--", "true"]);
    assert_refused(dispatcher.env("HEDDLE_DISPATCHER", "0"), &["dispatcher", "work-stealing"]);
    sandbox.refuses(&[], &["PROGRAM", "heddle run --help"]);
    sandbox.refuses(&["--json", "true"], &["--check"]);
}

#[test]
fn a_missing_library_says_where_it_was_searched_and_how_to_build_it() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir(folder.path().join("bin")).unwrap();
    let copy = folder.path().join("bin/heddle");
    fs::hard_link(env!("CARGO_BIN_EXE_heddle"), &copy).unwrap();
    let mut command = Command::new(&copy);
    command.args(["run", "--", "true"]).env_remove("HEDDLE_PTHREAD_LIBRARY");
    let [bin, lib] = ["bin", "lib/heddle"].map(|name| folder.path().join(name));
    let folders = [bin.to_str().unwrap(), lib.to_str().unwrap()];
    let says = ["libheddle_pthread.so", folders[0], folders[1], "cargo build -p heddle-posix"];
    assert_refused(&mut command, &says);

    fs::create_dir_all(&lib).unwrap();
    let sandbox = Sandbox::new();
    fs::copy(sandbox.path("stub.so"), lib.join("libheddle_pthread.so")).unwrap();
    assert_eq!(command.status().unwrap().code(), Some(0));
    command.env("HEDDLE_PTHREAD_LIBRARY", "/nonexistent/x.so");
    assert_refused(&mut command, &["HEDDLE_PTHREAD_LIBRARY=/nonexistent/x.so", "no such file"]);
}

#[test]
fn a_library_that_the_loader_does_not_take_is_refused() {
    let sandbox = Sandbox::new();
    File::create(sandbox.path("empty.so")).unwrap();
    let with = |library: PathBuf| {
        let mut command = plain(&["--", "true"]);
        command.env("HEDDLE_PTHREAD_LIBRARY", library);
        command
    };
    let says = ["does not preload", "empty.so", "file too short", "rebuild"];
    assert_refused(&mut with(sandbox.path("empty.so")), &says);

    fs::create_dir(sandbox.path("a folder")).unwrap();
    fs::copy(sandbox.path("stub.so"), sandbox.path("a folder/x.so")).unwrap();
    assert_refused(&mut with(sandbox.path("a folder/x.so")), &["a folder/x.so", "a space"]);

    let lost = sandbox.needs("liblost.so");
    fs::remove_file(sandbox.path("liblost.so")).unwrap();
    sandbox.refuses_program(&lost, "loader", &["liblost.so => not found", "LD_LIBRARY_PATH"]);
}

#[test]
fn the_program_gets_its_settings_and_keeps_the_process() {
    let sandbox = Sandbox::new();
    let cpus = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..1024).find(|cpu| cpus.is_set(*cpu)).unwrap().to_string();
    let options = ["--policy", "two-queue:quantum=100us", "--workers", "1", "--cpus", &cpu];
    let more = [
        "--class",
        "be=compact*",
        "--class",
        "3=module:w?",
        "--report",
        "--kernel-main",
        "--no-follow",
        "--",
        "env",
    ];
    let other = sandbox.compile(STUB, "other.so", &["-shared", "-fPIC"]);
    let mut command = sandbox.command(&[&options[..], &more].concat());
    let output = command.env("LD_PRELOAD", &other).output().unwrap();
    let variables = text(&output.stdout);
    for expected in [
        format!("LD_PRELOAD={}:{other}", sandbox.text("stub.so")),
        "HEDDLE_POLICY=two-queue:quantum=100us".into(),
        "HEDDLE_WORKERS=1".into(),
        format!("HEDDLE_CPUS={cpu}"),
        "HEDDLE_PTHREAD_CLASSES=be=compact*;3=module:w?".into(),
        "HEDDLE_PTHREAD_REPORT=1".into(),
        "HEDDLE_PTHREAD_FOLLOW=0".into(),
        "HEDDLE_PTHREAD_MAIN=kernel".into(),
    ] {
        assert!(variables.lines().any(|line| line == expected), "no {expected} in {variables}");
    }
    let plain = text(&sandbox.output(&["env"]).stdout);
    let settings = plain.lines().filter(|line| line.starts_with("HEDDLE_"));
    let settings: Vec<&str> = settings.filter(|line| !line.contains("_LIBRARY=")).collect();
    assert!(settings.is_empty(), "{settings:?}");

    let mut shell =
        sandbox.command(&["--", "sh", "-c", "echo $$ \"$0\" \"$@\"; exit 7", "a", "--b"]);
    let child = shell.stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stdout), format!("{pid} a --b\n"));
}

#[test]
fn a_library_that_is_preloaded_already_is_named_once() {
    let sandbox = Sandbox::new();
    let stub = sandbox.text("stub.so");
    let mut command = sandbox.command(&["sh", "-c", "echo $LD_PRELOAD"]);
    let output = command.env("LD_PRELOAD", format!(" {stub}")).output().unwrap();
    assert_eq!(text(&output.stdout), format!("{stub}\n"), "{}", text(&output.stderr));
}

/// Uses a covered name, one that is not, one of a library's, and two inline system calls.
const MIXED: &str = r#"
#include <poll.h>
#include <pthread.h>
int helper(void);
static void *work(void *x) { return x; }
int unused(void) { return 1; }
int main(void) {
    pthread_t thread;
    long pid;
    __asm__ volatile("syscall; syscall" : "=a"(pid) : "a"(39) : "rcx", "r11", "memory");
    return pthread_create(&thread, 0, work, 0) + poll(0, 0, 0) + helper();
}
"#;

#[test]
fn a_check_lists_what_is_covered_and_starts_nothing() {
    let sandbox = Sandbox::new();
    let helper = "#include <poll.h>\n#include <sched.h>\n\
        int helper(void) { return poll(0, 0, 0) + sched_yield(); }";
    sandbox.compile(helper, "libhelper.so", &["-shared", "-fPIC"]);
    let link = ["-rdynamic", "-L.", "-lhelper", "-Wl,-rpath,$ORIGIN"];
    let program = sandbox.compile(MIXED, "mixed", &link);
    let output = sandbox.output(&["--check", "--json", &program]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for (key, value) in [
        ("schema", 1.into()),
        ("program", program.as_str().into()),
        ("binary", program.as_str().into()),
        ("interpreter", "/lib64/ld-linux-x86-64.so.2".into()),
        ("library", sandbox.text("stub.so").into()),
        ("works", true.into()),
        ("reason", serde_json::Value::Null),
        ("message", serde_json::Value::Null),
        ("overridden", ["unused"].into_iter().collect()),
    ] {
        assert_eq!(report[key], value, "{key}");
    }
    assert!(report["glibc"].as_str().unwrap().starts_with("2."), "{report}");
    let names = |list: &str| {
        let list = report[list].as_array().unwrap().iter();
        list.map(|name| {
            (name["name"].to_string(), name["kind"].to_string(), name["objects"].to_string())
        })
        .collect::<Vec<_>>()
    };
    let name = |name: &str, kind: &str, objects: &str| {
        (format!("\"{name}\""), format!("\"{kind}\""), objects.to_owned())
    };
    assert_eq!(names("covered"), [name("pthread_create", "threads", r#"["mixed"]"#)]);
    let uncovered = [
        name("poll", "blocking", r#"["mixed","libhelper.so"]"#),
        name("sched_yield", "waiting", r#"["libhelper.so"]"#),
    ];
    assert_eq!(names("uncovered"), uncovered);
    let objects = report["objects"].as_array().unwrap();
    let calls = |file: &str| {
        let is_it = |object: &&serde_json::Value| {
            Path::new(object["path"].as_str().unwrap()).ends_with(file)
        };
        objects.iter().find(is_it).map(|object| object["inline_syscalls"].as_u64().unwrap())
    };
    assert_eq!((objects.len(), calls("mixed"), calls("libhelper.so")), (2, Some(2), Some(0)));

    let output = sandbox.output(&["--check", "--", &program, "--json"]);
    let text = text(&output.stdout);
    for line in [
        "verdict      works; 2 names are not covered",
        "Covered: Heddle's library takes their place",
        "the program has its own: unused",
        "Not covered: left to the C library",
        "inline system calls are not seen",
    ] {
        assert!(text.contains(line), "no `{line}` in {text}");
    }
}

#[test]
fn a_check_validates_options_and_follows_scripts() {
    let sandbox = Sandbox::new();
    sandbox.refuses(&["--check", "--policy", "fivo", "true"], &["fifo"]);
    let mark = sandbox.text("started");
    let script = sandbox.script("script", &format!("#!/bin/sh\ntouch {mark}\n"));
    let output = sandbox.output(&["--check", &script]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("binary       /bin/sh\n"), "{}", text(&output.stdout));
    assert!(!Path::new(&mark).exists(), "a check starts nothing");
}
