//! Which queue of the process may register a descriptor exclusively.
//!
//! The kernel stops at the first exclusive registration on which a thread waits, whoever it belongs to: of two queues that both had such,
//! one would never hear of the descriptor. So only one has, the first that registers the descriptor; the others register it for the home
//! alone, not exclusively, where the kernel neither stops nor goes past. Descriptors are known by their numbers: what two queues have under
//! two numbers, copies of a descriptor, or in two processes, nobody can tell apart from two files.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Registrations from many threads should not be one after the other.
const STRIPES: usize = 64;

type Owners = HashMap<RawFd, u64>;

static OWNERS: LazyLock<[Mutex<Owners>; STRIPES]> =
    LazyLock::new(|| std::array::from_fn(|_| Mutex::default()));

/// A queue, which gives up its claims when it is dropped.
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
    /// Whether this queue has `fd` for its own, from now on if nobody had.
    pub fn claim(&self, fd: RawFd) -> bool {
        with(stripe(fd), |owners| *owners.entry(fd).or_insert(self.0) == self.0)
    }

    /// Gives `fd` up.
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
    fn a_descriptor_belongs_to_the_first_until_that_gives_it_up_or_ends() {
        // A number that no other test has.
        const FD: RawFd = RawFd::MAX;
        let (first, second, third) = (Claims::default(), Claims::default(), Claims::default());
        assert!(first.claim(FD) && first.claim(FD) && !second.claim(FD));
        second.release(FD);
        assert!(!second.claim(FD), "it was not its own");
        first.release(FD);
        assert!(second.claim(FD) && !first.claim(FD));
        drop(second);
        assert!(third.claim(FD));
    }
}
