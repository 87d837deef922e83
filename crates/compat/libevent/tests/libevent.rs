//! The header, the library and C programs that use both as memcached does. The programs kill themselves if
//! they hang.

mod common;

use common::{gcc, libraries, program};
use heddle_test_support::{run, workspace_root};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// Returns the names that begin with `event_` or `heddle_event_` and are followed by a parenthesis.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(workspace_root().join("include/heddle/libevent/event.h"));
    let header = header.expect("the header");
    let code: String =
        header.split("/*").map(|part| part.split("*/").last().unwrap_or("")).collect();
    let is_code = |line: &&str| !line.starts_with('#') && !line.starts_with('\t');
    let lines = code.lines().filter(is_code);
    let names = lines.filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next());
    names.filter(|name| is_ours(name)).map(str::to_owned).collect()
}

fn is_ours(name: &str) -> bool {
    name.starts_with("event_") || name.starts_with("heddle_event_")
}

#[test]
fn the_header_declares_what_the_library_has() {
    let library = libraries().join("libheddle_event.so");
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let last = symbols.lines().filter_map(|line| line.split_whitespace().last());
    let exported: BTreeSet<String> = last.filter(|name| is_ours(name)).map(str::to_owned).collect();
    let ended = |name: &String| name != "event_config" && !name.ends_with(';');
    let declared: BTreeSet<String> = declared().into_iter().filter(ended).collect();
    assert_eq!(declared, exported);
    assert!(exported.len() > 30);
}

#[test]
fn the_header_is_for_c_and_for_cpp() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("empty.c");
    let text =
        "#include <heddle/libevent/event.h>\nint size[sizeof(struct event) == 128 ? 1 : -1];\n";
    fs::write(&source, text).expect("written");
    let object = folder.path().join("empty.o");
    run(gcc().args(["-c", "-pedantic"]).arg(&source).arg("-o").arg(&object));
    let mut cpp = Command::new("g++");
    cpp.args(["-Wall", "-Werror", "-x", "c++", "-c", "-I"]).arg(workspace_root().join("include"));
    run(cpp.arg(&source).arg("-o").arg(folder.path().join("empty.o")));
}

/// Tests of the programs, each in its own process.
macro_rules! in_c {
    ($program:ident: $($test:ident)*) => {
        mod $program {
            $(#[test]
            fn $test() {
                let program = super::program(stringify!($program));
                let said = super::run(std::process::Command::new(program).arg(stringify!($test)));
                assert!(said.ends_with("fine\n"), "{said}");
            })*
        }
    };
}

in_c! {
    one:
    reading
    not_persistent
    flipping
    several_on_one_descriptor
    timeouts
    timeout_of_a_reader
    clock_that_sets_itself
    activating
    signals
    freed_in_its_callback
    ends_of_a_loop
    high_priority_first
    child_of_fork
    bad_input
}

in_c! {
    many:
    requests_under_each_policy
    requests_while_the_policy_changes
    deleting_waits
    adding_while_it_runs
    nothing_is_delivered_after_deleting
}

in_c! {
    loops:
    threads_come_and_go
    pinned
    until_empty
    freed_while_threads_loop
    exit_of_all
    all_threads_handle
    signals_and_timers
}

/// Each test of the C programs is run.
#[test]
fn no_test_in_c_is_forgotten() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let here = fs::read_to_string(folder.join("libevent.rs")).expect("this file");
    for program in ["one", "many", "loops"] {
        let source = fs::read_to_string(folder.join(format!("c/{program}.c"))).expect("a program");
        let names =
            source.lines().filter_map(|line| line.strip_prefix("\t\t{ \"")?.split('"').next());
        let mut count = 0;
        for name in names {
            assert!(here.lines().any(|line| line.trim() == name), "{program}: {name}");
            count += 1;
        }
        assert!(count >= 5);
    }
}
