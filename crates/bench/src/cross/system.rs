//! The systems: who chooses the socket, and who the thread.

use std::fmt;
use std::str::FromStr;

/// What chooses the socket of a request, and the thread that gets the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// The kernel chooses both.
    Kernel,
    /// The policy `scan-avoid` chooses the socket: Syrup's choice for Figure 8.
    ScanAvoid,
    /// The policy `sita` does.
    Sita,
    /// The policy `classify` does.
    Steer,
    /// The kernel chooses the socket, an agent the thread, by what the thread says that it works on.
    Threads,
    /// The policy `classify` chooses the socket, an agent the thread, by the class that the policy wrote.
    Both,
    /// By hand: a port and a pool of threads for each kind, those for SCANs at nice 19.
    Nice,
    /// By hand: the same, those for GETs at `SCHED_FIFO`.
    Fifo,
    /// The policy `sita`, and by hand the threads that get GETs at `SCHED_FIFO`.
    SitaFifo,
}

impl System {
    /// All, in the order of the tables.
    pub const ALL: [System; 9] = [
        System::Kernel,
        System::ScanAvoid,
        System::Sita,
        System::Steer,
        System::Threads,
        System::Both,
        System::Nice,
        System::Fifo,
        System::SitaFifo,
    ];

    /// Its name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            System::Kernel => "kernel",
            System::ScanAvoid => "scan-avoid",
            System::Sita => "sita",
            System::Steer => "steer",
            System::Threads => "threads",
            System::Both => "both",
            System::Nice => "ports-nice",
            System::Fifo => "ports-fifo",
            System::SitaFifo => "sita-fifo",
        }
    }

    /// The steering policy, with `reserved` executors for SCANs and `spared` that get none.
    #[must_use]
    pub fn policy(self, reserved: usize, spared: usize) -> Option<String> {
        match self {
            System::ScanAvoid => Some("scan-avoid".into()),
            System::Sita | System::SitaFifo => Some(format!("sita:reserved={reserved}")),
            System::Steer | System::Both => Some(format!("classify:spared={spared}")),
            _ => None,
        }
    }

    /// Whether an agent schedules the threads.
    #[must_use]
    pub fn has_agent(self) -> bool {
        matches!(self, System::Threads | System::Both)
    }

    /// Whether it is a layer alone, with which `both` is compared.
    #[must_use]
    pub fn is_alone(self) -> bool {
        matches!(self, System::ScanAvoid | System::Sita | System::Steer | System::Threads)
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
            let names = System::ALL.map(System::name).join(", ");
            format!("no system `{name}`; there are {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_read_as_they_are_written() {
        for system in System::ALL {
            assert_eq!(system.to_string().parse(), Ok(system));
        }
        assert!("fifo".parse::<System>().unwrap_err().contains("there are kernel, scan-avoid"));
    }
}
