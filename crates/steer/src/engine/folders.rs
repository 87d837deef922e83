//! The folders of the state: owned by root, and protected against anyone who could plant files in them.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io::ErrorKind as Io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statfs, statvfs};
use rustix::process::geteuid;

use crate::request::{Error, ErrorKind};

/// Creates `path` as a folder of this user that others cannot change, with at most the permissions `mode`.
///
/// # Errors
/// `Denied` if another user owns it, or if others can rename or replace it; the system's.
pub fn private(path: &Path, mode: u32) -> Result<(), Error> {
    let failed = |error| Error::system(format!("cannot make {}", path.display()), &error);
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent).map_err(failed)?;
        for above in parent.ancestors().filter(|above| !above.as_os_str().is_empty()) {
            is_safe(above, &fs::metadata(above).map_err(failed)?)?;
        }
    }
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != Io::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let there = fs::symlink_metadata(path).map_err(failed)?;
    let me = geteuid().as_raw();
    if !there.is_dir() || there.uid() != me {
        let text = format!(
            "{} exists and is not a folder of user {me} (it is user {}'s), so its owner could change \
             what Heddle keeps there: look at it, remove it, and try again",
            path.display(),
            there.uid()
        );
        return Err(Error::new(ErrorKind::Denied, text));
    }
    if there.mode() & 0o7777 & !mode != 0 {
        // It is ours: restrict permissions that are too wide.
        fs::set_permissions(path, Permissions::from_mode(there.mode() & mode)).map_err(failed)?;
    }
    Ok(())
}

/// Checks that only root and this user can rename entries of `folder`.
fn is_safe(folder: &Path, there: &Metadata) -> Result<(), Error> {
    const STICKY: u32 = 0o1000;
    let owned = there.uid() == 0 || there.uid() == geteuid().as_raw();
    if owned && (there.mode() & 0o022 == 0 || there.mode() & STICKY != 0) {
        return Ok(());
    }
    let text = format!(
        "others may rename what is in {} (user {}, mode {:o}), and so replace what Heddle keeps \
         below: `chown root {}` and `chmod go-w`, or name another folder",
        folder.display(),
        there.uid(),
        there.mode() & 0o7777,
        folder.display()
    );
    Err(Error::new(ErrorKind::Denied, text))
}

/// Mounts a BPF file system at `at`, accessible by root only (as systemd does), unless there is one.
///
/// # Errors
/// The system's.
pub fn mount_bpf(at: &Path) -> Result<(), Error> {
    /// `BPF_FS_MAGIC` of linux/magic.h.
    const BPF_FS: i64 = 0xcafe_4a11;
    let is_bpf = statfs(at).is_ok_and(|fs| fs.f_type == BPF_FS);
    let read_only = statvfs(at).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::RDONLY));
    if is_bpf && !read_only {
        return Ok(());
    }
    let flags = rustix::mount::MountFlags::NOSUID
        | rustix::mount::MountFlags::NODEV
        | rustix::mount::MountFlags::NOEXEC;
    let mounted = rustix::mount::mount("bpf", at, "bpf", flags, Some(c"mode=0700"));
    mounted.map_err(|error| {
        Error::system(format!("cannot mount a BPF file system at {}", at.display()), &error.into())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_folder_writable_by_others_is_refused_and_our_own_is_restricted() {
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join(name);
        let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o7777;
        private(&at("a/new"), 0o700).unwrap();
        assert_eq!((mode("a"), mode("a/new")), (0o755, 0o700));
        fs::set_permissions(at("a/new"), Permissions::from_mode(0o777)).unwrap();
        private(&at("a/new"), 0o755).unwrap();
        assert_eq!(mode("a/new"), 0o755);
        fs::set_permissions(at("a"), Permissions::from_mode(0o777)).unwrap();
        let refused = private(&at("a/new"), 0o700).unwrap_err();
        assert!(
            refused.kind == ErrorKind::Denied && refused.text.contains("mode 777"),
            "{refused}"
        );
        fs::set_permissions(at("a"), Permissions::from_mode(0o1777)).unwrap();
        private(&at("a/new"), 0o700).unwrap();
        symlink("new", at("a/link")).unwrap();
        assert_eq!(private(&at("a/link"), 0o700).unwrap_err().kind, ErrorKind::Denied);
        if geteuid().is_root() {
            std::os::unix::fs::chown(at("a/new"), Some(65534), None).unwrap();
            let refused = private(&at("a/new"), 0o700).unwrap_err();
            assert!(refused.text.contains("user 65534"), "{refused}");
        }
    }
}
