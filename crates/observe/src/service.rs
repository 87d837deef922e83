//! Which processes and sockets are a service.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;

use heddle_sys::processes;
use procfs::ProcResult;
use procfs::net::TcpState;
use procfs::process::{FDTarget, Process};
use rustix::net::sockopt::{socket_cookie, socket_reuseport};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::runtime;
use crate::switches::readable;
use serde::{Deserialize, Serialize};

use crate::{ObserveError, Protocol, Service, Socket};

/// What to watch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Processes, with all their descendants; none: those that serve `ports`.
    pub processes: Vec<u32>,
    /// Ports; none: all that the processes serve.
    pub ports: Vec<u16>,
}

/// A socket's place in `/proc/net` of one network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    protocol: Protocol,
    port: u16,
}

/// What a target is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) service: Service,
    /// Whether other processes serve the same ports, in this or another network namespace.
    pub(crate) shares_ports: bool,
}

/// Finds the processes and sockets of a target.
///
/// # Errors
/// There is no such process, or it serves nothing; no process serves the port.
pub(crate) fn find(target: &Target) -> Result<Resolved, ObserveError> {
    if target.processes.is_empty() && target.ports.is_empty() {
        return Err(ObserveError::NoTarget);
    }
    if let Some(gone) = target.processes.iter().find(|pid| processes::Process::of(**pid).is_none())
    {
        return Err(ObserveError::NoProcess(*gone));
    }
    let all: Vec<u32> = processes::all().collect();
    let wanted = match target.processes.is_empty() {
        true => all.clone(),
        false => family(&target.processes),
    };
    let mut tables = Tables::default();
    let mut sockets = sockets_of(&wanted, target, &mut tables);
    if target.ports.is_empty() {
        keep_servers(&mut sockets);
    }
    check(target, &sockets)?;
    let members: BTreeSet<u32> = match target.processes.is_empty() {
        true => sockets.values().flat_map(|socket| socket.owners.iter().copied()).collect(),
        false => wanted.into_iter().collect(),
    };
    let shares_ports = tables.others_serve(&all, &sockets);
    let first = target.processes.first().or(members.first()).copied().unwrap_or_default();
    let engines = members.iter().map(|process| runtime::of(*process));
    let (runtime, event_queue) =
        engines.fold((None, None), |(runtime, queue), one| (runtime.or(one.0), queue.or(one.1)));
    let service = Service {
        name: name_of(first),
        event_queue,
        runtime,
        processes: members.into_iter().collect(),
        sockets: sockets.into_values().collect(),
        ..Service::default()
    };
    Ok(Resolved { service, shares_ports })
}

/// Returns the processes that live, and their descendants.
pub(crate) fn family(roots: &[u32]) -> Vec<u32> {
    processes::families(roots.iter().copied()).into_iter().map(|(_, one)| one.pid).collect()
}

/// Returns the name of a process or thread; empty if it is gone.
pub(crate) fn name_of(thread: u32) -> String {
    let name = fs::read(format!("/proc/{thread}/comm")).unwrap_or_default();
    readable(name.strip_suffix(b"\n").unwrap_or(&name))
}

/// Returns whether process ids are here what they are in the kernel: this is the initial namespace of processes.
pub(crate) fn ids_are_the_kernels() -> bool {
    /// The kernel's `PROC_PID_INIT_INO`.
    const INITIAL: u64 = 0xEFFF_FFFC;
    fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == INITIAL)
}

fn check(target: &Target, sockets: &BTreeMap<u64, Socket>) -> Result<(), ObserveError> {
    let served = |port: &u16| sockets.values().any(|socket| socket.port == *port);
    if let Some(port) = target.ports.iter().find(|port| !served(port)) {
        return Err(ObserveError::NotServed(*port));
    }
    if sockets.is_empty() {
        let named: Vec<String> = target.processes.iter().map(u32::to_string).collect();
        return Err(ObserveError::NoSockets(format!("process {}", named.join(", "))));
    }
    Ok(())
}

/// A datagram socket with a port that the kernel chose is a client's, unless the service has nothing else.
fn keep_servers(sockets: &mut BTreeMap<u64, Socket>) {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let ends: Vec<u16> = range.split_whitespace().filter_map(|end| end.parse().ok()).collect();
    let [low, high] = ends[..] else { return };
    let serves = |one: &Socket| one.protocol == Protocol::Tcp || !(low..=high).contains(&one.port);
    if sockets.values().any(serves) {
        sockets.retain(|_, one| serves(one));
    }
}

/// The sockets of network namespaces by inode, each namespace read once.
#[derive(Default)]
struct Tables(BTreeMap<u64, BTreeMap<u64, Bound>>);

impl Tables {
    fn of(&mut self, process: u32) -> Option<&BTreeMap<u64, Bound>> {
        let namespace = fs::metadata(format!("/proc/{process}/ns/net")).ok()?.ino();
        match self.0.entry(namespace) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(new) => {
                let bound = bound(&Process::new(process.cast_signed()).ok()?).ok()?;
                Some(new.insert(bound))
            }
        }
    }

    /// Returns whether sockets beside these have one of their ports.
    fn others_serve(&mut self, processes: &[u32], sockets: &BTreeMap<u64, Socket>) -> bool {
        for process in processes {
            self.of(*process);
        }
        let shared = |bound: &Bound| {
            sockets.values().any(|one| one.port == bound.port && one.protocol == bound.protocol)
        };
        let mut all = self.0.values().flatten();
        all.any(|(inode, bound)| !sockets.contains_key(inode) && shared(bound))
    }
}

