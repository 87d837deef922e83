//! Who of several agents that spin is the active one.

use std::sync::{Condvar, Mutex, PoisonError};

/// A place for each agent to sleep on, and the right to be active, which one has at a time: the first one at first.
///
/// Only the active agent passes the right on, and only to another; so the locks of two places are never held together, and
/// waking one agent wakes no other.
#[derive(Debug)]
pub(super) struct Relay(Vec<Place>);

#[derive(Debug, Default)]
struct Place {
    state: Mutex<Turn>,
    bell: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    #[default]
    Waits,
    Active,
    Over,
}

impl Place {
    fn tell(&self, turn: Turn) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // There is no way back from the end.
        if *state != Turn::Over {
            *state = turn;
        }
        self.bell.notify_one();
    }
}

impl Relay {
    pub fn new(agents: usize) -> Relay {
        let relay = Relay((0..agents.max(1)).map(|_| Place::default()).collect());
        relay.0[0].tell(Turn::Active);
        relay
    }

    /// Sleeps until it is the turn of `agent`; false if the end has come.
    pub fn await_turn(&self, agent: usize) -> bool {
        let place = &self.0[agent];
        let state = place.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = place.bell.wait_while(state, |turn| *turn == Turn::Waits);
        *state.unwrap_or_else(PoisonError::into_inner) == Turn::Active
    }

    /// The active agent passes the right on.
    pub fn pass(&self, from: usize, to: usize) {
        debug_assert!(from != to, "an agent cannot pass the turn to itself");
        self.0[from].tell(Turn::Waits);
        self.0[to].tell(Turn::Active);
    }

    /// Nobody waits any longer.
    pub fn end(&self) {
        self.0.iter().for_each(|place| place.tell(Turn::Over));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_at_a_time_until_the_end() {
        const AGENTS: usize = 3;
        let (relay, active, turns) = (Relay::new(AGENTS), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for me in 0..AGENTS {
                let (relay, active, turns) = (&relay, &active, &turns);
                scope.spawn(move || {
                    while relay.await_turn(me) {
                        assert_eq!(active.fetch_add(1, Ordering::SeqCst), 0);
                        let turn = turns.fetch_add(1, Ordering::SeqCst);
                        active.fetch_sub(1, Ordering::SeqCst);
                        match turn {
                            1000 => relay.end(),
                            _ => relay.pass(me, (me + 1 + turn % (AGENTS - 1)) % AGENTS),
                        }
                    }
                });
            }
        });
        assert_eq!(turns.into_inner(), 1001);
    }
}
