//! The user-space half of the policy `token`: who gets how many tokens, and what becomes of leftovers (Syrup,
//! 5.2.2).
//!
//! In every epoch the latency-critical users get new tokens; those unused in the last epoch go to the
//! best-effort user, who may save up a few epochs' worth. The policy takes one for every request and drops
//! requests without one, so the server works just below saturation whatever the users send.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use heddle_bpf::MapView;
use heddle_core::Ns;
use heddle_steer_abi::NativeMap;

/// The map of the policy. In a user's line, word 0 is its tokens, 1 those it spent, 2 its refused requests.
pub const USERS: &str = "users";
/// The paper's epoch.
pub const EPOCH: Ns = Ns(100_000);
/// How many epochs' worth of tokens the best-effort user may save.
const SAVED_EPOCHS: u64 = 10;

/// A map whose values are words that several may change: in the kernel, or a policy's in this process.
pub trait Words: Send + 'static {
    /// Returns the `word`th 8 bytes of value `index`.
    fn word(&self, index: usize, word: usize) -> &AtomicU64;
    /// Returns the number of values.
    fn entries(&self) -> usize;
}

impl Words for MapView {
    fn word(&self, index: usize, word: usize) -> &AtomicU64 {
        MapView::word(self, index, word)
    }

    fn entries(&self) -> usize {
        self.len()
    }
}

impl Words for NativeMap {
    fn word(&self, index: usize, word: usize) -> &AtomicU64 {
        NativeMap::word(self, index, word)
    }

    fn entries(&self) -> usize {
        self.len()
    }
}

/// Who gets tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Users and their guaranteed tokens per second.
    pub guaranteed: Vec<(u8, u64)>,
    /// The user who gets the leftovers.
    pub best_effort: Option<u8>,
}

/// Why tokens cannot be distributed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharesError {
    /// The map has no such user.
    #[error("user {0} is not in the map, which has {1} users")]
    NoUser(u8, usize),
    /// A user given twice.
    #[error("user {0} is named twice")]
    Twice(u8),
}

/// Earns tokens by elapsed time.
#[derive(Debug)]
pub struct Refill<M> {
    map: M,
    users: Vec<User>,
    best_effort: Option<usize>,
}

#[derive(Debug)]
struct User {
    index: usize,
    /// Tokens per second.
    rate: u64,
    /// The fraction of a token earned so far, in units of 1/10^9.
    rest: u64,
}

impl User {
    /// Returns the tokens earned in `elapsed`.
    fn earn(&mut self, elapsed: Ns) -> u64 {
        let earned = u128::from(self.rate) * u128::from(elapsed.0) + u128::from(self.rest);
        self.rest = (earned % 1_000_000_000) as u64;
        u64::try_from(earned / 1_000_000_000).unwrap_or(u64::MAX)
    }
}

impl<M: Words> Refill<M> {
    /// Creates one for the users in `map`.
    ///
    /// # Errors
    /// [`SharesError`].
    pub fn new(map: M, shares: &Shares) -> Result<Self, SharesError> {
        let named: Vec<u8> =
            shares.guaranteed.iter().map(|(user, _)| *user).chain(shares.best_effort).collect();
        for (i, user) in named.iter().enumerate() {
            if usize::from(*user) >= map.entries() {
                return Err(SharesError::NoUser(*user, map.entries()));
            }
            if named[..i].contains(user) {
                return Err(SharesError::Twice(*user));
            }
        }
        let user = |&(user, rate): &(u8, u64)| User { index: user.into(), rate, rest: 0 };
        let users = shares.guaranteed.iter().map(user).collect();
        Ok(Self { map, users, best_effort: shares.best_effort.map(usize::from) })
    }

    /// Ends an epoch of length `elapsed`: grants new tokens, and gives the old ones to the best-effort user.
    /// Returns how many.
    pub fn epoch(&mut self, elapsed: Ns) -> u64 {
        let (mut left, mut earned) = (0, 0);
        for user in &mut self.users {
            let new = user.earn(elapsed);
            let old = self.map.word(user.index, 0).swap(new, Ordering::Relaxed);
            // A request that finds none takes one for an instant, and returns it.
            left += u64::try_from(old.cast_signed()).unwrap_or(0);
            earned += new;
        }
        self.best_effort.map_or(0, |user| self.share(user, left, earned * SAVED_EPOCHS))
    }

    /// Gives `user` up to `left` tokens, but no more than `most` in total.
    fn share(&self, user: usize, left: u64, most: u64) -> u64 {
        let tokens = self.map.word(user, 0);
        let has = u64::try_from(tokens.load(Ordering::Relaxed).cast_signed()).unwrap_or(0);
        let share = left.min(most.saturating_sub(has));
        tokens.fetch_add(share, Ordering::Relaxed);
        share
    }

    /// Returns the tokens that `user` has, has spent, and was refused.
    #[must_use]
    pub fn account(&self, user: u8) -> [u64; 3] {
        [0, 1, 2].map(|word| self.map.word(user.into(), word).load(Ordering::Relaxed))
    }
}

/// A thread that distributes tokens until dropped.
#[derive(Debug)]
pub struct Refiller {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Refiller {
    /// Starts distributing, every `epoch`; if the thread oversleeps, the epoch is longer and earns more.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start<M: Words>(mut refill: Refill<M>, epoch: Ns) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let run = move || {
            let mut last = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                thread::sleep(std::time::Duration::from_nanos(epoch.0));
                let now = Instant::now();
                refill.epoch(Ns(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX)));
                last = now;
            }
        };
        let thread = thread::Builder::new().name("heddle-tokens".into()).spawn(run)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Refiller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic: its users were looked up in the map when it was made.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
