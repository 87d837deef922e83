//! Which sockets `heddle attach` is about, and why there are none.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};

use heddle_steer::process::{Protocol, Serving, command, serving};
use heddle_steer::request::{Error, ErrorKind};
use rustix::net::sockopt::socket_reuseport;

use super::refused;
use crate::exit::Usage;

/// The most executors: `HD_MAX_EXECUTORS`.
const MOST: usize = 64;

/// Whose sockets, and which.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub pid: Option<u32>,
    pub port: u16,
    pub protocol: Option<Protocol>,
    pub address: Option<IpAddr>,
}

/// Sockets among which the kernel chooses: one address in one network namespace.
pub struct Group {
    pub protocol: Protocol,
    pub address: SocketAddr,
    pub sockets: Vec<Serving>,
}

impl Group {
    /// `tcp 0.0.0.0:8000`
    pub fn name(&self) -> String {
        format!("{} {}", self.protocol.name(), self.address)
    }

    /// Copies of its sockets, in their order. They are to be closed soon: see [`Serving::copy`].
    pub fn copies(&self) -> Result<Vec<OwnedFd>, Error> {
        self.sockets.iter().map(Serving::copy).collect()
    }
}

/// The groups on the port, whether a policy can choose in them or not.
pub fn groups(wanted: &Wanted) -> Result<Vec<Group>, Error> {
    let mut groups: BTreeMap<(u64, Protocol, SocketAddr), Vec<Serving>> = BTreeMap::new();
    for socket in serving(wanted.pid, Some(wanted.port))? {
        let fits = wanted.protocol.is_none_or(|protocol| protocol == socket.protocol)
            && wanted.address.is_none_or(|address| address == socket.address.ip());
        if fits {
            let key = (socket.namespace, socket.protocol, socket.address);
            groups.entry(key).or_default().push(socket);
        }
    }
    let group = |((_, protocol, address), sockets)| Group { protocol, address, sockets };
    Ok(groups.into_iter().map(group).collect())
}

/// The groups to attach to: all that a policy can choose in, of one protocol and one server.
pub fn eligible(wanted: &Wanted) -> anyhow::Result<Vec<Group>> {
    let all = groups(wanted).map_err(refused)?;
    if all.is_empty() {
        return Err(nothing(wanted));
    }
    let (fit, unfit): (Vec<_>, Vec<_>) =
        all.into_iter().map(|group| (obstacle(&group), group)).partition(|(why, _)| why.is_none());
    // What is wrong with one group is no reason to leave the server's others alone.
    if let (true, Some((Some(why), _))) = (fit.is_empty(), unfit.into_iter().next()) {
        return Err(why);
    }
    let fit: Vec<Group> = fit.into_iter().map(|(_, group)| group).collect();
    one_server(wanted, &fit)?;
    Ok(fit)
}

/// The groups on the port, of one protocol and one server, whether a policy could choose among their sockets or not.
pub fn any(wanted: &Wanted) -> anyhow::Result<Vec<Group>> {
    let all = groups(wanted).map_err(refused)?;
    if all.is_empty() {
        return Err(nothing(wanted));
    }
    one_server(wanted, &all)?;
    Ok(all)
}

/// Refuses to guess.
fn one_server(wanted: &Wanted, groups: &[Group]) -> Result<(), Usage> {
    let names = || groups.iter().map(Group::name).collect::<Vec<_>>().join(", ");
    let protocols: BTreeSet<Protocol> = groups.iter().map(|group| group.protocol).collect();
    if protocols.len() > 1 {
        let port = wanted.port;
        return Err(Usage(format!(
            "port {port} is served for both protocols ({}): choose with --protocol tcp or --protocol udp",
            names()
        )));
    }
    let namespaces: BTreeSet<u64> = groups.iter().map(|group| group.sockets[0].namespace).collect();
    if namespaces.len() > 1 {
        let pids: Vec<String> =
            groups.iter().map(|group| group.sockets[0].pid.to_string()).collect();
        return Err(Usage(format!(
            "port {} is served in several network namespaces (containers), by processes {}: choose a server with --pid",
            wanted.port,
            pids.join(", ")
        )));
    }
    Ok(())
}

