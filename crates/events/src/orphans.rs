//! Epolls of threads that have left, which keep the edges of descriptors that were ready then ([`crate::watch`]).
//!
//! Such an epoll stands in one of the queue's own, which all threads watch as they watch any pump ([`crate::sources`]): whoever learns
//! that one of the descriptors became ready fetches its event. All idle threads learn it, for the kernel watches no epoll exclusively;
//! these descriptors are few, and move to a thread when one of their next events is released and they are not ready any more. With the
//! last of them the epoll is closed.

use crate::EventError;
use crate::error::system;
use crate::port::Port;
use crate::queue::Inner;
use crate::slot::{EventId, Moment, Slot, WatchKey, flag};
use heddle_core::{Ns, Rng};
use heddle_sys::epoll::{Epoll, Events, READ};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, OnceLock};

/// How many events are taken from such an epoll at once.
const HARVEST: usize = 32;

/// All of them of a queue.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    /// Nothing else is locked under it.
    ports: Mutex<Vec<Arc<Port>>>,
    /// In which their epolls stand; opened when the first one comes.
    epoll: OnceLock<Epoll>,
    opening: Mutex<()>,
}

impl Orphans {
    /// The port of that number, if it is among them.
    pub fn find(&self, number: u32) -> Option<Arc<Port>> {
        self.ports.lock().unwrap().iter().find(|port| port.number == number).cloned()
    }

    /// One descriptor less is kept in the epoll of that port.
    pub fn end_one(&self, number: u32) {
        if let Some(port) = self.find(number) {
            port.kept.fetch_sub(1, SeqCst);
            self.end_empty(&port);
        }
    }

    fn end_empty(&self, port: &Port) {
        if port.kept.load(SeqCst) == 0 {
            self.end(port);
        }
    }

    fn end(&self, port: &Port) {
        let mut ports = self.ports.lock().unwrap();
        if let Some(at) = ports.iter().position(|one| one.number == port.number) {
            ports.swap_remove(at);
            self.epoll.get().inspect(|epoll| epoll.unwatch(port.epoll.as_raw_fd()));
        }
    }

    /// Has the threads watch the epoll of `port`.
    fn watch(&self, port: &Port) -> std::io::Result<()> {
        let ports = self.ports.lock().unwrap();
        let is_there = ports.iter().any(|one| one.number == port.number);
        let Some(epoll) = self.epoll.get().filter(|_| is_there) else { return Ok(()) };
        epoll.watch(port.epoll.as_raw_fd(), port.number.into(), READ, false)
    }
}

impl Inner {
    /// The thread of `port` is about to leave: its epoll stays if it keeps anything. If there are no descriptors for that, what is ready is
    /// told again by another thread.
    pub fn leave_behind(&self, port: &Arc<Port>) {
        if port.kept.load(SeqCst) > 0 && self.open_orphans().is_ok() {
            self.orphans.ports.lock().unwrap().push(Arc::clone(port));
        }
    }

    /// The thread of `port` has left, and all descriptors have moved that could. Only now may its epoll be watched: it watched the others,
    /// as every thread does.
    pub fn adopt(&self, port: &Port) {
        self.orphans.end_empty(port);
        if self.orphans.watch(port).is_err() {
            self.orphans.end(port);
            self.settle(&self.roster());
        }
    }

    fn open_orphans(&self) -> Result<(), EventError> {
        let _opening = self.orphans.opening.lock().unwrap();
        if self.orphans.epoll.get().is_none() {
            let epoll = Epoll::new().map_err(system("make an epoll instance"))?;
            self.open_pump(&epoll, flag::ORPHANS)?;
            self.orphans.epoll.get_or_init(|| epoll);
        }
        Ok(())
    }

    /// Takes what became ready in these epolls.
    pub fn look_at_orphans(&self, near: u32, rng: &Rng) {
        let ports = self.orphans.ports.lock().unwrap().clone();
        let mut events = Events::with_capacity(HARVEST);
        for port in ports {
            let mut is_more = true;
            while is_more {
                let looked = Moment::now();
                port.epoll.wait(&mut events, Some(Ns::ZERO));
                is_more = events.is_full();
                for (key, ready) in events.iter() {
                    self.orphan_happened(key.into(), ready, looked, near, rng);
                }
            }
        }
    }

    fn orphan_happened(&self, key: WatchKey, ready: u32, looked: Moment, near: u32, rng: &Rng) {
        let (id, slot) = (key.id, self.table.slot(key.id.index));
        // What it was a peer of is told by those that have it.
        if !key.is_keeper || slot.state.generation() != id.generation {
            return;
        }
        let tell = |id: EventId, slot: &Slot| {
            let ready = slot.asked_of(ready);
            if ready != 0 {
                self.follow(id.index, slot.activate(id.generation, ready, looked), near, rng);
            }
        };
        tell(id, slot);
        if let Some((id, slot)) = self.table.rider(id) {
            tell(id, slot);
        }
    }
}
