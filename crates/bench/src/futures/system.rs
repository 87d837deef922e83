//! The systems that are compared.

use super::part::Part;
use heddle_core::Ns;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A runtime of async tasks, with one worker unless its name says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum System {
    /// Heddle's async tasks under `work-stealing`, without a quantum.
    WorkStealing,
    /// Heddle's async tasks under `two-queue`, with a quantum.
    TwoQueue,
    /// Heddle's async tasks under `fifo`: no poll is preempted.
    Fifo,
    /// Heddle's threads under `work-stealing`.
    Threads,
    /// tokio's multi-threaded runtime.
    Tokio,
    /// The same with eight workers on one CPU, which is what people do today to get preemption.
    TokioEight,
    /// tokio's `current_thread` runtime.
    TokioCurrent,
    /// smol's executor.
    Smol,
}

impl System {
    /// All of them, in the order of the tables.
    pub const ALL: [System; 8] = [
        System::WorkStealing,
        System::TwoQueue,
        System::Fifo,
        System::Threads,
        System::Tokio,
        System::TokioEight,
        System::TokioCurrent,
        System::Smol,
    ];

    /// The system that serves requests, with which targets are compared.
    pub const CHIEF: System = System::TwoQueue;

    /// Whether the system is measured in `part`.
    #[must_use]
    pub fn is_in(self, part: Part) -> bool {
        use System::*;
        match part {
            Part::Micro => !matches!(self, Fifo | TokioEight),
            Part::Memory => !matches!(self, Fifo | TwoQueue | TokioEight | TokioCurrent),
            _ => matches!(self, TwoQueue | Fifo | Tokio | TokioEight),
        }
    }

    /// Whether its tasks are Heddle's.
    #[must_use]
    pub fn is_heddle(self) -> bool {
        self.policy(Ns::ZERO).is_some()
    }

    /// Heddle's policy, with this quantum if it has one.
    #[must_use]
    pub fn policy(self, quantum: Ns) -> Option<String> {
        match self {
            System::WorkStealing | System::Threads => Some("work-stealing".into()),
            System::TwoQueue => Some(format!("two-queue:quantum={}ns", quantum.0)),
            System::Fifo => Some("fifo".into()),
            System::Tokio | System::TokioEight | System::TokioCurrent | System::Smol => None,
        }
    }

    /// The name in results and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            System::WorkStealing => "heddle-work-stealing",
            System::TwoQueue => "heddle-two-queue",
            System::Fifo => "heddle-fifo",
            System::Threads => "heddle-threads",
            System::Tokio => "tokio",
            System::TokioEight => "tokio-8",
            System::TokioCurrent => "tokio-current",
            System::Smol => "smol",
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for System {
    type Err = String;

    fn from_str(name: &str) -> Result<System, String> {
        System::ALL.into_iter().find(|system| system.name() == name).ok_or_else(|| {
            format!("no system `{name}`; there are {}", System::ALL.map(System::name).join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Part as _;

    #[test]
    fn systems_are_read_as_they_are_written() {
        for system in System::ALL {
            assert_eq!(system.to_string().parse(), Ok(system));
        }
        assert!("async-std".parse::<System>().unwrap_err().contains("tokio-current, smol"));
    }

    #[test]
    fn each_part_has_the_chief_or_its_own_systems_and_a_peer() {
        for &part in Part::ALL {
            let here: Vec<System> =
                System::ALL.into_iter().filter(|system| system.is_in(part)).collect();
            assert!(here.iter().any(|system| system.is_heddle()), "{part}: {here:?}");
            assert!(here.contains(&System::Tokio), "{part}: {here:?}");
        }
    }

    #[test]
    fn policies_are_known() {
        struct Exists;
        impl heddle_policies::Visitor for Exists {
            type Out = ();
            fn visit<P: heddle_core::Policy>(self, _: P) {}
        }
        for policy in System::ALL.iter().filter_map(|system| system.policy(Ns::from_us(100))) {
            assert!(heddle_policies::with_policy(&policy, Exists).is_ok(), "{policy}");
        }
    }
}
