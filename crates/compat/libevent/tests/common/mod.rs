//! libheddle_event, and C programs built with it.

#![allow(dead_code, reason = "each test uses what it needs")]

use heddle_test_support::c;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// Returns the folder of libheddle_event.so, which is built once for each process of tests.
pub fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| c::build_library("heddle-libevent", "libheddle_event.so"))
}

pub fn gcc() -> Command {
    c::gcc(&["include"])
}

/// Returns a program of `tests/c`, which is built once for each process of tests.
pub fn program(name: &'static str) -> PathBuf {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    static BUILDS: Mutex<()> = Mutex::new(());
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().expect("a folder"));
    let program = folder.path().join(name);
    let _guard = BUILDS.lock();
    if !program.exists() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
        c::link(gcc(), &source, &program, libraries(), "heddle_event");
    }
    program
}
