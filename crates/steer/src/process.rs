//! The sockets of running processes: which ones serve a port, and copies of them.
//!
//! Copying another process's socket (pidfd_getfd) is allowed to any process that may trace it, as the kernel
//! judges by the caller. So the requesting process always does it itself; the daemon never does it on its
//! behalf.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;

use procfs::ProcResult;
use procfs::net::{TcpState, UdpNetEntry};
use procfs::process::{FDTarget, Process, all_processes};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::request::{Error, ErrorKind};

/// A socket's transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

impl Protocol {
    /// Both protocols.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    /// Returns the protocol called `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == name)
    }

    /// `tcp` or `udp`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// A socket with which processes receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// The process; if several hold the socket, the youngest, which is the reader if a parent passed it on.
    pub pid: u32,
    /// The descriptor in it.
    pub fd: i32,
    /// Its protocol.
    pub protocol: Protocol,
    /// The bound address.
    pub address: SocketAddr,
    /// The socket's inode number: the same for copies of one socket.
    pub inode: u64,
    /// The inode of the network namespace: addresses are meaningful only within one.
    pub namespace: u64,
    /// All processes that hold the socket, among those examined.
    pub holders: BTreeSet<u32>,
}

impl Serving {
    /// Returns its label as an executor.
    #[must_use]
    pub fn label(&self) -> String {
        format!("pid {} fd {}", self.pid, self.fd)
    }

    /// Returns a descriptor of the same socket in this process. While it is open the socket stays open, and
    /// once the process is gone the kernel gives it inputs that are never read: close it soon.
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
                        "{about}: it takes the right to trace the process (its user, and \
                         kernel.yama.ptrace_scope 0; or root)"
                    ),
                ),
                rustix::io::Errno::NOSYS => Error::new(
                    ErrorKind::Unsupported,
                    format!("{about}: this kernel has no pidfd_getfd (Linux 5.6)"),
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

/// Returns the sockets with which process `pid` and its descendants serve `port`, or any port; with no `pid`,
/// of every process that may be examined. Each socket once, in the order of processes and descriptors.
///
/// # Errors
/// If there is no such process, or it may not be examined.
pub fn serving(pid: Option<u32>, port: Option<u16>) -> Result<Vec<Serving>, Error> {
    let processes = match pid {
        Some(pid) => family(pid)?,
        None => all_processes().map_err(|error| unreadable("/proc", &error))?.flatten().collect(),
    };
    let mut tables = Tables::new(port);
    let mut found: BTreeMap<u64, Serving> = BTreeMap::new();
    for process in processes {
        match sockets(&process, &mut tables) {
            Ok(sockets) => sockets.into_iter().for_each(|socket| join(&mut found, socket)),
            // Among all processes, those that cannot be examined belong to other users.
            Err(_) if pid.is_none() => {}
            // A descendant may have exited by now.
            Err(_) if Some(process.pid.cast_unsigned()) != pid => {}
            Err(error) => return Err(unreadable(&format!("process {}", process.pid), &error)),
        }
    }
    let mut found: Vec<Serving> = found.into_values().collect();
    found.sort_by_key(|socket| (socket.pid, socket.fd));
    Ok(found)
}

/// A socket that several processes hold is listed once.
fn join(found: &mut BTreeMap<u64, Serving>, mut socket: Serving) {
    match found.entry(socket.inode) {
        Entry::Vacant(vacant) => drop(vacant.insert(socket)),
        Entry::Occupied(mut there) => {
            socket.holders.append(&mut there.get_mut().holders);
            if (there.get().pid, -there.get().fd) > (socket.pid, -socket.fd) {
                (socket.pid, socket.fd) = (there.get().pid, there.get().fd);
            }
            there.insert(socket);
        }
    }
}

fn unreadable(what: &str, error: &procfs::ProcError) -> Error {
    let kind = match error {
        procfs::ProcError::PermissionDenied(_) => ErrorKind::Denied,
        procfs::ProcError::NotFound(_) => ErrorKind::NotFound,
        _ => ErrorKind::System,
    };
    let text = match kind {
        ErrorKind::Denied => format!("may not look into {what}: run as its user, or as root"),
        _ => format!("cannot look into {what}: {error}"),
    };
    Error::new(kind, text)
}

/// Returns the process and all its descendants.
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

/// The receiving sockets of one network namespace, by inode.
type Bound = BTreeMap<u64, (Protocol, SocketAddr)>;

/// The sockets of the namespaces seen, each read once: processes are many, namespaces few.
struct Tables {
    port: Option<u16>,
    by_namespace: BTreeMap<u64, Bound>,
}

impl Tables {
    fn new(port: Option<u16>) -> Self {
        Self { port, by_namespace: BTreeMap::new() }
    }

    fn of(&mut self, process: &Process, namespace: u64) -> ProcResult<&Bound> {
        match self.by_namespace.entry(namespace) {
            Entry::Occupied(there) => Ok(there.into_mut()),
            Entry::Vacant(vacant) => {
                let mut bound = bound(process)?;
                bound.retain(|_, (_, address)| {
                    address.port() != 0 && self.port.is_none_or(|port| address.port() == port)
                });
                Ok(vacant.insert(bound))
            }
        }
    }
}

fn bound(process: &Process) -> ProcResult<Bound> {
    let mut bound = Bound::new();
    let tcp = process.tcp()?.into_iter().chain(process.tcp6().unwrap_or_default());
    for entry in tcp.filter(|entry| entry.state == TcpState::Listen) {
        bound.insert(entry.inode, (Protocol::Tcp, entry.local_address));
    }
    let udp = process.udp()?.into_iter().chain(process.udp6().unwrap_or_default());
    // A connected datagram socket gets its peer's datagrams and takes no part in the choice.
    let open = |entry: &UdpNetEntry| entry.remote_address.port() == 0;
    for entry in udp.filter(open) {
        bound.insert(entry.inode, (Protocol::Udp, entry.local_address));
    }
    Ok(bound)
}

fn sockets(process: &Process, tables: &mut Tables) -> ProcResult<Vec<Serving>> {
    let pid = process.pid.cast_unsigned();
    // Reading it requires the same permission as reading the descriptors.
    let namespace =
        fs::metadata(format!("/proc/{pid}/ns/net")).map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => procfs::ProcError::PermissionDenied(None),
            _ => procfs::ProcError::NotFound(None),
        })?;
    let namespace = namespace.ino();
    let bound = tables.of(process, namespace)?;
    let mut found = Vec::new();
    if bound.is_empty() {
        return Ok(found);
    }
    for info in process.fd()?.flatten() {
        let FDTarget::Socket(inode) = info.target else { continue };
        if let Some((protocol, address)) = bound.get(&inode) {
            let (protocol, address, fd) = (*protocol, *address, info.fd);
            let holders = BTreeSet::from([pid]);
            found.push(Serving { pid, fd, protocol, address, inode, namespace, holders });
        }
    }
    Ok(found)
}

