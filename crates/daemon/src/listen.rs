//! The socket on which heddled listens: its own, or one passed by systemd.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use heddle_broker::group_number;
use heddle_sys::fork::close_on_exec_from;
use rustix::fs::Mode;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open, umask};

use crate::closing::close_apart;
use crate::options::Options;

/// A listening socket. Removes the socket's file on drop if we created it.
pub struct Listener {
    pub socket: UnixListener,
    _file: Option<File>,
}

struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Stops listening. Connections that were not accepted are closed by another thread.
    pub fn close(self) {
        // If no thread can be started, it is closed here.
        let _ = close_apart(self.socket.into(), ());
    }
}

/// Starts listening.
pub fn listen(options: &Options) -> anyhow::Result<Listener> {
    if let Some(socket) = handed_over()? {
        return Ok(Listener { socket, _file: None });
    }
    let path = &options.socket;
    remove_stale(path)?;
    // No user may connect until the permissions are set.
    let before = umask(Mode::from_raw_mode(0o177));
    let socket = UnixListener::bind(path);
    umask(before);
    let socket = socket.with_context(|| format!("cannot listen at {}", path.display()))?;
    let listener = Listener { socket, _file: Some(File(path.clone())) };
    let failed = || format!("cannot set who may connect to {}", path.display());
    if let Some(group) = &options.group {
        std::os::unix::fs::chown(
            path,
            None,
            Some(group_number(group).map_err(anyhow::Error::msg)?),
        )
        .with_context(failed)?;
    }
    let mode = if options.everyone { 0o666 } else { 0o660 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).with_context(failed)?;
    Ok(listener)
}

/// Returns the first descriptor passed by systemd (sd_listen_fds): number 3, if LISTEN_PID is us.
fn handed_over() -> anyhow::Result<Option<UnixListener>> {
    const FIRST: i32 = 3;
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<i32>().ok());
    let me = getpid();
    if number("LISTEN_PID") != Some(me.as_raw_nonzero().get()) {
        return Ok(None);
    }
    match number("LISTEN_FDS") {
        Some(1) => {
            let socket = take(me, FIRST).context("what systemd handed over is no socket")?;
            // Processes that we start must not inherit it.
            close_on_exec_from(FIRST).context("cannot keep descriptors to ourselves")?;
            Ok(Some(socket))
        }
        other => bail!("systemd handed over {} sockets, one is expected", other.unwrap_or(0)),
    }
}

/// Duplicates one of our descriptors that we know only by number. Asking the kernel for a copy needs no
/// promise that we own the number.
fn take(me: Pid, number: i32) -> io::Result<UnixListener> {
    let process = pidfd_open(me, PidfdFlags::empty())?;
    let fd: OwnedFd = pidfd_getfd(process, number, PidfdGetfdFlags::empty())?;
    rustix::net::getsockname(&fd)?;
    Ok(fd.into())
}

/// Removes a socket's file on which no process listens any more.
fn remove_stale(path: &Path) -> anyhow::Result<()> {
    let Ok(there) = fs::symlink_metadata(path) else { return Ok(()) };
    if !there.file_type().is_socket() {
        bail!("{} is there and is no socket", path.display());
    }
    match UnixStream::connect(path) {
        Ok(_) => bail!("another process listens at {} already", path.display()),
        Err(_) => fs::remove_file(path)
            .with_context(|| format!("cannot remove the old socket {}", path.display())),
    }
}
