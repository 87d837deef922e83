//! Folders and files that no other user may open, and locks on them.
//!
//! Anyone who may open a file, even for reading, can lock it (`flock`) and hold the lock forever. So locked files
//! lie in folders that only their user may enter, and waiting for a lock is bounded.
//!
//! - **P1** Nothing here follows a symbolic link in the last part of a path.
//! - **P2** What is opened belongs to this process's user and is closed to others. A wrong mode is corrected;
//!   another owner is refused.

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, fchmod, flock, fstat, open};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// The permissions of others, which must be none.
const OTHERS: u32 = 0o077;
/// How often to retry a lock that another process has.
const AGAIN: Duration = Duration::from_millis(10);

/// Makes the folder `path` if it does not exist, closes it to others, and opens it. Missing folders above it are
/// made, too. If others can change a folder above it, it is refused, as they could replace it.
///
/// # Errors
/// If it is a link, or another user's; the file system's errors.
pub(crate) fn folder(path: &Path) -> io::Result<File> {
    if let Some(above) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(above)?;
        check_above(above)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => existing_folder(path),
    }
}

/// Opens the folder `path` and closes it to others.
///
/// # Errors
/// As [`folder`], or if it does not exist.
pub(crate) fn existing_folder(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    closed(path, open_here(path, flags, Mode::empty())?, FileType::Directory)
}

/// Opens the file `path` for writing, creates it if it does not exist, and closes it to others.
///
/// # Errors
/// If it is a link, not a file, or another user's; the file system's errors.
pub(crate) fn file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK;
    closed(path, open_here(path, flags, Mode::RUSR | Mode::WUSR)?, FileType::RegularFile)
}

/// Opens the file `path` for reading.
///
/// # Errors
/// As [`file()`], or if it does not exist.
pub(crate) fn existing_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    closed(path, open_here(path, flags, Mode::empty())?, FileType::RegularFile)
}

fn open_here(path: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
    match open(path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode) {
        Ok(opened) => Ok(opened.into()),
        // A link to a folder fails with ENOTDIR, one to a file with ELOOP.
        Err(Errno::LOOP | Errno::NOTDIR) if path.is_symlink() => Err(refused(
            path,
            "is a symbolic link; remove it, heddle makes its own files and folders",
        )),
        Err(error) => Err(error.into()),
    }
}

fn closed(path: &Path, opened: File, kind: FileType) -> io::Result<File> {
    let stat = fstat(&opened)?;
    if FileType::from_raw_mode(stat.st_mode) != kind {
        return Err(refused(path, "has the wrong type; remove it, heddle makes a new one"));
    }
    let me = geteuid().as_raw();
    if stat.st_uid != me {
        let why = format!(
            "belongs to user {} and not to user {me}; \
             run this as that user, remove it, or set HEDDLE_RUN to another folder",
            stat.st_uid
        );
        return Err(refused(path, &why));
    }
    if stat.st_mode & OTHERS != 0 {
        fchmod(&opened, Mode::from_raw_mode(stat.st_mode & 0o7700))?;
    }
    Ok(opened)
}

/// Users who may write to a folder may replace what is in it, unless it is sticky, as /tmp is; so may those who may
/// write to a folder above it.
fn check_above(path: &Path) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    path.ancestors().try_for_each(check_folder)
}

fn check_folder(path: &Path) -> io::Result<()> {
    let stat = fs::metadata(path)?;
    let (owner, sticky) = (stat.uid(), stat.mode() & 0o1000 != 0);
    if ![0, geteuid().as_raw()].contains(&owner) {
        return Err(refused(
            path,
            &format!("belongs to user {owner}, who could change its contents"),
        ));
    }
    if stat.mode() & 0o022 != 0 && !sticky {
        let why = format!("may be written to by other users; chmod go-w {}", path.display());
        return Err(refused(path, &why));
    }
    Ok(())
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {why}", path.display()))
}

/// A lock, released at the latest with the process.
#[derive(Debug)]
pub struct Lock(
    #[allow(dead_code, reason = "the kernel holds the lock as long as it is open")] File,
);

