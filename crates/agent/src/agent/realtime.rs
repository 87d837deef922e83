//! Priority and memory of agents.

use super::{AgentError, Realtime};
use crate::Traits;
use heddle_core::Ns;
use heddle_sys::scheduling::{self, Scheduling};
use heddle_sys::thread;

/// Above all that are not the kernel's own.
const ABOVE_ALL: u32 = 99;
/// Above the threads that the `rt` backend commits, which have the lowest real-time priority.
const ABOVE_MANAGED: u32 = 50;

/// The priority that an agent has over a backend.
pub(super) fn priority(traits: &Traits) -> u32 {
    if traits.below_ordinary { ABOVE_ALL } else { ABOVE_MANAGED }
}

/// What concerns the whole process: no page of it shall be missing when an agent needs it, and an agent that runs away ends.
pub(super) fn prepare_process(realtime: Realtime) -> Result<(), AgentError> {
    let Realtime::Full { runaway } = realtime else { return Ok(()) };
    scheduling::lock_memory().map_err(AgentError::Memory)?;
    let limited = scheduling::limit_realtime(runaway.0 / 1000);
    limited.map_err(|source| AgentError::Realtime { priority: 0, source })
}

/// The calling thread becomes an agent; on `cpu` only, where it belongs to one.
pub(super) fn become_agent(
    realtime: Realtime,
    traits: &Traits,
    cpu: Option<u32>,
) -> Result<(), AgentError> {
    if realtime == Realtime::Off {
        return Ok(());
    }
    if let Some(cpu) = cpu {
        thread::pin(&[cpu]).map_err(|source| AgentError::Pin { cpu, source })?;
    }
    let priority = priority(traits);
    scheduling::set(0, Scheduling::fifo(priority))
        .map_err(|source| AgentError::Realtime { priority, source })
}

/// How often an agent that spins takes a breath, so that the kernel's own threads of its CPU come by and the limit of
/// [`Realtime::Full`] tells it from one that hangs.
pub(super) const BREATH_EVERY: Ns = Ns::from_ms(100);
/// For how long.
pub(super) const BREATH: Ns = Ns::from_us(50);
