//! Filters that do not stand for a descriptor's readiness: timers, signals, processes. The queue counts their
//! occurrences.

use crate::error::errno;
use crate::notes::Knote;
use crate::raw::{Kevent, ev, filter, note};
use heddle_events::{EventId, EventOptions, EventQueue, FileChanges, Fired, TimerStart};
use rustix::io::Errno;
use std::time::{Duration, Instant, SystemTime};

/// Whether `which` is one of these filters.
pub fn is_counted(which: i16) -> bool {
    matches!(which, filter::TIMER | filter::SIGNAL | filter::PROC)
}

/// Returns the flags that a filter sets by itself.
pub fn implied(kevent: &Kevent) -> u16 {
    match kevent.filter {
        // A moment that has passed stays passed.
        filter::TIMER if kevent.fflags & note::ABSTIME != 0 => 0,
        filter::TIMER | filter::SIGNAL => ev::CLEAR,
        filter::PROC => ev::CLEAR | ev::ONESHOT,
        _ => 0,
    }
}

/// Registers an event for the filter of `change`.
pub fn register(
    queue: &EventQueue,
    kevent: &Kevent,
    flags: u16,
    token: u64,
    options: EventOptions,
) -> Result<EventId, Errno> {
    let id = match kevent.filter {
        filter::TIMER => {
            let (first, every) = times(kevent, flags)?;
            queue.register_timer(first, every, token, options)
        }
        filter::SIGNAL => queue.register_signal(number(kevent)?, token, options),
        filter::PROC => queue.register_process(number(kevent)?, token, options),
        _ => return Err(Errno::INVAL),
    };
    id.map_err(errno)
}

/// Applies a repeated EV_ADD.
pub fn add_again(queue: &EventQueue, kevent: &Kevent, note: &Knote) -> Result<(), Errno> {
    match kevent.filter {
        filter::TIMER => {
            let (first, every) = times(kevent, note.flags)?;
            queue.set_timer(note.id, first, every).map_err(errno)
        }
        _ => Ok(()),
    }
}

/// Returns data, flags of the filter, and whether this is the end. None if there is nothing to report.
pub fn report(note: &Knote, fired: &Fired) -> Option<(u64, u32, bool)> {
    match note.key.filter {
        filter::PROC if note.fflags & note::EXIT == 0 => None,
        filter::PROC => Some((fired.data, note::EXIT, true)),
        _ => (fired.data > 0).then_some((fired.data, 0, false)),
    }
}

/// Returns the changes of a file to watch for; the numbers are the same. No flags mean that nothing is
/// reported. BSD reports growth to a registration that asks for writes.
pub fn changes(kevent: &Kevent) -> Result<FileChanges, Errno> {
    let changes = FileChanges::from(u64::from(kevent.fflags));
    let is_counted = u64::from(changes) == u64::from(kevent.fflags);
    let more =
        if changes.contains(FileChanges::WRITE) { FileChanges::EXTEND } else { FileChanges::NONE };
    is_counted.then_some(changes | more).ok_or(Errno::INVAL)
}

/// Returns the flags with which changes of a file are reported: growth is a write, whichever was asked for.
pub fn changed(fired: &Fired) -> Option<u32> {
    let changes = FileChanges::from(fired.data);
    let more =
        if changes.contains(FileChanges::EXTEND) { FileChanges::WRITE } else { FileChanges::NONE };
    u32::try_from(u64::from(changes | more)).ok().filter(|&changes| changes != 0)
}

/// Returns the number of a signal or process.
fn number<T: TryFrom<usize>>(kevent: &Kevent) -> Result<T, Errno> {
    T::try_from(kevent.ident).map_err(|_| Errno::INVAL)
}

/// Returns when a timer expires first, and its period.
fn times(kevent: &Kevent, flags: u16) -> Result<(TimerStart, Option<Duration>), Errno> {
    let given = u64::try_from(kevent.data).map_err(|_| Errno::INVAL)?;
    let is_absolute = kevent.fflags & note::ABSTIME != 0;
    let is_once = is_absolute || flags & ev::ONESHOT != 0;
    // A period of zero is one unit.
    let time = in_unit(kevent.fflags & !note::ABSTIME, if is_once { given } else { given.max(1) })?;
    let first =
        if is_absolute { TimerStart::At(at_wall_time(time)) } else { TimerStart::After(time) };
    Ok((first, (!is_once).then_some(time)))
}

fn in_unit(unit: u32, count: u64) -> Result<Duration, Errno> {
    match unit {
        note::SECONDS => Ok(Duration::from_secs(count)),
        0 | note::MSECONDS => Ok(Duration::from_millis(count)),
        note::USECONDS => Ok(Duration::from_micros(count)),
        note::NSECONDS => Ok(Duration::from_nanos(count)),
        _ => Err(Errno::INVAL),
    }
}

/// Returns the moment at which the wall clock shows `time` since 1970. If the clock is set meanwhile, the
/// timer does not follow.
fn at_wall_time(time: Duration) -> Instant {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = Instant::now();
    let left = time.saturating_sub(since);
    // So far away that no clock of the system shows it.
    now.checked_add(left).unwrap_or(now + Duration::from_secs(1 << 32))
}
