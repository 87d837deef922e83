//! Where the socket of a share is, and whose folder that is.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::config::Config;

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
        "{} has {} bytes, and the path of a Unix socket at most {MOST} bytes; give a shorter one by `socket` in the file",
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

impl Config {
    /// Returns where the broker of the share in `file` listens, if `owner` runs it: the path that the file gives, or a
    /// default that depends on the file's canonical path.
    ///
    /// # Errors
    /// [`UnusablePath::TooLong`].
    pub fn socket_path(&self, file: &Path, owner: &Owner) -> Result<PathBuf, UnusablePath> {
        let default = || {
            let hash = hash(file.as_os_str().as_bytes());
            owner.folder().join(format!("{}-{hash:08x}.sock", stem(file)))
        };
        let path = self.socket.clone().unwrap_or_else(default);
        check_length(&path)?;
        Ok(path)
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
    fn each_file_and_user_has_a_socket() {
        let config = Config::default();
        let path = |file: &str, owner: &Owner| config.socket_path(Path::new(file), owner).unwrap();
        let root = path("/etc/my share.toml", &owner(0, Some("/run/user/0")));
        let name = root.to_str().unwrap();
        assert!(
            name.starts_with("/run/heddle/share/my_share-") && name.ends_with(".sock"),
            "{name}"
        );
        assert_eq!(root, path("/etc/my share.toml", &Owner::root()), "the same each time");
        assert_ne!(root.file_name(), path("/srv/my share.toml", &Owner::root()).file_name());
        let user = owner(7, Some("/run/user/7"));
        assert!(path("/a.toml", &user).starts_with("/run/user/7/heddle/share"));
        assert!(path("/a.toml", &owner(7, None)).starts_with("/tmp/heddle-7/share"));
        let given = Config { socket: Some("/x.sock".into()), ..config.clone() };
        assert_eq!(given.socket_path(Path::new("/a.toml"), &user).unwrap(), Path::new("/x.sock"));
    }

    #[test]
    fn a_path_that_is_too_long_is_refused() {
        let long = owner(7, Some(&format!("/{}", "x".repeat(90))));
        let error = Config::default().socket_path(Path::new("/a.toml"), &long).unwrap_err();
        assert!(error.to_string().contains("at most 107 bytes"), "{error}");
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
