//! How a file is opened.

use super::File;
use crate::blocking;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Options for opening a file: `std::fs::OpenOptions`, which opens a [`File`] of this crate.
///
/// ```
/// use heddle_rt::fs::OpenOptions;
/// use std::io::Write as _;
///
/// let path = std::env::temp_dir().join(format!("heddle-doc-log-{}", std::process::id()));
/// for line in ["first\n", "second\n"] {
///     OpenOptions::new().append(true).create(true).open(&path)?.write_all(line.as_bytes())?;
/// }
/// assert_eq!(heddle_rt::fs::read_to_string(&path)?, "first\nsecond\n");
/// heddle_rt::fs::remove_file(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions(fs::OpenOptions);

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, $name: bool) -> &mut OpenOptions {
            self.0.$name($name);
            self
        }
    )*};
}

impl OpenOptions {
    /// Returns options with everything off.
    #[allow(clippy::new_without_default)]
    pub fn new() -> OpenOptions {
        OpenOptions(fs::OpenOptions::new())
    }

    setters! {
        /// Opens it for reading.
        read;
        /// Opens it for writing.
        write;
        /// Opens it for writing at its end, wherever that is at each write.
        append;
        /// Discards its contents.
        truncate;
        /// Creates it if it does not exist.
        create;
        /// Creates it; fails if it exists.
        create_new;
    }

    /// Opens the file.
    ///
    /// # Errors
    /// Returns the system's error; [`InvalidInput`](io::ErrorKind::InvalidInput) for options that exclude each other.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        blocking(|| self.0.open(path)).map(File::from)
    }
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.0.mode(mode);
        self
    }

    fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.0.custom_flags(flags);
        self
    }
}

impl From<fs::OpenOptions> for OpenOptions {
    fn from(options: fs::OpenOptions) -> OpenOptions {
        OpenOptions(options)
    }
}
