//! A descriptor in reserve. Where the process has no other left, it is given up to accept one more connection, which is told so
//! and closed: otherwise clients would wait for an answer that nobody gives.

use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use super::{Bounds, Limit};

/// The descriptor, if it is not given up.
#[derive(Debug)]
pub(crate) struct Spare(Mutex<Option<File>>);

impl Spare {
    pub(crate) fn new() -> Spare {
        Spare(Mutex::new(open()))
    }

    /// After an accept that failed: whether the next one has a descriptor that this one had not. The shortage is counted.
    pub(crate) fn give_up(&self, error: &io::Error, bounds: &Bounds) -> bool {
        let short = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
        if !error.raw_os_error().is_some_and(|number| short.contains(&number)) {
            return false;
        }
        bounds.hit(Limit::Descriptors);
        self.lock().take().is_some()
    }

    /// Whether there is a descriptor in reserve, if need be again. Where not, what was just accepted is to be closed, and then
    /// this called once more.
    pub(crate) fn restore(&self) -> bool {
        let mut spare = self.lock();
        if spare.is_none() {
            *spare = open();
        }
        spare.is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<File>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open() -> Option<File> {
    File::open("/dev/null").ok()
}
