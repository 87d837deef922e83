//! Which sockets `heddle attach` is about, and why there are none.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use heddle_steer::process::{Protocol, Serving, command, serving};
use heddle_steer::request::{Error, ErrorKind};
use rustix::net::sockopt::socket_reuseport;

use super::advice::{self, Alone};
use super::refused;
use super::wanted::{Place, Wanted};
use crate::exit::Usage;

/// The most executors: `HD_MAX_EXECUTORS`.
const MOST: usize = 64;

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

    /// Where it is.
    pub fn place(&self) -> Place {
        (self.protocol, self.address)
    }

    /// The number of its network namespace.
    pub fn namespace(&self) -> u64 {
        self.sockets[0].namespace
    }

    /// Copies of its sockets, in their order. They are to be closed soon: see [`Serving::copy`].
    pub fn copies(&self) -> Result<Vec<OwnedFd>, Error> {
        self.sockets.iter().map(Serving::copy).collect()
    }
}

/// The groups that are meant, whether a policy can choose in them or not.
pub fn groups(wanted: &Wanted) -> Result<Vec<Group>, Error> {
    let mut groups: BTreeMap<(u64, Protocol, SocketAddr), Vec<Serving>> = BTreeMap::new();
    for socket in serving(wanted.pid, None)? {
        let is_here = wanted.namespace.is_none_or(|namespace| namespace == socket.namespace);
        if is_here && wanted.fits((socket.protocol, socket.address)) {
            let key = (socket.namespace, socket.protocol, socket.address);
            groups.entry(key).or_default().push(socket);
        }
    }
    let group = |((_, protocol, address), sockets)| Group { protocol, address, sockets };
    Ok(groups.into_iter().map(group).collect())
}

/// The groups to attach to, and what is left out.
pub struct Eligible {
    pub groups: Vec<Group>,
    /// What of the meant is left alone or not served, in words.
    pub notes: Vec<String>,
}

/// The groups to attach to: all that a policy can choose in, of one server. At least one for each port, protocol and
/// address that is named.
pub fn eligible(wanted: &Wanted) -> anyhow::Result<Eligible> {
    let all = any(wanted)?;
    let mut notes = not_served(wanted, &all);
    let (mut groups, mut unfit) = (Vec::new(), Vec::new());
    for group in all {
        match obstacle(&group) {
            None => groups.push(group),
            Some(why) => unfit.push((group, why)),
        }
    }
    // What is wrong with one group is no reason to leave the server's others alone, if there is another of what was named.
    let missing = wanted.missing(&places(&groups));
    let needed = |(group, _): &(Group, _)| match missing {
        Some(named) => named.fits(group.place()),
        None => groups.is_empty(),
    };
    if let Some(at) = unfit.iter().position(needed) {
        return Err(refused(unfit.swap_remove(at).1));
    }
    notes.extend(unfit.iter().map(|(group, why)| format!("{} is left alone: {why}", group.name())));
    Ok(Eligible { groups, notes })
}

/// The groups that are meant, of one server, whether a policy could choose among their sockets or not. At least one for each
/// port, protocol and address that is named.
pub fn any(wanted: &Wanted) -> anyhow::Result<Vec<Group>> {
    let all = groups(wanted).map_err(refused)?;
    if let Some(named) = wanted.missing(&places(&all)) {
        return Err(nothing(&wanted.only(named)));
    }
    one_server(wanted, &all)?;
    Ok(all)
}

fn places(groups: &[Group]) -> Vec<Place> {
    groups.iter().map(Group::place).collect()
}

/// What was named together and is not served, in words.
pub fn not_served(wanted: &Wanted, groups: &[Group]) -> Vec<String> {
    let served = |one: &Wanted| groups.iter().any(|group| one.fits(group.place()));
    let missing = wanted.combinations().into_iter().filter(|one| !served(one));
    missing.map(|one| format!("nobody serves {one}")).collect()
}

/// Refuses to guess.
fn one_server(wanted: &Wanted, groups: &[Group]) -> Result<(), Usage> {
    let names = || groups.iter().map(Group::name).collect::<Vec<_>>().join(", ");
    let protocols: BTreeSet<Protocol> = groups.iter().map(|group| group.protocol).collect();
    if protocols.len() > 1 && wanted.protocols.is_empty() {
        return Err(Usage(format!(
            "{wanted} is served for both protocols ({}): choose with --protocol tcp, --protocol udp, or both: --protocol udp,tcp",
            names()
        )));
    }
    let namespaces: BTreeSet<u64> = groups.iter().map(Group::namespace).collect();
    if namespaces.len() > 1 {
        let pids: Vec<String> =
            groups.iter().map(|group| group.sockets[0].pid.to_string()).collect();
        return Err(Usage(format!(
            "{wanted} is served in several network namespaces (containers), by processes {}: choose a server with --pid",
            pids.join(", ")
        )));
    }
    Ok(())
}

/// Why a policy cannot choose in a group.
fn obstacle(group: &Group) -> Option<Error> {
    let (first, n) = (&group.sockets[0], group.sockets.len());
    let shares = match first.copy() {
        Ok(copy) => socket_reuseport(copy.as_fd()).unwrap_or(false),
        Err(error) => return Some(error),
    };
    if n > MOST {
        let text = format!(
            "{} has {n} sockets, and a policy chooses among {MOST} at most: start fewer workers",
            group.name()
        );
        return Some(Error::new(ErrorKind::Unsupported, text));
    }
    if shares && n > 1 {
        return None;
    }
    let socket = match (shares, first.holders.len()) {
        (marked, 2..) => Alone::Shared { marked },
        (false, _) => Alone::Exclusive,
        (true, _) => Alone::Single,
    };
    let pid = first.pid;
    let what = match socket {
        Alone::Shared { .. } => format!(
            "{} processes share one socket at {} (as after fork)",
            first.holders.len(),
            group.name()
        ),
        Alone::Exclusive => {
            format!("process {pid} serves {} with a socket without SO_REUSEPORT", group.name())
        }
        Alone::Single => format!("process {pid} serves {} with one socket", group.name()),
    };
    // The eldest is the one from which the others descend.
    let advice = advice::of(first.holders.first().copied().unwrap_or(pid), socket);
    let text = format!("{what}, so there is nothing to choose among. {advice}");
    Some(Error::new(ErrorKind::Unsupported, text))
}

/// Says who does serve the port, and what the process does serve.
fn nothing(wanted: &Wanted) -> anyhow::Error {
    let mut text = match wanted.pid {
        Some(pid) => format!("process {pid} ({}) does not serve {wanted}", name_of(pid)),
        None => format!("nobody serves {wanted}"),
    };
    let on_the_port = |pid| {
        let mut sockets = serving(pid, None).unwrap_or_default();
        sockets.retain(|socket| wanted.fits_port((socket.protocol, socket.address)));
        sockets
    };
    let own = match wanted.pid {
        Some(_) => serving(wanted.pid, None).unwrap_or_default(),
        None => on_the_port(None),
    };
    if !own.is_empty() {
        text += &format!("; it serves {}", addresses(&own));
    } else if wanted.pid.is_some() {
        text +=
            "; it serves no port at all (is it the server's first process, and has it started?)";
    }
    let others = if wanted.pid.is_some() { on_the_port(None) } else { Vec::new() };
    if let Some(other) = others.first() {
        let (port, name) = (other.address.port(), name_of(other.pid));
        text += &format!("; port {port} is served by process {} ({name})", other.pid);
    }
    if wanted.pid.is_none() && own.is_empty() && !rustix::process::geteuid().is_root() {
        text += " (processes of other users cannot be looked into: as root, all can)";
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
