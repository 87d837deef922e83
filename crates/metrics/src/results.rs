//! The result format.

use std::env;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::format::{EMBED_CLOSE, EMBED_OPEN, SCHEMA};
use crate::{Error, Machine, Row, write_atomically};

/// The measurements of one command, with the command line and the machine.
///
/// ```
/// use heddle_metrics::{Results, Row, Run};
///
/// let row = Row::from_runs("heddle", "yield", "cpu_ns_per_op", "ns", &[Run::ok(24.1)]);
/// let results = Results::here(vec![row]);
/// let again = Results::from_json("memory", &results.to_json()).unwrap();
/// assert_eq!(again, results);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Always [`SCHEMA`].
    pub schema: u32,
    /// The command line that measured.
    pub command: Vec<String>,
    /// The machine it ran on.
    pub machine: Machine,
    /// The measurements.
    pub rows: Vec<Row>,
}

impl Results {
    /// Returns `rows` as measured by `command` on `machine`.
    pub fn new(command: Vec<String>, machine: Machine, rows: Vec<Row>) -> Results {
        Results { schema: SCHEMA, command, machine, rows }
    }

    /// Returns `rows` as measured by this process on this machine, now.
    pub fn here(rows: Vec<Row>) -> Results {
        Results::new(command_line(), Machine::detect(), rows)
    }

    /// Returns the results as one indented JSON object.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("strings and numbers always serialise")
    }

    /// Reads the result format. `origin` names the text in errors.
    ///
    /// # Errors
    /// [`Error::Json`], [`Error::Schema`] or [`Error::Row`].
    pub fn from_json(origin: &str, text: &str) -> Result<Results, Error> {
        check_schema(origin, text)?;
        let results: Results =
            serde_json::from_str(text).map_err(|source| json_error(origin, source))?;
        results.check_rows(origin)?;
        Ok(results)
    }

    /// Reads the results embedded in an HTML [`Report`](crate::Report).
    ///
    /// # Errors
    /// [`Error::NoResults`], or those of [`from_json`](Results::from_json).
    pub fn from_html(origin: &str, html: &str) -> Result<Results, Error> {
        let json = html.split_once(EMBED_OPEN).and_then(|(_, rest)| rest.split_once(EMBED_CLOSE));
        let (json, _) = json.ok_or_else(|| Error::NoResults { origin: origin.into() })?;
        Results::from_json(origin, json)
    }

    /// Reads a `.json` result or an `.html` report. The content decides which, not the name.
    ///
    /// # Errors
    /// [`Error::Read`], or those of [`from_json`](Results::from_json) and [`from_html`](Results::from_html).
    pub fn read(path: impl AsRef<Path>) -> Result<Results, Error> {
        let path = path.as_ref();
        let text = fs::read_to_string(path)
            .map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let origin = path.display().to_string();
        match text.trim_start().starts_with('<') {
            true => Results::from_html(&origin, &text),
            false => Results::from_json(&origin, &text),
        }
    }

    /// Writes the results to a file as JSON, whole or not at all.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        write_atomically(path, &(self.to_json() + "\n"))
    }

    /// Returns the same results with these metrics only: those that fit on a screen.
    #[must_use]
    pub fn with_metrics(&self, metrics: &[&str]) -> Results {
        let wanted = |row: &&Row| metrics.contains(&row.metric.as_str());
        let rows = self.rows.iter().filter(wanted).cloned().collect();
        Results::new(self.command.clone(), self.machine.clone(), rows)
    }

    /// Returns the systems in the order of their first rows.
    pub fn systems(&self) -> Vec<&str> {
        let mut systems: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !systems.contains(&row.system.as_str()) {
                systems.push(&row.system);
            }
        }
        systems
    }

    fn check_rows(&self, origin: &str) -> Result<(), Error> {
        for (at, row) in self.rows.iter().enumerate() {
            if let Some(contradiction) = row.contradiction() {
                let name = format!("{} {} {}", row.system, row.case, row.metric);
                return Err(Error::Row { origin: origin.into(), row: at, name, contradiction });
            }
        }
        Ok(())
    }
}

fn json_error(origin: &str, source: serde_json::Error) -> Error {
    Error::Json { origin: origin.into(), source }
}

/// Checks the schema first: a newer format is then reported as such, not as malformed.
fn check_schema(origin: &str, text: &str) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct Head {
        schema: serde_json::Value,
    }
    let head: Head = serde_json::from_str(text).map_err(|source| json_error(origin, source))?;
    match head.schema.as_u64() == Some(u64::from(SCHEMA)) {
        true => Ok(()),
        false => Err(Error::Schema { origin: origin.into(), found: head.schema.to_string() }),
    }
}

/// This process's command line: the program without its folder, the home folder as `~`. A published result
/// must not name its author.
fn command_line() -> Vec<String> {
    let home = env::var("HOME").unwrap_or_default();
    let mut arguments: Vec<String> =
        env::args_os().map(|a| without_home(&a.to_string_lossy(), &home)).collect();
    if let Some(program) = arguments.first_mut() {
        *program = program.rsplit('/').next().unwrap_or_default().to_owned();
    }
    arguments
}

fn without_home(argument: &str, home: &str) -> String {
    if home.len() > 1 { argument.replace(home, "~") } else { argument.to_owned() }
}