/// Takes the lock on `file`, waiting at most `patience`.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if another process keeps it; the error names the process.
pub(crate) fn lock(file: File, patience: Duration) -> io::Result<Lock> {
    let begin = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock(file)),
            Err(Errno::WOULDBLOCK) if begin.elapsed() < patience => std::thread::sleep(AGAIN),
            Err(Errno::WOULDBLOCK) => return Err(held(&file)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether the lock on `file` is free.
pub(crate) fn is_free(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockShared).is_ok()
}

fn held(file: &File) -> io::Error {
    let holders = holders(file);
    let who = match &holders[..] {
        [] => "another process".to_owned(),
        [one] => format!("process {one}"),
        more => format!("processes {}", more.join(", ")),
    };
    let text = format!("{who} has locked it; try again when that has ended, or end it");
    io::Error::new(io::ErrorKind::WouldBlock, text)
}

/// Returns the processes that the kernel lists as holders of a lock on `file`: `1: FLOCK ADVISORY WRITE 812
/// 00:1a:4711 0 EOF`.
fn holders(file: &File) -> Vec<String> {
    let (Ok(stat), Ok(locks)) = (fstat(file), fs::read_to_string("/proc/locks")) else {
        return Vec::new();
    };
    let inode = format!(":{}", stat.st_ino);
    let of = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.get(1) == Some(&"FLOCK") && fields.get(5)?.ends_with(&inode);
        is_it.then(|| fields.get(4).map(|pid| (*pid).to_owned())).flatten()
    };
    locks.lines().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().permissions().mode() & 0o777
    }

    fn open_to_all(path: &Path) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    }

    #[test]
    fn new_files_are_closed_to_others_and_open_ones_are_corrected() {
        let place = tempfile::tempdir().unwrap();
        let (inner, name) = (place.path().join("a/b"), place.path().join("a/b/lock"));
        folder(&inner).unwrap();
        file(&name).unwrap();
        assert_eq!((mode(&inner), mode(&name)), (0o700, 0o600));
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o755)).unwrap();
        open_to_all(&name);
        folder(&inner).unwrap();
        existing_file(&name).unwrap();
        assert_eq!((mode(&inner), mode(&name)), (0o700, 0o600));
    }

    #[test]
    fn links_and_special_files_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let (target, link) = (place.path().join("target"), place.path().join("link"));
        symlink(&target, &link).unwrap();
        let said = |result: io::Result<File>| result.unwrap_err().to_string();
        for result in [folder(&link), existing_folder(&link), file(&link), existing_file(&link)] {
            assert!(said(result).contains("is a symbolic link; remove it"));
        }
        assert!(!target.exists());
        folder(&target).unwrap();
        assert!(said(folder(&link)).contains("is a symbolic link"));
        assert!(said(existing_file(&target)).contains("has the wrong type"));
    }

    #[test]
    fn files_of_others_and_replaceable_folders_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let (inner, name) = (place.path().join("a"), place.path().join("lock"));
        folder(&inner).unwrap();
        file(&name).unwrap();
        let said = |result: io::Result<File>| result.unwrap_err().to_string();
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(said(folder(&inner.join("b"))).contains("may be written to by other users; chmod"));
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o1777)).unwrap();
        folder(&inner.join("b")).unwrap();
        if chown(&name, Some(65534), None).and_then(|()| chown(&inner, Some(65534), None)).is_err()
        {
            eprintln!("skipped: giving files away takes root");
            return;
        }
        assert!(said(file(&name)).contains("belongs to user 65534 and not to user 0"));
        assert!(said(folder(&inner)).contains("belongs to user 65534"));
        assert!(said(folder(&inner.join("b"))).contains("who could change its contents"));
    }

    #[test]
    fn waiting_for_a_lock_is_bounded_and_its_holder_is_named() {
        let place = tempfile::tempdir().unwrap();
        let name = place.path().join("lock");
        let first = lock(file(&name).unwrap(), Duration::ZERO).unwrap();
        assert!(!is_free(&existing_file(&name).unwrap()));
        let error = lock(file(&name).unwrap(), Duration::from_millis(30)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let me = format!("process {} has locked it", std::process::id());
        assert!(error.to_string().contains(&me), "{error}");
        drop(first);
        assert!(is_free(&existing_file(&name).unwrap()));
        lock(file(&name).unwrap(), Duration::ZERO).unwrap();
    }
}
