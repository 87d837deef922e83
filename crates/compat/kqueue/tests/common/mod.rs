//! libheddle_kqueue, and C programs built with it.

#![allow(dead_code, reason = "each test uses what it needs")]

use heddle_test_support::c;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the folder of libheddle_kqueue.so, which is built once for each process of tests.
pub fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| c::build_library("libheddle-kqueue", "libheddle_kqueue.so"))
}

pub fn gcc() -> Command {
    c::gcc(&["include", "include/kqueue"])
}

pub fn link(source: &Path, to: &Path) {
    c::link(gcc(), source, to, libraries(), "heddle_kqueue");
}
