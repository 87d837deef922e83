//! Tests that need more than one part of the module.

mod files;
mod moments;
mod texts;

use std::fs;
use std::path::{Path, PathBuf};

/// A file that exists as long as the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Scratch {
        let name = format!("heddle-sim-{}-{name}.csv", std::process::id());
        let file = std::env::temp_dir().join(name);
        fs::write(&file, bytes).unwrap();
        Scratch(file)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
