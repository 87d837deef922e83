//! What the bench consists of, in the order of its tables.

use std::fmt;
use std::str::FromStr;

/// A part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A short periodic thread beside hogs.
    Delay,
    /// The operations of ghOSt's Table 3.
    Table3,
    /// Sixteen commits in one group against sixteen single ones.
    Group,
    /// A central agent over simulated CPUs.
    Scaling,
    /// A key-value server with antagonists.
    RocksDb,
    /// An agent is killed.
    Recover,
    /// An agent is replaced under load.
    Upgrade,
    /// Affinities are toggled during commits.
    Storm,
}

impl Part {
    /// All, in order.
    pub const ALL: [Part; 8] = [
        Part::Delay,
        Part::Table3,
        Part::Group,
        Part::Scaling,
        Part::RocksDb,
        Part::Recover,
        Part::Upgrade,
        Part::Storm,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Part::Delay => "delay",
            Part::Table3 => "table3",
            Part::Group => "group",
            Part::Scaling => "scaling",
            Part::RocksDb => "rocksdb",
            Part::Recover => "recover",
            Part::Upgrade => "upgrade",
            Part::Storm => "storm",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(name: &str) -> Result<Part, String> {
        let all = || Part::ALL.map(Part::name).join(", ");
        Part::ALL
            .into_iter()
            .find(|part| part.name() == name)
            .ok_or_else(|| format!("no part `{name}`; there are {}", all()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_as_they_are_written() {
        for part in Part::ALL {
            assert_eq!(part.to_string().parse(), Ok(part));
        }
        assert!("all".parse::<Part>().unwrap_err().contains("delay, table3"));
    }
}
