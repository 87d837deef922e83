//! How registrations end.

use crate::descriptors::Carriers;
use crate::ids::{EventId, NONE};
use crate::inner::Inner;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

impl Inner {
    /// Ends a registration. Returns false if it had ended.
    pub fn end(&self, id: EventId) -> bool {
        let Ok(slot) = self.dispatch.table.alive(id) else { return false };
        let fd = slot.fd.load(Relaxed);
        if fd < 0 {
            return self.end_unwatched(id);
        }
        let mut carriers = self.watches.descriptors.lock(fd);
        if self.dispatch.table.alive(id).is_err() {
            return false;
        }
        self.end_locked(id, fd, &mut carriers);
        true
    }

    /// The descriptor is unregistered before the event ends: from then on the holder of the event may free
    /// the slot.
    fn end_locked(&self, id: EventId, fd: RawFd, carriers: &mut Carriers) {
        let slot = self.dispatch.table.slot(id.index);
        match self.unlink(id) {
            Some(Sibling::Carrier(first)) => {
                let _ = self.watches.rewatch_carrier(&self.dispatch, first);
            }
            other => {
                self.watches.unwatch(&self.dispatch, slot, &mut slot.watch.lock().unwrap());
                carriers.remove(&fd);
                if let Some(Sibling::Rider(second)) = other {
                    carriers.insert(fd, second);
                    // A descriptor that was closed cannot be watched and need not be.
                    let _ = self.watches.rewatch_carrier(&self.dispatch, second);
                }
            }
        }
        self.end_unwatched(id);
    }

    /// Ends what was registered on a descriptor that was closed, without touching the one that has its number
    /// now.
    pub fn discard(&self, id: EventId, fd: RawFd, carriers: &mut Carriers) {
        carriers.remove(&fd);
        let slot = self.dispatch.table.slot(id.index);
        let other = self.unlink(id);
        self.watches.unwatch(&self.dispatch, slot, &mut slot.watch.lock().unwrap());
        if let Some(Sibling::Carrier(other) | Sibling::Rider(other)) = other {
            self.end_unwatched(other);
        }
        self.end_unwatched(id);
    }

    /// Separates the two events of a descriptor and returns the other one.
    pub fn unlink(&self, id: EventId) -> Option<Sibling> {
        let slot = self.dispatch.table.slot(id.index);
        let (first, second) = (slot.first.swap(NONE, Relaxed), slot.second.swap(NONE, Relaxed));
        if first != NONE {
            self.dispatch.table.slot(first).second.store(NONE, Relaxed);
            return Some(Sibling::Carrier(self.dispatch.table.id(first)));
        }
        if second != NONE {
            self.dispatch.table.slot(second).first.store(NONE, Relaxed);
            return Some(Sibling::Rider(self.dispatch.table.id(second)));
        }
        None
    }
}

/// The other event of a descriptor.
pub(crate) enum Sibling {
    Carrier(EventId),
    Rider(EventId),
}
