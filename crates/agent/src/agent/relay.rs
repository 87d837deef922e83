//! The turn among several spinning agents, of which one at a time is active.

use std::sync::{Condvar, Mutex, PoisonError};

/// A slot for each agent to sleep, and the turn, which the first agent has first.
///
/// Only the active agent passes the turn on, and only to another; so the locks of two slots are never held
/// together, and waking one agent wakes no other.
#[derive(Debug)]
pub(super) struct Relay(Vec<Slot>);

#[derive(Debug, Default)]
struct Slot {
    state: Mutex<Turn>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    #[default]
    Waits,
    Active,
    Over,
}

impl Slot {
    fn set(&self, turn: Turn) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The end is final.
        if *state != Turn::Over {
            *state = turn;
        }
        self.changed.notify_one();
    }
}

impl Relay {
    pub fn new(agents: usize) -> Relay {
        let relay = Relay((0..agents.max(1)).map(|_| Slot::default()).collect());
        relay.0[0].set(Turn::Active);
        relay
    }

    /// Sleeps until it is the turn of `agent`; false at the end.
    pub fn await_turn(&self, agent: usize) -> bool {
        let slot = &self.0[agent];
        let state = slot.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = slot.changed.wait_while(state, |turn| *turn == Turn::Waits);
        *state.unwrap_or_else(PoisonError::into_inner) == Turn::Active
    }

    /// Passes the turn on from the active agent.
    pub fn pass(&self, from: usize, to: usize) {
        debug_assert!(from != to, "an agent cannot pass the turn to itself");
        self.0[from].set(Turn::Waits);
        self.0[to].set(Turn::Active);
    }

    /// Ends the wait of all agents.
    pub fn end(&self) {
        self.0.iter().for_each(|slot| slot.set(Turn::Over));
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
