//! Files that are written whole or not at all (I6).

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;

use crate::Error;

/// Writes `text` to `path`: into a temporary file beside it, which then takes its place.
///
/// A reader sees the old file or the new one, and a full disk leaves the old one. The folder must exist.
///
/// # Errors
/// [`Error::Write`], which names the path and the reason.
pub fn write_atomically(path: impl AsRef<Path>, text: &str) -> Result<(), Error> {
    let path = path.as_ref();
    let temporary = beside(path);
    let written = write_synced(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|source| {
        let _ = fs::remove_file(&temporary);
        Error::Write { path: path.to_owned(), source }
    })
}

fn write_synced(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// A name in the same folder (a rename does not cross file systems), of this process alone.
fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", process::id()));
    path.with_file_name(name)
}
