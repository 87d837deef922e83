//! Whether programs that know nothing of Heddle can be watched, as probed by heddle-observe.

use heddle_observe::Feature;

use super::check::{Check, State};

/// What `heddle top` needs of a kernel; requests need all of its tracepoints.
const FOR_THREADS: [&str; 2] = ["privileges", "sched_switch"];

pub fn checks() -> Vec<Check> {
    vec![check(&heddle_observe::probe())]
}

fn check(features: &[Feature]) -> Check {
    let missing: Vec<&Feature> = features.iter().filter(|one| !one.available).collect();
    if missing.is_empty() {
        return Check::new(
            "observe",
            State::Yes,
            "threads and requests of unmodified programs can be watched",
            "heddle top, record and advise work on any process",
        );
    }
    let mut found: Vec<&str> = missing.iter().map(|one| one.why.as_str()).collect();
    found.dedup();
    let found = found.join("; ");
    match missing.iter().any(|one| FOR_THREADS.contains(&one.name)) {
        true => Check::new(
            "observe",
            State::No,
            found,
            "heddle top and metrics show only what Heddle's own engines count and the kernel's means; no advice",
        ),
        false => Check::new(
            "observe",
            State::Partly,
            found,
            "heddle top and record show threads; no requests, so no advice",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feature(name: &'static str, why: &str) -> Feature {
        Feature { name, purpose: "", available: why.is_empty(), why: why.into() }
    }

    #[test]
    fn what_is_missing_decides_what_works() {
        let [rights, switch, reads] = ["privileges", "sched_switch", "sock_recv_length"];
        let of = |whys: [&str; 3]| {
            check(&[feature(rights, whys[0]), feature(switch, whys[1]), feature(reads, whys[2])])
        };
        assert_eq!(of(["", "", ""]).state, State::Yes);
        let old = of(["", "", "no tracepoint"]);
        assert_eq!((old.state, old.found.as_str()), (State::Partly, "no tracepoint"));
        assert_eq!(of(["run as root", "", ""]).state, State::No);
        assert_eq!(of(["", "too old", "too old"]).found, "too old");
        assert_eq!(of(["", "too old", "too old"]).state, State::No);
    }
}
