//! Waiting for a condition.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longer than anything takes, on a busy machine too. A test that waits this long hangs.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// The time between two looks, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// Waits until `holds` returns true. `what` names the condition in the failure.
///
/// ```
/// let (sender, receiver) = std::sync::mpsc::channel();
/// std::thread::spawn(move || sender.send(()));
/// heddle_test_support::until("the thread has sent", || receiver.try_recv().is_ok());
/// ```
///
/// # Panics
/// If it does not hold within [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    until_within(PATIENCE, what, holds);
}

/// Waits until `holds` returns true, for at most `patience`.
///
/// # Panics
/// If it does not hold within `patience`.
#[track_caller]
pub fn until_within(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    let mut pause = FIRST_PAUSE;
    while !holds() {
        assert!(begin.elapsed() < patience, "not within {patience:?}: {what}");
        sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_until_the_condition_holds_and_not_once_more() {
        let mut looks = 0;
        until("the third look", || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    #[should_panic(expected = "not within 1ms: pigs fly")]
    fn a_condition_that_never_holds_fails_with_its_name() {
        until_within(Duration::from_millis(1), "pigs fly", || false);
    }
}
