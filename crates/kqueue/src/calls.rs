//! The calls, as C libraries export them with [`export_calls!`](crate::export_calls).

use crate::error::errno;
use crate::notes::Key;
use crate::raw::{Kevent, ev};
use crate::registry::{self, Kqueue};
use crate::{change, membership, multi, wait};
use rustix::io::Errno;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Returns what C gets: -1 with `errno` set for an error.
fn answer(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(|error| {
        // SAFETY: the address is valid for as long as this thread lives.
        unsafe { *libc::__errno_location() = error.raw_os_error() };
        -1
    })
}

fn done(result: Result<(), Errno>) -> c_int {
    answer(result.map(|()| 0))
}

/// Returns the queue of a number for a thread that is about to wait, from the thread's own list if it is
/// there. If the descriptor was closed, the wait will report that as an event.
fn queue_to_wait_on(number: c_int) -> Result<Arc<Kqueue>, Errno> {
    match membership::find(number) {
        Some(kq) if !kq.has_ended() => Ok(kq),
        _ => registry::find(number),
    }
}

/// `kqueue()`.
pub fn kqueue() -> c_int {
    answer(registry::make())
}

/// `kqueue1(flags)`: O_CLOEXEC, which is always set, or 0.
pub fn kqueue1(flags: c_int) -> c_int {
    if flags & !libc::O_CLOEXEC != 0 { answer(Err(Errno::INVAL)) } else { kqueue() }
}

