//! A lane from outside: its connections and listeners in steps, so that its lock is never held for long (I1).

use super::{BATCH, Lane};
use crate::wire::Wire;
use heddle_tcp::{Info, ListenerInfo, Progress};

impl<W: Wire> Lane<W> {
    /// Adds the next connections to `found`, at most [`BATCH`] of them. Returns false if these were the last. See
    /// [`heddle_tcp::Stack::next_connections`].
    pub fn next_connections(&self, progress: &mut Progress, found: &mut Vec<Info>) -> bool {
        // Memory is not allocated under the lock.
        found.reserve(BATCH);
        let mut inner = self.inner.lock();
        inner.stack().next_connections(progress, BATCH, |info| found.push(info))
    }

    /// Returns its listeners from the `first` on, at most [`BATCH`] of them.
    pub fn next_listeners(&self, first: usize) -> Vec<ListenerInfo> {
        let mut found = Vec::with_capacity(BATCH);
        let mut inner = self.inner.lock();
        found.extend(inner.stack().listeners().skip(first).take(BATCH));
        found
    }

    /// Returns all its connections, those that are half open or over included, as [`Lane::next_connections`] does.
    pub fn connections(&self) -> Vec<Info> {
        let (mut progress, mut all) = (Progress::default(), Vec::new());
        while self.next_connections(&mut progress, &mut all) {}
        all
    }
}
