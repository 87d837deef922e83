//! What outlives the process that deployed a policy: programs and maps pinned in a BPF file system, and a
//! record of each attachment beside it. There is no other state, so a restarted daemon, or a command that
//! runs as root without one, finds everything as it is.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind as Io, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use heddle_bpf::{Map, Program};
use rustix::fs::{FlockOperation, flock};

use super::folders::{mount_bpf, private};
use super::quota::counted;
use super::records::Records;
use crate::policy::Maps;
use crate::request::{Attachment, Error, ErrorKind, Status};

/// Where the state is kept.
#[derive(Clone, Debug)]
pub struct State {
    run: PathBuf,
    pins: PathBuf,
    records: Records,
}

/// One attachment with its programs and maps.
pub struct Stored {
    /// Its public description.
    pub attachment: Attachment,
    /// The program that decides instead of the kernel.
    pub root: Program,
    /// Its maps.
    pub maps: Maps,
}

/// The pins of an attachment's programs; maps are pinned as `map_` and their name (the file system forbids
/// dots).
const ROOT: &str = "root";
const MAP: &str = "map_";
/// The file with the last id assigned to an attachment.
const LAST: &str = "last-id";
/// Bytes of a record: enough for 1,024 executors with the longest names.
pub(super) const MAX_RECORD: usize = 2 << 20;
/// Of those, bytes kept of the reason for an eviction.
const ROOM: usize = 4 << 10;

impl State {
    /// Returns the state of this machine: `/run/heddle` and `/sys/fs/bpf/heddle`.
    #[must_use]
    pub fn system() -> Self {
        Self::at("/run/heddle", "/sys/fs/bpf/heddle")
    }

    /// Returns a state in other folders, for tests. `pins` must be on a BPF file system.
    pub fn at(run: impl Into<PathBuf>, pins: impl Into<PathBuf>) -> Self {
        let run = run.into();
        Self { records: Records::at(&run), run, pins: pins.into() }
    }

    /// Returns the folder of the records.
    pub(super) fn run(&self) -> &Path {
        &self.run
    }

    /// Returns the folder of the pins.
    pub(super) fn pins(&self) -> &Path {
        &self.pins
    }

    /// Creates the folders, and mounts a BPF file system if it is missing.
    ///
    /// # Errors
    /// Usually a lack of privilege; `Denied` if another user owns a folder, or others may change what is in
    /// it.
    pub fn prepare(&self) -> Result<(), Error> {
        private(&self.run, 0o755)?;
        mount_bpf(Path::new("/sys/fs/bpf"))?;
        private(&self.pins, 0o700)
    }

    /// Waits for the lock of the state, and holds it until the result is dropped.
    ///
    /// # Errors
    /// If the lock's file cannot be opened.
    pub fn lock(&self) -> Result<File, Error> {
        let file = self.lock_file(FlockOperation::LockExclusive)?;
        file.ok_or_else(|| Error::new(ErrorKind::Busy, "the state is locked"))
    }

