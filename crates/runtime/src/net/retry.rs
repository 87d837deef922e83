//! Waits for what the kernel does not report.

use crate::sleep_future::sleep_until_async;
use crate::sync::{Cancellable, WaitQueue};
use crate::time::{now, within};
use heddle_core::Ns;
use std::io;

/// The first and the longest pause between two attempts; each pause is twice the one before.
const PAUSES: (Ns, Ns) = (Ns::from_us(50), Ns::from_ms(5));

/// Repeats `op` while it fails with `WouldBlock`, until the deadline or the task's time limit passes, or the task is
/// cancelled. `late` is the error for a deadline that passed.
///
/// For a full queue of *another* Unix socket: the poller learns that there is room only if the two are connected.
pub(super) fn retry<R>(
    deadline: Option<Ns>,
    late: io::ErrorKind,
    mut op: impl FnMut() -> io::Result<R>,
) -> io::Result<R> {
    within(deadline, late, |deadline| {
        let (mut pause, longest) = PAUSES;
        let mut in_time = true;
        loop {
            match op() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                done => return Some(done),
            }
            if !in_time {
                return None;
            }
            let next = now() + pause;
            let next = deadline.map_or(next, |deadline| next.min(deadline));
            WaitQueue::new().wait_while(|| true, Cancellable(Some(next)));
            // Nothing wakes the wait, so one that ends early was cancelled.
            in_time = now() >= next && deadline != Some(next);
            pause = (pause * 2).min(longest);
        }
    })
}

/// Like [`retry`], as a future, without a limit.
pub(super) async fn retry_async<R>(mut op: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    let (mut pause, longest) = PAUSES;
    loop {
        match op() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            done => return done,
        }
        sleep_until_async(now() + pause).await;
        pause = (pause * 2).min(longest);
    }
}
