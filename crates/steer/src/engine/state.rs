//! What outlives the process that deployed a policy: programs and maps pinned in a BPF file system, and a record of each
//! attachment beside it. There is no other state, so a daemon that comes back, or a command that runs as root without
//! one, finds everything as it is.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind as Io, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use heddle_sys::bpf::{Map, Program};
use rustix::fs::{FlockOperation, StatVfsMountFlags, flock, statfs, statvfs};

use crate::policy::Maps;
use crate::request::{Attachment, Error, ErrorKind};

/// Where the state is kept.
#[derive(Clone, Debug)]
pub struct State {
    run: PathBuf,
    pins: PathBuf,
}

/// One attachment with its programs and maps.
pub struct Stored {
    /// What people see of it.
    pub attachment: Attachment,
    /// The program in the kernel's place.
    pub root: Program,
    /// Its maps.
    pub maps: Maps,
}

/// The pins of an attachment's programs; maps are pinned as `map_` and their name (the file system forbids dots).
const ROOT: &str = "root";
const MAP: &str = "map_";

impl State {
    /// The state of this machine: `/run/heddle` and `/sys/fs/bpf/heddle`.
    #[must_use]
    pub fn system() -> Self {
        Self::at("/run/heddle", "/sys/fs/bpf/heddle")
    }

    /// State in other folders, for tests. `pins` must be on a BPF file system.
    pub fn at(run: impl Into<PathBuf>, pins: impl Into<PathBuf>) -> Self {
        Self { run: run.into(), pins: pins.into() }
    }

    /// The folder of the pins.
    pub(super) fn pins(&self) -> &Path {
        &self.pins
    }

    /// Makes the folders, and mounts a BPF file system where there should be one and is none.
    ///
    /// # Errors
    /// Mostly a lack of privilege.
    pub fn prepare(&self) -> Result<(), Error> {
        let folder = |path: &Path| {
            let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
            made.map_err(|error| Error::system(format!("cannot make {}", path.display()), &error))
        };
        folder(&self.run)?;
        mount_bpf(Path::new("/sys/fs/bpf"))?;
        folder(&self.pins)
    }

    /// Waits until nobody else changes the state; until the result is dropped.
    ///
    /// # Errors
    /// If the lock's file cannot be opened.
    pub fn lock(&self) -> Result<File, Error> {
        let path = self.run.join("lock");
        let failed =
            |error: io::Error| Error::system(format!("cannot lock {}", path.display()), &error);
        let file =
            File::options().create(true).append(true).mode(0o600).open(&path).map_err(failed)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        self.sweep();
        Ok(file)
    }

