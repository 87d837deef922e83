//! Which parts of steering work here: each hook is tried; a missing one is reported with the reason and the
//! alternatives.
//!
//! Nothing is tried on resources in use: sockets are on the loopback with ports of the kernel's choice, and
//! XDP is tried on a veth pair in the probe's own namespaces. Real interfaces are only queried: attaching in
//! the driver may interrupt a NIC's traffic for a moment.

mod lanes;
mod packets;
mod sockets;
mod system;

pub use lanes::{Lanes, lanes};
use serde::Serialize;

/// Whether something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It was tried and works.
    Yes,
    /// It works, with a limit that matters.
    Partly,
    /// It was tried and failed.
    No,
    /// It could not be tried.
    Unknown,
}

/// The result for one ability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// A stable name.
    pub id: String,
    /// Whether it works.
    pub state: State,
    /// What was seen.
    pub found: String,
    /// The consequence, and what to do about it or instead.
    pub follows: String,
}

impl Probe {
    fn new(
        id: impl Into<String>,
        state: State,
        found: impl Into<String>,
        follows: impl Into<String>,
    ) -> Self {
        Self { id: id.into(), state, found: found.into(), follows: follows.into() }
    }

    /// Makes one from a trial: its result, the consequence if it worked, and if it did not.
    fn tried<E: std::fmt::Display>(
        id: &str,
        trial: Result<String, E>,
        works: &str,
        instead: &str,
    ) -> Self {
        match trial {
            Ok(found) => Self::new(id, State::Yes, found, works),
            Err(error) => Self::new(id, State::No, error.to_string(), instead),
        }
    }
}

/// Tries everything, in about a second.
#[must_use]
pub fn probe() -> Vec<Probe> {
    let mut probes = system::probes();
    let may = probes.iter().any(|probe| probe.id == "steer-bpf" && probe.state == State::Yes);
    if may {
        probes.extend(sockets::probes());
        probes.extend(packets::hooks());
    } else {
        let text = "not tried: this process may not load BPF programs";
        let hooks =
            ["socket-select", "socket-observer", "stream", "xdp-drv", "xdp-skb", "cpu-redirect"];
        probes.extend(
            hooks.map(|id| Probe::new(id, State::Unknown, text, "run as root, or through heddled")),
        );
    }
    probes.extend(packets::interfaces());
    probes.extend(lanes::common());
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    probes.extend(packets::names().iter().map(|name| lanes::at(name, workers).line()));
    probes.extend(system::tools());
    probes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_reports_its_result_and_the_consequence() {
        let probes = probe();
        for probe in &probes {
            assert!(!probe.found.is_empty() && !probe.follows.is_empty(), "{probe:?}");
        }
        let mut ids: Vec<&str> = probes.iter().map(|probe| probe.id.as_str()).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count, "names are unique");
    }

    #[test]
    fn socket_hooks_work_if_programs_load() {
        let probes = probe();
        let state = |id: &str| probes.iter().find(|probe| probe.id == id).unwrap().state;
        if state("steer-bpf") != State::Yes {
            eprintln!("SKIPPED: this process may not load BPF programs");
            assert_eq!(state("socket-select"), State::Unknown);
            return;
        }
        assert_eq!(state("socket-select"), State::Yes, "{probes:?}");
    }
}
