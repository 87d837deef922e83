//! What this process and this kernel permit.

use std::fs;

use heddle_bpf::KernelTypes;

use crate::ObserveError;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// What is needed: a privilege or a tracepoint.
    pub name: &'static str,
    /// What it is needed for.
    pub purpose: &'static str,
    /// Whether it is there.
    pub available: bool,
    /// Why not, and what would help; empty if it is there.
    pub why: String,
}

/// A tracepoint, which kernels have it, and what it is needed for.
struct Tracepoint {
    name: &'static str,
    since: &'static str,
    purpose: &'static str,
}

const SWITCH: Tracepoint =
    Tracepoint { name: "sched_switch", since: "Linux 5.5", purpose: "run-queue delays, threads" };

const TRACEPOINTS: &[Tracepoint] = &[
    SWITCH,
    Tracepoint { name: "sched_waking", since: "Linux 5.5", purpose: "requests handed over" },
    Tracepoint { name: "inet_sock_set_state", since: "Linux 5.5", purpose: "connections" },
    Tracepoint { name: "sk_data_ready", since: "Linux 6.2", purpose: "arrivals of requests" },
    Tracepoint { name: "sock_recv_length", since: "Linux 6.3", purpose: "reads of requests" },
    Tracepoint { name: "sock_send_length", since: "Linux 6.3", purpose: "answers" },
];

/// The privileges, with their bits.
const PRIVILEGES: [(&str, u32); 2] = [("CAP_BPF", 39), ("CAP_PERFMON", 38)];
const CAP_SYS_ADMIN: u32 = 21;

/// Checks what watching needs, without starting anything.
#[must_use]
pub fn probe() -> Vec<Feature> {
    let missing = missing_privileges();
    let privileges = Feature {
        name: "privileges",
        purpose: "loading the kernel's programs",
        available: missing.is_empty(),
        why: match missing.is_empty() {
            true => String::new(),
            false => ObserveError::Denied(missing.join(" and ")).to_string(),
        },
    };
    std::iter::once(privileges).chain(tracepoints()).collect()
}

fn tracepoints() -> Vec<Feature> {
    let types = KernelTypes::read();
    let feature = |one: &Tracepoint| {
        let why = match &types {
            Ok(types) if types.has_tracepoint(one.name) => String::new(),
            Ok(_) => format!("this kernel has no tracepoint {} ({})", one.name, one.since),
            Err(error) => error.to_string(),
        };
        Feature { name: one.name, purpose: one.purpose, available: why.is_empty(), why }
    };
    TRACEPOINTS.iter().map(feature).collect()
}

/// Fails if this process may not load the programs, or the kernel lacks what those for requests (`spans`) need.
pub(crate) fn require(spans: bool) -> Result<(), ObserveError> {
    let missing = missing_privileges();
    if !missing.is_empty() {
        return Err(ObserveError::Denied(missing.join(" and ")));
    }
    let types = KernelTypes::read().map_err(ObserveError::system("the kernel's types"))?;
    let needed = if spans { TRACEPOINTS } else { std::slice::from_ref(&SWITCH) };
    match needed.iter().find(|one| !types.has_tracepoint(one.name)) {
        Some(one) => Err(ObserveError::Kernel { feature: one.name, since: one.since }),
        None => Ok(()),
    }
}

fn missing_privileges() -> Vec<&'static str> {
    missing_in(&fs::read_to_string("/proc/thread-self/status").unwrap_or_default())
}

/// Returns the privileges that the thread with this `/proc/PID/status` lacks.
fn missing_in(status: &str) -> Vec<&'static str> {
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = held.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    let has = |bit: u32| held >> bit & 1 == 1 || held >> CAP_SYS_ADMIN & 1 == 1;
    PRIVILEGES.into_iter().filter(|(_, bit)| !has(*bit)).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let of = |bits: u64| missing_in(&format!("Name:\tx\nCapEff:\t{bits:016x}\n"));
        assert_eq!(of(0), ["CAP_BPF", "CAP_PERFMON"]);
        assert_eq!(of(1 << 39), ["CAP_PERFMON"]);
        assert!(of(1 << 39 | 1 << 38).is_empty() && of(1 << CAP_SYS_ADMIN).is_empty());
        assert_eq!(missing_in("").len(), 2);
    }

    #[test]
    fn every_check_has_a_reason_if_it_failed() {
        let found = probe();
        assert_eq!(found.len(), 1 + TRACEPOINTS.len());
        assert!(found.iter().all(|one| one.available == one.why.is_empty()), "{found:?}");
    }
}
