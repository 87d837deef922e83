//! In which workers' epolls a descriptor is registered.
//!
//! First at home, then at up to `peers` others, always exclusive and edge-triggered. When the descriptor
//! becomes ready, the kernel goes through the registrations in this order and stops at the first parked
//! worker. If none is parked, all have the event, and the first to come back takes it; the kernel checks the
//! descriptor again before it reports to another, and the state word keeps the rest away. This is "the idle
//! one of several" decided by the kernel at activation (research: events.md, section 2), without a handover.
//!
//! Exclusive registrations cannot be modified: a change removes one and adds another. Nothing is lost by
//! that, because a descriptor that is ready when it is registered is reported.
//!
//! # Edges are reported once
//!
//! Registering a descriptor in several epolls must not multiply its edges: while its data stays unread, each
//! of these epolls reports the same edge, and so does each new registration. A level-triggered event is
//! checked when it is released, so an extra report costs a check. An edge-triggered event is reported for
//! each report that counts, and these count:
//!
//! 1. *One registration keeps the edges*, the first ([`WatchKey::keeping`]). The kernel comes to it first
//!    and so never stops before it: its epoll has every edge, and gives each to one caller of `epoll_wait`,
//!    its own worker or another. What the other epolls report of an edge-triggered event is a *hint*: the
//!    worker that gets it fetches what the keeper has, which is nothing if another worker was quicker.
//! 2. *The keeper moves only while the descriptor is not ready.* Then all its edges are over, reported or
//!    not, and what the new registration reports has come since. While it is ready (its handler leaves data,
//!    or it can be written to), only its home and its peers follow the workers and the policy: the worker
//!    that harvests it puts it into the run queue of its home. The keeper moves at one of the next releases.
//! 3. *A worker that leaves leaves such descriptors behind* in its epoll, which all others watch from then on
//!    ([`crate::departed`]) until the last of them has moved.
//!
//! Two requests of the program register a descriptor anew although it may be ready, and so report it again if
//! it is: another interest, and another event on the same descriptor that begins or ends.
//!
//! A descriptor may become ready between the check that found it not ready and the end of the old
//! registration, and another worker may harvest it within that time: then both registrations report the
//! edge. So registrations have numbers ([`Keeping`](crate::ids::Keeping)), and what a former one reported is
//! dropped. A report that comes while a move is being decided waits ([`Slot::is_kept_by`]).

use crate::EventError;
use crate::claims::Claims;
use crate::departed::DepartedPorts;
use crate::descriptors::Descriptors;
use crate::dispatch::Dispatcher;
use crate::drift::goal;
use crate::error::system;
use crate::ids::{EventId, NONE, WatchKey};
use crate::port::Port;
use crate::slot::{Slot, Watch, flag};
use crate::spread::{MOST_PEERS, Spread};
use crate::workers::WorkerSet;
use heddle_sys::epoll::Epoll;
use rustix::io::Errno;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The descriptors of a queue, and the epolls that watch them.
#[derive(Default)]
pub(crate) struct Watches {
    pub descriptors: Descriptors,
    claims: Claims,
    pub departed: DepartedPorts,
    pub spread: Spread,
    /// With how many peers a descriptor is registered; None: the policy and the load decide.
    peers: Option<usize>,
    /// An epoll for descriptors that are registered while there is no worker.
    pending: OnceLock<Epoll>,
}

impl Watches {
    pub fn new(peers: Option<usize>) -> Watches {
        Watches { peers, ..Watches::default() }
    }

    /// Begins to watch the descriptor of a new event. Returns false if the system does not watch its kind,
    /// for example files on a disk.
    pub fn watch(&self, dispatch: &Dispatcher, id: EventId) -> Result<bool, EventError> {
        let workers = dispatch.workers();
        let slot = dispatch.table.slot(id.index);
        if slot.home.load(Relaxed) == NONE && workers.len() > 0 {
            let index = id.index as usize % workers.len();
            slot.home.store(workers.ports[index].number, Relaxed);
        }
        let mut watch = slot.watch.lock().unwrap();
        *watch = Watch::default();
        let Err(error) = self.register(dispatch, &workers, id, slot, &mut watch) else {
            return Ok(true);
        };
        // Registration may have succeeded with some workers.
        self.unwatch(dispatch, slot, &mut watch);
        if is_errno(&error, Errno::PERM) {
            Ok(false)
        } else {
            Err(system("watch a descriptor")(error))
        }
    }

