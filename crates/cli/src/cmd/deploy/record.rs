//! Records of deployments: `NAME.json` in a folder that only its user may write. The text that was applied is in
//! it, not the path alone: what is in force changes by `heddle apply` and by nothing else.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use heddle_steer::request::Policy;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::file::{DeploymentFile, PolicySource, is_name};
use super::service::ServiceIdentity;

/// What is in force by a deployment, and what for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub schema: u32,
    pub name: String,
    /// The file that was applied.
    pub file: PathBuf,
    /// Its text, then.
    pub text: String,
    /// Its policies, by section.
    pub policies: BTreeMap<String, Policy>,
    pub service: ServiceIdentity,
    /// Whether all of the file was applied; not while `heddle apply` runs, nor if it was killed.
    pub complete: bool,
    /// When it was applied, milliseconds of the Unix clock.
    pub since_ms: u64,
    pub attachments: Vec<AttachmentRecord>,
    pub agent: Option<AgentRecord>,
    /// What the watch could not do, by section.
    #[serde(default)]
    pub problems: BTreeMap<String, String>,
}

/// An attachment of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachmentRecord {
    pub section: String,
    /// What it steers: `udp 127.0.0.1:8000`.
    pub target: String,
    /// The inode of the network namespace.
    pub namespace: u64,
    pub id: u32,
}

/// The enclave of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
    pub enclave: String,
    /// The guardian's process, and when it began.
    pub guardian: u32,
    pub guardian_began: Option<u64>,
    /// The attachment of its class map.
    pub class_map: Option<u32>,
}

impl Record {
    /// Parses the text that was applied.
    pub fn deployment(&self) -> anyhow::Result<DeploymentFile> {
        let from = PolicySource::Stored(&self.policies);
        DeploymentFile::parse(&self.file, self.text.clone(), &from)
            .with_context(|| format!("the record of deployment `{}`", self.name))
    }
}

/// The folder of a user's records.
#[derive(Clone, Debug)]
pub struct Records(PathBuf);

/// Held while records and what they describe change.
#[must_use]
pub struct RecordsLock {
    _file: File,
}

impl Records {
    /// Returns the caller's folder: in `HEDDLE_RUN` or `/run/heddle` for root, in `XDG_RUNTIME_DIR` for others.
    pub fn here() -> anyhow::Result<Self> {
        let run = std::env::var_os("HEDDLE_RUN").map(PathBuf::from);
        let run = match (run, rustix::process::geteuid().is_root()) {
            (Some(run), _) => run,
            (None, true) => "/run/heddle".into(),
            (None, false) => {
                let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
                own.context("no place for the record of a deployment: set XDG_RUNTIME_DIR, for example by logging in")?
                    .join("heddle")
            }
        };
        Ok(Self(run.join("deployments")))
    }

    #[cfg(test)]
    pub fn at(folder: &Path) -> Self {
        Self(folder.into())
    }

    /// Waits until no other process changes records. Creates the folder.
    pub fn lock(&self) -> anyhow::Result<RecordsLock> {
        let lock = self.lock_file("lock", FlockOperation::LockExclusive)?;
        lock.context("the lock of deployments was not waited for")
    }

    /// Locks the watch of these records, unless another process has it.
    pub fn try_watch_lock(&self) -> anyhow::Result<Option<RecordsLock>> {
        self.lock_file("watch.lock", FlockOperation::NonBlockingLockExclusive)
    }

    /// Whether a process watches these records.
    pub fn is_watched(&self) -> bool {
        // Without the folder there is no watch.
        let Ok(file) = File::open(self.0.join("watch.lock")) else { return false };
        flock(&file, FlockOperation::NonBlockingLockShared).is_err()
    }

