//! Priority and memory of agents.

use super::{AgentError, Realtime};
use crate::Traits;
use heddle_core::Ns;
use heddle_sys::scheduling::{self, Scheduling};
use heddle_sys::thread;

/// Above everything except the kernel's own threads.
const ABOVE_ALL: u32 = 99;
/// Above the threads that the `rt` backend commits, which have the lowest real-time priority.
const ABOVE_MANAGED: u32 = 50;

/// Returns the priority of an agent over a backend.
pub(super) fn priority(traits: &Traits) -> u32 {
    if traits.below_ordinary { ABOVE_ALL } else { ABOVE_MANAGED }
}

/// Prepares the process: its memory is locked, so that an agent never waits for a page, and a runaway agent is
/// killed.
pub(super) fn prepare_process(realtime: Realtime) -> Result<(), AgentError> {
    let Realtime::Full { runaway } = realtime else { return Ok(()) };
    scheduling::lock_memory().map_err(AgentError::Memory)?;
    let limited = scheduling::limit_realtime(runaway.0 / 1000);
    limited.map_err(|source| AgentError::Realtime { priority: 0, source })
}

/// Makes the calling thread an agent, pinned to `cpu` if there is one.
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

/// How often a spinning agent pauses, so that the kernel's threads of its CPU run and the limit of
/// [`Realtime::Full`] tells it from one that hangs.
pub(super) const PAUSE_EVERY: Ns = Ns::from_ms(100);
/// The length of the pause.
pub(super) const PAUSE: Ns = Ns::from_us(50);
/// The pause of an agent that spins while its CPU is offline.
pub(super) const OFFLINE_PAUSE: Ns = Ns::from_ms(1);

/// The CPU to which an agent is pinned. While it is offline the kernel lets the agent run on any other.
#[derive(Debug)]
pub(super) struct Home {
    realtime: Realtime,
    os_cpu: u32,
    is_pinned: bool,
}

impl Home {
    /// An agent that is not known to be pinned.
    pub(super) fn new(realtime: Realtime, os_cpu: u32) -> Home {
        Home { realtime, os_cpu, is_pinned: false }
    }

    /// Pins the calling agent again if its CPU was offline and is not any more.
    pub(super) fn keep(&mut self, is_online: bool) {
        if !is_online {
            self.is_pinned = false;
        } else if !self.is_pinned {
            self.is_pinned = self.realtime == Realtime::Off || thread::pin(&[self.os_cpu]).is_ok();
        }
    }
}