/// Ends a queue and closes its descriptor.
pub fn close(number: c_int) -> c_int {
    done(registry::find(number).map(|kq| {
        registry::end(&kq);
        // Fails if this thread is not a worker, which is fine.
        let _ = membership::leave(number);
        // SAFETY: the program gives up the number, which belonged to this queue a moment ago.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }))
}

/// Ends the calling thread's membership in the queue.
pub fn leave(number: c_int) -> c_int {
    done(membership::leave(number))
}

/// # Safety
/// `at` is null or points to a time.
unsafe fn time(at: *const libc::timespec) -> Result<Option<Duration>, Errno> {
    // SAFETY: as the caller promises.
    let Some(time) = (unsafe { at.as_ref() }) else { return Ok(None) };
    let (seconds, part) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    match (seconds, part) {
        (Ok(seconds), Ok(part)) if part < 1_000_000_000 => Ok(Some(Duration::new(seconds, part))),
        _ => Err(Errno::INVAL),
    }
}

fn count(n: c_int, at: *const Kevent) -> Result<usize, Errno> {
    match usize::try_from(n) {
        Ok(0) => Ok(0),
        Ok(_) if at.is_null() => Err(Errno::FAULT),
        Ok(n) => Ok(n),
        Err(_) => Err(Errno::INVAL),
    }
}

/// `kevent()`.
///
/// # Safety
/// `changes` has `nchanges` entries, `events` has room for `nevents`; they may overlap. `timeout` is null or
/// points to a time.
pub unsafe fn kevent(
    number: c_int,
    changes: *const Kevent,
    nchanges: c_int,
    events: *mut Kevent,
    nevents: c_int,
    timeout: *const libc::timespec,
) -> c_int {
    let call = || {
        // SAFETY: as the caller promises.
        let timeout = unsafe { time(timeout)? };
        let (nchanges, nevents) = (count(nchanges, changes)?, count(nevents, events)?);
        let kq = if nevents == 0 { registry::find(number)? } else { queue_to_wait_on(number)? };
        // One by one, because the lists may overlap: no more errors are written than changes were read.
        // SAFETY: as the caller promises.
        let read = |i| unsafe { changes.add(i).read() };
        // SAFETY: as the caller promises, for `i` below `nevents`.
        let write = |i, kevent| unsafe { events.add(i).write(kevent) };
        let errors = change_all(&kq, (0..nchanges).map(read), nevents, write)?;
        if errors > 0 || nevents == 0 {
            return Ok(errors);
        }
        // SAFETY: as the caller promises; any bytes are a Kevent, and nothing else accesses them during the
        // call.
        let room = unsafe { std::slice::from_raw_parts_mut(events, nevents) };
        wait::wait(&kq, room, timeout)
    };
    answer(call().map(|n| c_int::try_from(n).unwrap_or(c_int::MAX)))
}

/// Makes all changes. Returns how many errors and receipts were written, for which there is space for `room`.
fn change_all(
    kq: &Arc<Kqueue>,
    changes: impl Iterator<Item = Kevent>,
    room: usize,
    write: impl Fn(usize, Kevent),
) -> Result<usize, Errno> {
    let mut written = 0;
    for kevent in changes {
        let result = change::apply(kq, &kevent);
        if result.is_ok() && kevent.flags & ev::RECEIPT == 0 {
            continue;
        }
        if written < room {
            let data = result.err().map_or(0, |error| error.raw_os_error().into());
            write(written, Kevent { flags: ev::ERROR, data, ..kevent });
            written += 1;
        } else {
            result?;
        }
    }
    Ok(written)
}

/// Changes the policy.
///
/// # Safety
/// `policy` is null or a string that ends in zero.
pub unsafe fn policy(number: c_int, policy: *const c_char) -> c_int {
    let change = || {
        if policy.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: not null, and the caller promises the rest.
        let text = unsafe { CStr::from_ptr(policy) }.to_str().map_err(|_| Errno::INVAL)?;
        set_policy(number, text)
    };
    done(change())
}

fn set_policy(number: c_int, text: &str) -> Result<(), Errno> {
    registry::find(number)?.queue.set_policy(text).map_err(errno)
}

/// SKQ's FKQMULTI: sets the policy that a word encodes.
pub fn multi(number: c_int, word: u32) -> c_int {
    done(multi::policy(word).ok_or(Errno::INVAL).and_then(|text| set_policy(number, &text)))
}

/// SKQ's FKQTUNE: the parameter is in the lower half, the value in the upper half.
pub fn tune(number: c_int, word: u32) -> c_int {
    let (parameter, value) = (word & 0xffff, word >> 16);
    match parameter {
        multi::FREQ => frequency(number, value),
        multi::SHARE => share(number, value),
        _ => answer(Err(Errno::INVAL)),
    }
}

/// Writes statistics as text, as much as fits with a terminating zero. Returns the length of the whole text.
///
/// # Safety
/// `text` has room for `size` bytes, or `size` is 0.
pub unsafe fn stats(number: c_int, text: *mut c_char, size: usize) -> c_int {
    let write = |kq: Arc<Kqueue>| {
        let stats = format!("policy {}\n{}\n", kq.queue.policy(), kq.queue.stats());
        if size > 0 {
            if text.is_null() {
                return Err(Errno::FAULT);
            }
            let length = stats.len().min(size - 1);
            // SAFETY: `length` bytes and a zero are at most `size`, and the caller promises the rest.
            unsafe {
                text.copy_from_nonoverlapping(stats.as_ptr().cast(), length);
                text.add(length).write(0);
            }
        }
        Ok(c_int::try_from(stats.len()).unwrap_or(c_int::MAX))
    };
    answer(registry::find(number).and_then(write))
}

/// Sets how much of a batch may be of high priority.
pub fn share(number: c_int, percent: u32) -> c_int {
    let set = |kq: Arc<Kqueue>| kq.queue.set_high_share(percent).map_err(errno);
    done(registry::find(number).and_then(set))
}

/// Sets how often a thread should look for events of high priority.
pub fn frequency(number: c_int, hertz: u32) -> c_int {
    done(registry::find(number).map(|kq| kq.queue.set_high_frequency(hertz)))
}

/// Sets after how many milliseconds without a report a knote on a descriptor is reported as idle; 0: never.
pub fn idle(number: c_int, ident: usize, filter: i16, milliseconds: u32) -> c_int {
    let set = |kq: Arc<Kqueue>| {
        let id = kq.notes.shard(ident).find(Key { filter, ident }).ok_or(Errno::NOENT)?.id;
        let limit = (milliseconds > 0).then(|| Duration::from_millis(milliseconds.into()));
        kq.queue.set_idle_limit(id, limit).map_err(errno)
    };
    done(registry::find(number).and_then(set))
}
