//! A scenario as the text of a file.

use super::Scenario;
use super::keys::{KEYS, Key};
use std::fmt::Write;

impl Scenario {
    /// Returns the scenario as the text of a file that [`Scenario::parse`] reads back to an equal one
    /// (times up to 2^53 ns). Defaults are left out. The names of files are relative to the working
    /// directory.
    pub fn to_toml(&self) -> String {
        let (mut text, mut open) = (String::new(), "");
        for (key, value) in self.values() {
            let (table, name) = key.path.split_once('.').unwrap_or(("", key.path));
            // Writing to a string cannot fail.
            if table != open {
                let _ = writeln!(text, "\n[{table}]");
                open = table;
            }
            let _ = writeln!(text, "{name} = {value}");
        }
        text
    }

    /// Returns the keys that [`Scenario::to_toml`] prints, with their values.
    pub fn values(&self) -> impl Iterator<Item = (&'static Key, String)> {
        KEYS.iter().filter_map(|key| Some((key, (key.show)(self)?)))
    }
}
