//! Signals: one signalfd per queue.
//!
//! Unlike other pumps, it is not registered exclusively: a signal sent to one thread is visible only to that
//! thread, so all are woken. Signals are rare.
//!
//! A signal can be read once, from whichever queue's signalfd is read first. That queue counts it for all
//! queues of the process (`pumps.rs`).

use crate::EventError;
use crate::error::system;
use crate::ids::EventId;
use crate::slot::Table;
use heddle_sys::signalfd::SignalFd;
use std::collections::BTreeMap;

/// The signals of a queue.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    wanted: BTreeMap<i32, Vec<EventId>>,
    descriptor: Option<SignalFd>,
}

impl Signals {
    pub fn is_open(&self) -> bool {
        self.descriptor.is_some()
    }

    /// Opens the signalfd; `watch` has the workers watch it.
    pub fn open(
        &mut self,
        watch: impl FnOnce(&SignalFd) -> Result<(), EventError>,
    ) -> Result<(), EventError> {
        let descriptor = SignalFd::new().map_err(system("make a signalfd"))?;
        watch(&descriptor)?;
        self.descriptor = Some(descriptor);
        Ok(())
    }

    /// Takes the signals that have arrived.
    pub fn read(&self) -> Vec<i32> {
        let mut received = Vec::new();
        if let Some(descriptor) = &self.descriptor {
            descriptor.read(&mut received);
        }
        received
    }

    /// Restricts the signalfd to the wanted signals: others are left to other readers, or stay pending.
    fn follow(&self) -> Result<(), EventError> {
        let signals: Vec<i32> = self.wanted.keys().copied().collect();
        let Some(descriptor) = &self.descriptor else { return Ok(()) };
        descriptor.set(&signals).map_err(system("choose what a signalfd reads"))
    }

    pub fn want(&mut self, signal: i32, id: EventId) -> Result<(), EventError> {
        self.wanted.entry(signal).or_default().push(id);
        self.follow().inspect_err(|_| self.remove(id))
    }

    fn remove(&mut self, id: EventId) {
        self.wanted.values_mut().for_each(|ids| ids.retain(|&other| other != id));
        self.wanted.retain(|_, ids| !ids.is_empty());
    }

    pub fn forget(&mut self, id: EventId) {
        self.remove(id);
        // The signalfd was set to more before.
        let _ = self.follow();
    }

    /// Adds arrived signals to their slots' data. Returns the events to be activated (S1, S2).
    pub fn count(&self, signals: &[i32], table: &Table) -> Vec<EventId> {
        let ids = signals.iter().filter_map(|signal| self.wanted.get(signal)).flatten().copied();
        ids.filter(|id| table.slot(id.index).add_data(1)).collect()
    }
}
