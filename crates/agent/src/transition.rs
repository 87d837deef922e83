//! State machines whose transitions are checked.
//!
//! A state is an enum that lists its successors ([`Transitions::successors`]), and [`transition`] is the one function
//! that changes it. An illegal transition is a fault of this crate and panics, in release builds too: an agent that
//! went on would schedule by a wrong state, while one that ends gives its threads back (I3). The check compares one
//! byte with at most five others and costs 1 ns (AMD EPYC Zen 5), where reading and handling a message costs an agent
//! hundreds.

use core::fmt::Debug;

/// A state with a list of the states that may follow it.
pub(crate) trait Transitions: Copy + Debug + PartialEq + 'static {
    /// The states that may follow this one. A state that may be entered again names itself.
    fn successors(self) -> &'static [Self];

    /// Whether `next` may follow this state.
    fn may_become(self, next: Self) -> bool {
        self.successors().contains(&next)
    }
}

/// Changes `state` to `next`.
///
/// # Panics
/// If `next` may not follow `state`.
#[track_caller]
pub(crate) fn transition<S: Transitions>(state: &mut S, next: S) {
    assert!(state.may_become(next), "illegal transition from {state:?} to {next:?}");
    *state = next;
}

/// A state that only [`Checked::transition`] can change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked<S>(S);

impl<S: Transitions> Checked<S> {
    /// The present state.
    pub fn get(self) -> S {
        self.0
    }

    /// Changes the state to `next`.
    ///
    /// # Panics
    /// If `next` may not follow the present state.
    #[track_caller]
    pub fn transition(&mut self, next: S) {
        transition(&mut self.0, next);
    }
}

/// Checks that the legal transitions among `all` are exactly those of `table`, whose lines read `State -> Next Next`,
/// and that each other one panics.
#[cfg(test)]
pub(crate) fn check_table<S: Transitions + std::panic::RefUnwindSafe>(all: &[S], table: &str) {
    let legal = |from: S, to: S| {
        let lines = table.lines().filter_map(|line| line.split_once(" -> "));
        let (from, to) = (format!("{from:?}"), format!("{to:?}"));
        lines
            .filter(|(state, _)| state.trim() == from)
            .any(|(_, next)| next.split(' ').any(|next| next == to))
    };
    for (from, to) in all.iter().flat_map(|&from| all.iter().map(move |&to| (from, to))) {
        let result = std::panic::catch_unwind(|| {
            let mut state = from;
            transition(&mut state, to);
            state
        });
        match result {
            Ok(state) => assert!(legal(from, to) && state == to, "{from:?} -> {to:?} must panic"),
            Err(_) => assert!(!legal(from, to), "{from:?} -> {to:?} must be possible"),
        }
    }
}
