//! Marks of threads that serve executors: busy with work of a class, or idle.

use std::ffi::c_int;

use heddle_steer::executor;

use crate::error::number_of;
use crate::steering::{id, steering};

/// See the header.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub extern "C" fn hd_executor_bind(attachment: c_int, index: u32) -> c_int {
    let bind = || {
        executor::register(steering()?.executor(id(attachment)?, index)?);
        Ok(0)
    };
    number_of(bind())
}

/// See the header.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub extern "C" fn hd_busy(class: u32) {
    executor::busy(class);
}

/// See the header.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub extern "C" fn hd_idle() {
    executor::idle();
}
