//! libheddle_event, and programs in C built with it.

#![allow(dead_code, unused_imports, reason = "each test uses what it needs")]

#[path = "../../../../capi/tests/common/c.rs"]
mod c;

pub use c::{root, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

pub fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| c::built("heddle-libevent", "libheddle_event.so"))
}

pub fn gcc() -> Command {
    c::gcc(&["include"])
}

/// The program of `tests/c`, built once for each process of tests.
pub fn program(name: &'static str) -> PathBuf {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    static BUILDS: Mutex<()> = Mutex::new(());
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().expect("a folder"));
    let program = folder.path().join(name);
    let _one_at_a_time = BUILDS.lock();
    if !program.exists() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
        c::link(gcc(), &source, &program, libraries(), "heddle_event");
    }
    program
}