    /// Registers at home and with peers, for the current workers.
    pub fn register(
        &self,
        dispatch: &Dispatcher,
        workers: &WorkerSet,
        id: EventId,
        slot: &Slot,
        watch: &mut Watch,
    ) -> io::Result<()> {
        watch.is_claimed = slot.has(flag::PUMP) || self.claims.claim(slot.fd.load(Relaxed));
        match workers.index_of(slot.home.load(Relaxed)) {
            Some(home) => self.register_with(dispatch, workers, id, slot, watch, home)?,
            None => self.register_pending(id, slot, watch)?,
        }
        self.register_peers(dispatch, workers, id, slot, watch, self.level(workers))
    }

    /// Registers with as many peers as `level` says, starting after home, and notes what that follows.
    pub fn register_peers(
        &self,
        dispatch: &Dispatcher,
        workers: &WorkerSet,
        id: EventId,
        slot: &Slot,
        watch: &mut Watch,
        level: u32,
    ) -> io::Result<()> {
        watch.epoch = workers.epoch;
        slot.drift.follows.store(goal(workers.epoch, level), Relaxed);
        let Some(home) = workers.index_of(slot.home.load(Relaxed)) else { return Ok(()) };
        let wanted = 1 + self.peers_of(workers, slot, watch, level);
        for index in (0..workers.len()).map(|i| (home + i) % workers.len()) {
            if watch.ports.len() >= wanted {
                break;
            }
            if !watch.ports.contains(&workers.ports[index].number) {
                self.register_with(dispatch, workers, id, slot, watch, index)?;
            }
        }
        Ok(())
    }

    fn register_with(
        &self,
        dispatch: &Dispatcher,
        workers: &WorkerSet,
        id: EventId,
        slot: &Slot,
        watch: &mut Watch,
        index: usize,
    ) -> io::Result<()> {
        let port = &workers.ports[index];
        // Whether there are peers just now makes no difference to the program. A signal sent to one thread is
        // invisible to the others, and an epoll cannot be watched exclusively.
        let is_exclusive = self.peers_of(workers, slot, watch, self.most_peers(workers)) > 0;
        let is_exclusive = is_exclusive && !slot.has(flag::SIGNAL | flag::DEPARTED);
        let events = self.wanted(dispatch, slot);
        let fd = slot.fd.load(Relaxed);
        let is_keeper = watch.ports.is_empty();
        let key = WatchKey { id, keeping: is_keeper.then(|| slot.next_keeping()) }.into();
        let begin = || port.epoll.watch(fd, key, events, is_exclusive);
        begin().or_else(|error| {
            if !is_errno(&error, Errno::EXIST) {
                return Err(error);
            }
            // The number was closed, then deregistered, and now means the same file again, of which a copy
            // stayed open.
            port.epoll.unwatch(fd);
            begin()
        })?;
        if is_keeper {
            self.begin_keeping(dispatch, port, slot, watch);
        }
        watch.ports.push(port.number);
        Ok(())
    }

    /// No worker waits there: this only records which file the descriptor was, and whether it can be watched.
    fn register_pending(&self, id: EventId, slot: &Slot, watch: &mut Watch) -> io::Result<()> {
        self.pending()?.watch(
            slot.fd.load(Relaxed),
            WatchKey { id, keeping: Some(slot.next_keeping()) }.into(),
            0,
            false,
        )?;
        watch.ports.push(NONE);
        Ok(())
    }

    fn pending(&self) -> io::Result<&Epoll> {
        if let Some(pending) = self.pending.get() {
            return Ok(pending);
        }
        let pending = Epoll::new()?;
        Ok(self.pending.get_or_init(|| pending))
    }

    /// Calls `with` with the epoll of a port. Returns None if the port has left and kept nothing.
    pub fn with_epoll<T>(
        &self,
        workers: &WorkerSet,
        port: u32,
        with: impl FnOnce(&Epoll) -> T,
    ) -> Option<T> {
        if port == NONE {
            return self.pending.get().map(with);
        }
        match workers.index_of(port) {
            Some(index) => Some(with(&workers.ports[index].epoll)),
            None => self.departed.find(port).map(|port| with(&port.epoll)),
        }
    }

    /// The first registration of a descriptor is with `port`.
    fn begin_keeping(&self, dispatch: &Dispatcher, port: &Port, slot: &Slot, watch: &mut Watch) {
        if self.has_edges(dispatch, slot) {
            slot.keeper.store(port.number, Relaxed);
            watch.is_counted = !slot.has(flag::PINNED);
            port.kept_edges.fetch_add(usize::from(watch.is_counted), SeqCst);
        }
    }

