//! Files that are written whole or not at all (I6).

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::Error;

/// Writes `text` to `path` through a temporary file beside it, which is then renamed.
///
/// A reader sees the old file or the new one, and a full disk leaves the old one. The folder must exist.
/// Symbolic links are followed. Special files (a pipe, `/dev/stdout`) are written to directly: a rename
/// would replace them.
///
/// # Errors
/// [`Error::Write`], with the path and the reason.
pub fn write_atomically(path: impl AsRef<Path>, text: &str) -> Result<(), Error> {
    let path = path.as_ref();
    let special = fs::metadata(path).is_ok_and(|file| !file.is_file() && !file.is_dir());
    let written = if special { fs::write(path, text) } else { replace(path, text) };
    written.map_err(|source| Error::Write { path: path.to_owned(), source })
}

/// Returns an error if [`write_atomically`] could not write to `path` now: for a result that takes long to get.
///
/// # Errors
/// As [`write_atomically`].
pub fn check_writable(path: impl AsRef<Path>) -> Result<(), Error> {
    let path = path.as_ref();
    let checked = match fs::metadata(path) {
        Ok(file) if file.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(file) if !file.is_file() => Ok(()),
        _ => beside(&resolved(path)).map(drop),
    };
    checked.map_err(|source| Error::Write { path: path.to_owned(), source })
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = resolved(path);
    let mut file = beside(&path)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    Ok(())
}

/// Follows symbolic links, if the file is there.
fn resolved(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Makes a temporary file in the folder of `path`.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    // In the same folder: a rename cannot cross file systems.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(".tmp")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
}
