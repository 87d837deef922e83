//! Whether kernel threads can be scheduled here, as probed by heddle-agent.

use heddle_agent::guardian::{Backends as _, KernelBackends, Kind};

use super::check::{Check, State};

pub fn checks() -> Vec<Check> {
    vec![scx(), fair(), rt()]
}

fn scx() -> Check {
    match KernelBackends.probe(Kind::Scx) {
        Ok(()) => Check::new(
            "agent-scx",
            State::Yes,
            "sched_ext is available to agents",
            "heddle agent uses it (--backend scx)",
        ),
        Err(why) => Check::new(
            "agent-scx",
            State::No,
            why,
            "heddle agent uses the fair backend, or rt for policies that fair cannot express",
        ),
    }
}

fn fair() -> Check {
    match KernelBackends.probe(Kind::Fair) {
        Err(why) => Check::new(
            "agent-fair",
            State::No,
            why,
            "heddle agent cannot use the kernel's fair scheduler to carry out policies",
        ),
        Ok(()) if heddle_agent::fair::has_slices() => Check::new(
            "agent-fair",
            State::Yes,
            "nice values, slices and weights can be set",
            "the kernel's scheduler carries out policies of classes, shares and slices (--backend fair)",
        ),
        Ok(()) => Check::new(
            "agent-fair",
            State::Partly,
            "nice values and weights can be set, slices from Linux 6.12 on",
            "the kernel's scheduler carries out policies of classes and shares (--backend fair); quanta are ignored",
        ),
    }
}

fn rt() -> Check {
    match KernelBackends.probe(Kind::Rt) {
        Ok(()) => Check::new(
            "agent-rt",
            State::Partly,
            "tracepoints and real-time priorities are available to agents",
            "heddle agent works without sched_ext (--backend rt): waiting threads still run on idle CPUs",
        ),
        Err(why) => Check::new(
            "agent-rt",
            State::No,
            why,
            "heddle agent cannot fall back on real-time priorities",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_backend_has_its_line() {
        let ids: Vec<String> = checks().into_iter().map(|check| check.id.into_owned()).collect();
        assert_eq!(ids, ["agent-scx", "agent-fair", "agent-rt"]);
    }
}