/// Returns the command line of a process; its name if it is a kernel thread or hides the command line.
#[must_use]
pub fn command(pid: u32) -> String {
    let process = Process::new(pid.cast_signed());
    let command = process.and_then(|process| process.cmdline()).unwrap_or_default();
    command.join(" ")
}

/// Returns the parent of a process.
#[must_use]
pub fn parent(pid: u32) -> Option<u32> {
    let stat = Process::new(pid.cast_signed()).and_then(|process| process.stat()).ok()?;
    Some(stat.ppid.cast_unsigned())
}

/// Returns whether two processes run the same program.
#[must_use]
pub fn same_program(a: u32, b: u32) -> bool {
    let program = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    program(a).is_some_and(|a| Some(a) == program(b))
}

/// Returns the process to name a server by: the first that has one of its `sockets`, or the parent of all
/// that have, if it runs the same program (a parent that leaves all sockets to its workers, as gunicorn's).
#[must_use]
pub fn server(sockets: &[Serving]) -> Option<u32> {
    let holders: BTreeSet<u32> =
        sockets.iter().flat_map(|socket| socket.holders.iter().copied()).collect();
    let parents: BTreeSet<Option<u32>> =
        holders.iter().map(|pid| parent(*pid).filter(|p| !holders.contains(p))).collect();
    let mut parents = parents.into_iter();
    let first = holders.first().copied()?;
    match (parents.next(), parents.next()) {
        (Some(Some(parent)), None) if same_program(parent, first) => Some(parent),
        _ => Some(first),
    }
}
