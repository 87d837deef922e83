//! Agents in C: `include/heddle/agent.h` over [`heddle_agent::Backend`].

mod enclave;
mod messages;
mod model;
mod open;
mod queues;
mod words;

use heddle_agent::guardian::{GuardianError, Keeper};
use heddle_agent::model::machine::Machine;
use heddle_agent::model::{Phase, QueueId};
use heddle_agent::{Backend, BackendError};
use heddle_core::CpuId;
use heddle_steer::request::{Error, ErrorKind};
use std::sync::{Arc, Mutex};

use crate::error::invalid;

/// `struct hd_enclave`: opaque to C.
pub struct HdEnclave {
    // Fields are dropped in order: the agent's side before the enclave.
    backend: Arc<dyn Backend>,
    /// If it was created here.
    keeper: Option<Mutex<Box<dyn Keeper>>>,
    /// If it is simulated.
    machine: Option<(Machine, u32)>,
}

/// `HD_DEFAULT_QUEUE`.
const DEFAULT_QUEUE: u32 = u32::MAX;

impl HdEnclave {
    fn queue(&self, queue: u32) -> QueueId {
        if queue == DEFAULT_QUEUE { self.backend.default_queue() } else { QueueId(queue) }
    }

    /// Returns the enclave's number of the operating system's `cpu`.
    fn cpu(&self, cpu: u32) -> Option<CpuId> {
        let at = self.backend.cpus().iter().position(|info| info.os_id == cpu)?;
        u16::try_from(at).ok().map(CpuId)
    }

    fn cpu_or_not(&self, cpu: u32) -> Result<CpuId, Error> {
        let none = || Error::new(ErrorKind::NotFound, format!("the enclave has no CPU {cpu}"));
        self.cpu(cpu).ok_or_else(none)
    }
}

/// # Safety
/// `enclave` is null, or from one of the calls that make them and open for as long as the result is used.
unsafe fn opened<'a>(enclave: *const HdEnclave) -> Result<&'a HdEnclave, Error> {
    // SAFETY: as the caller promises.
    unsafe { enclave.as_ref() }.ok_or_else(|| invalid("an enclave that is NULL"))
}

fn refused(error: &BackendError) -> Error {
    let kind = match error {
        BackendError::WrongPhase(Phase::Active) | BackendError::Pending(_) => ErrorKind::Busy,
        BackendError::WrongPhase(_) | BackendError::InUse(..) => ErrorKind::Busy,
        BackendError::NoQueue(_) | BackendError::NoThread(_) => ErrorKind::NotFound,
        BackendError::NoRoom(_) | BackendError::System { .. } => ErrorKind::System,
    };
    Error::new(kind, error.to_string())
}

fn failed(error: &GuardianError) -> Error {
    let kind = match error {
        GuardianError::Usage(_) => ErrorKind::Invalid,
        _ => ErrorKind::System,
    };
    Error::new(kind, error.to_string())
}
