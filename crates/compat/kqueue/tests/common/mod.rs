//! libheddle_kqueue, and programs in C built with it.

#![allow(dead_code, unused_imports, reason = "each test uses what it needs")]

#[path = "../../../../capi/tests/common/c.rs"]
mod c;

pub use c::{root, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| c::built("libheddle-kqueue", "libheddle_kqueue.so"))
}

pub fn gcc() -> Command {
    c::gcc(&["include", "include/kqueue"])
}

pub fn link(source: &Path, to: &Path) {
    c::link(gcc(), source, to, libraries(), "heddle_kqueue");
}
