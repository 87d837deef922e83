//! A simulated enclave, for tests of agents.

use std::ffi::c_int;
use std::sync::Arc;

use heddle_agent::model::machine::{Machine, Spec};
use heddle_core::{CpuId, CpuSet, TaskId};
use heddle_steer::request::Error;

use super::open::given;
use super::{HdEnclave, opened};
use crate::error::{invalid, number_of};

fn simulated(cpus: u32) -> Result<HdEnclave, Error> {
    let count = cpus as usize;
    if count == 0 || count > CpuSet::CAPACITY {
        let text = format!("{cpus} CPUs: a model has from 1 to {}", CpuSet::CAPACITY);
        return Err(invalid(&text));
    }
    let machine = Machine::flat(count);
    let all = (0..count).filter_map(|cpu| u16::try_from(cpu).ok()).map(CpuId);
    let enclave = machine.enclave(Spec::of(all)).map_err(|error| invalid(&error.to_string()))?;
    let id = enclave.id();
    Ok(HdEnclave { backend: Arc::new(enclave), keeper: None, machine: Some((machine, id)) })
}

/// See the header.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub extern "C" fn hd_enclave_model(cpus: u32) -> *mut HdEnclave {
    given(simulated(cpus))
}

fn machine(enclave: Result<&HdEnclave, Error>) -> Result<&(Machine, u32), Error> {
    enclave?.machine.as_ref().ok_or_else(|| invalid("an enclave that is no model"))
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_model_spawn(enclave: *mut HdEnclave, runnable: c_int) -> c_int {
    // SAFETY: as the caller promises.
    let spawned = machine(unsafe { opened(enclave) }).map(|(machine, id)| {
        let slot = machine.spawn(*id, runnable != 0);
        c_int::try_from(slot.0).unwrap_or(c_int::MAX)
    });
    number_of(spawned)
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_model_block(enclave: *mut HdEnclave, slot: u32) -> c_int {
    // SAFETY: as the caller promises.
    let machine = machine(unsafe { opened(enclave) });
    number_of(machine.map(|(machine, _)| c_int::from(machine.block(TaskId(slot)))))
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_model_wake(enclave: *mut HdEnclave, slot: u32) -> c_int {
    // SAFETY: as the caller promises.
    let machine = machine(unsafe { opened(enclave) });
    number_of(machine.map(|(machine, _)| c_int::from(machine.wake(TaskId(slot)))))
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_model_exit(enclave: *mut HdEnclave, slot: u32) -> c_int {
    // SAFETY: as the caller promises.
    let machine = machine(unsafe { opened(enclave) });
    number_of(machine.map(|(machine, _)| c_int::from(machine.exit(TaskId(slot)))))
}
