//! Folders and files that nobody else may open, and locks on them.
//!
//! A lock (`flock`) can be taken by whoever may open its file, for reading too, and held for ever. So what is locked lies in folders that
//! only their user may enter, and waiting for a lock has an end.
//!
//! - **P1** Nothing here follows a symbolic link in the last part of a path.
//! - **P2** What is opened belongs to this process's user and is closed to others. A mode is mended; another owner is refused.

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, fchmod, flock, fstat, open};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// What others may have of a file: nothing.
const OTHERS: u32 = 0o077;
/// How often a lock is tried that another process has.
const AGAIN: Duration = Duration::from_millis(10);

/// Makes the folder `path` if it is not there, closes it to others, and opens it. Folders above it that are missing are made, too;
/// one above it that others may change is refused, for they could put another in its place.
///
/// # Errors
/// It is a link, or another user's; the file system's.
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
/// As [`folder`]; it is not there.
pub(crate) fn existing_folder(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    closed(path, open_here(path, flags, Mode::empty())?, FileType::Directory)
}

/// Opens the file `path` for writing, made if it is not there, and closes it to others.
///
/// # Errors
/// It is a link, no file, or another user's; the file system's.
pub(crate) fn file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK;
    closed(path, open_here(path, flags, Mode::RUSR | Mode::WUSR)?, FileType::RegularFile)
}

/// Opens the file `path` for reading.
///
/// # Errors
/// As [`file()`]; it is not there.
pub(crate) fn existing_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    closed(path, open_here(path, flags, Mode::empty())?, FileType::RegularFile)
}

fn open_here(path: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
    match open(path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode) {
        Ok(opened) => Ok(opened.into()),
        // A link to a folder is no folder (ENOTDIR), one to a file is a loop.
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
        return Err(refused(path, "is not what it should be; remove it, heddle makes it anew"));
    }
    let me = geteuid().as_raw();
    if stat.st_uid != me {
        let why = format!(
            "belongs to user {} and not to user {me}; run this as that user, remove it, or set HEDDLE_RUN to another folder",
            stat.st_uid
        );
        return Err(refused(path, &why));
    }
    if stat.st_mode & OTHERS != 0 {
        fchmod(&opened, Mode::from_raw_mode(stat.st_mode & 0o7700))?;
    }
    Ok(opened)
}

/// Who may write to a folder may put another in the place of what is in it, unless it is sticky, as /tmp is; and so may who may write
/// to one above it.
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
            &format!("belongs to user {owner}, who could change what is in it"),
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

/// A lock; gone with the process at the latest.
#[derive(Debug)]
pub struct Lock(
    #[allow(dead_code, reason = "the kernel holds the lock as long as it is open")] File,
);

/// Takes the lock on `file`, for `patience` at most.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] where another process keeps it, and which.
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

/// Whether nobody has the lock on `file`.
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

/// The processes that the kernel names as holders of a lock on `file`: `1: FLOCK ADVISORY WRITE 812 00:1a:4711 0 EOF`.
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
    fn what_is_made_is_closed_and_what_was_open_is_mended() {
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
    fn links_and_what_is_no_file_are_refused() {
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
        assert!(said(existing_file(&target)).contains("is not what it should be"));
    }

    #[test]
    fn what_is_anothers_or_can_be_replaced_is_refused() {
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
        assert!(said(folder(&inner.join("b"))).contains("who could change what is in it"));
    }

    #[test]
    fn a_lock_is_waited_for_to_an_end_and_its_holder_is_named() {
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
