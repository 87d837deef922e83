//! A descriptor in reserve. When the process has no other left, it is released to accept one more connection,
//! which gets an error and is closed; otherwise clients would wait for an answer that never comes.

use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use super::{Bounds, Limit};

/// The descriptor; `None` while it is released.
#[derive(Debug)]
pub(crate) struct Spare(Mutex<Option<File>>);

impl Spare {
    pub(crate) fn new() -> Spare {
        Spare(Mutex::new(open()))
    }

    /// Called after a failed accept: releases the descriptor if there was none left, and counts the shortage.
    /// Returns whether the next accept can succeed.
    pub(crate) fn give_up(&self, error: &io::Error, bounds: &Bounds) -> bool {
        let short = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
        if !error.raw_os_error().is_some_and(|number| short.contains(&number)) {
            return false;
        }
        bounds.hit(Limit::Descriptors);
        self.lock().take().is_some()
    }

    /// Takes a descriptor in reserve again if there is none; returns whether there is one. If not, the caller
    /// closes the connection that it just accepted, and calls this again.
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
