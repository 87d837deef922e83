//! Where enclaves are written down: a folder each, under `/run/heddle/agent` (`HEDDLE_RUN` names another place than `/run/heddle`).
//!
//! The guardian holds a lock on its folder as long as it lives, which the kernel takes away with it: who gets the lock knows that the
//! guardian is dead, and cleans up.

use super::{GuardianError, Record};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest name of an enclave: sixteen of them and their threads shall fit on a line.
const LONGEST: usize = 32;

/// The folder of all enclaves.
#[derive(Clone, Debug)]
pub struct Enclaves(PathBuf);

/// One enclave's folder.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// The lock on a folder; gone with the process at the latest.
#[derive(Debug)]
pub struct Lock(
    #[allow(dead_code, reason = "the kernel holds the lock as long as it is open")] File,
);

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
    #[must_use]
    pub fn list(&self) -> Vec<Listed> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> =
            entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        folders.sort();
        folders.into_iter().map(Folder).filter_map(|folder| folder.look()).collect()
    }

    /// Nobody else makes or cleans enclaves while this lives.
    ///
    /// # Errors
    /// The folder cannot be made: no privileges.
    pub fn lock(&self) -> Result<Lock, GuardianError> {
        make(&self.0)?;
        let path = self.0.join(".lock");
        let failed = || format!("cannot lock {}", path.display());
        let file = open(&path).map_err(GuardianError::system(failed()))?;
        flock(&file, FlockOperation::LockExclusive).map_err(GuardianError::system(failed()))?;
        Ok(Lock(file))
    }
}

fn make(path: &Path) -> Result<(), GuardianError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
    made.map_err(GuardianError::system(format!("cannot make {}", path.display())))
}

fn open(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(path)
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
        make(&self.0)?;
        let failed = format!("cannot write to {}", self.0.display());
        let file = open(&self.0.join("lock")).map_err(GuardianError::system(failed))?;
        // Somebody who looks whether the guardian lives holds the lock for an instant.
        for _ in 0..20 {
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Ok(Lock(file));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(GuardianError::Failed(format!(
            "there is an enclave `{name}` already: --name gives this one another name, `heddle agent stop {name}` ends that one",
            name = self.name()
        )))
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
        let written = File::create(&part).and_then(|mut file| file.write_all(&text));
        written
            .and_then(|()| fs::rename(&part, self.0.join("guardian.json")))
            .map_err(GuardianError::system(failed()))
    }

    /// What is written, if it can be read.
    #[must_use]
    pub fn look(self) -> Option<Listed> {
        let text = fs::read(self.0.join("guardian.json")).ok()?;
        let record = serde_json::from_slice(&text).ok()?;
        let dead = self.is_dead();
        Some(Listed { folder: self, record, dead })
    }

    /// Whether the guardian is dead: the kernel has let go of its lock.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        // Reading suffices for a shared lock, so that any user can see it.
        File::open(self.0.join("lock"))
            .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_ok())
    }

    /// Takes it away.
    pub fn remove(&self) {
        // What is left, the next one that starts removes.
        let _ = fs::remove_dir_all(&self.0);
    }

    /// Whose it is.
    #[must_use]
    pub fn owner(&self) -> Option<u32> {
        fs::metadata(&self.0).ok().map(|folder| folder.uid())
    }
}

#[cfg(test)]
mod tests {
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
            guardian: 1,
            agent: Some(2),
            uid: 0,
            since_ms: 0,
            program: vec!["./server".into()],
            pid: Some(3),
            upgrades: 0,
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
