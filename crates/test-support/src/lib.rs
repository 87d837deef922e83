//! What the tests of several crates share; for tests only, never shipped.
//!
//! - [`until`] waits for a condition and fails if it never holds.
//! - [`Running`] is a child process that ends with the test.
//! - [`temp_dir`] makes a folder that is removed with the test.
//! - [`c`] builds the workspace's libraries for C, and programs against them.
//! - [`find_program`] finds an installed server or tool.
//!
//! Everything panics when it fails, at the caller's line where that helps. No helper measures time: a limit is a hang
//! detector, long enough for a busy machine.

pub mod c;
mod process;
mod wait;

pub use process::{Running, find_program, is_alive, run};
pub use tempfile::TempDir;
pub use wait::{PATIENCE, until, until_within};

use std::path::{Path, PathBuf};

/// Makes an empty folder that is removed when the value is dropped.
///
/// # Panics
/// If the folder cannot be made.
#[track_caller]
pub fn temp_dir() -> TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

/// Returns the root of the workspace.
pub fn workspace_root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("the crate lies in crates/test-support").to_path_buf()
}
