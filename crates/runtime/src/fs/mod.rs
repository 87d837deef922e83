//! Files. The interface is `std::fs`'s; each call runs in [`blocking`](crate::blocking()), so other tasks keep their
//! CPU while the disk works.
//!
//! That costs some microseconds a call, also if the data lies in the page cache: read and write in large pieces, or
//! through [`BufReader`](std::io::BufReader) and [`BufWriter`](std::io::BufWriter). A [`crate::timeout`] does not
//! cut these calls off: the kernel offers no way to.
//!
//! ```
//! use heddle_rt::fs;
//!
//! let dir = std::env::temp_dir().join(format!("heddle-doc-fs-{}", std::process::id()));
//! fs::create_dir_all(&dir)?;
//! fs::write(dir.join("greeting"), "hello")?;
//! assert_eq!(fs::read_to_string(dir.join("greeting"))?, "hello");
//! fs::rename(dir.join("greeting"), dir.join("farewell"))?;
//! let names: Vec<_> = fs::read_dir(&dir)?.map(|entry| entry.unwrap().file_name()).collect();
//! assert_eq!(names, ["farewell"]);
//! fs::remove_dir_all(&dir)?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod dir;
mod file;
mod open_options;

pub use dir::{DirEntry, ReadDir, read_dir};
pub use file::File;
pub use open_options::OpenOptions;
pub use std::fs::{FileTimes, FileType, Metadata, Permissions};

use crate::blocking;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Functions of `std::fs`, each called in `blocking`.
macro_rules! functions {
    ($(
        $(#[$doc:meta])*
        $name:ident[$($generic:ident: $bound:path),*]($($arg:ident: $type:ty),*) -> $result:ty;
    )*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// Returns the system's error, as the function of this name in `std::fs`.
        pub fn $name<$($generic: $bound),*>($($arg: $type),*) -> io::Result<$result> {
            blocking(|| fs::$name($($arg),*))
        }
    )*};
}

functions! {
    /// Returns the absolute path without symbolic links.
    canonicalize[P: AsRef<Path>](path: P) -> PathBuf;
    /// Copies the contents and permissions of a file; returns the number of bytes.
    copy[P: AsRef<Path>, Q: AsRef<Path>](from: P, to: Q) -> u64;
    /// Creates a directory.
    create_dir[P: AsRef<Path>](path: P) -> ();
    /// Creates a directory and the parents that are missing.
    create_dir_all[P: AsRef<Path>](path: P) -> ();
    /// Returns whether the path leads to a file or directory; a broken symbolic link does not.
    exists[P: AsRef<Path>](path: P) -> bool;
    /// Creates a second name for a file.
    hard_link[P: AsRef<Path>, Q: AsRef<Path>](original: P, link: Q) -> ();
    /// Returns the size, times, permissions and type of a file; follows symbolic links.
    metadata[P: AsRef<Path>](path: P) -> Metadata;
    /// Reads a whole file.
    read[P: AsRef<Path>](path: P) -> Vec<u8>;
    /// Returns the path that a symbolic link holds.
    read_link[P: AsRef<Path>](path: P) -> PathBuf;
    /// Reads a whole file of UTF-8 text.
    read_to_string[P: AsRef<Path>](path: P) -> String;
    /// Removes an empty directory.
    remove_dir[P: AsRef<Path>](path: P) -> ();
    /// Removes a directory with all that is in it. Does not follow symbolic links.
    remove_dir_all[P: AsRef<Path>](path: P) -> ();
    /// Removes a file.
    remove_file[P: AsRef<Path>](path: P) -> ();
    /// Renames a file or directory; replaces a file at `to`.
    rename[P: AsRef<Path>, Q: AsRef<Path>](from: P, to: Q) -> ();
    /// Changes the permissions of a file.
    set_permissions[P: AsRef<Path>](path: P, permissions: Permissions) -> ();
    /// Like [`metadata`], but does not follow a symbolic link.
    symlink_metadata[P: AsRef<Path>](path: P) -> Metadata;
    /// Writes a whole file; creates it or replaces its contents.
    write[P: AsRef<Path>, C: AsRef<[u8]>](path: P, contents: C) -> ();
}

/// Creates a symbolic link `link` to `original`.
///
/// # Errors
/// Returns the system's error, as the function of this name in `std::os::unix::fs`.
pub fn symlink(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    blocking(|| std::os::unix::fs::symlink(original, link))
}