    fn lock_file(&self, name: &str, how: FlockOperation) -> anyhow::Result<Option<RecordsLock>> {
        let path = self.0.join(name);
        let make = || {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
            File::options().create(true).append(true).mode(0o600).open(&path)
        };
        let file = make().with_context(|| format!("cannot open {}", path.display()))?;
        self.check_folder()?;
        loop {
            match flock(&file, how) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                result => {
                    break result.with_context(|| format!("cannot lock {}", path.display()))?;
                }
            }
        }
        Ok(Some(RecordsLock { _file: file }))
    }

    /// Refuses a folder that another user could have filled.
    fn check_folder(&self) -> anyhow::Result<()> {
        let there =
            fs::metadata(&self.0).with_context(|| format!("cannot read {}", self.0.display()))?;
        let me = rustix::process::geteuid().as_raw();
        if there.uid() != me || there.mode() & 0o022 != 0 {
            bail!(
                "{} belongs to user {} or may be written by others: remove it, or run this as its user",
                self.0.display(),
                there.uid()
            );
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.json"))
    }

    /// The file for the messages of a deployment's agent.
    pub fn log(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.log"))
    }

    /// Returns the record of a deployment, if there is one.
    pub fn read(&self, name: &str) -> anyhow::Result<Option<Record>> {
        let path = self.path(name);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        self.check_folder()?;
        let record = serde_json::from_slice(&text).with_context(|| {
            format!("{} is no record of this version of heddle", path.display())
        })?;
        Ok(Some(record))
    }

    /// Returns all records, by name.
    pub fn list(&self) -> anyhow::Result<Vec<Record>> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.with_context(|| format!("cannot read {}", self.0.display()))?,
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                name.strip_suffix(".json").filter(|name| is_name(name)).map(str::to_owned)
            })
            .collect();
        names.sort();
        let read = names.iter().map(|name| self.read(name));
        read.filter_map(Result::transpose).collect()
    }

    /// Writes a record, at once or not at all.
    pub fn write(&self, record: &Record) -> anyhow::Result<()> {
        let path = self.path(&record.name);
        let new = self.0.join(format!("{}.new", record.name));
        let write = || {
            let mut file =
                File::options().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&serde_json::to_vec(record)?)?;
            fs::rename(&new, &path)
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// Removes a record and its log.
    pub fn remove(&self, name: &str) -> anyhow::Result<()> {
        let path = self.path(name);
        let removed = |path: &Path| match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        removed(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        // Messages without a deployment are of no use.
        let _ = removed(&self.log(name));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn record(name: &str) -> Record {
        Record {
            schema: 1,
            name: name.into(),
            file: format!("/a/{name}.toml").into(),
            text: String::new(),
            policies: BTreeMap::new(),
            service: ServiceIdentity::default(),
            complete: true,
            since_ms: 1,
            attachments: Vec::new(),
            agent: None,
            problems: BTreeMap::new(),
        }
    }

    #[test]
    fn what_is_written_is_read_listed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::at(&folder.path().join("deployments"));
        assert_eq!(records.list().unwrap(), [], "there is no folder yet");
        assert!(!records.is_watched());
        let _lock = records.lock().unwrap();
        for name in ["b", "a"] {
            records.write(&record(name)).unwrap();
        }
        assert_eq!(records.read("a").unwrap(), Some(record("a")));
        assert_eq!(records.list().unwrap(), [record("a"), record("b")]);
        records.remove("a").unwrap();
        records.remove("a").unwrap();
        assert_eq!(records.list().unwrap(), [record("b")]);
    }

    #[test]
    fn only_one_process_watches() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::at(folder.path());
        let watch = records.try_watch_lock().unwrap();
        assert!(watch.is_some() && records.is_watched());
        assert!(records.try_watch_lock().unwrap().is_none());
        drop(watch);
        assert!(!records.is_watched());
    }

    #[test]
    fn a_folder_that_others_may_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::at(folder.path());
        drop(records.lock().unwrap());
        records.write(&record("a")).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(records.lock().is_err());
        let error = records.read("a").unwrap_err().to_string();
        assert!(error.contains("may be written by others"), "{error}");
    }
}
