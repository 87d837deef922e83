//! Which event stands in epoll for each descriptor.
//!
//! epoll knows a descriptor once, a queue may have two events on it: the *carrier* is registered, with what both ask for, the other one
//! rides on it. The lock of a descriptor comes before all others of the queue; under it registrations begin, change and end. So what is
//! alive under it stays so.

use crate::slot::EventId;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard};

/// Registering many descriptors from many threads, with a system call or several each, should not be one after the other.
const STRIPES: usize = 64;

/// The carriers of some descriptors.
pub(crate) type Carriers = HashMap<RawFd, EventId>;

/// All descriptors of a queue.
#[derive(Debug)]
pub(crate) struct Descriptors([Mutex<Carriers>; STRIPES]);

impl Default for Descriptors {
    fn default() -> Self {
        Descriptors(std::array::from_fn(|_| Mutex::default()))
    }
}

impl Descriptors {
    /// Locks `fd`, and some others with it.
    pub fn lock(&self, fd: RawFd) -> MutexGuard<'_, Carriers> {
        self.0[fd.unsigned_abs() as usize % STRIPES].lock().unwrap()
    }
}
