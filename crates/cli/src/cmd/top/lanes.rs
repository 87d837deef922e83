//! The row of a program's own network. Its parts are the lanes.

use super::reading::{Counts, Kind, Part, Service};
use crate::sources::lanes::Counted;

/// What is lost by a lane, by the groups of its counters.
const LOST: [(&str, &[&str]); 2] = [
    ("packets", &["malformed", "bad_checksum", "udp_full", "tcp_unroutable", "strays_lost"]),
    ("losses", &["dropped", "receive_full", "send_full", "refused", "invalid"]),
];

/// Returns the lanes of a process on one interface as a service. Inputs are frames.
pub fn service(of: &Counted) -> Service {
    let lanes = of.counters.iter().filter(|one| one.of == "packets").filter_map(|one| one.lane);
    let part = |lane| Part { name: format!("lane {lane}"), counts: counts(of, Some(lane)) };
    Service {
        id: format!("net {} {}", of.pid, of.interface),
        name: format!("{} {}", of.service, of.interface),
        kind: Kind::Net,
        policy: of.policy.clone(),
        // The runtime's row has its threads.
        pids: Vec::new(),
        counts: counts(of, None),
        parts: lanes.map(part).collect(),
    }
}

fn counts(of: &Counted, lane: Option<usize>) -> Counts {
    let lost = LOST.iter().map(|(group, names)| of.sum(group, names, lane));
    Counts {
        inputs: Some(of.sum("packets", &["frames"], lane)),
        lost: Some(lost.fold(0, u64::saturating_add)),
        ..Counts::default()
    }
}
