//! The socket on which a broker listens, and the lock by which it is alone there.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use crate::start::{Options, StartError};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// A listening socket. Its file is removed on drop; that of the lock stays.
#[derive(Debug)]
pub struct Listener {
    pub socket: OwnedFd,
    path: PathBuf,
    _lock: File,
}

impl Listener {
    /// Listens at `path`, for those whom the options let in.
    pub fn at(path: &Path, options: &Options) -> Result<Listener, StartError> {
        let system = |what: &str| {
            let what = format!("{what} {}", path.display());
            move |source: io::Error| StartError::System { what, source }
        };
        let lock = lock(path)?;
        remove_stale(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|error| system("cannot make a socket for")(error.into()))?;
        let bind_it = || -> io::Result<()> {
            // The file gets this mode: no user can connect before the others are let in.
            rustix::fs::fchmod(&socket, Mode::from_raw_mode(0o600))?;
            Ok(bind(&socket, &SocketAddrUnix::new(path)?)?)
        };
        bind_it().map_err(system("cannot listen at"))?;
        let listener = Listener { socket, path: path.into(), _lock: lock };
        let failed = || system("cannot set who may connect to");
        if let Some(group) = &options.group {
            let number = group_number(group).map_err(StartError::Refused)?;
            chown(path, None, Some(number)).map_err(failed())?;
        }
        let mode = match (options.everyone, &options.group) {
            (true, _) => 0o666,
            (false, Some(_)) => 0o660,
            (false, None) => 0o600,
        };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed())?;
        let result = listen(&listener.socket, BACKLOG);
        result.map_err(|error| system("cannot listen at")(error.into()))?;
        Ok(listener)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes the lock beside the socket: the file of a socket does not tell whether a broker still listens.
fn lock(path: &Path) -> Result<File, StartError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let no_links = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = File::options();
    let file = options.create(true).append(true).mode(0o600).custom_flags(no_links).open(&name);
    let file = file.map_err(|source| StartError::System {
        what: format!("cannot open {}", Path::new(&name).display()),
        source,
    })?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(_) => Err(StartError::Refused(format!(
            "another broker runs at {}; `heddle share status` shows it",
            path.display()
        ))),
    }
}

/// Removes the file of a socket whose broker is gone; the caller has the lock.
fn remove_stale(path: &Path) -> Result<(), StartError> {
    let Ok(meta) = fs::symlink_metadata(path) else { return Ok(()) };
    if !meta.file_type().is_socket() {
        let text = format!("{} is there and is no socket", path.display());
        return Err(StartError::Refused(text));
    }
    let what = || format!("cannot remove the old socket {}", path.display());
    fs::remove_file(path).map_err(|source| StartError::System { what: what(), source })
}

/// Returns the number of a group by its name or number.
///
/// # Errors
/// A sentence, if there is no such group.
pub fn group_number(group: &str) -> Result<u32, String> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let groups = fs::read_to_string("/etc/group")
        .map_err(|error| format!("cannot read /etc/group: {error}"))?;
    let number = |line: &str| {
        let mut fields = line.split(':');
        (fields.next() == Some(group)).then(|| fields.nth(1)?.parse().ok()).flatten()
    };
    groups
        .lines()
        .find_map(number)
        .ok_or_else(|| format!("there is no group `{group}`: groupadd --system {group} makes it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_numbers() {
        assert_eq!(group_number("12"), Ok(12));
        assert_eq!(group_number("root"), Ok(0));
        assert!(
            group_number("no-such-group").unwrap_err().contains("groupadd --system no-such-group")
        );
    }
}
