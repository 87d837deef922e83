//! What the bench consists of, in the order of its tables.

use std::fmt;
use std::str::FromStr;

/// A part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The dilated server under the papers' mixes.
    Mixes,
    /// What a decision costs.
    Cost,
    /// What access to a map costs.
    Maps,
    /// Replacing a policy under load.
    Replace,
    /// An unmodified UDP server of several processes' sockets.
    Udp,
    /// Unmodified gunicorn.
    Gunicorn,
    /// Keys to their cores, across AF_XDP.
    Mica,
}

impl Part {
    /// All, in order.
    pub const ALL: [Part; 7] =
        [Part::Mixes, Part::Cost, Part::Maps, Part::Replace, Part::Udp, Part::Gunicorn, Part::Mica];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Part::Mixes => "mixes",
            Part::Cost => "cost",
            Part::Maps => "maps",
            Part::Replace => "replace",
            Part::Udp => "udp",
            Part::Gunicorn => "gunicorn",
            Part::Mica => "mica",
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
