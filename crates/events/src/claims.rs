//! Which queue of the process may register a descriptor exclusively.
//!
//! The kernel stops at the first exclusive registration on which a thread waits, whichever queue it belongs
//! to: if two queues had exclusive registrations, one of them would never be notified. So only the first
//! queue that registers a descriptor does so exclusively. The others register it only at its home, not
//! exclusively, where the kernel neither stops nor skips them. Descriptors are identified by their numbers:
//! copies of a descriptor under two numbers, or in two processes, cannot be told from different files.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Keeps threads that register different descriptors from waiting for each other.
const STRIPES: usize = 64;

type Owners = HashMap<RawFd, u64>;

static OWNERS: LazyLock<[Mutex<Owners>; STRIPES]> =
    LazyLock::new(|| std::array::from_fn(|_| Mutex::default()));

/// A queue's claims, which it gives up when it is dropped.
#[derive(Debug)]
pub(crate) struct Claims(u64);

impl Default for Claims {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Claims(NEXT.fetch_add(1, Relaxed))
    }
}

fn with<T>(stripe: usize, act: impl FnOnce(&mut Owners) -> T) -> T {
    act(&mut OWNERS[stripe].lock().unwrap_or_else(PoisonError::into_inner))
}

fn stripe(fd: RawFd) -> usize {
    fd.unsigned_abs() as usize % STRIPES
}

impl Claims {
    /// Claims `fd` if no queue has. Returns whether this queue holds the claim.
    pub fn claim(&self, fd: RawFd) -> bool {
        with(stripe(fd), |owners| *owners.entry(fd).or_insert(self.0) == self.0)
    }

    /// Gives up the claim on `fd`.
    pub fn release(&self, fd: RawFd) {
        with(stripe(fd), |owners| {
            if owners.get(&fd) == Some(&self.0) {
                owners.remove(&fd);
            }
        });
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        for stripe in 0..STRIPES {
            with(stripe, |owners| owners.retain(|_, owner| *owner != self.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_lasts_until_it_is_released_or_its_queue_ends() {
        // A number that no other test uses.
        const FD: RawFd = RawFd::MAX;
        let (first, second, third) = (Claims::default(), Claims::default(), Claims::default());
        assert!(first.claim(FD) && first.claim(FD) && !second.claim(FD));
        second.release(FD);
        assert!(!second.claim(FD), "not its claim");
        first.release(FD);
        assert!(second.claim(FD) && !first.claim(FD));
        drop(second);
        assert!(third.claim(FD));
    }
}
