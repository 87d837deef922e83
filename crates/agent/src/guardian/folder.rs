//! Where enclaves are written down: a folder each, under `/run/heddle/agent` (`HEDDLE_RUN` names another place than `/run/heddle`).
//!
//! The guardian holds a lock on its folder as long as it lives, which the kernel takes away with it: who gets the lock knows that the
//! guardian is dead, and cleans up. Nobody but the folders' user may open anything in them ([`private`]).

use super::{GuardianError, Record, tasks};
use crate::private::{self, Lock};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest name of an enclave: sixteen of them and their threads shall fit on a line.
const LONGEST: usize = 32;
/// The lock on all enclaves. An older Heddle's, `.lock`, anybody could open, and who has it open keeps it; this one never was open.
const MAKING: &str = ".making.lock";
/// How long another process may take to make or clean an enclave.
const WAITING: Duration = Duration::from_secs(20);
/// Somebody who looks whether the guardian lives holds its lock for an instant.
const AN_INSTANT: Duration = Duration::from_millis(200);

/// The folder of all enclaves.
#[derive(Clone, Debug)]
pub struct Enclaves(PathBuf);

/// One enclave's folder.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// An enclave that is written down.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Where.
    pub folder: Folder,
    /// What its guardian wrote.
    pub record: Record,
    /// Whether the guardian is dead.
    pub dead: bool,
}

impl Enclaves {
    /// Of this machine.
    #[must_use]
    pub fn here() -> Enclaves {
        let run =
            std::env::var_os("HEDDLE_RUN").map_or_else(|| "/run/heddle".into(), PathBuf::from);
        Enclaves(run.join("agent"))
    }

    /// Under another folder.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Enclaves {
        Enclaves(folder.into())
    }

    /// The folder of the enclave `name`, whether or not it exists.
    ///
    /// # Errors
    /// A name that is none.
    pub fn folder(&self, name: &str) -> Result<Folder, GuardianError> {
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let begins = name.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
        if !begins || !name.chars().all(fine) || name.len() > LONGEST {
            return Err(GuardianError::Usage(format!(
                "`{name}` is no name for an enclave: letters, digits, `-` and `_`, at most {LONGEST}"
            )));
        }
        Ok(Folder(self.0.join(name)))
    }

    /// All that are written down, by name. What cannot be read is left out: its guardian has just begun or ended.
    ///
    /// # Errors
    /// The folder is another user's, as it is for those who are not root.
    pub fn look(&self) -> Result<Vec<Listed>, GuardianError> {
        let failed = || format!("cannot look at the enclaves in {}", self.0.display());
        match private::existing_folder(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            looked => looked.map_err(GuardianError::system(failed()))?,
        };
        let entries = fs::read_dir(&self.0).map_err(GuardianError::system(failed()))?;
        let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        folders.sort();
        Ok(folders.into_iter().map(Folder).filter_map(|folder| folder.look()).collect())
    }

    /// The same, none where the folder cannot be looked into.
    #[must_use]
    pub fn list(&self) -> Vec<Listed> {
        self.look().unwrap_or_default()
    }

    /// Folders in which a guardian died before it had written anything.
    #[must_use]
    pub(super) fn unwritten(&self) -> Vec<Folder> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let folders = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).map(Folder);
        let is_left = |folder: &Folder| {
            let is_there = |name: &str| folder.0.join(name).symlink_metadata().is_ok();
            !is_there("guardian.json") && (!is_there("lock") || folder.is_free())
        };
        folders.filter(is_left).collect()
    }

    /// Nobody else makes or cleans enclaves while this lives.
    ///
    /// # Errors
    /// The folder cannot be made: no privileges. Another process keeps the lock.
    pub fn lock(&self) -> Result<Lock, GuardianError> {
        let path = self.0.join(MAKING);
        let failed = format!("cannot lock {}", path.display());
        let file = private::folder(&self.0).and_then(|_| private::file(&path));
        file.and_then(|file| private::lock(file, WAITING)).map_err(GuardianError::system(failed))
    }
}

