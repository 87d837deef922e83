//! Changes of files: one inotify instance per queue.
//!
//! inotify reports "attributes" for new names, removed names and new modes alike, and nothing about a file's
//! size. So each file that is not a directory is held by a descriptor that cannot read or write it
//! (`O_PATH`), and examined. The descriptor is closed when the file's last name is gone. A directory is not
//! held: if it were, its removal would not be reported.

use super::changes::{FileChanges, Look};
use crate::EventError;
use crate::error::system;
use crate::ids::EventId;
use crate::slot::Table;
use rustix::fs::fstat;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

/// The files that a queue watches.
#[derive(Debug, Default)]
pub(crate) struct Files {
    descriptor: Option<OwnedFd>,
    /// By the number that inotify gives to an inode.
    watched: BTreeMap<i32, Watched>,
    of_event: HashMap<EventId, i32>,
}

#[derive(Debug)]
struct Watched {
    /// None for a directory, and once the last name is gone.
    file: Option<OwnedFd>,
    look: Look,
    wanted: Vec<(EventId, FileChanges)>,
}

impl Watched {
    fn look_now(&self) -> Option<Look> {
        fstat(self.file.as_ref()?).ok().as_ref().map(Look::from)
    }

    fn changes(&mut self, report: ReadFlags, of_entry: bool) -> FileChanges {
        let now = self.look_now();
        let is_held = self.file.is_some() || self.look.is_directory;
        let changes = self.look.changes(report, of_entry, now);
        if changes.contains(FileChanges::DELETE) {
            self.file = None;
            // Reported when its last name went; now its last user is gone too.
            return if is_held { changes } else { FileChanges::NONE };
        }
        changes
    }

    /// Adds `changes`, as far as they are asked for, to the slots' data, and collects the events to be
    /// activated (S1, S2).
    fn add(&self, changes: FileChanges, table: &Table, changed: &mut Vec<EventId>) {
        for &(id, wanted) in &self.wanted {
            let data = u64::from(wanted.and(changes));
            if data != 0 && table.slot(id.index).add_data(data) {
                changed.push(id);
            }
        }
    }
}

impl Files {
    /// Opens the inotify instance if it is not open; `watch` has the workers watch it.
    pub fn open(
        &mut self,
        watch: impl FnOnce(&OwnedFd) -> Result<(), EventError>,
    ) -> Result<(), EventError> {
        if self.descriptor.is_none() {
            let descriptor = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(
                refused("make an inotify instance (the limit is fs.inotify.max_user_instances)"),
            )?;
            watch(&descriptor)?;
            self.descriptor = Some(descriptor);
        }
        Ok(())
    }

    pub fn want(
        &mut self,
        id: EventId,
        file: OwnedFd,
        wanted: FileChanges,
    ) -> Result<(), EventError> {
        let look = Look::from(&fstat(&file).map_err(refused("look at a file to watch"))?);
        let Some(descriptor) = &self.descriptor else { return Ok(()) };
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // An inode has one watch; what others asked for stays.
        let mask = look.mask(wanted) | WatchFlags::MASK_ADD;
        let number = inotify::add_watch(descriptor, path, mask).map_err(no_watch)?;
        let file = (!look.is_directory).then_some(file);
        let fresh = || Watched { file, look, wanted: Vec::new() };
        self.watched.entry(number).or_insert_with(fresh).wanted.push((id, wanted));
        self.of_event.insert(id, number);
        Ok(())
    }

    pub fn forget(&mut self, id: EventId) {
        let Some(number) = self.of_event.remove(&id) else { return };
        let Some(watched) = self.watched.get_mut(&number) else { return };
        watched.wanted.retain(|&(other, _)| other != id);
        if watched.wanted.is_empty() {
            self.watched.remove(&number);
            // The inode may be gone, and the watch with it.
            let _ = self.descriptor.as_ref().map(|fd| inotify::remove_watch(fd, number));
        }
    }

    /// Takes all of inotify's reports.
    pub fn read(&mut self, table: &Table) -> Vec<EventId> {
        let mut changed = Vec::new();
        let Some(descriptor) = self.descriptor.take() else { return changed };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&descriptor, &mut buffer);
        while let Ok(event) = reader.next() {
            let of_entry = event.file_name().is_some();
            self.on_report(event.wd(), event.events(), of_entry, table, &mut changed);
        }
        self.descriptor = Some(descriptor);
        changed
    }

    fn on_report(
        &mut self,
        number: i32,
        report: ReadFlags,
        of_entry: bool,
        table: &Table,
        changed: &mut Vec<EventId>,
    ) {
        if report.contains(ReadFlags::QUEUE_OVERFLOW) {
            return self.all_changed(table, changed);
        }
        let Some(watched) = self.watched.get_mut(&number) else { return };
        let changes = watched.changes(report, of_entry);
        watched.add(changes, table, changed);
        if report.contains(ReadFlags::IGNORED) {
            self.unwatched(number);
        }
    }

    /// Reports were lost: anything may have happened.
    fn all_changed(&mut self, table: &Table, changed: &mut Vec<EventId>) {
        for watched in self.watched.values_mut() {
            watched.look = watched.look_now().unwrap_or(watched.look);
            if watched.look.names == 0 {
                watched.file = None;
            }
            watched.add(FileChanges::ALL, table, changed);
        }
    }

    /// The inode is gone: its events have nothing more to report, and stay registered until they are ended.
    fn unwatched(&mut self, number: i32) {
        let gone = self.watched.remove(&number);
        for (id, _) in gone.into_iter().flat_map(|watched| watched.wanted) {
            self.of_event.remove(&id);
        }
    }
}

pub fn refused(what: &'static str) -> impl FnOnce(Errno) -> EventError {
    move |errno| system(what)(errno.into())
}

fn no_watch(errno: Errno) -> EventError {
    refused(match errno {
        Errno::NOSPC => "watch one more file (the limit is fs.inotify.max_user_watches)",
        _ => "watch a file",
    })(errno)
}
