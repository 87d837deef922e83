//! Finding the sockets for `heddle steer attach`, or the reason why there are none.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use heddle_steer::process::{Protocol, Serving, command, serving};
use heddle_steer::request::{Error, ErrorKind};
use rustix::net::sockopt::socket_reuseport;

use super::advice::{self, SocketSharing};
use super::refused;
use super::selector::{Endpoint, Selector};
use crate::exit::Usage;

/// The maximum number of executors: `HD_MAX_EXECUTORS`.
const MAX_EXECUTORS: usize = heddle_core::line::MOST;

/// Sockets among which the kernel chooses: one address in one network namespace.
#[derive(Clone, Debug)]
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

    /// Its protocol and address.
    pub fn endpoint(&self) -> Endpoint {
        (self.protocol, self.address)
    }

    /// Its network namespace, by inode.
    pub fn namespace(&self) -> u64 {
        self.sockets[0].namespace
    }

    /// Copies its sockets, in order. Close the copies soon: see [`Serving::copy`].
    pub fn copies(&self) -> Result<Vec<OwnedFd>, Error> {
        self.sockets.iter().map(Serving::copy).collect()
    }
}

/// Returns the selected groups, whether or not a policy can choose in them.
pub fn groups(selector: &Selector) -> Result<Vec<Group>, Error> {
    let mut groups: BTreeMap<(u64, Protocol, SocketAddr), Vec<Serving>> = BTreeMap::new();
    for socket in serving(selector.pid, None)? {
        let is_here = selector.namespace.is_none_or(|namespace| namespace == socket.namespace);
        if is_here
            && selector.includes(&socket)
            && selector.matches((socket.protocol, socket.address))
        {
            let key = (socket.namespace, socket.protocol, socket.address);
            groups.entry(key).or_default().push(socket);
        }
    }
    let group = |((_, protocol, address), sockets)| Group { protocol, address, sockets };
    Ok(groups.into_iter().map(group).collect())
}

/// The groups to attach to, and notes on the others.
pub struct Eligible {
    pub groups: Vec<Group>,
    /// Notes on selected groups that are left alone or not served.
    pub notes: Vec<String>,
}

/// Returns the groups to attach to: all groups of one server in which a policy can choose. There is at least
/// one for each named port, protocol and address.
pub fn eligible(selector: &Selector) -> anyhow::Result<Eligible> {
    let all = server_groups(selector)?;
    let mut notes = not_served(selector, &all);
    let (mut groups, mut unfit) = (Vec::new(), Vec::new());
    for group in all {
        match obstacle(&group) {
            None => groups.push(group),
            Some(why) => unfit.push((group, why)),
        }
    }
    // An unfit group does not prevent attaching to the server's others, unless it is the only match for
    // something named.
    let missing = selector.missing(&endpoints(&groups));
    let needed = |(group, _): &(Group, _)| match missing {
        Some(criterion) => criterion.matches(group.endpoint()),
        None => groups.is_empty(),
    };
    if let Some(at) = unfit.iter().position(needed) {
        return Err(refused(unfit.swap_remove(at).1));
    }
    notes.extend(unfit.iter().map(|(group, why)| format!("{} is left alone: {why}", group.name())));
    Ok(Eligible { groups, notes })
}

/// Returns the selected groups of one server, whether or not a policy can choose among their sockets. There is
/// at least one for each named port, protocol and address.
pub fn server_groups(selector: &Selector) -> anyhow::Result<Vec<Group>> {
    let all = groups(selector).map_err(refused)?;
    if let Some(criterion) = selector.missing(&endpoints(&all)) {
        return Err(not_found(&selector.only(criterion)));
    }
    one_server(selector, &all)?;
    Ok(all)
}

fn endpoints(groups: &[Group]) -> Vec<Endpoint> {
    groups.iter().map(Group::endpoint).collect()
}

/// Notes on named combinations that no process serves.
pub fn not_served(selector: &Selector, groups: &[Group]) -> Vec<String> {
    let served = |one: &Selector| groups.iter().any(|group| one.matches(group.endpoint()));
    let missing = selector.combinations().into_iter().filter(|one| !served(one));
    missing.map(|one| format!("no process serves {one}")).collect()
}