    /// Removes the pins that belong to no record: of a command that was killed half-way, or of a record that somebody
    /// damaged. Without its pins the kernel empties a policy's slot, so nothing decides that is not listed. For whoever has
    /// the lock, as nobody else is half-way then.
    fn sweep(&self) {
        let Ok(listed) = self.list() else { return };
        let known: BTreeSet<u32> = listed.iter().map(|attachment| attachment.id).collect();
        for entry in fs::read_dir(&self.pins).into_iter().flatten().flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(id) = id.filter(|id| !known.contains(id)) {
                // What cannot be removed now is met again at the next lock.
                let _ = self.remove(id);
            }
        }
    }

    fn record(&self, id: u32) -> PathBuf {
        self.run.join(format!("{id}.json"))
    }

    fn folder(&self, id: u32) -> PathBuf {
        self.pins.join(id.to_string())
    }

    /// All attachments, by number. A record that cannot be read is passed over: it is no attachment of ours.
    ///
    /// # Errors
    /// If the folder cannot be read; none at all is no error.
    pub fn list(&self) -> Result<Vec<Attachment>, Error> {
        let entries = match fs::read_dir(&self.run) {
            Ok(entries) => entries,
            Err(error) if error.kind() == Io::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(Error::system(format!("cannot read {}", self.run.display()), &error));
            }
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let records =
            paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
        let read = |path: PathBuf| serde_json::from_slice(&fs::read(path).ok()?).ok();
        let mut list: Vec<Attachment> = records.filter_map(read).collect();
        list.sort_by_key(|attachment| attachment.id);
        Ok(list)
    }

    /// A number that no attachment has.
    ///
    /// # Errors
    /// Those of [`Self::list`].
    pub fn free_id(&self) -> Result<u32, Error> {
        Ok(self.list()?.iter().map(|attachment| attachment.id).max().unwrap_or(0) + 1)
    }

    /// Opens an attachment.
    ///
    /// # Errors
    /// `NotFound` if there is none of the number.
    pub fn open(&self, id: u32) -> Result<Stored, Error> {
        let none = || {
            Error::new(
                ErrorKind::NotFound,
                format!("there is no attachment {id} (`heddle ls` lists them)"),
            )
        };
        let attachment =
            self.list()?.into_iter().find(|attachment| attachment.id == id).ok_or_else(none)?;
        let folder = self.folder(id);
        let failed = |path: &Path, error: &io::Error| {
            Error::system(format!("cannot open {}", path.display()), error)
        };
        let path = folder.join(ROOT);
        let root = Program::open(&path).map_err(|error| failed(&path, &error))?;
        let mut maps = Maps::new();
        for entry in fs::read_dir(&folder).map_err(|error| failed(&folder, &error))?.flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            let Some(name) = file.strip_prefix(MAP) else { continue };
            maps.insert(
                name.into(),
                Map::open(&entry.path()).map_err(|error| failed(&entry.path(), &error))?,
            );
        }
        Ok(Stored { attachment, root, maps })
    }

    /// Keeps an attachment, in place of what there is of its number.
    ///
    /// # Errors
    /// If a pin or the record cannot be made; what was made is for [`Self::remove`].
    pub fn keep(&self, stored: &Stored) -> Result<(), Error> {
        let id = stored.attachment.id;
        let folder = self.folder(id);
        let failed = |error: io::Error| {
            Error::system(format!("cannot pin attachment {id} in {}", folder.display()), &error)
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
        let root = folder.join(ROOT);
        if !root.exists() {
            stored.root.pin(&root).map_err(failed)?;
        }
        let mut wanted = Vec::new();
        for (name, map) in &stored.maps {
            let path = folder.join(format!("{MAP}{name}"));
            // A map that changed its shape takes the place of the one before.
            if path.exists() && !same_map(&path, map) {
                fs::remove_file(&path).map_err(failed)?;
            }
            if !path.exists() {
                map.pin(&path).map_err(failed)?;
            }
            wanted.push(path);
        }
        for entry in fs::read_dir(&folder).map_err(failed)?.flatten() {
            let stale = entry.file_name().to_string_lossy().starts_with(MAP)
                && !wanted.contains(&entry.path());
            if stale {
                fs::remove_file(entry.path()).map_err(failed)?;
            }
        }
        self.write(&stored.attachment)
    }

    /// Writes an attachment's record, whole or not at all.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, attachment: &Attachment) -> Result<(), Error> {
        let path = self.record(attachment.id);
        let new = path.with_extension("new");
        let write = || {
            let bytes = serde_json::to_vec_pretty(attachment)?;
            let mut file =
                File::options().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        write().map_err(|error: io::Error| {
            // A full disk needs no half of a record.
            let _ = fs::remove_file(&new);
            Error::system(format!("cannot write {}", path.display()), &error)
        })
    }

    /// Forgets an attachment.
    ///
    /// # Errors
    /// If something of it cannot be removed; that it is not there is none.
    pub fn remove(&self, id: u32) -> Result<(), Error> {
        let folder = self.folder(id);
        let gone = |result: io::Result<()>, path: &Path| match result {
            Err(error) if error.kind() != Io::NotFound => {
                Err(Error::system(format!("cannot remove {}", path.display()), &error))
            }
            _ => Ok(()),
        };
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            gone(fs::remove_file(entry.path()), &entry.path())?;
        }
        gone(fs::remove_dir(&folder), &folder)?;
        let record = self.record(id);
        gone(fs::remove_file(&record), &record)
    }
}

/// Whether the pin at `path` is `map`: by what it is, for the file system has no other identity to ask for.
fn same_map(path: &Path, map: &Map) -> bool {
    Map::open(path).is_ok_and(|pinned| pinned.id().ok() == map.id().ok())
}

fn mount_bpf(at: &Path) -> Result<(), Error> {
    /// `BPF_FS_MAGIC` of linux/magic.h.
    const BPF_FS: i64 = 0xcafe_4a11;
    let is_bpf = statfs(at).is_ok_and(|fs| fs.f_type == BPF_FS);
    let read_only = statvfs(at).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::RDONLY));
    if is_bpf && !read_only {
        return Ok(());
    }
    let mounted = rustix::mount::mount("bpf", at, "bpf", rustix::mount::MountFlags::empty(), None);
    mounted.map_err(|error| {
        Error::system(format!("cannot mount a BPF file system at {}", at.display()), &error.into())
    })
}
