//! Which kinds of steering work here, as probed by heddle-steer.

use heddle_steer::probe::{self, Probe};

use super::check::{Check, State};

pub fn checks() -> Vec<Check> {
    probe::probe().into_iter().map(check).collect()
}

fn check(probe: Probe) -> Check {
    let state = match probe.state {
        probe::State::Yes => State::Yes,
        probe::State::Partly => State::Partly,
        probe::State::No => State::No,
        probe::State::Unknown => State::Unknown,
    };
    Check::new(probe.id, state, probe.found, probe.follows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_has_a_check() {
        let checks = checks();
        let lanes = ["lanes-privileges", "lanes-firewall"];
        let hooks = ["socket-select", "xdp-drv", "xdp-skb", "cpu-redirect", "stream", "heddled"];
        for id in hooks.into_iter().chain(lanes) {
            assert!(checks.iter().any(|check| check.id == id), "{id}");
        }
    }
}
