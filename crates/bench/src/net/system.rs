//! The systems that are compared.

use heddle::netstack::options::{Network, Options, Spin};
use heddle_core::Ns;
use heddle_tcp::Congestion;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Whose sockets one end uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum System {
    /// The kernel's, in a program of one thread.
    Plain,
    /// The kernel's, in Heddle's runtime with one worker.
    Kernel,
    /// The runtime's own, by a lane.
    Xdp,
}

impl System {
    /// All of them, in the order of the tables.
    pub const ALL: [System; 3] = [System::Plain, System::Kernel, System::Xdp];

    /// The name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            System::Plain => "plain",
            System::Kernel => "kernel",
            System::Xdp => "xdp",
        }
    }

    /// Returns the runtime's network at `interface`; `congestion` is the name of its congestion control.
    pub(super) fn network(
        self,
        interface: &str,
        waiting: Waiting,
        rto_min: Option<Ns>,
        congestion: Option<&str>,
    ) -> Network {
        if self != System::Xdp {
            return Network::Kernel;
        }
        let mut options = Options::new(interface);
        if waiting == Waiting::Spin {
            options.spin = Spin::Forever;
        }
        options.rto_min = rto_min.unwrap_or(options.rto_min);
        options.congestion = congestion.and_then(Congestion::named);
        Network::Xdp { options, or_kernel: false }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How an end waits for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Waiting {
    /// It looks all the time.
    Spin,
    /// It sleeps in the kernel.
    Sleep,
}
