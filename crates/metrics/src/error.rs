//! Errors of files and their contents.

use std::io;
use std::path::PathBuf;

use crate::format::SCHEMA;

/// Why results could not be read or a file could not be written. Each message names the file and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file could not be written; its previous content is unchanged.
    #[error("cannot write {}: {source}; the previous file, if there was one, is unchanged", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Not JSON, or JSON without the fields of the result format.
    #[error(
        "{origin} is not a Heddle result: {source}; use the output of --json or an .html report"
    )]
    Json {
        /// The file, or the name that the caller gave.
        origin: String,
        /// Where the text deviates from the format.
        source: serde_json::Error,
    },
    /// The result format has another version.
    #[error(
        "{origin} has result schema {found}, but this program reads schema {}; \
         read it with the version of heddle that wrote it, or measure again",
        SCHEMA
    )]
    Schema {
        /// The file, or the name that the caller gave.
        origin: String,
        /// The schema found there.
        found: String,
    },
    /// The HTML file contains no results.
    #[error(
        "{origin} is an HTML file without Heddle results; use a report written by heddle, or its .json"
    )]
    NoResults {
        /// The file, or the name that the caller gave.
        origin: String,
    },
    /// The numbers of a row contradict each other.
    #[error("{origin}, row {row} ({name}): {contradiction}; measure again, or correct the file")]
    Row {
        /// The file, or the name that the caller gave.
        origin: String,
        /// The row's index, from 0.
        row: usize,
        /// Its system, case and metric.
        name: String,
        /// The contradiction.
        contradiction: &'static str,
    },
}
