//! Waiting for events.

use crate::error::errno;
use crate::membership::{self, Membership};
use crate::raw::Kevent;
use crate::registry::{self, CLOSED, Kqueue};
use crate::report;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Waits until there is something to report, and writes it to `room`, which is not empty. Returns how many
/// entries were written.
pub fn wait(
    kq: &Arc<Kqueue>,
    room: &mut [Kevent],
    timeout: Option<Duration>,
) -> Result<usize, Errno> {
    // A time out of range means no limit.
    let until = timeout.and_then(|time| Instant::now().checked_add(time));
    let waited = membership::at(kq, |membership| {
        membership.worker.set_room(room.len());
        wait_until(membership, room, until)
    });
    if waited == Err(Errno::BADF) {
        let _ = membership::leave(kq.number);
    }
    waited
}

fn wait_until(
    membership: &mut Membership,
    room: &mut [Kevent],
    until: Option<Instant>,
) -> Result<usize, Errno> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let fired = membership.worker.wait_held(left).map_err(errno)?;
        if fired.is_empty() {
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            return if is_over { Ok(0) } else { Err(Errno::INTR) };
        }
        if fired.iter().any(|fired| fired.token == CLOSED) {
            registry::end(&membership.kq);
            return Err(Errno::BADF);
        }
        let report_of = fired.iter().filter_map(|fired| report::report(&membership.kq, fired));
        let count = room.iter_mut().zip(report_of).map(|(room, kevent)| *room = kevent).count();
        if count > 0 {
            return Ok(count);
        }
    }
}
