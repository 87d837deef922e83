//! The header and the library have the same calls; the header and the code have the same numbers.

mod common;

use common::{gcc, libraries};
use heddle_test_support::{run, workspace_root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

#[test]
fn the_header_declares_what_the_library_has() {
    let header = fs::read_to_string(workspace_root().join("include/kqueue/sys/event.h"))
        .expect("the header");
    let code: String =
        header.split("/*").map(|part| part.split("*/").last().unwrap_or("")).collect();
    let name = |text: &str| text.rsplit([' ', '*', '\n']).next().unwrap_or_default().to_owned();
    let is_ours = |name: &String| name.starts_with("kqueue") || name.starts_with("kevent");
    let declared: BTreeSet<String> =
        code.match_indices('(').map(|(at, _)| name(&code[..at])).filter(is_ours).collect();
    let library = libraries().join("libheddle_kqueue.so");
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let last = symbols.lines().filter_map(|line| line.split_whitespace().last());
    let exported: BTreeSet<String> = last.map(str::to_owned).filter(is_ours).collect();
    assert_eq!(declared, exported);
    assert!(exported.contains("kevent") && exported.len() > 9, "{exported:?}");
}

#[test]
fn the_header_is_for_c_and_for_cpp() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("empty.c");
    let text = "#include <sys/event.h>\n\
                void set(struct kevent *kev) { EV_SET(kev, 1, EVFILT_USER, EV_ADD, 0, 0, 0); }\n";
    fs::write(&source, text).expect("written");
    let object = folder.path().join("empty.o");
    run(gcc().args(["-c", "-pedantic"]).arg(&source).arg("-o").arg(&object));
    let mut cpp = Command::new("g++");
    cpp.args(["-Wall", "-Werror", "-x", "c++", "-c", "-I"]).arg(workspace_root().join("include"));
    cpp.arg("-I").arg(workspace_root().join("include/kqueue")).arg(&source).arg("-o").arg(&object);
    run(&mut cpp);
}

/// `#define PREFIX_NAME number`.
fn defined(header: &str, prefix: &str) -> BTreeMap<String, i64> {
    let line = |line: &str| {
        let mut words = line.strip_prefix("#define ")?.split_whitespace();
        let name = words.next()?.strip_prefix(prefix)?.to_owned();
        let number = words.next()?.trim_matches(['(', ')']);
        let number = match number.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16),
            None => number.parse(),
        };
        Some((name, number.ok()?))
    };
    header.lines().filter_map(line).collect()
}

#[test]
fn the_numbers_of_the_code_are_those_of_the_header() {
    let read = |path: &str| fs::read_to_string(workspace_root().join(path)).expect("it is there");
    let header = read("include/heddle/event.h");
    let code = read("crates/kqueue/src/raw.rs");
    let mut compared = 0;
    for (module, prefix) in [("filter", "EVFILT_"), ("ev", "EV_"), ("note", "NOTE_")] {
        let numbers = defined(&header, prefix);
        let part = code.split(&format!("pub(crate) mod {module} {{")).nth(1).expect("the module");
        let part = part.split("\n}").next().expect("an end");
        for line in part.lines().filter_map(|line| line.trim().strip_prefix("pub const ")) {
            let (name, rest) = line.split_once(':').expect("a name");
            let value =
                rest.split("= ").nth(1).expect("a value").trim_end_matches(';').replace('_', "");
            let number = match value.strip_prefix("0x") {
                Some(hex) => i64::from_str_radix(hex, 16),
                None => value.parse(),
            };
            // Sums of other constants are skipped.
            let Ok(number) = number else { continue };
            assert_eq!(numbers.get(name), Some(&number), "{prefix}{name}");
            compared += 1;
        }
    }
    assert!(compared >= 30, "{compared}");
}
