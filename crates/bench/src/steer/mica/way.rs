//! The ways by which a request comes to the thread that owns its key, and the mixes of requests.

use heddle_load::Mix;

/// Where a request is routed to the thread of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// In the application, through a queue between threads: MICA without steering clients.
    Application,
    /// In the driver, by a policy: Syrup SW.
    Native,
    /// The same above any driver (XDP's generic mode), which copies each frame once more.
    Generic,
    /// By a policy among ordinary sockets (Socket Select).
    Sockets,
}

impl Way {
    pub const ALL: [Self; 4] = [Self::Application, Self::Native, Self::Generic, Self::Sockets];

    /// The name of the system in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Native => "key-hash",
            Self::Generic => "key-hash, generic",
            Self::Sockets => "key-hash, sockets",
        }
    }

    /// The policy that decides in the kernel.
    pub fn policy(self) -> &'static str {
        match self {
            Self::Application => "round-robin",
            Self::Native | Self::Generic | Self::Sockets => "key-hash",
        }
    }
}

/// The paper's mixes of requests (Figure 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requests {
    /// As many PUTs as GETs.
    Half,
    /// 5 % PUTs.
    Reads,
}

impl Requests {
    pub const ALL: [Self; 2] = [Self::Half, Self::Reads];

    /// The case in tables: shares of GETs and PUTs in percent.
    pub fn case(self) -> &'static str {
        match self {
            Self::Half => "mica 50/50",
            Self::Reads => "mica 95/5",
        }
    }

    pub fn mix(self) -> Mix {
        let (get, set) = match self {
            Self::Half => (50, 50),
            Self::Reads => (95, 5),
        };
        format!("get={get},set={set}").parse().expect("a mix of two operations")
    }
}
