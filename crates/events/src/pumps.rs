//! The queue's own descriptors: how they are opened, and what a worker does that finds one ready.

use crate::EventError;
use crate::error::system;
use crate::ids::{EventId, NONE, WatchKey};
use crate::inner::Inner;
use crate::slot::{Moment, NewEvent, Slot, flag};
use crate::sources::processes;
use heddle_core::{Class, Ns, Rng};
use heddle_sys::epoll::{Epoll, Events};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// How many events are taken at once from the epoll of a thread that has left.
const HARVEST: usize = 32;

impl Inner {
    /// Opens a pump that all workers watch. The caller holds the lock of its source.
    fn open_pump(&self, fd: &impl AsRawFd, kind: u32) -> Result<(), EventError> {
        let new = NewEvent {
            token: 0,
            flags: flag::PUMP | kind,
            wants: heddle_sys::epoll::READ,
            fd: fd.as_raw_fd(),
            class: Class::LC,
            off: false,
        };
        let _descriptor = self.watches.descriptors.lock(new.fd);
        let id = self.dispatch.table.begin(&new)?;
        if let Err(error) = self.watches.watch(&self.dispatch, id) {
            self.end_unwatched(id);
            return Err(error);
        }
        Ok(())
    }

    pub fn open_timers(&self) -> Result<(), EventError> {
        self.sources.timers.lock().unwrap().open(|fd| self.open_pump(fd, flag::TIMER))
    }

    pub fn open_files(&self) -> Result<(), EventError> {
        self.sources.files.lock().unwrap().open(|fd| self.open_pump(fd, flag::FILE))
    }

    pub fn open_signals(self: &Arc<Self>) -> Result<(), EventError> {
        let mut signals = self.sources.signals.lock().unwrap();
        if signals.is_open() {
            return Ok(());
        }
        // First: a worker that visits an epoll reads this after it has looked there.
        self.sources.has_signals.store(true, Relaxed);
        signals.open(|fd| self.open_pump(fd, flag::SIGNAL))?;
        let mut queues = readers().lock().unwrap();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(self));
        Ok(())
    }

    pub fn open_departed(&self) -> Result<(), EventError> {
        let departed = &self.watches.departed;
        let _opening = departed.opening.lock().unwrap();
        if departed.epoll.get().is_none() {
            let epoll = Epoll::new().map_err(system("make an epoll instance"))?;
            self.open_pump(&epoll, flag::DEPARTED)?;
            departed.epoll.get_or_init(|| epoll);
        }
        Ok(())
    }

    /// Takes what one of the queue's own descriptors reports, which the worker of port `near` found ready.
    pub fn pump(&self, id: EventId, near: u32, rng: &Rng) {
        match self.dispatch.table.slot(id.index).flags.load(Relaxed) & flag::KIND {
            flag::TIMER => self.pump_timers(near, rng),
            flag::SIGNAL => self.pump_signals(near, rng),
            flag::FILE => self.pump_files(near, rng),
            flag::PROCESS => self.process_ended(id, near, rng),
            flag::DEPARTED => self.harvest_departed(near, rng),
            _ => {}
        }
    }

    fn pump_timers(&self, near: u32, rng: &Rng) {
        let due = self.sources.timers.lock().unwrap().take_due(&self.dispatch.table);
        self.dispatch.activate_all(&due, near, rng);
    }

    fn pump_files(&self, near: u32, rng: &Rng) {
        let changed = self.sources.files.lock().unwrap().read(&self.dispatch.table);
        self.dispatch.activate_all(&changed, near, rng);
    }

    /// A pidfd is readable: its process has ended.
    fn process_ended(&self, id: EventId, near: u32, rng: &Rng) {
        let mut processes = self.sources.processes.lock().unwrap();
        let Some(status) = processes::take_end(&mut processes, id) else { return };
        self.dispatch.table.slot(id.index).data.store(status as u64, Relaxed);
        drop(processes);
        self.dispatch.activate_all(&[id], near, rng);
    }

    pub fn pump_signals(&self, near: u32, rng: &Rng) {
        let received = self.sources.signals.lock().unwrap().read();
        if received.is_empty() {
            return;
        }
        self.count_signals(&received, near, rng);
        for other in self.other_readers() {
            other.count_signals(&received, NONE, &other.dispatch.seed());
        }
    }

    fn count_signals(&self, received: &[i32], near: u32, rng: &Rng) {
        let ids = self.sources.signals.lock().unwrap().count(received, &self.dispatch.table);
        self.dispatch.activate_all(&ids, near, rng);
    }

    fn other_readers(&self) -> Vec<Arc<Inner>> {
        let queues = readers().lock().unwrap();
        let alive = queues.iter().filter_map(Weak::upgrade);
        alive.filter(|queue| !std::ptr::eq(&**queue, self) && queue.check().is_ok()).collect()
    }

    /// Takes what became ready in the epolls of threads that have left.
    fn harvest_departed(&self, near: u32, rng: &Rng) {
        let mut events = Events::with_capacity(HARVEST);
        for port in self.watches.departed.all() {
            let mut is_more = true;
            while is_more {
                let looked_at = Moment::now();
                port.epoll.wait(&mut events, Some(Ns::ZERO));
                is_more = events.is_full();
                for (key, ready) in events.iter() {
                    self.departed_ready(key.into(), ready, looked_at, near, rng);
                }
            }
        }
    }

    fn departed_ready(&self, key: WatchKey, ready: u32, looked_at: Moment, near: u32, rng: &Rng) {
        let table = &self.dispatch.table;
        let (id, slot) = (key.id, table.slot(key.id.index));
        // Where the port was only a peer, the other registrations report the event.
        let Some(keeping) = key.keeping else { return };
        if slot.state.generation() != id.generation || !slot.is_kept_by(keeping) {
            return;
        }
        let activate = |id: EventId, slot: &Slot| {
            let ready = slot.asked_of(ready);
            if ready != 0 {
                let next = slot.activate(id.generation, ready, looked_at);
                self.dispatch.follow(id.index, next, near, rng);
            }
        };
        activate(id, slot);
        if let Some((id, slot)) = table.rider(id) {
            activate(id, slot);
        }
    }
}

type Queues = Mutex<Vec<Weak<Inner>>>;

/// The queues of a process that read signals. A signal is read once, by whichever queue looks first, which
/// counts it for all of them.
struct Readers {
    process: u32,
    queues: Queues,
    of_child: OnceLock<Box<Readers>>,
}

/// Returns the readers of this process: a child of fork(2) starts with none, in whatever state the parent's
/// lock was.
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
