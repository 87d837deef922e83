//! Filters that are no readiness of a descriptor: timers, signals, processes. The queue counts for them.

use crate::change::Change;
use crate::error::errno;
use crate::notes::Knote;
use crate::raw::{Kevent, ev, filter, note};
use heddle_events::{EventId, EventOptions, FileChanges, Fired, When};
use rustix::io::Errno;
use std::time::{Duration, Instant, SystemTime};

/// Whether it is one of them.
pub fn is_known(which: i16) -> bool {
    matches!(which, filter::TIMER | filter::SIGNAL | filter::PROC)
}

/// The flags that a filter sets by itself.
pub fn implied(kevent: &Kevent) -> u16 {
    match kevent.filter {
        // A moment that has come stays so.
        filter::TIMER if kevent.fflags & note::ABSTIME != 0 => 0,
        filter::TIMER | filter::SIGNAL => ev::CLEAR,
        filter::PROC => ev::CLEAR | ev::ONESHOT,
        _ => 0,
    }
}

/// Registers one.
pub fn register(change: &Change<'_>, token: u64, options: EventOptions) -> Result<EventId, Errno> {
    let queue = &change.kq.queue;
    let id = match change.kevent.filter {
        filter::TIMER => {
            let (first, every) = times(&change.kevent, change.flags)?;
            queue.register_timer(first, every, token, options)
        }
        filter::SIGNAL => queue.register_signal(number(&change.kevent)?, token, options),
        filter::PROC => queue.register_process(number(&change.kevent)?, token, options),
        _ => return Err(Errno::INVAL),
    };
    id.map_err(errno)
}

/// One was added again.
pub fn again(change: &Change<'_>, note: &Knote) -> Result<(), Errno> {
    let queue = &change.kq.queue;
    match change.kevent.filter {
        filter::TIMER => {
            let (first, every) = times(&change.kevent, note.flags)?;
            queue.set_timer(note.id, first, every).map_err(errno)
        }
        _ => Ok(()),
    }
}

/// Data, flags of the filter, and whether that is the end. None if there is nothing to tell.
pub fn told(note: &Knote, fired: &Fired) -> Option<(u64, u32, bool)> {
    match note.key.filter {
        filter::PROC if note.fflags & note::EXIT == 0 => None,
        filter::PROC => Some((fired.data, note::EXIT, true)),
        _ => (fired.data > 0).then_some((fired.data, 0, false)),
    }
}

/// What may happen to a file: the numbers are the same. None is a file that nothing is told of. BSD tells whoever asks for writes which
/// ones made the file larger.
pub fn changes(kevent: &Kevent) -> Result<FileChanges, Errno> {
    let changes = FileChanges::from(u64::from(kevent.fflags));
    let is_known = u64::from(changes) == u64::from(kevent.fflags);
    let more =
        if changes.contains(FileChanges::WRITE) { FileChanges::EXTEND } else { FileChanges::NONE };
    is_known.then_some(changes | more).ok_or(Errno::INVAL)
}

/// The flags with which changes of a file are told: what makes it larger is a write, whichever was asked for.
pub fn changed(fired: &Fired) -> Option<u32> {
    let changes = FileChanges::from(fired.data);
    let more =
        if changes.contains(FileChanges::EXTEND) { FileChanges::WRITE } else { FileChanges::NONE };
    u32::try_from(u64::from(changes | more)).ok().filter(|&changes| changes != 0)
}

/// What names a signal or a process.
fn number<T: TryFrom<usize>>(kevent: &Kevent) -> Result<T, Errno> {
    T::try_from(kevent.ident).map_err(|_| Errno::INVAL)
}

/// When a timer expires first, and how often then.
fn times(kevent: &Kevent, flags: u16) -> Result<(When, Option<Duration>), Errno> {
    let given = u64::try_from(kevent.data).map_err(|_| Errno::INVAL)?;
    let is_absolute = kevent.fflags & note::ABSTIME != 0;
    let is_once = is_absolute || flags & ev::ONESHOT != 0;
    // A period of zero is one unit.
    let time = in_unit(kevent.fflags & !note::ABSTIME, if is_once { given } else { given.max(1) })?;
    let first = if is_absolute { When::At(on_the_wall(time)) } else { When::After(time) };
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

/// The moment at which a clock on the wall shows `time` since 1970. Where the clock is set meanwhile, the timer does not follow.
fn on_the_wall(time: Duration) -> Instant {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = Instant::now();
    let left = time.saturating_sub(since);
    // So far away that no clock of the system shows it.
    now.checked_add(left).unwrap_or(now + Duration::from_secs(1 << 32))
}
