//! The records of enclaves: a folder each, under `/run/heddle/agent` (`HEDDLE_RUN` names another place than
//! `/run/heddle`).
//!
//! The guardian holds a lock on its folder as long as it lives. The kernel releases it when the guardian ends: a
//! process that gets the lock knows that the guardian is dead, and cleans up. Only the folders' user may open
//! anything in them ([`private`]).

use super::cpus::{self, Cpus};
use super::{GuardianError, Record, Stage, tasks};
use crate::private::{self, Lock};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest name of an enclave: sixteen of them and their threads must fit on a line.
const LONGEST: usize = 32;
/// The lock on all enclaves. An older Heddle's `.lock` could be opened, and therefore held, by anyone; this file
/// never could.
const MAKING: &str = ".making.lock";
/// How long another process may take to make or clean an enclave.
const WAITING: Duration = Duration::from_secs(20);
/// A process that checks whether the guardian lives holds its lock for an instant.
const AN_INSTANT: Duration = Duration::from_millis(200);

/// The folder of all enclaves.
#[derive(Clone, Debug)]
pub struct Enclaves(PathBuf);

/// One enclave's folder.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// A recorded enclave.
#[derive(Clone, Debug)]
pub struct EnclaveEntry {
    /// Its folder.
    pub folder: Folder,
    /// The guardian's record.
    pub record: Record,
    /// Whether the guardian is dead.
    pub dead: bool,
}

impl Enclaves {
    /// Returns the folder of this machine.
    #[must_use]
    pub fn here() -> Enclaves {
        let run =
            std::env::var_os("HEDDLE_RUN").map_or_else(|| "/run/heddle".into(), PathBuf::from);
        Enclaves(run.join("agent"))
    }

    /// Returns a folder at another place.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Enclaves {
        Enclaves(folder.into())
    }

    /// Returns the folder of the enclave `name`, which need not exist.
    ///
    /// # Errors
    /// If the name is not valid.
    pub fn folder(&self, name: &str) -> Result<Folder, GuardianError> {
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let begins = name.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
        if !begins || !name.chars().all(fine) || name.len() > LONGEST {
            return Err(GuardianError::Usage(format!(
                "`{name}` is not a valid enclave name: use letters, digits, `-` and `_`, at most {LONGEST}"
            )));
        }
        Ok(Folder(self.0.join(name)))
    }

    /// Returns all recorded enclaves, by name. Unreadable ones are left out: their guardian has just begun or
    /// ended.
    ///
    /// # Errors
    /// If the folder is another user's, as it is for those who are not root.
    pub fn try_list(&self) -> Result<Vec<EnclaveEntry>, GuardianError> {
        let failed = || format!("cannot read the enclaves in {}", self.0.display());
        match private::existing_folder(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            found => found.map_err(GuardianError::system(failed()))?,
        };
        let entries = fs::read_dir(&self.0).map_err(GuardianError::system(failed()))?;
        let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        folders.sort();
        Ok(folders.into_iter().map(Folder).filter_map(Folder::entry).collect())
    }

    /// As [`Enclaves::try_list`], but empty if the folder cannot be read.
    #[must_use]
    pub fn list(&self) -> Vec<EnclaveEntry> {
        self.try_list().unwrap_or_default()
    }

    /// Checks that no enclave but `own` has one of the CPUs.
    ///
    /// # Errors
    /// Names the enclave that has one.
    pub(super) fn check_overlap(&self, wanted: &Cpus, own: &str) -> Result<(), GuardianError> {
        for Record { name, cpus, stage, .. } in self.list().into_iter().map(|other| other.record) {
            let taken: Cpus = wanted.intersection(&cpus).copied().collect();
            if name != own && !taken.is_empty() && stage != Stage::GivenBack {
                return Err(GuardianError::Usage(format!(
                    "CPU {} belongs to the enclave `{name}` (CPUs {})",
                    cpus::format(&taken),
                    cpus::format(&cpus)
                )));
            }
        }
        Ok(())
    }

    /// Returns folders in which a guardian died before it had written anything.
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

    /// Locks out other processes that make or clean enclaves.
    ///
    /// # Errors
    /// If the folder cannot be made, which needs privileges, or another process keeps the lock.
    pub fn lock(&self) -> Result<Lock, GuardianError> {
        let path = self.0.join(MAKING);
        let failed = format!("cannot lock {}", path.display());
        let file = private::folder(&self.0).and_then(|_| private::file(&path));
        file.and_then(|file| private::lock(file, WAITING)).map_err(GuardianError::system(failed))
    }
}

impl Folder {
    /// Returns the folder at `path`, which an agent gets from its guardian.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Folder {
        Folder(path.into())
    }

    /// Makes the folder and takes its lock, for the guardian of a new enclave.
    ///
    /// # Errors
    /// If another living guardian holds it.
    pub fn take(&self) -> Result<Lock, GuardianError> {
        let failed = || format!("cannot write to {}", self.0.display());
        let file = private::folder(&self.0).and_then(|_| private::file(&self.lock_path()));
        let file = file.map_err(GuardianError::system(failed()))?;
        private::lock(file, AN_INSTANT).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => GuardianError::Failed(format!(
                "there is an enclave `{name}` already: \
                 choose another name with --name, or end it with `heddle agent stop {name}` ({error})",
                name = self.name()
            )),
            _ => GuardianError::system(failed())(error),
        })
    }

    fn lock_path(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Returns the enclave's name.
    #[must_use]
    pub fn name(&self) -> String {
        self.0.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns the path of the guardian's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.0.join("control")
    }

    /// Returns the path of the agent's report.
    #[must_use]
    pub fn status(&self) -> PathBuf {
        self.0.join("status.json")
    }

    /// Returns the folder's path, for the files of a backend.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes the record atomically.
    ///
    /// # Errors
    /// If the file cannot be written.
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

    /// Returns the recorded enclave, if the record can be read.
    #[must_use]
    pub fn entry(self) -> Option<EnclaveEntry> {
        let record = self.record()?;
        let dead = self.is_left(&record);
        Some(EnclaveEntry { folder: self, record, dead })
    }

    /// Reads the record. One of another name would have another enclave undone.
    fn record(&self) -> Option<Record> {
        let mut text = String::new();
        private::existing_folder(&self.0).ok()?;
        let mut file = private::existing_file(&self.0.join("guardian.json")).ok()?;
        file.read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok().filter(|record: &Record| record.name == self.name())
    }

    /// Whether the guardian is dead: the kernel has released its lock.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.record().map_or_else(|| self.is_free(), |record| self.is_left(&record))
    }

    /// With an older Heddle anyone could hold the lock, so a held lock is not enough: the recorded guardian must be
    /// alive, too.
    fn is_left(&self, record: &Record) -> bool {
        self.is_free() || !tasks::is_alive(record.guardian, record.guardian_began)
    }

    fn is_free(&self) -> bool {
        private::existing_file(&self.lock_path()).is_ok_and(|file| private::is_free(&file))
    }

    /// Removes the folder.
    pub fn remove(&self) {
        // What remains is removed by the next guardian.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::record::{Agents, Kind};
    use super::*;
    use heddle_test_support::until;

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
            resizes: 0,
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
        // A process that another test starts at this moment has the lock's file until it runs its program.
        until("the lock is free", || enclaves.list()[0].dead);
        until("it can be taken", || folder.take().is_ok());
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
