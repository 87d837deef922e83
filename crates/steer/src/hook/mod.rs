//! The hooks at which a policy decides.

pub mod counts;
pub mod observe;
pub mod reuseport;
pub mod stream;
pub mod trial;
pub mod xdp;

use serde::{Deserialize, Serialize};

/// A point in the kernel where inputs are matched with executors (Syrup, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hook {
    /// Datagrams and connections to the sockets of a reuseport group.
    SocketSelect,
    /// Packets to the CPUs that process them.
    CpuRedirect,
    /// Packets to AF_XDP sockets, in the driver.
    XdpDrv,
    /// Packets to AF_XDP sockets in generic mode, on any interface.
    XdpSkb,
    /// Packets to queues, on a NIC that runs programs.
    XdpOffload,
    /// Requests in streams to workers. Experimental.
    Stream,
}

impl Hook {
    /// All hooks.
    pub const ALL: [Self; 6] = [
        Self::SocketSelect,
        Self::CpuRedirect,
        Self::XdpDrv,
        Self::XdpSkb,
        Self::XdpOffload,
        Self::Stream,
    ];

    /// Returns its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SocketSelect => "socket-select",
            Self::CpuRedirect => "cpu-redirect",
            Self::XdpDrv => "xdp-drv",
            Self::XdpSkb => "xdp-skb",
            Self::XdpOffload => "xdp-offload",
            Self::Stream => "stream",
        }
    }

    /// Returns the hook called `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hook| hook.name() == name)
    }
}

impl std::fmt::Display for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