    /// Tries to take the lock; `None` if another process holds it.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub fn try_lock(&self) -> Result<Option<File>, Error> {
        self.lock_file(FlockOperation::NonBlockingLockExclusive)
    }

    fn lock_file(&self, how: FlockOperation) -> Result<Option<File>, Error> {
        let path = self.run.join("lock");
        let failed =
            |error: io::Error| Error::system(format!("cannot lock {}", path.display()), &error);
        let file =
            File::options().create(true).append(true).mode(0o600).open(&path).map_err(failed)?;
        match flock(&file, how) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            result => result.map_err(|error| failed(error.into()))?,
        }
        self.sweep();
        Ok(Some(file))
    }

    /// Removes pins without a record, and unfinished records: left by a command that was killed, or by a
    /// record that was damaged. Without its pins the kernel empties a policy's slot, so no unlisted policy
    /// decides. Call with the lock, so that no change is half done.
    fn sweep(&self) {
        // A record that could not be read says nothing about its pins.
        let (Ok(listed), Ok(pinned)) = (self.list(), self.pinned()) else { return };
        let known: BTreeSet<u32> = listed.iter().map(|attachment| attachment.id).collect();
        for id in pinned.into_iter().filter(|id| !known.contains(id)) {
            // What cannot be removed now is retried at the next lock.
            let _ = self.remove(id);
        }
        for entry in fs::read_dir(&self.run).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "new") {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Returns the attachments that have pins.
    fn pinned(&self) -> io::Result<Vec<u32>> {
        let entries = match fs::read_dir(&self.pins) {
            Err(error) if error.kind() == Io::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut ids = Vec::new();
        for entry in entries {
            ids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
        }
        Ok(ids)
    }

    fn record(&self, id: u32) -> PathBuf {
        self.run.join(format!("{id}.json"))
    }

    fn folder(&self, id: u32) -> PathBuf {
        self.pins.join(id.to_string())
    }

    /// Returns all attachments, by id. Damaged records are skipped: they are not ours.
    ///
    /// # Errors
    /// If the folder or a record cannot be read; that there are none is no error.
    pub fn list(&self) -> Result<Vec<Attachment>, Error> {
        self.records.list()
    }

    /// Returns the record of an attachment.
    ///
    /// # Errors
    /// `NotFound` if there is none of this id; as [`Self::list`].
    pub fn find(&self, id: u32) -> Result<Attachment, Error> {
        let none = || {
            Error::new(
                ErrorKind::NotFound,
                format!("there is no attachment {id} (`heddle steer ls` lists them)"),
            )
        };
        self.records.find(id)?.ok_or_else(none)
    }

    /// Returns an id that no attachment has or had, whichever process made it: facts known about one id never
    /// apply to another attachment. It is recorded before use, and used up even if the attachment then fails.
    /// Call with the lock.
    ///
    /// # Errors
    /// Those of [`Self::list`], or if the id cannot be recorded.
    pub fn free_id(&self) -> Result<u32, Error> {
        let pinned = self.pinned().map_err(|error| {
            Error::system(format!("cannot read {}", self.pins.display()), &error)
        })?;
        let listed = self.list()?.into_iter().map(|attachment| attachment.id);
        let last = listed.chain(pinned).chain([self.last_id()?]).max().unwrap_or(0);
        let id = last.checked_add(1).ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                "all numbers of attachments are used up until the machine restarts",
            )
        })?;
        self.write_whole(&self.run.join(LAST), id.to_string().as_bytes())?;
        Ok(id)
    }

    /// Returns the last id assigned to an attachment; 0 at first.
    fn last_id(&self) -> Result<u32, Error> {
        let path = self.run.join(LAST);
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == Io::NotFound => Ok(0),
            // A damaged file is ignored, like a damaged record.
            Err(error) if error.kind() == Io::InvalidData => Ok(0),
            Err(error) => Err(Error::system(format!("cannot read {}", path.display()), &error)),
            Ok(text) => Ok(text.trim().parse().unwrap_or(0)),
        }
    }

    /// Writes a file of the state atomically.
    fn write_whole(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let new = path.with_extension("new");
        let write = || {
            let mut file =
                File::options().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&new, path)
        };
        write().map_err(|error: io::Error| {
            // If the disk is full, leave no half-written file.
            let _ = fs::remove_file(&new);
            Error::system(format!("cannot write {}", path.display()), &error)
        })
    }

    /// Opens one map of an attachment, without the rest.
    ///
    /// # Errors
    /// `NotFound` if the attachment no longer has a program, or has no such map.
    pub(super) fn map(&self, id: u32, name: &str) -> Result<Map, Error> {
        let folder = self.folder(id);
        let failed = |path: &Path, error: &io::Error| {
            Error::system(format!("cannot open {}", path.display()), error)
        };
        let root = folder.join(ROOT);
        fs::symlink_metadata(&root).map_err(|error| failed(&root, &error))?;
        let path = folder.join(format!("{MAP}{name}"));
        Map::open(&path).map_err(|error| failed(&path, &error))
    }

    /// Opens the program of an attachment, without the rest.
    ///
    /// # Errors
    /// `NotFound` if it no longer has one.
    pub(super) fn program(&self, id: u32) -> Result<Program, Error> {
        let path = self.folder(id).join(ROOT);
        Program::open(&path)
            .map_err(|error| Error::system(format!("cannot open {}", path.display()), &error))
    }

    /// Opens an attachment.
    ///
    /// # Errors
    /// `NotFound` if there is none of this id.
    pub fn open(&self, id: u32) -> Result<Stored, Error> {
        let attachment = self.find(id)?;
        let folder = self.folder(id);
        let failed = |path: &Path, error: &io::Error| {
            Error::system(format!("cannot open {}", path.display()), error)
        };
        let root = self.program(id)?;
        let mut maps = Maps::new();
        for entry in fs::read_dir(&folder).map_err(|error| failed(&folder, &error))? {
            let entry = entry.map_err(|error| failed(&folder, &error))?;
            let file = entry.file_name().to_string_lossy().into_owned();
            let Some(name) = file.strip_prefix(MAP) else { continue };
            maps.insert(
                name.into(),
                Map::open(&entry.path()).map_err(|error| failed(&entry.path(), &error))?,
            );
        }
        Ok(Stored { attachment, root, maps })
    }

    /// Stores an attachment, replacing what exists under its id.
    ///
    /// # Errors
    /// If a pin or the record cannot be made; remove partial results with [`Self::remove`].
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
            // A map whose shape changed replaces the previous one.
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
        let maps = counted(&stored.maps)
            .map_err(|error| Error::system("the kernel does not say which map is which", &error))?;
        self.write(&Attachment { maps, ..stored.attachment.clone() })
    }

    /// Writes an attachment's record atomically.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, attachment: &Attachment) -> Result<(), Error> {
        let path = self.record(attachment.id);
        self.records.forget(attachment.id);
        let failed = |error| Error::system(format!("cannot write {}", path.display()), &error);
        let bytes = serde_json::to_vec_pretty(attachment).map_err(|error| failed(error.into()))?;
        let room = if attachment.status == Status::Active { ROOM } else { 0 };
        if bytes.len() > MAX_RECORD - room {
            return Err(failed(io::Error::other(format!("a record of {} bytes", bytes.len()))));
        }
        self.write_whole(&path, &bytes)
    }

    /// Removes an attachment: first its record, then its pins, so that what is left half-way is swept up
    /// later.
    ///
    /// # Errors
    /// If part of it cannot be removed; a missing part is no error.
    pub fn remove(&self, id: u32) -> Result<(), Error> {
        let gone = |result: io::Result<()>, path: &Path| match result {
            Err(error) if error.kind() != Io::NotFound => {
                Err(Error::system(format!("cannot remove {}", path.display()), &error))
            }
            _ => Ok(()),
        };
        let record = self.record(id);
        match fs::remove_file(&record) {
            // A folder is not a record.
            Err(error) if error.kind() == Io::IsADirectory => {}
            result => gone(result, &record)?,
        }
        let folder = self.folder(id);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == Io::NotFound => return Ok(()),
            entries => entries.map_err(|error| {
                Error::system(format!("cannot read {}", folder.display()), &error)
            })?,
        };
        for entry in entries.flatten() {
            gone(fs::remove_file(entry.path()), &entry.path())?;
        }
        gone(fs::remove_dir(&folder), &folder)
    }
}

/// Returns whether the pin at `path` is `map`, compared by id: the file system offers no other identity.
fn same_map(path: &Path, map: &Map) -> bool {
    Map::open(path).is_ok_and(|pinned| pinned.id().ok() == map.id().ok())
}
