//! Messages and status words.

use std::ffi::c_int;

use heddle_agent::model::{State, ToWords as _};
use heddle_core::{Ns, TaskId};
use heddle_steer::request::{Error, ErrorKind};

use super::words::RawMessage;
use super::{HdEnclave, opened};
use crate::error::{invalid, number_of};

fn null() -> Error {
    invalid("where to write to is NULL")
}

/// Writes as many of `numbers` as there is room for. Returns how many there are.
///
/// # Safety
/// `to` has room for `most` numbers, or `most` is 0.
unsafe fn list(numbers: &[u32], to: *mut u32, most: u32) -> Result<c_int, Error> {
    let count = numbers.len().min(most as usize);
    if count > 0 {
        if to.is_null() {
            return Err(null());
        }
        // SAFETY: not null, and the caller has the rest.
        unsafe { to.copy_from_nonoverlapping(numbers.as_ptr(), count) };
    }
    Ok(c_int::try_from(numbers.len()).unwrap_or(c_int::MAX))
}

/// See the header.
///
/// # Safety
/// `enclave` is open, `cpus` has room for `most` numbers.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_cpus(
    enclave: *const HdEnclave,
    cpus: *mut u32,
    most: u32,
) -> c_int {
    // SAFETY: as the caller promises.
    let read = || unsafe {
        let ids: Vec<u32> = opened(enclave)?.backend.cpus().iter().map(|cpu| cpu.os_id).collect();
        list(&ids, cpus, most)
    };
    number_of(read())
}

/// See the header.
///
/// # Safety
/// `enclave` is open, `slots` has room for `most` numbers.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_threads(
    enclave: *const HdEnclave,
    slots: *mut u32,
    most: u32,
) -> c_int {
    // SAFETY: as the caller promises.
    let read = || unsafe {
        let threads: Vec<u32> =
            opened(enclave)?.backend.threads().iter().map(|task| task.0).collect();
        list(&threads, slots, most)
    };
    number_of(read())
}

/// See the header.
///
/// # Safety
/// `enclave` is open, `message` may be written to.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_next(
    enclave: *mut HdEnclave,
    queue: u32,
    message: *mut RawMessage,
) -> c_int {
    // SAFETY: as the caller promises.
    let next = || unsafe {
        let enclave = opened(enclave)?;
        if message.is_null() {
            return Err(null());
        }
        let next = enclave.backend.next(enclave.queue(queue));
        Ok(next.map_or(0, |next| {
            message.write(RawMessage::from(&next));
            1
        }))
    };
    number_of(next())
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_lost(enclave: *const HdEnclave, queue: u32) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { opened(enclave) }.map_or(0, |enclave| enclave.backend.queue(enclave.queue(queue)).lost)
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_wait(enclave: *mut HdEnclave, queue: u32, until: u64) -> c_int {
    // SAFETY: as the caller promises.
    let wait = || unsafe {
        let enclave = opened(enclave)?;
        let until = Some(Ns(until)).filter(|&until| until != Ns::ZERO);
        enclave.backend.wait(enclave.queue(queue), until);
        Ok(0)
    };
    number_of(wait())
}

/// See the header.
///
/// # Safety
/// `enclave` is open, `word` may be written to.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_thread(
    enclave: *const HdEnclave,
    slot: u32,
    word: *mut [u64; 8],
) -> c_int {
    // SAFETY: as the caller promises; the structure is eight words.
    let read = || unsafe {
        let thread = opened(enclave)?.backend.thread(TaskId(slot));
        if thread.state == State::Free {
            let text = format!("no thread of the enclave has slot {slot}");
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        *word.as_mut().ok_or_else(null)? = thread.to_words();
        Ok(0)
    };
    number_of(read())
}

/// See the header.
///
/// # Safety
/// `enclave` is open, `word` may be written to.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_cpu(
    enclave: *const HdEnclave,
    cpu: u32,
    word: *mut [u64; 8],
) -> c_int {
    // SAFETY: as the caller promises; the structure is eight words.
    let read = || unsafe {
        let enclave = opened(enclave)?;
        let at = enclave.cpu_or_not(cpu)?;
        *word.as_mut().ok_or_else(null)? = enclave.backend.cpu(at).to_words();
        Ok(0)
    };
    number_of(read())
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_now(enclave: *const HdEnclave) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { opened(enclave) }.map_or(0, |enclave| enclave.backend.now().0)
}
