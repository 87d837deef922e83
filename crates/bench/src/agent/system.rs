//! Under what a load runs.

use heddle_agent::guardian::Kind;
use std::fmt;

/// The default scheduler, with what it offers against antagonists, or an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// As it is: what others are held against.
    Default,
    /// With the hogs at nice 19: its own answer.
    Nice,
    /// With the shortest slice and nice -19 for the periodic thread: its other answer (EEVDF, Linux 6.12).
    ShortSlice,
    /// An agent with a policy. The first one of a bench is called `agent-rt` or `agent-scx` alone in results.
    Agent {
        /// What carries out its decisions.
        backend: Kind,
        /// The policy with its parameters.
        policy: String,
        /// Whether it is the one that targets are about.
        chief: bool,
    },
}

impl System {
    /// The default scheduler's answers, then an agent for each policy; the first policy is the chief.
    #[must_use]
    pub fn all(backend: Option<Kind>, policies: &[String]) -> Vec<System> {
        let mut all = vec![System::Default, System::Nice, System::ShortSlice];
        all.extend(System::agents(backend, policies));
        all
    }

    /// An agent for each policy; none without a backend.
    pub fn agents(backend: Option<Kind>, policies: &[String]) -> impl Iterator<Item = System> {
        let agent = move |(at, policy): (usize, &String)| {
            let (policy, chief) = (policy.clone(), at == 0);
            backend.map(|backend| System::Agent { backend, policy, chief })
        };
        policies.iter().enumerate().filter_map(agent).collect::<Vec<_>>().into_iter()
    }

    /// The policy, where there is one.
    #[must_use]
    pub fn policy(&self) -> Option<&str> {
        match self {
            System::Agent { policy, .. } => Some(policy),
            _ => None,
        }
    }

    /// Whether targets are about it.
    #[must_use]
    pub fn is_chief(&self) -> bool {
        matches!(self, System::Agent { chief: true, .. })
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            System::Default => f.pad("default"),
            System::Nice => f.pad("default nice-19"),
            System::ShortSlice => f.pad("default short-slice"),
            System::Agent { backend, chief: true, .. } => f.pad(&format!("agent-{backend}")),
            System::Agent { backend, policy, .. } => {
                let name = policy.split(':').next().unwrap_or(policy);
                f.pad(&format!("agent-{backend} {name}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_policy_is_the_agent() {
        let policies = ["priority".to_owned(), "eevdf:slice=4ms".to_owned()];
        let names: Vec<_> =
            System::all(Some(Kind::Rt), &policies).iter().map(ToString::to_string).collect();
        assert_eq!(names[0], "default");
        assert_eq!(names[3..], ["agent-rt", "agent-rt eevdf"]);
        assert_eq!(System::all(None, &policies).len(), 3);
    }
}
