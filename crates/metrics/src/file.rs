//! Files that are written whole or not at all (I6).

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;

/// Writes `text` to `path`: into a temporary file beside it, which then takes its place.
///
/// A reader sees the old file or the new one, and a full disk leaves the old one. The folder must exist.
/// A link is followed. What is not a file (a pipe, `/dev/stdout`) is written to directly: renaming over it
/// would destroy it.
///
/// # Errors
/// [`Error::Write`], which names the path and the reason.
pub fn write_atomically(path: impl AsRef<Path>, text: &str) -> Result<(), Error> {
    let path = path.as_ref();
    let special = fs::metadata(path).is_ok_and(|what| !what.is_file() && !what.is_dir());
    let written = if special { fs::write(path, text) } else { replace(path, text) };
    written.map_err(|source| Error::Write { path: path.to_owned(), source })
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let temporary = beside(&path);
    let written = write_synced(&temporary, text).and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_synced(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// A name in the same folder (a rename does not cross file systems), used by nobody else.
fn beside(path: &Path) -> PathBuf {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{number}.tmp", process::id()));
    path.with_file_name(name)
}
