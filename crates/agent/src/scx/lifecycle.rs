//! Enclaves whose guardian is gone.

use super::ScxError;
use super::enclave::clear;
use super::memory::{EnclaveField as Field, Memory};
use super::programs::Lock;
use super::threads::give_back_of;
use std::sync::atomic::Ordering::Acquire;

/// Gives back the threads of enclaves whose guardian has ended, and removes the enclaves. The kernel's programs let
/// such threads run, but can do no more while other enclaves need the programs; so the process that makes the next
/// enclave does it. An enclave whose threads cannot be given back stays, and blocks only its own CPUs.
pub(super) fn sweep(memory: &Memory, _: &Lock) -> Result<(), ScxError> {
    let is_abandoned =
        |id: &u32| memory.enclave(*id, Field::GuardianAndQueue).load(Acquire) as u32 == 0;
    for id in memory.enclaves().filter(is_abandoned) {
        match give_back_of(memory, id) {
            Ok(_) => clear(memory, id),
            Err(ScxError::Left(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
