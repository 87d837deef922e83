//! The systems that are compared.

use super::part::Part;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A way to switch between two applications, or to run two on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum System {
    /// Two members of a share, in real time: `sched_yield`.
    ShareYield,
    /// The same beside a third member, which is idle: they sleep on futexes.
    ShareFutex,
    /// A share in real time.
    Share,
    /// A share whose workers are ordinary threads.
    ShareOrdinary,
    /// Two processes that wake each other through a futex.
    Futex,
    /// Two processes that wake each other through eventfds.
    Eventfd,
    /// Two processes that wake each other through pipes.
    Pipe,
    /// Two `SCHED_FIFO` processes that yield.
    SchedYield,
    /// The latency-critical program on Heddle, without a batch program.
    Alone,
    /// Both as they are.
    Kernel,
    /// The batch program at nice 19.
    Nice,
    /// Each in a cgroup, with weights as far apart as they go in version 1.
    Cgroup,
    /// The batch program under `SCHED_IDLE`.
    Idle,
    /// The latency-critical program under `SCHED_FIFO`.
    Fifo,
}

impl System {
    /// All of them, in the order of the tables.
    pub const ALL: [System; 14] = [
        System::ShareYield,
        System::ShareFutex,
        System::Alone,
        System::Share,
        System::ShareOrdinary,
        System::Futex,
        System::Eventfd,
        System::Pipe,
        System::SchedYield,
        System::Kernel,
        System::Nice,
        System::Cgroup,
        System::Idle,
        System::Fifo,
    ];

    /// Whether the system is measured in `part`.
    #[must_use]
    pub fn is_in(self, part: Part) -> bool {
        use System::*;
        let switches =
            matches!(self, ShareYield | ShareFutex | Futex | Eventfd | Pipe | SchedYield);
        match part {
            Part::Switch => switches || self == ShareOrdinary,
            Part::Service => !switches,
            Part::RocksDb => !switches && self != ShareOrdinary,
            Part::Memcached => matches!(self, Alone | Share | Kernel | Nice | Idle),
            Part::Wake => matches!(self, Alone | Share | ShareOrdinary),
        }
    }

    /// Whether a broker is part of it.
    #[must_use]
    pub fn is_shared(self) -> bool {
        matches!(
            self,
            System::ShareYield | System::ShareFutex | System::Share | System::ShareOrdinary
        )
    }

    /// Whether it has real-time threads, for which a process needs a privilege.
    #[must_use]
    pub fn is_realtime(self) -> bool {
        let by_hand = matches!(self, System::SchedYield | System::Fifo);
        by_hand || (self.is_shared() && self != System::ShareOrdinary)
    }

    /// Whether a batch program runs beside the latency-critical one.
    pub(super) fn has_batch(self) -> bool {
        self != System::Alone
    }

    /// The name in results and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            System::ShareYield => "share-yield",
            System::ShareFutex => "share-futex",
            System::Share => "share",
            System::ShareOrdinary => "share-ordinary",
            System::Futex => "futex",
            System::Eventfd => "eventfd",
            System::Pipe => "pipe",
            System::SchedYield => "sched_yield",
            System::Alone => "alone",
            System::Kernel => "kernel",
            System::Nice => "nice",
            System::Cgroup => "cgroup",
            System::Idle => "idle",
            System::Fifo => "fifo",
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
        assert!("cfs".parse::<System>().unwrap_err().contains("idle, fifo"));
    }

    #[test]
    fn each_system_is_in_a_part_and_each_part_has_a_share() {
        for system in System::ALL {
            assert!(Part::ALL.iter().any(|&part| system.is_in(part)), "{system}");
        }
        for &part in Part::ALL {
            assert!(System::ALL.iter().any(|it| it.is_in(part) && it.is_shared()), "{part}");
        }
    }
}
