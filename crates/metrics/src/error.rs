//! What can go wrong: files and their contents.

use std::io;
use std::path::PathBuf;

/// Why results could not be read, or a file not be written. Each message names the object and the way on.
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
    /// The file could not be written; what stood there before still does.
    #[error("cannot write {}: {source}; the previous file, if there was one, is unchanged", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Not JSON, or JSON without the fields of the result format.
    #[error(
        "{origin} is not a Heddle result: {source}; write it with --json or take the .html report"
    )]
    Json {
        /// The file, or what the caller named.
        origin: String,
        /// Where the text departs from the format.
        source: serde_json::Error,
    },
    /// A result format of another version.
    #[error(
        "{origin} has result schema {found}, this program reads schema {}; read it with the version of heddle that wrote it, or measure again",
        crate::SCHEMA
    )]
    Schema {
        /// The file, or what the caller named.
        origin: String,
        /// The schema found there.
        found: String,
    },
    /// An HTML file that holds no results.
    #[error(
        "{origin} is an HTML file without Heddle results in it; give a report that heddle wrote, or its .json"
    )]
    NoResults {
        /// The file, or what the caller named.
        origin: String,
    },
    /// A row whose numbers contradict each other.
    #[error("{origin}, row {row} ({name}): {what}; measure again, or correct the file")]
    Row {
        /// The file, or what the caller named.
        origin: String,
        /// The row's place, from 0.
        row: usize,
        /// Its system, case and metric.
        name: String,
        /// The contradiction.
        what: &'static str,
    },
}
