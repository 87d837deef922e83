//! Requests for neighbours, from senders to the control thread.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use heddle_sync::atomic::{AtomicU64, Ordering};

/// The most requests that wait for the thread.
pub(super) const CAPACITY: usize = 256;
const SLOTS: usize = 256;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Asked {
    /// It is in the queue: wake the thread.
    Queued,
    /// It was made before, and nothing has changed since.
    Repeated,
    /// The queue is full.
    Full,
}

/// A bounded queue that takes each address once until [`Asking::forget`].
///
/// A sender asks again with each packet while a neighbour is unknown, so most requests are repetitions, and each one
/// that is queued wakes the thread. A slot holds the hash of the address that was asked for last among those that share
/// it; two that share one only make each other's repetitions pass. The hash is keyed, so no remote chooses such two.
#[derive(Debug)]
pub(super) struct Asking {
    slots: Box<[AtomicU64]>,
    hasher: RandomState,
    queue: SyncSender<IpAddr>,
}

impl Asking {
    pub(super) fn new() -> (Self, Receiver<IpAddr>) {
        let (queue, receiver) = sync_channel(CAPACITY);
        let slots = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        (Self { slots, hasher: RandomState::new(), queue }, receiver)
    }

    /// Puts an address into the queue. Never blocks.
    pub(super) fn ask(&self, address: IpAddr) -> Asked {
        // Zero means that the slot is free.
        let hash = self.hasher.hash_one(address) | 1 << 63;
        let slot = &self.slots[hash as usize % SLOTS];
        if slot.load(Ordering::Relaxed) == hash || slot.swap(hash, Ordering::Relaxed) == hash {
            return Asked::Repeated;
        }
        match self.queue.try_send(address) {
            Ok(()) => Asked::Queued,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                slot.store(0, Ordering::Relaxed);
                Asked::Full
            }
        }
    }

    /// Forgets what was asked, so that it may be asked again: called when answers may have changed.
    pub(super) fn forget(&self) {
        self.slots.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn an_address_is_queued_once_until_answers_may_have_changed() {
        let (asking, queue) = Asking::new();
        assert_eq!(asking.ask(address(1)), Asked::Queued);
        assert_eq!(asking.ask(address(1)), Asked::Repeated);
        asking.forget();
        assert_eq!(asking.ask(address(1)), Asked::Queued);
        assert_eq!(queue.try_iter().collect::<Vec<_>>(), [address(1), address(1)]);
    }

    #[test]
    fn a_full_queue_refuses_and_takes_the_address_later() {
        let (asking, queue) = Asking::new();
        let queued =
            (0..10_000).filter(|number| asking.ask(address(*number)) == Asked::Queued).count();
        assert_eq!(queued, CAPACITY);
        assert_eq!(asking.ask(address(20_000)), Asked::Full);
        assert_eq!(queue.try_iter().count(), CAPACITY);
        assert_eq!(asking.ask(address(20_000)), Asked::Queued);
    }
}
