//! The systems that a load runs under.

use heddle_agent::guardian::Kind;
use std::fmt;

/// The default scheduler, a manual setting of an operator, or an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// The unmodified baseline.
    Default,
    /// The antagonists at nice 19.
    Nice,
    /// The shortest slice and nice -19 for latency-critical threads (EEVDF, Linux 6.12).
    ShortSlice,
    /// The antagonists at SCHED_IDLE (`chrt -i 0`).
    Idle,
    /// Latency-critical threads at `SCHED_FIFO` (`chrt -f 1`).
    Fifo,
    /// The sessions of services at nice -20, that of antagonists at 19 (`/proc/PID/autogroup`).
    Autogroup,
    /// The cgroup of services at the highest weight, that of antagonists at the lowest.
    Cgroup,
    /// An agent with a policy. The first one of a bench is called `agent-rt` or `agent-scx` alone in results.
    Agent {
        /// The backend that carries out its decisions.
        backend: Kind,
        /// The policy with its parameters.
        policy: String,
        /// Whether the targets apply to it.
        chief: bool,
    },
}

impl System {
    /// The default scheduler and its manual settings, the kernel's fair scheduler under Heddle, then an agent
    /// for each policy; targets apply to the first policy.
    #[must_use]
    pub fn all(backend: Option<Kind>, policies: &[String]) -> Vec<System> {
        let mut all = vec![System::Default];
        all.extend(System::BY_HAND);
        all.push(System::fair());
        all.extend(System::agents(backend, policies));
        all
    }

    /// Manual settings for threads of one process.
    pub const BY_HAND: [System; 4] = [System::Nice, System::ShortSlice, System::Idle, System::Fifo];

    /// `priority`, carried out by the kernel's fair scheduler.
    #[must_use]
    pub fn fair() -> System {
        System::Agent { backend: Kind::Fair, policy: "priority".into(), chief: true }
    }

    /// An agent for each policy; none without a backend.
    pub fn agents(backend: Option<Kind>, policies: &[String]) -> impl Iterator<Item = System> {
        let agent = move |(at, policy): (usize, &String)| {
            let (policy, chief) = (policy.clone(), at == 0);
            backend.map(|backend| System::Agent { backend, policy, chief })
        };
        policies.iter().enumerate().filter_map(agent).collect::<Vec<_>>().into_iter()
    }

    /// What a service beside antagonists is measured under: the default scheduler, the settings by hand, the kernel's
    /// fair scheduler, and an agent for each policy.
    pub(super) fn beside_antagonists(backend: Option<Kind>, policies: &[String]) -> Vec<System> {
        let mut systems = vec![
            System::Default,
            System::Nice,
            System::Idle,
            System::Fifo,
            System::Cgroup,
            System::fair(),
        ];
        systems.extend(System::agents(backend, policies));
        systems
    }

    /// The policy, if any.
    #[must_use]
    pub fn policy(&self) -> Option<&str> {
        match self {
            System::Agent { policy, .. } => Some(policy),
            _ => None,
        }
    }

    /// Whether the targets for deciding agents apply to it.
    #[must_use]
    pub fn is_chief(&self) -> bool {
        matches!(self, System::Agent { chief: true, backend, .. } if *backend != Kind::Fair)
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            System::Default => f.pad("default"),
            System::Nice => f.pad("default nice-19"),
            System::ShortSlice => f.pad("default short-slice"),
            System::Idle => f.pad("default idle"),
            System::Fifo => f.pad("chrt -f 1"),
            System::Autogroup => f.pad("autogroup"),
            System::Cgroup => f.pad("cgroup weight"),
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
        assert_eq!(names[..2], ["default", "default nice-19"]);
        assert_eq!(names[5..], ["agent-fair", "agent-rt", "agent-rt eevdf"]);
        assert_eq!(System::all(None, &policies).len(), 6);
    }
}
