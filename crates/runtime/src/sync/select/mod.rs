//! Waiting for the first of several events; see [`select!`](crate::select).
//!
//! An attempt looks at all arms in random order and completes the first that is ready. If none is, the caller
//! registers one [`Selection`] with the source of every arm and parks. An event claims the selection; the caller then
//! leaves all lists and completes that arm. If a source is found ready while the caller registers, it gives the
//! selection up and starts over: it never claims another party while it can be claimed itself, so two selections
//! cannot claim each other.

mod arms;
mod macros;
mod selection;

pub(crate) use arms::receive_from_channel;
#[doc(hidden)]
pub use arms::{Arm, CancelArm, RecvArm, SendArm, SendPermit};
pub use arms::{SelectRecv, SelectSend};
#[doc(hidden)]
pub use selection::Selection;
pub(crate) use selection::{Claim, Claimed, Selectors};

use crate::deadline::deadline_after;
use heddle_core::{Ns, Rng};
use heddle_sys::clock;
use std::time::Duration;

/// The most arms of one `select!`, besides `default`.
const MOST_ARMS: usize = 32;

/// For how long a `select!` waits.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// Until an arm is ready.
    Forever,
    /// Not at all.
    Never,
    /// For this time.
    For(Duration),
}

/// Completes one arm, in which its result is found; none within the time of `wait`.
///
/// # Panics
/// If there are more than 32 arms.
#[doc(hidden)]
pub fn select(arms: &mut [&mut dyn Arm], wait: Wait) {
    assert!(arms.len() <= MOST_ARMS, "select! has {} arms; at most {MOST_ARMS}", arms.len());
    let deadline = match wait {
        Wait::Forever => None,
        Wait::Never => Some(Ns::ZERO),
        Wait::For(time) => deadline_after(time),
    };
    while !attempt_any(arms) && deadline.is_none_or(|at| clock::now() < at) {
        let done = match wait_for_any(arms, deadline) {
            Some(Claim::Notified(arm)) => arms[arm].attempt(),
            Some(Claim::Committed(arm)) => arms[arm].commit(),
            None => false,
        };
        if done {
            return;
        }
    }
}

/// Completes an arm that is ready, each with the same chance.
fn attempt_any(arms: &mut [&mut dyn Arm]) -> bool {
    let mut order: [u8; MOST_ARMS] = std::array::from_fn(|i| i as u8);
    let order = &mut order[..arms.len()];
    if arms.len() > 1 {
        shuffle(order);
    }
    order.iter().any(|&arm| arms[usize::from(arm)].attempt())
}

/// Seeded by the clock: tasks have thread-local variables of their own, so a generator there would begin anew in each
/// task.
fn shuffle(order: &mut [u8]) {
    let rng = Rng::new(clock::ticks());
    for end in (1..order.len()).rev() {
        order.swap(end, rng.below(end + 1));
    }
}

/// Waits until an event claims the caller, at most until `deadline` or a time that an arm waits for. None if time
/// passed or an arm was found ready.
fn wait_for_any(arms: &mut [&mut dyn Arm], deadline: Option<Ns>) -> Option<Claim> {
    let selection = Selection::of_caller();
    let mut all = arms.iter().enumerate();
    let is_ready = all.any(|(index, arm)| arm.register(&selection, index));
    let claim = if is_ready {
        selection.give_up()
    } else {
        let due = arms.iter().filter_map(|arm| arm.due());
        selection.wait(due.chain(deadline).min())
    };
    arms.iter().for_each(|arm| arm.unregister(&selection));
    claim
}
