//! Where the socket of a share is, and whose folder that is.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The most bytes in the path of a Unix socket.
const MOST: usize = 107;

/// The most characters of the file's name in the socket's.
const STEM: usize = 32;

/// A user, whose sockets lie in a folder of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user's number.
    pub uid: u32,
    /// `XDG_RUNTIME_DIR`, if it is set.
    pub runtime_dir: Option<PathBuf>,
}

/// Why a path cannot be used for a socket.
#[derive(Debug, thiserror::Error)]
pub enum UnusablePath {
    /// Longer than the system allows.
    #[error(
        "{} has {} bytes, and the path of a Unix socket at most {MOST} bytes; give a shorter one by `socket` in the \
         file",
        .0.display(), .0.as_os_str().len()
    )]
    TooLong(PathBuf),
    /// The folder is another user's, or others may write to it.
    #[error(
        "the folder {} is not one that only you can write to ({why}): remove it, or give another place by `socket` in \
         the file", .folder.display()
    )]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The system refuses.
    #[error("cannot use the folder {}: {source}", .folder.display())]
    System {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Owner {
    /// Returns root.
    #[must_use]
    pub fn root() -> Owner {
        Owner { uid: 0, runtime_dir: None }
    }

    /// Returns the user of this process.
    #[must_use]
    pub fn current() -> Owner {
        let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
        let uid = rustix::process::geteuid().as_raw();
        Owner { uid, runtime_dir: runtime_dir.map(PathBuf::from).filter(|dir| dir.is_absolute()) }
    }

    /// Returns the folder of the user's sockets.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.top().join("share")
    }

    /// Returns where the user's broker of the share in `file` listens if the file does not say where.
    pub(crate) fn socket(&self, file: &Path) -> PathBuf {
        let hash = hash(file.as_os_str().as_bytes());
        self.folder().join(format!("{}-{hash:08x}.sock", stem(file)))
    }

    /// Returns the upper of the two folders that are Heddle's.
    fn top(&self) -> PathBuf {
        match (&self.runtime_dir, self.uid) {
            (_, 0) => "/run/heddle".into(),
            (Some(dir), _) => dir.join("heddle"),
            (None, uid) => format!("/tmp/heddle-{uid}").into(),
        }
    }

    /// Makes the folder of the user's sockets.
    ///
    /// # Errors
    /// [`UnusablePath`]: also if it is another user's.
    pub fn make_folder(&self) -> Result<(), UnusablePath> {
        // Those whom root's brokers let in must reach the sockets.
        let mode = if self.uid == 0 { 0o755 } else { 0o700 };
        for folder in [self.top(), self.folder()] {
            match fs::DirBuilder::new().mode(mode).create(&folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(UnusablePath::System { folder, source: error });
                }
                _ => self.check_folder(&folder)?,
            }
        }
        Ok(())
    }

    /// Checks that the folders of the user's sockets are the user's, so that no other user's broker answers there.
    ///
    /// # Errors
    /// [`UnusablePath`]; none if they do not exist.
    pub fn check_folders(&self) -> Result<(), UnusablePath> {
        [self.top(), self.folder()].iter().try_for_each(|folder| match self.check_folder(folder) {
            Err(UnusablePath::System { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Ok(())
            }
            result => result,
        })
    }

    fn check_folder(&self, folder: &Path) -> Result<(), UnusablePath> {
        let meta = fs::symlink_metadata(folder)
            .map_err(|source| UnusablePath::System { folder: folder.into(), source })?;
        let why = match () {
            () if !meta.is_dir() => "it is no folder, but a link or a file".into(),
            () if meta.uid() != self.uid => format!("it belongs to user {}", meta.uid()),
            () if meta.mode() & 0o022 != 0 => "others may write to it".into(),
            () => return Ok(()),
        };
        Err(UnusablePath::Foreign { folder: folder.into(), why })
    }
}

/// Refuses what is too long for a socket.
pub fn check_length(path: &Path) -> Result<(), UnusablePath> {
    match path.as_os_str().len() <= MOST {
        true => Ok(()),
        false => Err(UnusablePath::TooLong(path.into())),
    }
}

fn stem(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    stem.chars().take(STEM).map(plain).collect()
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn owner(uid: u32, runtime_dir: Option<&str>) -> Owner {
        Owner { uid, runtime_dir: runtime_dir.map(PathBuf::from) }
    }

    #[test]
    fn folders_are_made_and_must_be_the_users() {
        let temp = heddle_test_support::temp_dir();
        let uid = rustix::process::geteuid().as_raw();
        // Root's folders are elsewhere, whatever the runtime folder is.
        if uid == 0 {
            let folder = temp.path().join("theirs");
            symlink("/tmp", &folder).unwrap();
            let error = Owner::root().check_folder(&folder).unwrap_err();
            assert!(error.to_string().contains("it is no folder"), "{error}");
            let error = owner(7, None).check_folder(temp.path()).unwrap_err();
            assert!(error.to_string().contains("it belongs to user 0"), "{error}");
            return;
        }
        let owner = Owner { uid, runtime_dir: Some(temp.path().into()) };
        owner.check_folders().unwrap();
        owner.make_folder().unwrap();
        owner.make_folder().unwrap();
        assert_eq!(fs::metadata(owner.folder()).unwrap().mode() & 0o777, 0o700);
        fs::remove_dir(owner.folder()).unwrap();
        symlink("/tmp", owner.folder()).unwrap();
        assert!(matches!(owner.make_folder(), Err(UnusablePath::Foreign { .. })));
    }
}
