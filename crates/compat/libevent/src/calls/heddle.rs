//! What libevent does not have: policies, and counters per thread.

use super::base::new_base;
use super::{base_at, fail, result_of, text_at};
use crate::base::Base;
use crate::threads::ThreadCounters;
use libc::c_int;
use std::ffi::c_char;
use std::fmt::Write as _;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

/// `struct heddle_event_thread`.
#[repr(C)]
pub struct Thread {
    tid: u32,
    is_in: c_int,
    calls: u64,
    waits: u64,
}

impl From<&ThreadCounters> for Thread {
    fn from(thread: &ThreadCounters) -> Thread {
        Thread {
            tid: thread.tid,
            is_in: thread.in_loop.load(Relaxed).into(),
            calls: thread.calls.load(Relaxed),
            waits: thread.waits.load(Relaxed),
        }
    }
}

// SAFETY (of all symbols here): the header declares them, and no other library defines names that begin with
// heddle_event_.
#[unsafe(no_mangle)]
unsafe extern "C" fn heddle_event_base_new(policy: *const c_char) -> *mut Base {
    // SAFETY: a string, or null.
    match unsafe { text_at(policy) } {
        Some(policy) => new_base(Some(policy)),
        None if policy.is_null() => new_base(None),
        None => {
            fail(libc::EINVAL);
            null_mut()
        }
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn heddle_event_base_policy(base: *mut Base, policy: *const c_char) -> c_int {
    // SAFETY: null, or a base that is not freed; null, or a string.
    match unsafe { (base_at(base), text_at(policy)) } {
        (Some(base), Some(policy)) => result_of(base.queue.set_policy(policy)),
        _ => fail(libc::EINVAL),
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn heddle_event_base_priority(
    base: *mut Base,
    share: c_int,
    frequency: c_int,
) -> c_int {
    // SAFETY: null, or a base that is not freed.
    let base = unsafe { base_at(base) };
    let (Some(base), Ok(share), Ok(frequency)) =
        (base, u32::try_from(share), u32::try_from(frequency))
    else {
        return fail(libc::EINVAL);
    };
    let done = base.queue.set_high_share(share);
    if done.is_ok() {
        base.queue.set_high_frequency(frequency);
    }
    result_of(done)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn heddle_event_base_threads(
    base: *mut Base,
    threads: *mut Thread,
    room: c_int,
) -> c_int {
    // SAFETY: null, or a base that is not freed.
    let base = unsafe { base_at(base) };
    let (Some(base), Ok(room)) = (base, usize::try_from(room)) else { return fail(libc::EINVAL) };
    if room > 0 && threads.is_null() {
        return fail(libc::EINVAL);
    }
    let counters = base.threads.counters();
    for (i, thread) in counters.iter().take(room).enumerate() {
        // SAFETY: the program has room for `room` entries.
        unsafe { threads.add(i).write(Thread::from(&**thread)) };
    }
    c_int::try_from(counters.len()).unwrap_or(c_int::MAX)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn heddle_event_base_dump(base: *mut Base, fd: c_int) -> c_int {
    // SAFETY: null, or a base that is not freed.
    let Some(base) = (unsafe { base_at(base) }) else { return fail(libc::EINVAL) };
    let text = dump(&base);
    // SAFETY: readable bytes; an invalid descriptor is an error.
    let written = unsafe { libc::write(fd, text.as_ptr().cast(), text.len()) };
    if usize::try_from(written) == Ok(text.len()) { 0 } else { -1 }
}

fn dump(base: &Base) -> String {
    let mut text = format!("policy {}\n", base.queue.policy());
    for thread in base.threads.counters() {
        let Thread { tid, is_in, calls, waits } = Thread::from(&*thread);
        let _ = writeln!(text, "thread {tid} in_loop {is_in} calls {calls} waits {waits}");
    }
    let _ = writeln!(text, "{}", base.queue.stats());
    text
}
