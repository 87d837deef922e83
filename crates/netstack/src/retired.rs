//! Entries at XDP of connections that were given up.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Connections whose segments are their lane's by an entry of their own at XDP, and that no handle holds any more:
/// closed outgoing ones, which still send and then wait in TIME_WAIT, and those of listeners that are gone.
#[derive(Debug, Default)]
pub(crate) struct Retired(Mutex<VecDeque<Entry>>);

impl Retired {
    /// Locks the entries.
    pub(crate) fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry of a connection.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) lane: usize,
    /// The kernel's socket that has the port of an outgoing connection: no other program may have it.
    pub(crate) _port: Option<OwnedFd>,
}
