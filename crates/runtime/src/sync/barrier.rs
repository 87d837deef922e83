//! Waiting for each other.

use super::{Condvar, Mutex};

/// Lets `n` tasks or threads wait until all have come; then the next round begins.
pub struct Barrier {
    state: Mutex<(usize, u64)>,
    all: Condvar,
    n: usize,
}

/// Tells one of those who met at a [`Barrier`] from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWaitResult(bool);

impl Barrier {
    /// A barrier for `n`; 0 is taken as 1.
    pub const fn new(n: usize) -> Barrier {
        Barrier { state: Mutex::new((0, 0)), all: Condvar::new(), n }
    }

    /// Waits until `n` have called this.
    pub fn wait(&self) -> BarrierWaitResult {
        let mut state = self.state.lock();
        let round = state.1;
        state.0 += 1;
        if state.0 >= self.n {
            *state = (0, round + 1);
            self.all.notify_all();
            return BarrierWaitResult(true);
        }
        self.all.wait_while(&mut state, |s| s.1 == round);
        BarrierWaitResult(false)
    }
}

impl BarrierWaitResult {
    /// True for exactly one of each round.
    pub fn is_leader(&self) -> bool {
        self.0
    }
}
