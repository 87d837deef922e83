//! Changes of files: one inotify instance a queue.
//!
//! inotify says "attributes" for new names, removed ones and new modes alike, and nothing of a file's size: so each file that is not a
//! directory is held by a descriptor that cannot read or write it (`O_PATH`), and looked at. It is let go of when its last name has
//! gone. A directory is not held: held, it would not be told that it was removed.

use super::changes::{FileChanges, Look};
use crate::error::system;
use crate::queue::Inner;
use crate::slot::{EventId, Table, flag};
use crate::{EventError, EventOptions, EventQueue};
use heddle_core::Rng;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

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
    /// `None` for a directory, and when the last name has gone.
    file: Option<OwnedFd>,
    look: Look,
    wanted: Vec<(EventId, FileChanges)>,
}

impl Watched {
    fn look_now(&self) -> Option<Look> {
        fstat(self.file.as_ref()?).ok().as_ref().map(Look::from)
    }

    fn changes(&mut self, said: ReadFlags, of_entry: bool) -> FileChanges {
        let now = self.look_now();
        let is_held = self.file.is_some() || self.look.is_directory;
        let changes = self.look.changes(said, of_entry, now);
        if changes.contains(FileChanges::DELETE) {
            self.file = None;
            // Told when its last name went; now its last user has gone too.
            return if is_held { changes } else { FileChanges::NONE };
        }
        changes
    }

    /// Of `changes` what is asked for is added to the slots' data; those to be activated (S1, S2).
    fn add(&self, changes: FileChanges, table: &Table, told: &mut Vec<EventId>) {
        for &(id, wanted) in &self.wanted {
            let data = u64::from(wanted.and(changes));
            if data != 0 && table.slot(id.index).add_data(data) {
                told.push(id);
            }
        }
    }
}

impl Files {
    fn want(&mut self, id: EventId, file: OwnedFd, wanted: FileChanges) -> Result<(), EventError> {
        let look = Look::from(&fstat(&file).map_err(refused("look at a file to watch"))?);
        let Some(descriptor) = &self.descriptor else { return Ok(()) };
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // The same inode is watched once; what others want of it stays.
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
            // The inode may have gone, and the watch with it.
            let _ = self.descriptor.as_ref().map(|fd| inotify::remove_watch(fd, number));
        }
    }

    /// Takes all that inotify has to say.
    fn read(&mut self, table: &Table) -> Vec<EventId> {
        let mut told = Vec::new();
        let Some(descriptor) = self.descriptor.take() else { return told };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&descriptor, &mut buffer);
        while let Ok(event) = reader.next() {
            let of_entry = event.file_name().is_some();
            self.said(event.wd(), event.events(), of_entry, table, &mut told);
        }
        self.descriptor = Some(descriptor);
        told
    }

    fn said(
        &mut self,
        number: i32,
        said: ReadFlags,
        of_entry: bool,
        table: &Table,
        told: &mut Vec<EventId>,
    ) {
        if said.contains(ReadFlags::QUEUE_OVERFLOW) {
            return self.all_changed(table, told);
        }
        let Some(watched) = self.watched.get_mut(&number) else { return };
        let changes = watched.changes(said, of_entry);
        watched.add(changes, table, told);
        if said.contains(ReadFlags::IGNORED) {
            self.unwatched(number);
        }
    }

    /// What was said is lost: anything may have happened.
    fn all_changed(&mut self, table: &Table, told: &mut Vec<EventId>) {
        for watched in self.watched.values_mut() {
            watched.look = watched.look_now().unwrap_or(watched.look);
            if watched.look.names == 0 {
                watched.file = None;
            }
            watched.add(FileChanges::ALL, table, told);
        }
    }

    /// The inode has gone: its events have nothing to tell any more, and stay registered until they are ended.
    fn unwatched(&mut self, number: i32) {
        let gone = self.watched.remove(&number);
        for (id, _) in gone.into_iter().flat_map(|watched| watched.wanted) {
            self.of_event.remove(&id);
        }
    }
}

fn refused(what: &'static str) -> impl FnOnce(Errno) -> EventError {
    move |errno| system(what)(errno.into())
}

fn no_watch(errno: Errno) -> EventError {
    refused(match errno {
        Errno::NOSPC => "watch one more file (the limit is fs.inotify.max_user_watches)",
        _ => "watch a file",
    })(errno)
}

impl Inner {
    fn open_files(&self) -> Result<(), EventError> {
        let mut files = self.sources.files.lock().unwrap();
        if files.descriptor.is_none() {
            let descriptor = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(
                refused("make an inotify instance (the limit is fs.inotify.max_user_instances)"),
            )?;
            self.open_pump(&descriptor, flag::FILE)?;
            files.descriptor = Some(descriptor);
        }
        Ok(())
    }

    pub(super) fn pump_files(&self, near: u32, rng: &Rng) {
        let told = self.sources.files.lock().unwrap().read(&self.table);
        self.tell(told, near, rng);
    }
}

impl EventQueue {
    /// Tells when `changes` happen to the file that `path` names now, wherever its names go afterwards. For an open descriptor the path is
    /// `/proc/self/fd/N`. [`Event::data`](crate::Event::data) is the [`FileChanges`] since it was told last.
    ///
    /// Where more happens than the system remembers (`fs.inotify.max_queued_events`), each event is told with all the changes that it asks
    /// for. After the file has gone nothing more is told, and the registration stays until it is ended.
    ///
    /// ```
    /// # use heddle_events::{EventOptions, EventQueue, FileChanges};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let path = std::env::temp_dir().join(format!("heddle-events-{}", std::process::id()));
    /// std::fs::write(&path, "old")?;
    /// let queue = EventQueue::new()?;
    /// queue.register_file(&path, FileChanges::WRITE, 1, EventOptions::default())?;
    /// std::fs::write(&path, "new")?;
    /// let mut worker = queue.worker()?;
    /// let event = worker.wait(None)?.next().ok_or("none")?;
    /// assert_eq!(FileChanges::from(event.data()), FileChanges::WRITE);
    /// # drop(event);
    /// # std::fs::remove_file(path)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`EventError::Full`]; the system's: no such file, no descriptors left (a file that is not a directory takes one), too many watches.
    pub fn register_file(
        &self,
        path: impl AsRef<Path>,
        changes: FileChanges,
        token: u64,
        options: EventOptions,
    ) -> Result<EventId, EventError> {
        self.0.check()?;
        let how = OFlags::PATH | OFlags::CLOEXEC;
        let file = openat(CWD, path.as_ref(), how, Mode::empty())
            .map_err(refused("open a file to watch"))?;
        self.0.open_files()?;
        let id = self.begin_source(flag::FILE, -1, token, options)?;
        let wanted = self.0.sources.files.lock().unwrap().want(id, file, changes);
        match wanted {
            Ok(()) => Ok(id),
            Err(error) => {
                self.0.end_unwatched(id);
                Err(error)
            }
        }
    }
}
