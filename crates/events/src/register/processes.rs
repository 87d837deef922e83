//! Ends of processes.

use crate::ids::EventId;
use crate::slot::flag;
use crate::sources::processes::{self, Process};
use crate::{EventError, EventOptions, EventQueue};
use std::os::fd::AsRawFd;

impl EventQueue {
    /// Registers an event for the end of the process `pid`. It is reported once, and the registration ends
    /// with it. If the process is a child of this one and has not been waited for,
    /// [`Event::data`](crate::Event::data) is its status in the form of wait(2): 256 times the exit code, or
    /// the signal that killed it, plus 128 with a core dump. Otherwise it is zero. The child must still be
    /// waited for.
    ///
    /// A process that ended earlier and was not waited for is reported at once.
    ///
    /// # Errors
    /// [`EventError::NoProcess`]; [`EventError::Full`]; [`EventError::System`] if no descriptors are left:
    /// each registration takes one.
    pub fn register_process(
        &self,
        pid: u32,
        token: u64,
        options: EventOptions,
    ) -> Result<EventId, EventError> {
        self.0.check()?;
        let pidfd = processes::open(pid)?;
        let fd = pidfd.as_raw_fd();
        let _descriptor = self.0.watches.descriptors.lock(fd);
        let id = self.0.begin_source(flag::PROCESS, fd, token, options.once())?;
        self.0.sources.processes.lock().unwrap().insert(id, Process::new(pidfd));
        if let Err(error) = self.0.watches.watch(&self.0.dispatch, id) {
            self.0.end_unwatched(id);
            return Err(error);
        }
        Ok(id)
    }
}
