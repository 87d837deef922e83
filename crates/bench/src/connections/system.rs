//! The systems that are compared.

use std::fmt;
use std::str::FromStr;

/// A system that serves the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Heddle's tasks, with `set_read_timeout`.
    Heddle,
    /// tokio's tasks, with `tokio::time::timeout` around each read.
    Tokio,
}

impl System {
    /// Both.
    pub const ALL: [System; 2] = [System::Heddle, System::Tokio];
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            System::Heddle => "heddle",
            System::Tokio => "tokio",
        })
    }
}

impl FromStr for System {
    type Err = String;

    fn from_str(name: &str) -> Result<System, String> {
        let all = System::ALL;
        all.into_iter()
            .find(|system| system.to_string() == name)
            .ok_or_else(|| format!("no system `{name}`; there are heddle, tokio"))
    }
}
