//! Whether an interface can serve a program's own network (`HEDDLE_NET=xdp:IFACE`): only asked, nothing is attached.
//!
//! The runtime's error gives the same reasons as `heddle doctor`: [`Lanes::refusal`].

mod driver;
mod process;

use std::io;

use heddle_bpf::{Program, XdpPrograms, xdp_programs};

use super::{Probe, State};
use crate::hook::xdp::{Interface, MAX_QUEUES};
use crate::lane::{kind, receive_queues};

/// What an interface of this thread's network namespace offers to lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Its name.
    pub interface: String,
    /// Its abilities, in the order in which they matter: `kind`, `program`, `mode`, `queues`, `memory`, `interrupts`,
    /// `merging`, `lanes-privileges`. What this machine does not say has no row.
    pub rows: Vec<Probe>,
}

impl Lanes {
    /// Returns the state of the whole: the worst of its rows.
    #[must_use]
    pub fn state(&self) -> State {
        let has = |state| self.rows.iter().any(|row| row.state == state);
        [State::No, State::Unknown, State::Partly]
            .into_iter()
            .find(|s| has(*s))
            .unwrap_or(State::Yes)
    }

    /// Returns why there can be no lanes, and what to do; `None` if there can.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let no = self.rows.iter().filter(|row| row.state == State::No);
        let reasons: Vec<String> =
            no.map(|row| format!("{}: {}", row.found, row.follows)).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Returns the whole in one line, for `heddle doctor`.
    pub(super) fn line(&self) -> Probe {
        let found: Vec<&str> = self.rows.iter().map(|row| row.found.as_str()).collect();
        let limits = self.rows.iter().filter(|row| row.state != State::Yes);
        let mut follows: Vec<&str> = limits.map(|row| row.follows.as_str()).collect();
        let works = format!("HEDDLE_NET=xdp:{} works", self.interface);
        if self.state() != State::No {
            follows.insert(0, &works);
        }
        let id = format!("lanes-{}", self.interface);
        Probe::new(id, self.state(), found.join("; "), follows.join("; "))
    }
}

/// Asks what this process can have on `interface`, for `lanes` lanes.
#[must_use]
pub fn lanes(interface: &str, lanes: u32) -> Lanes {
    let mut there = at(interface, lanes);
    there.rows.push(process::privileges());
    there
}

/// Asks about `interface` alone.
pub(super) fn at(interface: &str, lanes: u32) -> Lanes {
    let rows = rows(interface, lanes).unwrap_or_else(|error| {
        let follows = "`ip link` lists the interfaces of this network namespace";
        vec![Probe::new("kind", State::No, format!("no interface `{interface}`: {error}"), follows)]
    });
    Lanes { interface: interface.into(), rows }
}

fn rows(name: &str, lanes: u32) -> io::Result<Vec<Probe>> {
    let there = xdp_programs(Interface::by_name(name, None)?.index())?;
    if let Some(kind::Refusal { found, advice }) = kind::refusal(name) {
        return Ok(vec![Probe::new("kind", State::No, found, advice)]);
    }
    let queues = receive_queues(name);
    let mut rows = vec![driver::kind(name)];
    rows.extend(program(name, there));
    rows.push(mode(there.features));
    rows.push(count(name, queues));
    rows.push(process::memory(lanes.saturating_mul(queues)));
    rows.extend(driver::interrupts(name, queues));
    rows.extend(driver::merging(name));
    Ok(rows)
}

/// What does not depend on the interface.
pub(super) fn common() -> Vec<Probe> {
    vec![process::privileges(), process::firewall()]
}

fn program(name: &str, there: XdpPrograms) -> Option<Probe> {
    let native = there.native.map(|id| (id, "xdpdrv"));
    let (id, off) = native.or(there.generic.map(|id| (id, "xdpgeneric")))?;
    let info = Program::by_id(id).and_then(|program| program.info());
    let program = info.map_or_else(|_| "unknown".into(), |info| info.name);
    let follows = match program.as_str() {
        "hd_root" => "an interface takes one: detach its policies (`heddle steer ls`)".to_owned(),
        "hd_lanes" => "an interface takes one: another program has its lanes there".to_owned(),
        _ => format!(
            "an interface takes one: end what put it there, or `ip link set dev {name} {off} off`"
        ),
    };
    Some(Probe::new("program", State::No, format!("XDP program `{program}` is on it"), follows))
}

fn mode(features: u64) -> Probe {
    if features & XdpPrograms::REDIRECT == 0 {
        let found = "its driver says nothing of XDP";
        let follows = "in generic mode, at about the cost of the kernel's network";
        return Probe::new("mode", State::Partly, found, follows);
    }
    let found = match features & XdpPrograms::ZERO_COPY {
        0 => "native XDP, with a copy of each frame",
        _ => "native XDP, without copies",
    };
    Probe::new("mode", State::Yes, found, "lanes work in the driver")
}

fn count(name: &str, queues: u32) -> Probe {
    let found = match queues {
        1 => "1 receive queue".to_owned(),
        _ => format!("{queues} receive queues"),
    };
    if queues > MAX_QUEUES {
        let follows =
            format!("lanes use {MAX_QUEUES} at most: `ethtool -L {name} combined {MAX_QUEUES}`");
        return Probe::new("queues", State::No, found, follows);
    }
    Probe::new("queues", State::Yes, found, "each lane has a socket on each")
}
