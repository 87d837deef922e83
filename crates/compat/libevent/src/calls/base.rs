//! Bases and their loops.

use super::{FAILED, OK, base_at, fail, result_of, time_at};
use crate::base::Base;
use crate::event_loop;
use libc::{c_int, timeval};
use std::ffi::c_char;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `struct event_config`: its settings hold forevery base, or have no meaning here.
pub struct Config {
    flags: c_int,
}

/// The base of `event_init`.
pub static CURRENT: AtomicPtr<Base> = AtomicPtr::new(null_mut());

pub fn new_base(policy: Option<&str>) -> *mut Base {
    match Base::new(policy) {
        Ok(base) => Arc::into_raw(Arc::new(base)).cast_mut(),
        Err(error) => {
            fail(error.errno());
            null_mut()
        }
    }
}

// SAFETY (of all symbols here): the header declares them, and no other library of a program that links this
// one defines them.
#[unsafe(no_mangle)]
extern "C" fn event_config_new() -> *mut Config {
    Box::into_raw(Box::new(Config { flags: 0 }))
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_config_free(config: *mut Config) {
    if !config.is_null() {
        // SAFETY: made by event_config_new, freed once.
        drop(unsafe { Box::from_raw(config) });
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_config_set_flag(config: *mut Config, flag: c_int) -> c_int {
    // SAFETY: null, or made by event_config_new and not freed.
    let Some(config) = (unsafe { config.as_mut() }) else { return fail(libc::EINVAL) };
    config.flags |= flag;
    OK
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn event_config_avoid_method(config: *mut Config, method: *const c_char) -> c_int {
    if config.is_null() || method.is_null() { fail(libc::EINVAL) } else { OK }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn event_base_new() -> *mut Base {
    new_base(None)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn event_base_new_with_config(_: *const Config) -> *mut Base {
    new_base(None)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn event_init() -> *mut Base {
    let base = new_base(None);
    CURRENT.store(base, Ordering::Release);
    base
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_base_free(base: *mut Base) {
    // SAFETY: null, or a base that is not freed; this is where the program lets go of it.
    let Some(owned) = (!base.is_null()).then(|| unsafe { Arc::from_raw(base) }) else { return };
    let _ = CURRENT.compare_exchange(base, null_mut(), Ordering::AcqRel, Ordering::Relaxed);
    owned.end();
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_base_loop(base: *mut Base, flags: c_int) -> c_int {
    // SAFETY: null, or a base that is not freed.
    let Some(base) = (unsafe { base_at(base) }) else { return fail(libc::EINVAL) };
    event_loop::run(&base, flags).unwrap_or_else(|error| fail(error.errno()))
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_base_dispatch(base: *mut Base) -> c_int {
    // SAFETY: as event_base_loop.
    unsafe { event_base_loop(base, 0) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_base_loopexit(base: *mut Base, time: *const timeval) -> c_int {
    // SAFETY: null, or a base that is not freed; null, or a time.
    let (base, time) = unsafe { (base_at(base), time_at(time)) };
    match (base, time) {
        (Some(base), Ok(Some(time))) => result_of(base.exit_after(time)),
        (Some(base), Ok(None)) => result_of(base.exit_soon()),
        _ => fail(libc::EINVAL),
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_base_loopbreak(base: *mut Base) -> c_int {
    // SAFETY: null, or a base that is not freed.
    let Some(base) = (unsafe { base_at(base) }) else { return FAILED };
    base.break_now();
    OK
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_base_got_exit(base: *mut Base) -> c_int {
    // SAFETY: null, or a base that is not freed.
    let base = unsafe { base_at(base) };
    base.is_some_and(|base| base.got_exit.load(Ordering::SeqCst)).into()
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn event_base_got_break(base: *mut Base) -> c_int {
    // SAFETY: null, or a base that is not freed.
    let base = unsafe { base_at(base) };
    base.is_some_and(|base| base.got_break.load(Ordering::SeqCst)).into()
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn event_base_get_method(_: *const Base) -> *const c_char {
    event_get_method()
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn event_base_priority_init(base: *mut Base, priorities: c_int) -> c_int {
    // There are always two: the first, and all others.
    if base.is_null() || !(1..256).contains(&priorities) { fail(libc::EINVAL) } else { OK }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn event_get_version() -> *const c_char {
    c"2.1.12-heddle".as_ptr()
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn event_get_version_number() -> u32 {
    0x0201_0c00
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn event_get_method() -> *const c_char {
    c"heddle".as_ptr()
}
