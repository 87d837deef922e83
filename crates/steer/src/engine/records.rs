//! The records of attachments: files that are reread only if they have changed.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind as Io};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::state::MAX_RECORD;
use crate::request::{Attachment, Error};

/// The records in a folder.
#[derive(Clone, Debug)]
pub struct Records {
    folder: PathBuf,
    read: Arc<Mutex<BTreeMap<u32, Read>>>,
}

/// A record that was read.
#[derive(Debug)]
struct Read {
    version: Version,
    /// `None` if it was damaged.
    attachment: Option<Attachment>,
}

/// Distinguishes a file from another of the same name: records are replaced, never changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    inode: u64,
    changed: (i64, i64),
    length: u64,
}

impl Version {
    fn of(file: &Metadata) -> Self {
        let changed = (file.ctime(), file.ctime_nsec());
        Self { inode: file.ino(), changed, length: file.len() }
    }
}

impl Records {
    /// Uses the records in `folder`.
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.into(), read: Arc::default() }
    }

    /// Returns all intact records, by id. Costs a stat per record, and a read for those that have changed.
    ///
    /// # Errors
    /// If the folder or a record cannot be read: then it is unknown what is attached.
    pub fn list(&self) -> Result<Vec<Attachment>, Error> {
        let failed =
            |error| Error::system(format!("cannot read {}", self.folder.display()), &error);
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == Io::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut ids = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".json"));
            ids.extend(id.and_then(|id| id.parse::<u32>().ok()));
        }
        ids.sort_unstable();
        let mut read = self.read();
        read.retain(|id, _| ids.binary_search(id).is_ok());
        let mut list = Vec::with_capacity(ids.len());
        for id in ids {
            list.extend(self.record(&mut read, id)?);
        }
        Ok(list)
    }

    /// Returns the record of an id; `None` if there is none, or a damaged one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn find(&self, id: u32) -> Result<Option<Attachment>, Error> {
        self.record(&mut self.read(), id)
    }

    /// Forces a reread of a record next time.
    pub fn forget(&self, id: u32) {
        self.read().remove(&id);
    }

    fn read(&self) -> MutexGuard<'_, BTreeMap<u32, Read>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, read: &mut BTreeMap<u32, Read>, id: u32) -> Result<Option<Attachment>, Error> {
        let path = self.folder.join(format!("{id}.json"));
        let failed =
            |error: &io::Error| Error::system(format!("cannot read {}", path.display()), error);
        let file = match fs::metadata(&path) {
            Err(error) if error.kind() == Io::NotFound => return Ok(None),
            file => file.map_err(|error| failed(&error))?,
        };
        let version = Version::of(&file);
        if let Some(there) = read.get(&id).filter(|there| there.version == version) {
            return Ok(there.attachment.clone());
        }
        let attachment = if file.is_file() && file.len() <= MAX_RECORD as u64 {
            let bytes = match fs::read(&path) {
                Err(error) if error.kind() == Io::NotFound => return Ok(None),
                bytes => bytes.map_err(|error| failed(&error))?,
            };
            let parsed: Option<Attachment> = serde_json::from_slice(&bytes).ok();
            parsed.filter(|attachment| attachment.id == id)
        } else {
            None
        };
        read.insert(id, Read { version, attachment: attachment.clone() });
        Ok(attachment)
    }
}
