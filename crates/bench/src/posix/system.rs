//! The systems that are compared.

use std::fmt;
use std::str::FromStr;

/// The policy of the targets.
pub const POLICY: &str = "two-queue:quantum=100us";
/// The same with a quantum that the short requests of a database rarely reach, even when the caches are cold.
pub const LONG_POLICY: &str = "two-queue:quantum=200us";

/// What runs the threads of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// The kernel, as the distribution schedules them.
    Kernel,
    /// The kernel, with the threads that compute for long at nice 19.
    KernelNice,
    /// Heddle under this policy.
    Heddle(String),
}

/// Systems as they are named on the command line; each policy makes one of `heddle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`System::Kernel`].
    Kernel,
    /// [`System::KernelNice`].
    KernelNice,
    /// [`System::Heddle`].
    Heddle,
}

impl Kind {
    /// All, in the order of the tables.
    pub const ALL: [Kind; 3] = [Kind::Kernel, Kind::KernelNice, Kind::Heddle];

    fn name(self) -> &'static str {
        match self {
            Kind::Kernel => "kernel",
            Kind::KernelNice => "kernel-nice",
            Kind::Heddle => "heddle",
        }
    }
}

impl System {
    /// The systems of `kinds`, in the order of [`Kind::ALL`], with one for each policy.
    #[must_use]
    pub fn of(kinds: &[Kind], policies: &[String]) -> Vec<System> {
        let systems = |kind: &Kind| match kind {
            Kind::Kernel => vec![System::Kernel],
            Kind::KernelNice => vec![System::KernelNice],
            Kind::Heddle => policies.iter().cloned().map(System::Heddle).collect(),
        };
        let mut found: Vec<System> = Vec::new();
        for system in Kind::ALL.iter().filter(|kind| kinds.contains(kind)).flat_map(systems) {
            if !found.contains(&system) {
                found.push(system);
            }
        }
        found
    }

    /// The system that targets apply to: Heddle under [`POLICY`], else the first of Heddle's.
    pub(super) fn chief(systems: &[System]) -> Option<&System> {
        let usual = systems.iter().find(|&system| *system == System::Heddle(POLICY.into()));
        usual.or_else(|| systems.iter().find(|system| matches!(system, System::Heddle(_))))
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            System::Kernel => f.pad(Kind::Kernel.name()),
            System::KernelNice => f.pad(Kind::KernelNice.name()),
            System::Heddle(policy) => f.pad(&format!("heddle/{policy}")),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Kind, String> {
        let all = Kind::ALL;
        all.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            format!(
                "no system `{name}`; there are {} (--policy names the policies of heddle)",
                all.map(Kind::name).join(", ")
            )
        })
    }
}
