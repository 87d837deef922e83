//! Events that do not stand for the readiness of a program's descriptor: timers, signals, ends of processes,
//! changes of files.
//!
//! Timers, signals and files (and the epolls of [`crate::departed`]) have one descriptor per queue each, the
//! *pump*: a slot of the queue's own, registered like any other, but with all workers, exclusively. So an
//! idle worker gets it if there is one, and a worker that stalls delays no other. The worker that harvests it
//! pumps: finds out what happened, adds it to the data of the slots concerned, and activates them. From there
//! they take the way of any event, by the policy, to one thread at a time. The program never sees a pump.
//!
//! - **S1** A source changes the data of a slot only while it holds the lock under which registrations of its
//!   kind end, so never that of a later registration in the same slot.
//! - **S2** Only the thread that adds to data that is zero activates the slot. So an event is not reported
//!   twice for one occurrence, nor with data of zero, except as described for
//!   [`EventQueue::set_timer`](crate::EventQueue::set_timer).
//! - **S3** Locks are taken in this order: a source that has a pump, a descriptor, a slot's watch, processes,
//!   the worker set. No lock is held while slots are activated.

mod agenda;
mod changes;
pub(crate) mod files;
pub(crate) mod processes;
pub(crate) mod signals;
pub(crate) mod timers;

pub use changes::FileChanges;
pub use timers::TimerStart;

use crate::EventError;
use crate::ids::EventId;
use crate::slot::{Slot, flag};
use crate::state::Next;
use files::Files;
use processes::Processes;
use signals::Signals;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use timers::Timers;

/// The sources of a queue. Nothing is opened before the first event of its kind.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub timers: Mutex<Timers>,
    pub signals: Mutex<Signals>,
    pub files: Mutex<Files>,
    pub processes: Mutex<Processes>,
    /// There is a signalfd, or is about to be.
    pub has_signals: AtomicBool,
}

impl Sources {
    /// Ends the state of a registration, so that its source leaves its slot alone from then on (S1). A
    /// descriptor of the queue's own is closed when the result is dropped. Returns None if the registration
    /// had ended.
    pub fn end(&self, id: EventId, slot: &Slot) -> Option<(Next, Option<OwnedFd>)> {
        let ended = || slot.state.end(id.generation);
        match slot.kind() {
            flag::TIMER => {
                let mut timers = self.timers.lock().unwrap();
                ended().inspect(|_| timers.forget(id)).map(|next| (next, None))
            }
            flag::SIGNAL => {
                let mut signals = self.signals.lock().unwrap();
                ended().inspect(|_| signals.forget(id)).map(|next| (next, None))
            }
            flag::FILE => {
                let mut files = self.files.lock().unwrap();
                ended().inspect(|_| files.forget(id)).map(|next| (next, None))
            }
            flag::PROCESS => {
                let mut processes = self.processes.lock().unwrap();
                ended().map(|next| (next, processes::forget(&mut processes, id)))
            }
            _ if slot.has(flag::IDLE_LIMIT) => {
                let mut timers = self.timers.lock().unwrap();
                ended().inspect(|_| timers.forget(id)).map(|next| (next, None))
            }
            _ => ended().map(|next| (next, None)),
        }
    }

    /// Adds to what a timer, signal or file event reports, under its source's lock (S1). Returns whether the
    /// event must be activated (S2).
    pub fn add(&self, id: EventId, slot: &Slot, data: u64) -> Result<bool, EventError> {
        let add = || match slot.state.is_alive(id.generation) {
            true => Ok(slot.add_data(data)),
            false => Err(EventError::Ended),
        };
        match slot.kind() {
            flag::TIMER => (self.timers.lock().unwrap(), add()).1,
            flag::SIGNAL => (self.signals.lock().unwrap(), add()).1,
            flag::FILE => (self.files.lock().unwrap(), add()).1,
            _ => Err(EventError::Ended),
        }
    }
}