/// Returns the listening and the unconnected datagram sockets of a process's network namespace.
fn bound(process: &Process) -> ProcResult<BTreeMap<u64, Bound>> {
    let mut bound = BTreeMap::new();
    let tcp = process.tcp()?.into_iter().chain(process.tcp6().unwrap_or_default());
    for entry in tcp.filter(|entry| entry.state == TcpState::Listen) {
        let port = entry.local_address.port();
        bound.insert(entry.inode, Bound { protocol: Protocol::Tcp, port });
    }
    let udp = process.udp()?.into_iter().chain(process.udp6().unwrap_or_default());
    for entry in udp.filter(|entry| entry.remote_address.port() == 0) {
        let port = entry.local_address.port();
        bound.insert(entry.inode, Bound { protocol: Protocol::Udp, port });
    }
    bound.retain(|_, one| one.port != 0);
    Ok(bound)
}

/// Returns the sockets of the processes by inode, with all owners among them.
fn sockets_of(wanted: &[u32], target: &Target, tables: &mut Tables) -> BTreeMap<u64, Socket> {
    let mut sockets: BTreeMap<u64, Socket> = BTreeMap::new();
    for &pid in wanted {
        // It may have ended by now, or belong to another user.
        let Ok(process) = Process::new(pid.cast_signed()) else { continue };
        let Ok(descriptors) = process.fd() else { continue };
        let Some(bound) = tables.of(pid) else { continue };
        for descriptor in descriptors.flatten() {
            let FDTarget::Socket(inode) = descriptor.target else { continue };
            let Some(one) = bound.get(&inode) else { continue };
            if !target.ports.is_empty() && !target.ports.contains(&one.port) {
                continue;
            }
            let socket = sockets.entry(inode).or_insert_with(|| Socket {
                inode,
                protocol: one.protocol,
                port: one.port,
                ..details(pid, descriptor.fd)
            });
            if socket.owners.last() != Some(&pid) {
                socket.owners.push(pid);
            }
        }
    }
    sockets
}

/// Returns the cookie of a process's socket and whether it shares its port; unknown without the right to trace it.
fn details(pid: u32, fd: i32) -> Socket {
    let Some(copy) = copy_of(pid, fd) else { return Socket::default() };
    Socket {
        cookie: socket_cookie(&copy).unwrap_or_default(),
        shares_port: socket_reuseport(&copy).unwrap_or_default(),
        ..Socket::default()
    }
}

/// Copies a descriptor. It is closed at once: while it is open, the socket outlives its process.
fn copy_of(pid: u32, fd: i32) -> Option<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(pid.cast_signed())?, PidfdFlags::empty()).ok()?;
    pidfd_getfd(process, fd, PidfdGetfdFlags::empty()).ok()
}

/// Returns the number of datagrams that these sockets have dropped.
pub(crate) fn dropped_datagrams(service: &Service) -> u64 {
    let Some(owner) = service.processes.iter().find(|pid| processes::Process::of(**pid).is_some())
    else {
        return 0;
    };
    let inodes: BTreeSet<u64> = service.sockets.iter().map(|socket| socket.inode).collect();
    let text = |file| fs::read_to_string(format!("/proc/{owner}/net/{file}")).unwrap_or_default();
    let (four, six) = (text("udp"), text("udp6"));
    let dropped = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let inode: u64 = fields.get(9)?.parse().ok()?;
        inodes.contains(&inode).then_some(())?;
        fields.last()?.parse::<u64>().ok()
    };
    four.lines().chain(six.lines()).filter_map(dropped).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    fn own() -> Target {
        Target { processes: vec![std::process::id()], ports: Vec::new() }
    }

    #[test]
    fn sockets_are_found_by_process_and_port_in_both_families() {
        let four = TcpListener::bind("127.0.0.1:0").unwrap();
        let six = TcpListener::bind("[::1]:0");
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let connected = UdpSocket::bind("127.0.0.1:0").unwrap();
        connected.connect(datagrams.local_addr().unwrap()).unwrap();
        let ports: Vec<u16> = six
            .iter()
            .map(|six| six.local_addr().unwrap().port())
            .chain([four.local_addr().unwrap().port(), datagrams.local_addr().unwrap().port()])
            .collect();
        let found = find(&Target { ports: ports.clone(), ..own() }).unwrap().service;
        let mut served: Vec<u16> = found.sockets.iter().map(|socket| socket.port).collect();
        let mut wanted = ports;
        served.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(served, wanted);
        for socket in &found.sockets {
            assert_eq!(socket.owners, [std::process::id()]);
            assert!(!socket.shares_port);
        }
        let cookie = rustix::net::sockopt::socket_cookie(&four).unwrap();
        assert!(found.sockets.iter().any(|socket| socket.cookie == cookie), "{found:?}");
        let unserved = connected.local_addr().unwrap().port();
        let error = find(&Target { ports: vec![unserved], ..own() }).unwrap_err();
        assert!(matches!(error, ObserveError::NotServed(port) if port == unserved), "{error}");
    }

    #[test]
    fn errors_name_what_is_missing() {
        let none = Target { processes: vec![u32::MAX >> 2], ports: Vec::new() };
        assert!(matches!(find(&none), Err(ObserveError::NoProcess(_))));
        assert!(matches!(find(&Target::default()), Err(ObserveError::NoTarget)));
        let mut idle = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let error = find(&Target { processes: vec![idle.id()], ports: Vec::new() }).unwrap_err();
        idle.kill().unwrap();
        idle.wait().unwrap();
        let text = error.to_string();
        assert!(text.contains(&idle.id().to_string()) && text.contains("no listening"), "{text}");
    }
}
