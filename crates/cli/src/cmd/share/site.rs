//! Where the broker of a file listens.

use std::fs;
use std::path::{Path, PathBuf};

use heddle_broker::{Config, Owner, QueryError, Report, query};

use crate::exit::Usage;
use crate::out::printable;
use crate::sources::shares;

/// A file that describes a share, and where its broker may be.
pub struct Site {
    /// The file, by its canonical path.
    pub file: PathBuf,
    /// Where this user's broker listens.
    pub own: PathBuf,
    /// Where root's does, if that is elsewhere.
    root: Option<PathBuf>,
}

impl Site {
    /// Reads the file.
    ///
    /// # Errors
    /// If it describes no share, or another user could answer for this user's broker.
    pub fn of(file: &Path) -> anyhow::Result<Site> {
        let usage = |error: &dyn std::fmt::Display| Usage(printable(&error.to_string()));
        let config = Config::read(file).map_err(|error| usage(&error))?;
        let file = fs::canonicalize(file)?;
        let owner = Owner::current();
        if config.socket.is_none() {
            owner.check_folders().map_err(|error| usage(&error))?;
        }
        let path = |owner| config.socket_path(&file, owner).map_err(|error| usage(&error));
        let (own, root) = (path(&owner)?, path(&Owner::root())?);
        let root = (root != own).then_some(root);
        Ok(Site { file, own, root })
    }

    /// Returns the socket of the broker that answers, and its answer.
    ///
    /// # Errors
    /// Why the user's own broker does not answer.
    pub fn find(&self) -> Result<(PathBuf, Report), QueryError> {
        let own = query(&self.own).map(|report| (self.own.clone(), report));
        let root = || Some((self.root.clone()?, query(self.root.as_ref()?).ok()?));
        own.or_else(|error| root().ok_or(error))
    }

    /// Returns how things are at the broker.
    ///
    /// # Errors
    /// A sentence that says how to start one.
    pub fn report(&self) -> anyhow::Result<Report> {
        let report = self.find().map(|(_, report)| report);
        report.map_err(|error| match error {
            QueryError::NoBroker { .. } => anyhow::anyhow!(
                "no broker runs for {}: `heddle share serve` or `heddle run --share` starts one",
                printable(&self.file.to_string_lossy())
            ),
            other => anyhow::anyhow!("{}", printable(&other.to_string())),
        })
    }
}

/// Returns how things are at all brokers in the default folders of this user and of root, by their sockets.
pub fn all() -> Vec<(PathBuf, Result<Report, QueryError>)> {
    let asked = shares::sockets().into_iter().map(|path| (query(&path), path));
    asked.map(|(answer, path)| (path, answer)).collect()
}
