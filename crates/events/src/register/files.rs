//! Changes of files.

use crate::ids::EventId;
use crate::slot::flag;
use crate::sources::FileChanges;
use crate::sources::files::refused;
use crate::{EventError, EventOptions, EventQueue};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::path::Path;

impl EventQueue {
    /// Registers an event for `changes` of the file that `path` names now, whatever its names are later. For
    /// an open descriptor the path is `/proc/self/fd/N`. [`Event::data`](crate::Event::data) is the
    /// [`FileChanges`] since the last report.
    ///
    /// If more happens than the system remembers (`fs.inotify.max_queued_events`), each event is reported
    /// with all the changes that it asks for. After the file is gone nothing more is reported, and the
    /// registration stays until it is ended.
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
    /// [`EventError::Full`]; [`EventError::System`] if the file does not exist, no descriptors are left (a
    /// file that is not a directory takes one), or there are too many watches.
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
        let id = self.0.begin_source(flag::FILE, -1, token, options)?;
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
