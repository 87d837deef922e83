//! Waiting.

use crate::error::errno;
use crate::place::{self, Place};
use crate::raw::Kevent;
use crate::registry::{self, CLOSED, Kqueue};
use crate::tell;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Waits until there is something to tell, and writes it to `room`, which is not empty: how much.
pub fn wait(
    kq: &Arc<Kqueue>,
    room: &mut [Kevent],
    timeout: Option<Duration>,
) -> Result<usize, Errno> {
    // A time that has no end is none.
    let until = timeout.and_then(|time| Instant::now().checked_add(time));
    let waited = place::at(kq, |place| {
        place.worker.set_room(room.len());
        fill(place, room, until)
    });
    if waited == Err(Errno::BADF) {
        let _ = place::leave(kq.number);
    }
    waited
}

fn fill(place: &mut Place, room: &mut [Kevent], until: Option<Instant>) -> Result<usize, Errno> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let fired = place.worker.wait_held(left).map_err(errno)?;
        if fired.is_empty() {
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            return if is_over { Ok(0) } else { Err(Errno::INTR) };
        }
        if fired.iter().any(|fired| fired.token == CLOSED) {
            registry::end(&place.kq);
            return Err(Errno::BADF);
        }
        let told = fired.iter().filter_map(|fired| tell::tell(&place.kq, fired));
        let count = room.iter_mut().zip(told).map(|(room, kevent)| *room = kevent).count();
        if count > 0 {
            return Ok(count);
        }
    }
}