    /// The first registration of a descriptor has ended.
    fn end_keeping(&self, workers: &WorkerSet, port: u32, slot: &Slot, watch: &mut Watch) {
        slot.keeper.store(NONE, Relaxed);
        if !std::mem::take(&mut watch.is_counted) {
            return;
        }
        match workers.index_of(port) {
            Some(index) => {
                workers.ports[index].kept_edges.fetch_sub(1, SeqCst);
            }
            None => self.departed.end_one(port),
        }
    }

    /// Whether an event of the descriptor is edge-triggered.
    pub fn has_edges(&self, dispatch: &Dispatcher, slot: &Slot) -> bool {
        let second = slot.second.load(Relaxed);
        slot.is_edge_triggered()
            || second != NONE && dispatch.table.slot(second).is_edge_triggered()
    }

    /// Whether the descriptor of `id`, whose number is being registered again, was closed since: epoll knows
    /// files, not numbers. The descriptor is locked.
    pub fn is_stale(&self, dispatch: &Dispatcher, id: EventId) -> Result<bool, EventError> {
        let (workers, slot) = (dispatch.workers(), dispatch.table.slot(id.index));
        let (watch, fd) = (slot.watch.lock().unwrap(), slot.fd.load(Relaxed));
        let try_in =
            |epoll: &Epoll| epoll.watch(fd, id.into(), 0, false).inspect(|()| epoll.unwatch(fd));
        let known = watch.ports.iter().find_map(|&port| self.with_epoll(&workers, port, try_in));
        let tried = match known {
            Some(tried) => tried,
            // The worker that it was pinned to has left, or it could not be watched any more.
            None if !slot.has(flag::ALWAYS) => return Ok(true),
            None => try_in(self.pending().map_err(system("make an epoll"))?),
        };
        match tried {
            Ok(()) => Ok(true),
            Err(error) if is_errno(&error, Errno::EXIST) || is_errno(&error, Errno::PERM) => {
                Ok(false)
            }
            Err(error) => Err(system("watch a descriptor")(error)),
        }
    }

    /// Returns with how many peers a descriptor may be registered: what the program or the policy says.
    fn most_peers(&self, workers: &WorkerSet) -> u32 {
        let most = self.peers.unwrap_or_else(|| workers.schedule.peers());
        u32::try_from(most).unwrap_or(MOST_PEERS).min(MOST_PEERS)
    }

    /// Returns with how many peers a descriptor should be registered now: fewer while no worker is idle,
    /// unless the program has chosen.
    pub fn level(&self, workers: &WorkerSet) -> u32 {
        let most = self.most_peers(workers);
        if self.peers.is_some() { most } else { most.min(self.spread.level()) }
    }

    pub fn peers_of(&self, workers: &WorkerSet, slot: &Slot, watch: &Watch, level: u32) -> usize {
        let others = workers.len().saturating_sub(1);
        if slot.has(flag::PINNED) || !watch.is_claimed {
            return 0;
        }
        if slot.has(flag::PUMP) {
            return others;
        }
        // An urgent event waits for the first worker that is done, not for its home, even if no worker is
        // idle.
        let level = if slot.has(flag::HIGH) { self.most_peers(workers) } else { level };
        others.min(level as usize)
    }

    /// Ends the registrations with peers beyond the first `left`.
    pub fn unwatch_peers(&self, workers: &WorkerSet, slot: &Slot, watch: &mut Watch, left: usize) {
        let fd = slot.fd.load(Relaxed);
        for port in watch.ports.drain((1 + left).min(watch.ports.len())..) {
            self.with_epoll(workers, port, |epoll| epoll.unwatch(fd));
        }
    }

    /// Returns the interest of both events on the descriptor.
    pub fn wanted(&self, dispatch: &Dispatcher, slot: &Slot) -> u32 {
        let second = slot.second.load(Relaxed);
        let others =
            if second == NONE { 0 } else { dispatch.table.slot(second).wants.load(Relaxed) };
        slot.wants.load(Relaxed) | others
    }

    /// Ends all registrations of the descriptor.
    pub fn unwatch(&self, dispatch: &Dispatcher, slot: &Slot, watch: &mut Watch) {
        let workers = dispatch.workers();
        self.unwatch_peers(&workers, slot, watch, 0);
        if let Some(keeper) = watch.ports.pop() {
            self.with_epoll(&workers, keeper, |epoll| epoll.unwatch(slot.fd.load(Relaxed)));
            self.end_keeping(&workers, keeper, slot, watch);
        }
        if std::mem::take(&mut watch.is_claimed) {
            self.claims.release(slot.fd.load(Relaxed));
        }
    }
}

fn is_errno(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
