//! Scenarios that come with the program.

use super::{Draft, ScenarioError};
use std::path::Path;

/// A named scenario. Comments in its file name the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// Its file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        /// All scenarios that come with the program, those to start with first.
        pub const SHIPPED: &[Shipped] =
            &[$(Shipped { name: $name, text: include_str!(concat!("../../scenarios/", $name, ".toml")) }),*];
    };
}

shipped![
    "shinjuku",
    "aspen",
    "rocksdb",
    "colocation",
    "bursts",
    "search-256",
    "events-gis",
    "events-zippydb",
    "events-uniform",
];

impl Shipped {
    /// Returns the scenario called `name`.
    pub fn find(name: &str) -> Option<&'static Shipped> {
        SHIPPED.iter().find(|shipped| shipped.name == name)
    }

    /// Returns one line on what it shows: the first of its file.
    pub fn summary(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches("# ")
    }

    /// Returns the scenario, to be changed or finished.
    ///
    /// # Errors
    /// [`ScenarioError`]; the test of this module finds none.
    pub fn draft(&self) -> Result<Draft, ScenarioError> {
        Draft::new().text(self.text, self.name, Path::new(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shipped_scenarios_parse_and_have_a_summary() {
        for shipped in SHIPPED {
            shipped.draft().and_then(Draft::finish).unwrap();
            assert!((30..110).contains(&shipped.summary().len()), "{}", shipped.summary());
            assert_eq!(Shipped::find(shipped.name), Some(shipped));
        }
        assert_eq!(Shipped::find("nothing"), None);
    }
}
