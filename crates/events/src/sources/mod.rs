//! Events that are no readiness of a program's descriptor: timers, signals, ends of processes, changes of files.
//!
//! Timers, signals and files (and the epolls of [`crate::orphans`]) have one descriptor a queue each, the *pump*: a slot of the queue's own, registered with the threads as any
//! other, but with all of them, exclusively. So an idle thread gets it if there is one, and a thread that stalls delays nobody. Whoever
//! harvests it pumps: finds out what happened, adds it to the data of the slots concerned and activates these; from there they go the way
//! of any event, by the policy, to one thread at a time. The program never sees a pump.
//!
//! - **S1** A source changes the data of a slot only while it holds the lock under which registrations of its kind end: never that of a
//!   later registration in the same slot.
//! - **S2** Whoever adds to data that is zero activates the slot, nobody else does. So an event is not told twice for one happening, nor
//!   with data of zero, except as [`EventQueue::set_timer`](crate::EventQueue::set_timer) says.
//! - **S3** Locks go in this order: a source that has a pump, a descriptor, a slot's watch, processes, the roster. Slots are activated with
//!   none held.

mod agenda;
mod changes;
mod files;
mod processes;
mod signals;
mod timers;

pub use changes::FileChanges;
pub use signals::block_signals;
pub use timers::When;

use crate::EventError;
use crate::queue::{EventQueue, Inner};
use crate::slot::{EventId, NONE, New, Slot, flag};
use crate::state::Next;
use files::Files;
use heddle_core::{Class, Rng};
use processes::Processes;
use signals::Signals;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, fence};
use timers::Timers;

/// How many slots a queue has for its own pumps.
pub(crate) const PUMPS: usize = 4;

/// What a queue has for events that are not its descriptors'. Nothing is opened before the first event of its kind.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    timers: Mutex<Timers>,
    signals: Mutex<Signals>,
    files: Mutex<Files>,
    processes: Mutex<Processes>,
    /// There is a signalfd, or will be at once.
    pub has_signals: AtomicBool,
}

impl Sources {
    /// Ends the state of a registration, so that its source leaves its slot alone from then on (S1). A descriptor that was the queue's is
    /// closed when what is returned is dropped. `None` if the registration had ended.
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
            _ => ended().map(|next| (next, None)),
        }
    }
}

impl Sources {
    /// Adds to what a timer, a signal or a file has to tell, under its source's lock (S1). Whether it is to be activated (S2).
    fn add(&self, id: EventId, slot: &Slot, data: u64) -> Result<bool, EventError> {
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

impl EventQueue {
    /// Tells a timer, a signal or changes of a file with `data` beside what its source has to tell, now or once it is let go of: for what
    /// stays so in the caller's eyes after it was told.
    ///
    /// # Errors
    /// [`EventError::Ended`], also for an event of another kind; [`EventError::Closed`]; [`EventError::PinnedThreadGone`].
    pub fn tell_again(&self, id: EventId, data: u64) -> Result<(), EventError> {
        let slot = self.reachable(id)?;
        if self.0.sources.add(id, slot, data)? {
            self.0.tell(vec![id], NONE, &self.0.seed());
        }
        Ok(())
    }
}

impl Inner {
    /// Opens a pump and has it watched by all threads. The caller holds the lock of its source.
    pub fn open_pump(&self, fd: &impl AsRawFd, kind: u32) -> Result<(), EventError> {
        let new = New {
            token: 0,
            flags: flag::PUMP | kind,
            wants: heddle_sys::epoll::READ,
            fd: fd.as_raw_fd(),
            class: Class::LC,
            off: false,
        };
        let _descriptor = self.descriptors.lock(new.fd);
        let slot = self.table.begin(&new)?;
        if let Err(error) = self.watch(slot) {
            self.end_unwatched(slot);
            return Err(error);
        }
        Ok(())
    }

    /// A pump, or another descriptor of the queue's own, is ready, which the thread of port `near` saw.
    pub fn pump(&self, id: EventId, near: u32, rng: &Rng) {
        match self.table.slot(id.index).flags.load(Relaxed) & flag::KIND {
            flag::TIMER => self.pump_timers(near, rng),
            flag::SIGNAL => self.pump_signals(near, rng),
            flag::FILE => self.pump_files(near, rng),
            flag::PROCESS => self.process_ended(id, near, rng),
            flag::ORPHANS => self.look_at_orphans(near, rng),
            _ => {}
        }
    }

    /// Activates the slots to whose data something was added.
    fn tell(&self, ids: Vec<EventId>, near: u32, rng: &Rng) {
        for id in ids {
            let next = self.table.slot(id.index).state.activate(id.generation);
            self.follow(id.index, next, near, rng);
        }
    }

    /// An event that was taken out of a lane has nothing to tell any more. Whether that is so.
    pub fn pass_over(&self, id: EventId, rng: &Rng) -> bool {
        let slot = self.table.slot(id.index);
        if !slot.has(flag::COUNTED) || slot.data.load(Relaxed) != 0 {
            return false;
        }
        let next = slot.state.pass_over(id.generation);
        self.follow(id.index, next, NONE, rng);
        // What came between the look and the end of its stay in the lane found it in the lane still, without writing to the state. Of that
        // look at the state and this one at the data at least one sees the other's change: both come after a fence.
        fence(SeqCst);
        if next == Next::Nothing && slot.data.load(Relaxed) != 0 {
            self.tell(vec![id], NONE, rng);
        }
        true
    }
}
