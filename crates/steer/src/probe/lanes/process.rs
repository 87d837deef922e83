//! What this process may do, and what firewalls do not see.

use heddle_xsk::Options;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::{Probe, State};

/// What lanes take; `CAP_SYS_ADMIN` includes the first and the third.
const CAPABILITIES: [(CapabilitySet, &str); 4] = [
    (CapabilitySet::BPF, "CAP_BPF"),
    (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
    (CapabilitySet::PERFMON, "CAP_PERFMON"),
    (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
];

fn held() -> CapabilitySet {
    let mut held = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    if held.contains(CapabilitySet::SYS_ADMIN) {
        held |= CapabilitySet::BPF | CapabilitySet::PERFMON;
    }
    held
}

pub fn privileges() -> Probe {
    let held = held();
    let missing: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(one, _)| !held.contains(*one))
        .map(|(_, name)| *name)
        .collect();
    if !missing.is_empty() {
        let found = format!("this process lacks {}", missing.join(", "));
        let follows = "HEDDLE_NET=xdp takes them: run as root, or AmbientCapabilities= of its unit";
        return Probe::new("lanes-privileges", State::No, found, follows);
    }
    let opened = socket(AddressFamily::XDP, SocketType::RAW, None);
    Probe::tried(
        "lanes-privileges",
        opened.map(|_| "an AF_XDP socket was opened".to_owned()),
        "programs can have their own network: HEDDLE_NET=xdp:INTERFACE",
        "the kernel has no AF_XDP (CONFIG_XDP_SOCKETS): HEDDLE_NET=kernel works",
    )
}

/// Whether the memory of so many AF_XDP sockets may be locked.
pub fn memory(sockets: u32) -> Probe {
    let Options { frames, frame_size, .. } = Options::default();
    // A half is for receiving, the other for sending.
    let each = 2 * u64::from(frames) * u64::from(frame_size);
    let needed = each * u64::from(sockets);
    let limit = getrlimit(Resource::Memlock).current;
    let unlimited = held().contains(CapabilitySet::IPC_LOCK);
    judge(needed, limit.filter(|_| !unlimited))
}

fn judge(needed: u64, limit: Option<u64>) -> Probe {
    let mib = |bytes: u64| format!("{} MiB", bytes.div_ceil(1 << 20));
    let Some(limit) = limit.filter(|limit| *limit < needed) else {
        let found = format!("{} of frames may be locked", mib(needed));
        return Probe::new("memory", State::Yes, found, "a lane for each CPU fits");
    };
    let found = format!("RLIMIT_MEMLOCK is {}", mib(limit));
    let follows = format!(
        "a lane for each CPU takes {}: `ulimit -l {}`, LimitMEMLOCK= of the unit, or CAP_IPC_LOCK; or fewer workers",
        mib(needed),
        needed.div_ceil(1024)
    );
    Probe::new("memory", State::Partly, found, follows)
}

pub fn firewall() -> Probe {
    Probe::new(
        "lanes-firewall",
        State::Partly,
        "nftables, iptables, tc and conntrack do not see the packets of lanes",
        "their rules do not apply to the ports of HEDDLE_NET=xdp: filter before this machine, or by allow=CIDR",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_judged_by_the_limit() {
        assert_eq!(judge(4 << 20, None).state, State::Yes);
        assert_eq!(judge(8 << 20, Some(8 << 20)).state, State::Yes);
        let little = judge(16 << 20, Some(8 << 20));
        assert_eq!(
            (little.state, little.found.as_str()),
            (State::Partly, "RLIMIT_MEMLOCK is 8 MiB")
        );
        assert!(little.follows.contains("ulimit -l 16384"), "{}", little.follows);
    }
}
