//! Signals: one signalfd a queue.
//!
//! Its registrations are not exclusive, as those of other pumps are: of a signal that was sent to one thread only that thread sees
//! something, so all are woken. Signals are rare.
//!
//! A signal can be read once, from whichever queue's signalfd is looked at first: the queue that reads it counts it for all queues of the
//! process ([`readers`]).

use crate::error::system;
use crate::queue::Inner;
use crate::slot::{EventId, NONE, Table, flag};
use crate::{EventError, EventOptions, EventQueue};
use heddle_core::Rng;
use heddle_sys::signalfd::{self, SignalFd};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// The signals of a queue.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    wanted: BTreeMap<i32, Vec<EventId>>,
    descriptor: Option<SignalFd>,
}

impl Signals {
    /// The signalfd reads what is wanted and no more: the rest stays for others, or pending.
    fn follow(&self) -> Result<(), EventError> {
        let signals: Vec<i32> = self.wanted.keys().copied().collect();
        let Some(descriptor) = &self.descriptor else { return Ok(()) };
        descriptor.set(&signals).map_err(system("choose what a signalfd reads"))
    }

    fn want(&mut self, signal: i32, id: EventId) -> Result<(), EventError> {
        self.wanted.entry(signal).or_default().push(id);
        self.follow().inspect_err(|_| self.remove(id))
    }

    fn remove(&mut self, id: EventId) {
        self.wanted.values_mut().for_each(|ids| ids.retain(|&other| other != id));
        self.wanted.retain(|_, ids| !ids.is_empty());
    }

    pub fn forget(&mut self, id: EventId) {
        self.remove(id);
        // It was set to more before.
        let _ = self.follow();
    }

    /// What came is added to its slots' data; those to be activated (S1, S2).
    fn count(&self, signals: &[i32], table: &Table) -> Vec<EventId> {
        let ids = signals.iter().filter_map(|signal| self.wanted.get(signal)).flatten().copied();
        ids.filter(|id| table.slot(id.index).add_data(1)).collect()
    }
}

type Queues = Mutex<Vec<Weak<Inner>>>;

/// The queues of a process that read signals.
struct Readers {
    process: u32,
    queues: Queues,
    of_child: OnceLock<Box<Readers>>,
}

/// Those of this process: a child of fork(2) begins with none, whatever its parent's lock was at.
fn readers() -> &'static Queues {
    static FIRST: OnceLock<Readers> = OnceLock::new();
    let process = heddle_sys::fork::generation();
    let fresh = || Readers { process, queues: Queues::default(), of_child: OnceLock::new() };
    let mut readers = FIRST.get_or_init(fresh);
    while readers.process != process {
        readers = readers.of_child.get_or_init(|| Box::new(fresh()));
    }
    &readers.queues
}

impl Inner {
    fn open_signals(self: &Arc<Self>) -> Result<(), EventError> {
        let mut signals = self.sources.signals.lock().unwrap();
        if signals.descriptor.is_none() {
            let descriptor = SignalFd::new().map_err(system("make a signalfd"))?;
            // First: who visits an epoll asks after it has looked there.
            self.sources.has_signals.store(true, Relaxed);
            self.open_pump(&descriptor, flag::SIGNAL)?;
            signals.descriptor = Some(descriptor);
            let mut queues = readers().lock().unwrap();
            queues.retain(|queue| queue.strong_count() > 0);
            queues.push(Arc::downgrade(self));
        }
        Ok(())
    }

    pub(crate) fn pump_signals(&self, near: u32, rng: &Rng) {
        let mut came = Vec::new();
        if let Some(descriptor) = &self.sources.signals.lock().unwrap().descriptor {
            descriptor.read(&mut came);
        }
        if came.is_empty() {
            return;
        }
        self.count_signals(&came, near, rng);
        for other in self.other_readers() {
            other.count_signals(&came, NONE, &other.seed());
        }
    }

    fn count_signals(&self, came: &[i32], near: u32, rng: &Rng) {
        let ids = self.sources.signals.lock().unwrap().count(came, &self.table);
        self.tell(ids, near, rng);
    }

    fn other_readers(&self) -> Vec<Arc<Inner>> {
        let queues = readers().lock().unwrap();
        let alive = queues.iter().filter_map(Weak::upgrade);
        alive.filter(|queue| !std::ptr::eq(&**queue, self) && queue.check().is_ok()).collect()
    }
}

/// Blocks `signals` (numbers as in signal(7)) for the calling thread and all that it starts from now on: the first thing in `main` of a
/// program that registers signals, for a signal that any thread has not blocked goes to that thread, and there mostly ends the process.
///
/// Programs that the process starts inherit it, too; most expect nothing to be blocked.
///
/// # Errors
/// [`EventError::Signal`] for what is no signal or cannot be blocked; nothing is blocked then.
pub fn block_signals(signals: &[i32]) -> Result<(), EventError> {
    if let Some(&wrong) = signals.iter().find(|&&signal| !signalfd::can_be_read(signal)) {
        return Err(EventError::Signal(wrong));
    }
    signalfd::block(signals).map_err(system("block signals"))
}

impl EventQueue {
    /// Tells when `signal` (a number as in signal(7)) was sent to the process; [`Event::data`](crate::Event::data) says how often since it was
    /// told last, where the system merges a standard signal with the same one that is pending already.
    ///
    /// The signal has to be blocked in all threads. It is blocked here in the calling one, and so in those that this one starts later; threads
    /// that run already have to block it themselves: see [`block_signals`]. That it is ignored (`SIG_IGN`) is no hindrance: Linux tells of
    /// blocked signals whatever would be done with them. When the registration ends it stays blocked.
    ///
    /// A signal that was sent to one thread (`pthread_kill`, or `raise`) is told if that thread is a worker of the queue, or of another one
    /// that registers it. If several queues of a process register a signal, all of them are told.
    ///
    /// # Errors
    /// [`EventError::Signal`]; [`EventError::Full`]; no descriptors left, for the first signal of a queue.
    pub fn register_signal(
        &self,
        signal: i32,
        token: u64,
        options: EventOptions,
    ) -> Result<EventId, EventError> {
        self.0.check()?;
        if !signalfd::can_be_read(signal) {
            return Err(EventError::Signal(signal));
        }
        self.0.open_signals()?;
        let id = self.begin_source(flag::SIGNAL, -1, token, options)?;
        let want = |()| self.0.sources.signals.lock().unwrap().want(signal, id);
        match block_signals(&[signal]).and_then(want) {
            Ok(()) => Ok(id),
            Err(error) => {
                self.0.end_unwatched(id);
                Err(error)
            }
        }
    }
}
