//! The filters' own flags: which ones may be asked for.

use crate::raw::{Kevent, ev, filter, note};
use rustix::io::Errno;

/// Why these flags of the kernel's side cannot be had.
const NO_ROOM: &str = "EVFILT_WRITE cannot have NOTE_LOWAT: Linux reports that there is room by a threshold of its own, and nothing beyond it. \
     Register without it";
const NO_FORKS: &str = "EVFILT_PROC can have NOTE_EXIT only: Linux reports forks and execs of other processes to privileged programs alone \
     (netlink's process connector). Register with NOTE_EXIT, or without flags";

/// What is added may ask for these flags of its filter. Refused: those that no system has (EINVAL), and those that Linux cannot serve
/// (ENOTSUP, with the reason in the error's text).
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
        // Those of the others are looked at where they are used.
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
