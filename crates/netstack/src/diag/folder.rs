//! Where processes show their lanes.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, test_kill_process};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Networks that a process can show.
const MOST: u32 = 64;

/// Returns the folder of this user's sockets: `/run/heddle/net` for root; for others `heddle/net` in `XDG_RUNTIME_DIR`,
/// or else `/tmp/heddle-UID/net`. The names are `PID-NUMBER.sock`.
#[must_use]
pub fn folder() -> PathBuf {
    top().join("net")
}

fn top() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    let own =
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    match (uid, own) {
        (0, _) => "/run/heddle".into(),
        (_, Some(own)) => own.join("heddle"),
        (uid, None) => format!("/tmp/heddle-{uid}").into(),
    }
}

/// Returns all folders that the caller may look into, whether or not they exist: all users' if it is root.
#[must_use]
pub fn folders() -> Vec<PathBuf> {
    let mut all = vec![folder()];
    if rustix::process::geteuid().is_root() {
        all.extend(inside("/run/user", "").map(|user| user.join("heddle/net")));
        all.extend(inside("/tmp", "heddle-").map(|user| user.join("net")));
    }
    all
}

/// Returns what is in `folder` under names that begin with `start`.
fn inside(folder: &str, start: &'static str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(move |entry| entry.file_name().to_string_lossy().starts_with(start));
    named.map(|entry| entry.path())
}

/// Makes the folder, removes what killed processes left there, and listens at a free name.
pub(super) fn listen() -> io::Result<(PathBuf, UnixListener)> {
    let folder = folder();
    // Others must reach the sockets of root's other parts.
    let mode = if rustix::process::geteuid().is_root() { 0o755 } else { 0o700 };
    make(&top(), mode)?;
    make(&folder, 0o700)?;
    sweep(&folder);
    let own = std::process::id();
    let mut taken = io::Error::from(io::ErrorKind::AddrInUse);
    for number in 0..MOST {
        let path = folder.join(format!("{own}-{number}.sock"));
        match UnixListener::bind(&path) {
            Ok(listener) => return Ok((path, listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => taken = error,
            Err(error) => return Err(error),
        }
    }
    Err(taken)
}

/// Makes a folder that only this user can write to.
fn make(folder: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let meta = fs::symlink_metadata(folder)?;
    let is_own = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
    match is_own && meta.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{} is not a folder that only this user can write to",
            folder.display()
        ))),
    }
}

/// Removes sockets whose processes are gone.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let pid = name.to_str().and_then(|name| name.split('-').next()?.parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else { continue };
        // One that has just been bound refuses, too, until its process listens.
        if test_kill_process(pid) == Err(Errno::SRCH) && refuses(&path) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Returns whether no process listens at the socket any more. Does not wait.
fn refuses(path: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Ok(socket) = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None) else {
        return false;
    };
    let address = SocketAddrUnix::new(path);
    address.is_ok_and(|address| connect(&socket, &address) == Err(Errno::CONNREFUSED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_processes_that_are_gone_are_removed() {
        let folder = heddle_test_support::temp_dir();
        let at = |name: &str| folder.path().join(name);
        // No process has the largest number.
        let (gone, own) =
            (at(&format!("{}-0.sock", i32::MAX)), format!("{}-0.sock", std::process::id()));
        drop(UnixListener::bind(&gone).unwrap());
        drop(UnixListener::bind(at(&own)).unwrap());
        let listening = UnixListener::bind(at("2147483646-0.sock")).unwrap();
        fs::write(at("note"), "").unwrap();
        sweep(folder.path());
        assert!(!gone.exists() && at(&own).exists() && at("note").exists());
        assert!(at("2147483646-0.sock").exists(), "a process listens: {listening:?}");
    }
}