impl Folder {
    /// The one at `path`, as an agent is told of it.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Folder {
        Folder(path.into())
    }

    /// Makes it and takes its lock, as the guardian of a new enclave.
    ///
    /// # Errors
    /// It is another living guardian's.
    pub fn take(&self) -> Result<Lock, GuardianError> {
        let failed = || format!("cannot write to {}", self.0.display());
        let file = private::folder(&self.0).and_then(|_| private::file(&self.lock_path()));
        let file = file.map_err(GuardianError::system(failed()))?;
        private::lock(file, AN_INSTANT).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => GuardianError::Failed(format!(
                "there is an enclave `{name}` already: --name gives this one another name, `heddle agent stop {name}` ends that one ({error})",
                name = self.name()
            )),
            _ => GuardianError::system(failed())(error),
        })
    }

    fn lock_path(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// The enclave's name.
    #[must_use]
    pub fn name(&self) -> String {
        self.0.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Where the guardian is asked.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.0.join("control")
    }

    /// Where the agent reports.
    #[must_use]
    pub fn status(&self) -> PathBuf {
        self.0.join("status.json")
    }

    /// Itself, for what a backend has to remember.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes what there is to know, all of it or nothing.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(&self, record: &Record) -> Result<(), GuardianError> {
        let failed = || format!("cannot write to {}", self.0.display());
        let text = serde_json::to_vec_pretty(record).map_err(GuardianError::system(failed()))?;
        let part = self.0.join("guardian.json.part");
        let written = private::file(&part).and_then(|mut file| {
            file.set_len(0)?;
            file.write_all(&text)
        });
        written
            .and_then(|()| fs::rename(&part, self.0.join("guardian.json")))
            .map_err(GuardianError::system(failed()))
    }

    /// What is written, if it can be read.
    #[must_use]
    pub fn look(self) -> Option<Listed> {
        let record = self.record()?;
        let dead = self.is_left(&record);
        Some(Listed { folder: self, record, dead })
    }

    /// A record of another name would have somebody else's enclave undone.
    fn record(&self) -> Option<Record> {
        let mut text = String::new();
        private::existing_folder(&self.0).ok()?;
        let mut file = private::existing_file(&self.0.join("guardian.json")).ok()?;
        file.read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok().filter(|record: &Record| record.name == self.name())
    }

    /// Whether the guardian is dead: the kernel has let go of its lock.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.record().map_or_else(|| self.is_free(), |record| self.is_left(&record))
    }

    /// An older Heddle let anybody open the lock, so one that is taken does not suffice: the guardian that is written down must live, too.
    fn is_left(&self, record: &Record) -> bool {
        self.is_free() || !tasks::lives(record.guardian, record.guardian_began)
    }

    fn is_free(&self) -> bool {
        private::existing_file(&self.lock_path()).is_ok_and(|file| private::is_free(&file))
    }

    /// Takes it away.
    pub fn remove(&self) {
        // What is left, the next one that starts removes.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::record::{Agents, Kind, Stage};
    use super::*;

    pub fn record(name: &str) -> Record {
        Record {
            schema: 1,
            name: name.into(),
            backend: Kind::Rt,
            stage: Stage::Active,
            policy: "fifo".into(),
            agents: Agents::Central,
            spin: false,
            cpus: [1, 2].into(),
            guardian: std::process::id(),
            guardian_began: None,
            agent: Some(2),
            agent_began: None,
            uid: 0,
            since_ms: 0,
            program: vec!["./server".into()],
            pid: Some(3),
            upgrades: 0,
            restarts: 0,
            last_death: None,
            taken: None,
            last_gap_us: None,
            reason: None,
            version: "0".into(),
        }
    }

    #[test]
    fn a_folder_is_one_guardians_until_it_ends() {
        let place = tempfile::tempdir().unwrap();
        let enclaves = Enclaves::at(place.path().join("agent"));
        assert!(enclaves.list().is_empty());
        let folder = enclaves.folder("one").unwrap();
        let lock = folder.take().unwrap();
        folder.write(&record("one")).unwrap();
        let refused = folder.take().unwrap_err().to_string();
        assert!(refused.contains("there is an enclave `one` already"), "{refused}");
        let listed = enclaves.list();
        assert_eq!((listed.len(), &listed[0].record, listed[0].dead), (1, &record("one"), false));
        drop(lock);
        assert!(enclaves.list()[0].dead);
        drop(folder.take().unwrap());
        folder.remove();
        assert!(enclaves.list().is_empty());
    }

    #[test]
    fn names_stay_in_the_folder() {
        let enclaves = Enclaves::at("/nowhere");
        for wrong in ["", "..", "a/b", ".lock", "-x", "a.b", "ä", &"x".repeat(33)] {
            assert!(enclaves.folder(wrong).is_err(), "{wrong}");
        }
        assert_eq!(enclaves.folder("web-1-a_b").unwrap().name(), "web-1-a_b");
    }
}
