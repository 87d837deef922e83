//! The sockets of running processes: which ones serve a port, and copies of them.
//!
//! Copying another process's socket (pidfd_getfd) is allowed to whoever may trace the process, and the kernel judges
//! that by the caller. So it is always done by the one who asks, and never by the daemon in his name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use procfs::net::TcpState;
use procfs::process::{FDTarget, Process, all_processes};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::request::{Error, ErrorKind};

/// What a socket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

impl Protocol {
    /// `tcp` or `udp`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// A socket of a process that serves a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// The process.
    pub pid: u32,
    /// The descriptor in it.
    pub fd: i32,
    /// What the socket carries.
    pub protocol: Protocol,
    /// Where it is bound.
    pub address: SocketAddr,
    /// The socket's inode number: the same for copies of one socket.
    pub inode: u64,
}

impl Serving {
    /// What to call it as an executor.
    #[must_use]
    pub fn label(&self) -> String {
        format!("pid {} fd {}", self.pid, self.fd)
    }

    /// A descriptor of the same socket in this process.
    ///
    /// # Errors
    /// If the caller may not trace the process, or it or its socket is gone.
    pub fn copy(&self) -> Result<OwnedFd, Error> {
        let failed = |error: rustix::io::Errno| {
            let about = format!("cannot copy socket {} of process {}", self.fd, self.pid);
            match error {
                rustix::io::Errno::PERM => Error::new(
                    ErrorKind::Denied,
                    format!(
                        "{about}: it takes the right to trace the process (its user, and kernel.yama.ptrace_scope 0; or root)"
                    ),
                ),
                _ => Error::system(about, &error.into()),
            }
        };
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("no process has number {}", self.pid))
        })?;
        let process = pidfd_open(pid, PidfdFlags::empty()).map_err(failed)?;
        pidfd_getfd(process, self.fd, PidfdGetfdFlags::empty()).map_err(failed)
    }
}

/// The sockets with which process `pid` and its descendants serve `port`; of every process that may be looked into if
/// `pid` is none. One of each socket, in the order of processes and descriptors.
///
/// # Errors
/// If there is no such process, or it may not be looked into.
pub fn serving(pid: Option<u32>, port: u16) -> Result<Vec<Serving>, Error> {
    let processes = match pid {
        Some(pid) => family(pid)?,
        None => all_processes().map_err(|error| unreadable("/proc", &error))?.flatten().collect(),
    };
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for process in processes {
        match sockets(&process, port) {
            Ok(sockets) => {
                found.extend(sockets.into_iter().filter(|socket| seen.insert(socket.inode)))
            }
            // Of all processes, those that cannot be looked into are somebody else's.
            Err(_) if pid.is_none() => {}
            // A descendant may be gone by now.
            Err(_) if Some(process.pid.cast_unsigned()) != pid => {}
            Err(error) => return Err(unreadable(&format!("process {}", process.pid), &error)),
        }
    }
    found.sort_by_key(|socket| (socket.pid, socket.fd));
    Ok(found)
}

fn unreadable(what: &str, error: &procfs::ProcError) -> Error {
    let kind = match error {
        procfs::ProcError::PermissionDenied(_) => ErrorKind::Denied,
        procfs::ProcError::NotFound(_) => ErrorKind::NotFound,
        _ => ErrorKind::System,
    };
    let hint = if kind == ErrorKind::Denied { " (run as its user, or as root)" } else { "" };
    Error::new(kind, format!("cannot look into {what}: {error}{hint}"))
}

/// The process and all its descendants.
fn family(pid: u32) -> Result<Vec<Process>, Error> {
    let gone = |error: &procfs::ProcError| match error {
        procfs::ProcError::NotFound(_) => {
            Error::new(ErrorKind::NotFound, format!("there is no process {pid}"))
        }
        _ => unreadable(&format!("process {pid}"), error),
    };
    let first = Process::new(pid.cast_signed()).map_err(|error| gone(&error))?;
    let all = all_processes().map_err(|error| unreadable("/proc", &error))?;
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for process in all.flatten() {
        if let Ok(stat) = process.stat() {
            children.entry(stat.ppid).or_default().push(process);
        }
    }
    let mut family = vec![first];
    let mut next = 0;
    while let Some(pid) = family.get(next).map(|process| process.pid) {
        family.extend(children.remove(&pid).unwrap_or_default());
        next += 1;
    }
    Ok(family)
}

fn sockets(process: &Process, port: u16) -> procfs::ProcResult<Vec<Serving>> {
    let mut bound: BTreeMap<u64, (Protocol, SocketAddr)> = BTreeMap::new();
    let tcp = process.tcp()?.into_iter().chain(process.tcp6().unwrap_or_default());
    for entry in tcp.filter(|entry| entry.state == TcpState::Listen) {
        bound.insert(entry.inode, (Protocol::Tcp, entry.local_address));
    }
    for entry in process.udp()?.into_iter().chain(process.udp6().unwrap_or_default()) {
        bound.insert(entry.inode, (Protocol::Udp, entry.local_address));
    }
    bound.retain(|_, (_, address)| address.port() == port);
    let mut found = Vec::new();
    for info in process.fd()?.flatten() {
        let FDTarget::Socket(inode) = info.target else { continue };
        if let Some((protocol, address)) = bound.get(&inode) {
            let (pid, fd) = (process.pid.cast_unsigned(), info.fd);
            found.push(Serving { pid, fd, protocol: *protocol, address: *address, inode });
        }
    }
    Ok(found)
}

/// The command of a process, as it was started.
#[must_use]
pub fn command(pid: u32) -> String {
    let process = Process::new(pid.cast_signed());
    let command = process.and_then(|process| process.cmdline()).unwrap_or_default();
    command.join(" ")
}
