//! Message queues.

use std::ffi::c_int;

use heddle_agent::BackendError;
use heddle_core::TaskId;
use heddle_steer::request::Error;

use super::{HdEnclave, opened, refused};
use crate::error::{invalid, number_of};

fn done(result: Result<(), BackendError>) -> Result<c_int, Error> {
    result.map(|()| 0).map_err(|error| refused(&error))
}

/// See the header.
///
/// # Safety
/// `enclave` is open, `queue` may be written to.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_queue_create(
    enclave: *mut HdEnclave,
    wakes: c_int,
    queue: *mut u32,
) -> c_int {
    // SAFETY: as the caller promises.
    let create = || unsafe {
        let enclave = opened(enclave)?;
        let queue = queue.as_mut().ok_or_else(|| invalid("where to write the queue to is NULL"))?;
        *queue = enclave.backend.create_queue(wakes != 0).map_err(|error| refused(&error))?.0;
        Ok(0)
    };
    number_of(create())
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_queue_configure(
    enclave: *mut HdEnclave,
    queue: u32,
    wakes: c_int,
) -> c_int {
    // SAFETY: as the caller promises.
    let enclave = unsafe { opened(enclave) };
    number_of(
        enclave.and_then(|one| done(one.backend.configure_queue(one.queue(queue), wakes != 0))),
    )
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_queue_destroy(enclave: *mut HdEnclave, queue: u32) -> c_int {
    // SAFETY: as the caller promises.
    let enclave = unsafe { opened(enclave) };
    number_of(enclave.and_then(|one| done(one.backend.destroy_queue(one.queue(queue)))))
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_associate(
    enclave: *mut HdEnclave,
    slot: u32,
    queue: u32,
) -> c_int {
    // SAFETY: as the caller promises.
    let enclave = unsafe { opened(enclave) };
    number_of(enclave.and_then(|one| done(one.backend.associate(TaskId(slot), one.queue(queue)))))
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_associate_cpu(
    enclave: *mut HdEnclave,
    cpu: u32,
    queue: u32,
) -> c_int {
    // SAFETY: as the caller promises.
    let associate = || unsafe {
        let enclave = opened(enclave)?;
        let at = enclave.cpu_or_not(cpu)?;
        done(enclave.backend.associate_cpu(at, enclave.queue(queue)))
    };
    number_of(associate())
}
