//! A meeting point for a fixed number of parties.

use super::{Condvar, Mutex};

/// Lets `n` tasks or threads wait until all have arrived; then the next round begins.
///
/// ```
/// use heddle_rt::sync::Barrier;
///
/// let barrier = Barrier::new(1);
/// assert!(barrier.wait().is_leader());
/// ```
pub struct Barrier {
    state: Mutex<State>,
    released: Condvar,
    n: usize,
}

#[derive(Clone, Copy)]
struct State {
    arrived: usize,
    round: u64,
}

/// Tells one of those who met at a [`Barrier`] from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWaitResult(bool);

impl Barrier {
    /// A barrier for `n`; 0 is taken as 1.
    pub const fn new(n: usize) -> Barrier {
        let state = State { arrived: 0, round: 0 };
        Barrier { state: Mutex::new(state), released: Condvar::new(), n }
    }

    /// Waits until `n` have called this.
    pub fn wait(&self) -> BarrierWaitResult {
        let mut state = self.state.lock();
        let round = state.round;
        state.arrived += 1;
        if state.arrived >= self.n {
            *state = State { arrived: 0, round: round + 1 };
            self.released.notify_all();
            return BarrierWaitResult(true);
        }
        self.released.wait_while(&mut state, |state| state.round == round);
        BarrierWaitResult(false)
    }
}

impl BarrierWaitResult {
    /// True for exactly one party of each round.
    pub fn is_leader(&self) -> bool {
        self.0
    }
}