/// Refuses to guess which server is meant.
fn one_server(selector: &Selector, groups: &[Group]) -> Result<(), Usage> {
    let names = || groups.iter().map(Group::name).collect::<Vec<_>>().join(", ");
    let protocols: BTreeSet<Protocol> = groups.iter().map(|group| group.protocol).collect();
    if protocols.len() > 1 && selector.protocols.is_empty() {
        return Err(Usage(format!(
            "{selector} is served for both protocols ({}): choose --protocol tcp, --protocol udp, or both: \
                --protocol udp,tcp",
            names()
        )));
    }
    let namespaces: BTreeSet<u64> = groups.iter().map(Group::namespace).collect();
    if namespaces.len() > 1 {
        let pids: Vec<String> =
            groups.iter().map(|group| group.sockets[0].pid.to_string()).collect();
        return Err(Usage(format!(
            "{selector} is served in several network namespaces (containers), by processes {}: choose a server \
                with --pid",
            pids.join(", ")
        )));
    }
    Ok(())
}

/// Returns why a policy cannot choose in a group, if so.
fn obstacle(group: &Group) -> Option<Error> {
    let (first, n) = (&group.sockets[0], group.sockets.len());
    let shares = match first.copy() {
        Ok(copy) => socket_reuseport(copy.as_fd()).unwrap_or(false),
        Err(error) => return Some(error),
    };
    if n > MAX_EXECUTORS {
        let text = format!(
            "{} has {n} sockets, and a policy chooses among at most {MAX_EXECUTORS}: start fewer workers",
            group.name()
        );
        return Some(Error::new(ErrorKind::Unsupported, text));
    }
    if shares && n > 1 {
        return None;
    }
    let socket = match (shares, first.holders.len()) {
        (marked, 2..) => SocketSharing::Shared { marked },
        (false, _) => SocketSharing::Exclusive,
        (true, _) => SocketSharing::Single,
    };
    let pid = first.pid;
    let what = match socket {
        SocketSharing::Shared { .. } => format!(
            "{} processes share one socket at {} (as after fork)",
            first.holders.len(),
            group.name()
        ),
        SocketSharing::Exclusive => {
            format!("process {pid} serves {} with a socket without SO_REUSEPORT", group.name())
        }
        SocketSharing::Single => format!("process {pid} serves {} with one socket", group.name()),
    };
    // The oldest holder is the ancestor of the others.
    let advice = advice::for_server(first.holders.first().copied().unwrap_or(pid), socket);
    let text = format!("{what}, so there is nothing to choose among. {advice}");
    Some(Error::new(ErrorKind::Unsupported, text))
}

/// The error that nothing matches: it names the process that serves the port, and what the selected process serves.
fn not_found(selector: &Selector) -> anyhow::Error {
    let mut text = match selector.pid {
        Some(pid) => format!("process {pid} ({}) does not serve {selector}", name_of(pid)),
        None if selector.processes.is_some() => {
            format!("no process of the service serves {selector}")
        }
        None => format!("no process serves {selector}"),
    };
    let on_the_port = |pid| {
        let mut sockets = serving(pid, None).unwrap_or_default();
        sockets.retain(|socket| selector.matches_port((socket.protocol, socket.address)));
        sockets
    };
    let own = match selector.pid {
        Some(_) => serving(selector.pid, None).unwrap_or_default(),
        None => {
            let mut sockets = match &selector.processes {
                Some(_) => serving(None, None).unwrap_or_default(),
                None => on_the_port(None),
            };
            sockets.retain(|socket| selector.includes(socket));
            sockets
        }
    };
    if !own.is_empty() {
        text += &format!("; it serves {}", addresses(&own));
    } else if selector.pid.is_some() {
        text += "; it serves no port (is it the server's first process, and has it started?)";
    }
    let is_one_server = selector.pid.is_some() || selector.processes.is_some();
    let others = if is_one_server { on_the_port(None) } else { Vec::new() };
    if let Some(other) = others.first() {
        let (port, name) = (other.address.port(), name_of(other.pid));
        text += &format!("; port {port} is served by process {} ({name})", other.pid);
    }
    if selector.pid.is_none() && own.is_empty() && !rustix::process::geteuid().is_root() {
        text += " (only root can inspect processes of other users)";
    }
    refused(Error::new(ErrorKind::NotFound, text))
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
