//! Which flags of their own filters may be asked for.

use crate::raw::{Kevent, ev, filter, note};
use rustix::io::Errno;

/// Why these flags are not supported.
const NO_ROOM: &str = "EVFILT_WRITE does not support NOTE_LOWAT: Linux reports room by a threshold of its own. \
     Register without it";
const NO_FORKS: &str = "EVFILT_PROC supports NOTE_EXIT only: Linux reports forks and execs of other processes to \
     privileged programs alone (netlink's process connector). Register with NOTE_EXIT, or without flags";

/// Checks the filter's flags of a knote to be added. Refuses flags that no system has (EINVAL), and those
/// that Linux cannot serve (ENOTSUP, with the reason in the error's text).
pub fn check(kevent: &Kevent) -> Result<(), Errno> {
    let unserved = match kevent.filter {
        _ if kevent.flags & ev::ADD == 0 => return Ok(()),
        filter::WRITE => (note::LOWAT, NO_ROOM),
        filter::PROC => (note::FORK | note::EXEC | note::TRACK, NO_FORKS),
        _ => (0, ""),
    };
    let served = match kevent.filter {
        filter::READ => note::LOWAT | note::FILE_POLL,
        filter::WRITE => 0,
        filter::PROC => note::EXIT,
        // Flags of the other filters are checked where they are used.
        _ => u32::MAX,
    };
    match kevent.fflags & !served {
        0 => Ok(()),
        rest if rest & !unserved.0 == 0 => {
            crate::error::set_last(unserved.1);
            Err(Errno::NOTSUP)
        }
        _ => Err(Errno::INVAL),
    }
}
