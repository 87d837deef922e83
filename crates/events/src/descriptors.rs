//! Which event represents each descriptor in epoll.
//!
//! epoll knows a descriptor once, but a queue may have two events on it. The *carrier* is registered, with
//! the interest of both; the other one, the *rider*, shares its registration. The lock of a descriptor comes
//! before all other locks of the queue. Registrations begin, change and end under it, so one that is alive
//! stays alive while it is held.

use crate::ids::EventId;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard};

/// Keeps threads that register different descriptors, with one or more system calls each, from waiting for
/// each other.
const STRIPES: usize = 64;

/// The carriers of some of the descriptors.
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
    /// Locks `fd`, and the others of its stripe.
    pub fn lock(&self, fd: RawFd) -> MutexGuard<'_, Carriers> {
        self.0[fd.unsigned_abs() as usize % STRIPES].lock().unwrap()
    }
}
