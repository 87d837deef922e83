//! Directories.

use super::{FileType, Metadata};
use crate::blocking;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

/// How many entries one call in `blocking` reads.
const CHUNK: usize = 64;

/// Returns an iterator over the entries of a directory, in no particular order, without `.` and `..`.
///
/// # Errors
/// Returns the system's error.
pub fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    let entries = blocking(|| fs::read_dir(path))?;
    Ok(ReadDir { entries, read: VecDeque::new(), at_end: false })
}

/// The entries of a directory; see [`read_dir`].
#[derive(Debug)]
pub struct ReadDir {
    entries: fs::ReadDir,
    /// Entries read ahead.
    read: VecDeque<io::Result<fs::DirEntry>>,
    at_end: bool,
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        if self.read.is_empty() && !self.at_end {
            blocking(|| self.read.extend(self.entries.by_ref().take(CHUNK)));
            self.at_end = self.read.len() < CHUNK;
        }
        Some(self.read.pop_front()?.map(DirEntry))
    }
}

/// An entry of a directory.
#[derive(Debug)]
pub struct DirEntry(fs::DirEntry);

impl DirEntry {
    /// Returns its path: that of the directory, and its name.
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Returns its name.
    pub fn file_name(&self) -> OsString {
        self.0.file_name()
    }

    /// Returns its metadata; does not follow a symbolic link.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn metadata(&self) -> io::Result<Metadata> {
        blocking(|| self.0.metadata())
    }

    /// Returns its type; does not follow a symbolic link.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn file_type(&self) -> io::Result<FileType> {
        blocking(|| self.0.file_type())
    }
}

impl DirEntryExt for DirEntry {
    fn ino(&self) -> u64 {
        self.0.ino()
    }
}
