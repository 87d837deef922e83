//! Events: setting, adding, deleting.

use super::base::CURRENT;
use super::{FAILED, OK, base_at, fail, result_of, time_at};
use crate::abi::{Call, Callback, Event, HAPPENS, HIGH, READ, SIGNAL, WRITE, timeval as c_time};
use crate::base::Base;
use crate::entry::on_wall;
use libc::{c_int, c_short, c_void, timeval};
use std::ptr::{null_mut, write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Returns the queue's token for an event: its address.
fn token(event: *const Event) -> u64 {
    event as usize as u64
}

/// Returns the base of an event, and what the event asks for.
///
/// # Safety
/// `event` is null or was set; its base is not freed.
unsafe fn lookup(event: *const Event) -> Option<(Arc<Base>, Call)> {
    // SAFETY: the caller's promise.
    unsafe {
        let event = event.as_ref()?;
        Some((base_at(event.base.cast())?, event.call()?))
    }
}

/// Writes a `struct event` over whatever was there.
///
/// # Safety
/// `event` is null, or memory for an event that nothing else uses now.
unsafe fn set(
    event: *mut Event,
    base: *const Base,
    (fd, what): (c_int, c_short),
    callback: Option<Callback>,
    arg: *mut c_void,
) -> c_int {
    let (false, Some(callback)) = (event.is_null(), callback) else { return fail(libc::EINVAL) };
    if what & SIGNAL != 0 && what & (READ | WRITE) != 0 {
        return fail(libc::EINVAL);
    }
    let call = Call { fd, what, callback, arg: arg as usize };
    // SAFETY: the caller's promise.
    unsafe { write(event, Event::new(base.cast(), call)) };
    OK
}

// SAFETY (of all symbols here): the header declares them, and no other library of a program that links this
// one defines them.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_set(
    event: *mut Event,
    fd: c_int,
    what: c_short,
    callback: Option<Callback>,
    arg: *mut c_void,
) {
    // SAFETY: as `set`.
    unsafe { set(event, CURRENT.load(Ordering::Acquire), (fd, what), callback, arg) };
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_assign(
    event: *mut Event,
    base: *mut Base,
    fd: c_int,
    what: c_short,
    callback: Option<Callback>,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: as `set`.
    unsafe { set(event, base, (fd, what), callback, arg) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_base_set(base: *mut Base, event: *mut Event) -> c_int {
    // SAFETY: null, or an event that was set.
    let Some(event) = (unsafe { event.as_mut() }) else { return fail(libc::EINVAL) };
    // SAFETY: its base is null or not freed.
    let old = unsafe { base_at(event.base.cast()) };
    let token = token(event);
    if old.and_then(|old| old.inspect(token, |entry| entry.added)) == Some(true) {
        return fail(libc::EINVAL);
    }
    event.base = base.cast();
    OK
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_new(
    base: *mut Base,
    fd: c_int,
    what: c_short,
    callback: Option<Callback>,
    arg: *mut c_void,
) -> *mut Event {
    let Some(function) = callback else {
        fail(libc::EINVAL);
        return null_mut();
    };
    let call = Call { fd, what, callback: function, arg: arg as usize };
    let event = Box::into_raw(Box::new(Event::new(base.cast(), call)));
    // SAFETY: it was just made.
    if unsafe { set(event, base, (fd, what), callback, arg) } == OK {
        return event;
    }
    // SAFETY: as above, and no other code has seen it.
    drop(unsafe { Box::from_raw(event) });
    null_mut()
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_free(event: *mut Event) {
    if event.is_null() {
        return;
    }
    // SAFETY: made by event_new, freed once; after event_del nothing else refers to it (L1).
    unsafe {
        event_del(event);
        drop(Box::from_raw(event));
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_add(event: *mut Event, time: *const timeval) -> c_int {
    // SAFETY: null, or an event that was set, of a base that is not freed; null, or a time.
    let (lookup, time) = unsafe { (lookup(event), time_at(time)) };
    match (lookup, time) {
        (Some((base, call)), Ok(time)) => result_of(base.add(token(event), call, time)),
        _ => fail(libc::EINVAL),
    }
}

/// # Safety
/// As [`lookup`].
unsafe fn del(event: *mut Event, wait: bool) -> c_int {
    // SAFETY: the caller's promise.
    let Some((base, _)) = (unsafe { lookup(event) }) else { return fail(libc::EINVAL) };
    base.remove(token(event), wait);
    OK
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_del(event: *mut Event) -> c_int {
    // SAFETY: null, or an event that was set, of a base that is not freed.
    unsafe { del(event, true) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_del_block(event: *mut Event) -> c_int {
    // SAFETY: as event_del.
    unsafe { del(event, true) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_del_noblock(event: *mut Event) -> c_int {
    // SAFETY: as event_del.
    unsafe { del(event, false) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_active(event: *mut Event, what: c_int, _times: c_short) {
    // SAFETY: as event_del.
    if let Some((base, call)) = unsafe { lookup(event) } {
        result_of(base.activate(token(event), call, what as c_short & HAPPENS));
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_pending(
    event: *const Event,
    what: c_short,
    time: *mut timeval,
) -> c_int {
    // SAFETY: as event_del.
    let Some((base, _)) = (unsafe { lookup(event) }) else { return 0 };
    let state = base.inspect(token(event), |entry| (entry.pending(), entry.deadline));
    let (pending, deadline) = state.unwrap_or_default();
    if let (Some(deadline), false) = (deadline, time.is_null() || what & crate::abi::TIMEOUT == 0) {
        // SAFETY: the program has room for a time there.
        unsafe { *time = c_time(on_wall(deadline)) };
    }
    (pending & what & HAPPENS).into()
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_initialized(event: *const Event) -> c_int {
    // SAFETY: null, or memory for an event.
    unsafe { event.as_ref() }.is_some_and(Event::is_set).into()
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_priority_set(event: *mut Event, priority: c_int) -> c_int {
    // SAFETY: null, or an event that was set.
    let Some(event) = (unsafe { event.as_mut() }) else { return fail(libc::EINVAL) };
    if priority < 0 {
        return fail(libc::EINVAL);
    }
    event.what = if priority == 0 { event.what | HIGH } else { event.what & !HIGH };
    OK
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_get_base(event: *const Event) -> *mut Base {
    // SAFETY: null, or an event that was set.
    unsafe { event.as_ref() }.map_or(null_mut(), |event| event.base.cast_mut().cast())
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_get_fd(event: *const Event) -> c_int {
    // SAFETY: null, or an event that was set.
    unsafe { event.as_ref() }.map_or(FAILED, |event| event.fd)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_get_events(event: *const Event) -> c_short {
    // SAFETY: null, or an event that was set.
    unsafe { event.as_ref() }.map_or(0, |event| event.what)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_get_callback(event: *const Event) -> Option<Callback> {
    // SAFETY: null, or an event that was set.
    unsafe { event.as_ref() }.and_then(|event| event.callback)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_get_callback_arg(event: *const Event) -> *mut c_void {
    // SAFETY: null, or an event that was set.
    unsafe { event.as_ref() }.map_or(null_mut(), |event| event.arg)
}
