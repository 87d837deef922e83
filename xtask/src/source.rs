//! Checks of single source files: the rooms of `unsafe`, test markers, `no_std`, length.

use crate::finding::{Check, Finding};
use crate::lexer::code_only;
use std::path::Path;

/// Folders whose Rust code may use `unsafe`.
const UNSAFE_ROOMS: &[&str] = &[
    "crates/arch",
    "crates/sys",
    "crates/sync",
    "crates/bpf",
    "crates/xsk",
    "crates/steer-abi",
    "crates/share",
    // Atomics in mapped memory: `src/memory.rs` says why each reference is valid.
    "crates/telemetry",
    "crates/runtime",
    "crates/posix",
    "crates/capi",
    "crates/compat",
    "crates/kqueue",
    // Added to tokio's source; no part of the crate itself.
    "crates/probes/src/tokio/hook",
];

/// Single files that may, and why.
const UNSAFE_FILES: &[(&str, &str)] = &[
    ("crates/netstack/dpdk/src/shim.rs", "binds a shim over DPDK; only tests link it yet"),
    ("crates/tcp/packetdrill/src/addresses.rs", "addresses of C calls, for tests"),
    ("crates/tcp/packetdrill/src/lib.rs", "implements a C interface, for tests"),
    ("crates/store/src/rocksdb.rs", "binds RocksDB's C API; only the store links it"),
    ("crates/heddle/tests/common/fork.rs", "forks, for tests"),
    ("scripts/lib/tokio-provider.rs", "implements a C interface, for tests"),
    ("scripts/lib/tokio-suite.rs", "is added to a copy of tokio, for tests"),
    ("scripts/lib/futures-executor.rs", "moves tests that need not be `Send` to Heddle's threads"),
];

/// Crates without the standard library; they forbid `unsafe` too.
const NO_STD: &[&str] =
    &["crates/core/src/lib.rs", "crates/policies/src/lib.rs", "crates/tcp/src/lib.rs"];

/// Above so many lines a file is reported as long.
const LONG: usize = 400;

/// Checks the Rust file `path`, which contains `text`.
pub fn check_rust(path: &Path, text: &str) -> Vec<Finding> {
    let code = code_only(text);
    let mut findings = check_unsafe(path, &code);
    findings.extend(check_ignored(path, &code));
    findings.extend(check_no_std(path, &code));
    findings
}

/// Reports `path` if it is long.
pub fn check_length(path: &Path, text: &str) -> Option<Finding> {
    let lines = text.lines().count();
    let message = || format!("{lines} lines; above {LONG} a file should hold more than one idea");
    (lines > LONG).then(|| Finding::new(Check::FileLength, path, None, message()))
}

fn check_unsafe(path: &Path, code: &str) -> Vec<Finding> {
    let room = UNSAFE_ROOMS.iter().any(|room| path.starts_with(room));
    if room || UNSAFE_FILES.iter().any(|(file, _)| path == Path::new(file)) {
        return Vec::new();
    }
    let lines = code.lines().enumerate().filter(|(_, line)| has_word(line, "unsafe"));
    let message = "`unsafe` outside its rooms (xtask/src/source.rs)";
    lines.map(|(i, _)| Finding::error(path, Some(i + 1), message)).collect()
}

fn check_ignored(path: &Path, code: &str) -> Vec<Finding> {
    let bare = |line: &str| line.split_whitespace().collect::<String>().contains("#[ignore]");
    let lines = code.lines().enumerate().filter(|(_, line)| bare(line));
    let message = "an ignored test says why: #[ignore = \"reason\"]";
    lines.map(|(i, _)| Finding::error(path, Some(i + 1), message)).collect()
}

fn check_no_std(path: &Path, code: &str) -> Vec<Finding> {
    if !NO_STD.iter().any(|file| path == Path::new(file)) {
        return Vec::new();
    }
    let wanted = ["#![no_std]", "#![forbid(unsafe_code)]"];
    let missing = wanted.into_iter().filter(|attribute| !code.contains(attribute));
    missing.map(|a| Finding::error(path, None, format!("this crate must say {a}"))).collect()
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<Option<usize>> {
        check_rust(Path::new(path), text).into_iter().map(|f| f.line).collect()
    }

    #[test]
    fn unsafe_is_found_outside_its_rooms_only() {
        let text = "fn f() {\n    unsafe { g() }\n}\n#[unsafe(no_mangle)]";
        assert_eq!(lines("crates/heddle/src/lib.rs", text), [Some(2), Some(4)]);
        assert!(lines("crates/sys/src/lib.rs", text).is_empty());
        assert!(lines("crates/store/src/rocksdb.rs", text).is_empty());
        assert_eq!(lines("crates/system/src/lib.rs", text).len(), 2, "not a prefix of the name");
    }

    #[test]
    fn unsafe_in_words_comments_and_strings_does_not_count() {
        let text = "// unsafe\n/* unsafe /* unsafe */ unsafe */\n#![forbid(unsafe_code)]\n\
                    let s = \"unsafe \\\" unsafe\"; let r = r#\"unsafe \" unsafe\"#; let c = '\"';\n\
                    fn f<'a>(x: &'a str) {} let q = '\\''; let m = \"unsafe\";";
        assert!(lines("crates/heddle/src/lib.rs", text).is_empty(), "{}", code_only(text));
        let after = "let c = '\"'; unsafe { f() }";
        assert_eq!(lines("crates/heddle/src/lib.rs", after), [Some(1)]);
    }

    #[test]
    fn an_ignored_test_says_why() {
        assert_eq!(lines("x.rs", "#[test]\n#[ignore]\nfn f() {}"), [Some(2)]);
        assert!(lines("x.rs", "#[ignore = \"takes minutes\"]").is_empty());
    }

    #[test]
    fn the_pure_crates_are_no_std() {
        let (core, sound) = ("crates/core/src/lib.rs", "#![no_std]\n#![forbid(unsafe_code)]");
        assert!(lines(core, sound).is_empty());
        assert_eq!(lines(core, "// #![no_std]\n#![forbid(unsafe_code)]").len(), 1);
        assert_eq!(lines(core, "#![cfg_attr(not(test), no_std)]").len(), 2);
    }

    #[test]
    fn a_long_file_is_a_warning() {
        let path = Path::new("x.rs");
        assert!(check_length(path, &"\n".repeat(LONG)).is_none());
        assert!(!check_length(path, &"\n".repeat(LONG + 1)).unwrap().is_error());
    }
}