/// Why a policy cannot choose in a group.
fn obstacle(group: &Group) -> Option<anyhow::Error> {
    let first = &group.sockets[0];
    let (pid, n, name) = (first.pid, group.sockets.len(), group.name());
    let unsupported = |text: String| Some(refused(Error::new(ErrorKind::Unsupported, text)));
    let reuseport = match first.copy() {
        Ok(copy) => socket_reuseport(copy.as_fd()).unwrap_or(false),
        Err(error) => return Some(refused(error)),
    };
    if n > MOST {
        return unsupported(format!(
            "{name} has {n} sockets, and a policy chooses among {MOST} at most: start fewer workers"
        ));
    }
    if reuseport && n > 1 {
        return None;
    }
    if first.holders.len() > 1 {
        let holders = first.holders.len();
        return unsupported(format!(
            "{holders} processes share one socket at {name} (as after fork), so there is nothing to choose among. A policy needs a socket for each worker: start the server with its option for SO_REUSEPORT (gunicorn --reuse-port, nginx `listen ... reuseport`, uwsgi --reuse-port)"
        ));
    }
    if !reuseport {
        return unsupported(format!(
            "process {pid} serves {name} with a socket without SO_REUSEPORT, so there is nothing to choose among. A policy needs a socket for each worker: start the server with its option for SO_REUSEPORT (gunicorn --reuse-port, nginx `listen ... reuseport`, uwsgi --reuse-port)"
        ));
    }
    unsupported(format!(
        "process {pid} serves {name} with one socket, so there is nothing to choose among: start more workers, or give the number of the process that all workers descend from"
    ))
}

/// Says who does serve the port, and what the process does serve.
fn nothing(wanted: &Wanted) -> anyhow::Error {
    let Wanted { pid, port, .. } = wanted;
    let mut text = match pid {
        Some(pid) => format!("process {pid} ({}) does not serve {}", name_of(*pid), what(wanted)),
        None => format!("nobody serves {}", what(wanted)),
    };
    let own = serving(*pid, pid.is_none().then_some(*port)).unwrap_or_default();
    if !own.is_empty() {
        text += &format!("; it serves {}", addresses(&own));
    } else if pid.is_some() {
        text +=
            "; it serves no port at all (is it the server's first process, and has it started?)";
    }
    let others =
        if pid.is_some() { serving(None, Some(*port)).unwrap_or_default() } else { Vec::new() };
    if let Some(other) = others.first() {
        text +=
            &format!("; port {port} is served by process {} ({})", other.pid, name_of(other.pid));
    }
    if pid.is_none() && own.is_empty() && !rustix::process::geteuid().is_root() {
        text += " (processes of other users cannot be looked into: as root, all can)";
    }
    refused(Error::new(ErrorKind::NotFound, text))
}

fn what(wanted: &Wanted) -> String {
    let protocol =
        wanted.protocol.map_or(String::new(), |protocol| format!("{} ", protocol.name()));
    let address = wanted.address.map_or(String::new(), |address| format!(" at {address}"));
    format!("{protocol}port {}{address}", wanted.port)
}

fn addresses(sockets: &[Serving]) -> String {
    let all: BTreeSet<String> = sockets
        .iter()
        .map(|socket| format!("{} {}", socket.protocol.name(), socket.address))
        .collect();
    all.into_iter().collect::<Vec<_>>().join(", ")
}

fn name_of(pid: u32) -> String {
    let command = command(pid);
    let name = command.split(' ').take(3).collect::<Vec<_>>().join(" ");
    if name.is_empty() { "no command".into() } else { name }
}
