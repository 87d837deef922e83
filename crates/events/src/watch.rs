//! In which threads' epolls a descriptor is registered.
//!
//! First at home, then at up to `peers` others, all exclusive and edge-triggered: when the descriptor becomes ready, the kernel goes
//! through the registrations in this order and stops at the first thread that is parked. Where nobody is, all have it, and whoever comes
//! back first takes it; the kernel looks at the descriptor again before it tells another, and the state word keeps the rest away. That is
//! "the idle one of several" decided by the kernel at activation (research: events.md, section 2), without a hand-over.
//!
//! Exclusive registrations cannot be modified: a change is an end and a beginning. Nothing is lost by it, for a descriptor that is ready
//! when it is registered is told.
//!
//! # Edges are told once
//!
//! That a descriptor stands in several epolls must not multiply its edges: while its data stays unread, each of these epolls reports the
//! same edge, and so does each new registration. A level-triggered event is looked at when it is released, so a report more costs a look.
//! An edge-triggered one is told for each report that counts, and these count:
//!
//! 1. *One registration keeps the edges*, the first ([`WatchKey::is_keeper`]). The kernel comes to it first and so never stops before it:
//!    its epoll has every edge, and gives each to one caller of `epoll_wait`, its own thread or another. What the other epolls report of
//!    an edge-triggered event is a *hint*: whoever gets it fetches what the keeper has, which is nothing if somebody was quicker.
//! 2. *The keeper moves only while the descriptor is not ready.* Then all its edges are over, told or not, and what the new registration
//!    reports has come since. As long as it is ready (its handler leaves data, or it can be written to), only its home and its peers
//!    follow the roster and the policy: who harvests it puts it into the lane of its home. It moves at one of its next releases.
//! 3. *A thread that leaves leaves such descriptors behind*, in its epoll, which all others watch from then on
//!    ([`crate::orphans`]) until the last of them has moved.
//!
//! Registered anew although it may be ready, and so told again if it is, is what the program asks for: by another interest, or by another
//! event on the same descriptor that begins or ends.
//!
//! One case of two reports for one edge is left, by a coincidence of three: the descriptor becomes ready between the look that found that
//! it was not and the end of the old registration, which is a microsecond, and another thread harvests it within that.

use crate::EventError;
use crate::error::system;
use crate::port::Port;
use crate::queue::Inner;
use crate::roster::Roster;
use crate::slot::{EventId, NONE, Slot, Watch, WatchKey, flag};
use crate::spread::{MOST_PEERS, goal};
use heddle_sys::epoll::{self, Epoll};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

impl Inner {
    /// Begins to watch the descriptor of a new event. False if the system does not watch such, files of a disk for instance.
    pub fn watch(&self, id: EventId) -> Result<bool, EventError> {
        let roster = self.roster();
        let slot = self.table.slot(id.index);
        if slot.home.load(Relaxed) == NONE && roster.lanes() > 0 {
            let lane = id.index as usize % roster.lanes();
            slot.home.store(roster.ports[lane].number, Relaxed);
        }
        let mut watch = slot.watch.lock().unwrap();
        *watch = Watch::default();
        let Err(error) = self.register(&roster, id, slot, &mut watch) else { return Ok(true) };
        // With some threads it may have succeeded.
        self.unwatch(slot, &mut watch);
        if is(&error, Errno::PERM) { Ok(false) } else { Err(system("watch a descriptor")(error)) }
    }

    /// Registers at home and with peers, as the roster is now.
    fn register(
        &self,
        roster: &Roster,
        id: EventId,
        slot: &Slot,
        watch: &mut Watch,
    ) -> io::Result<()> {
        watch.is_claimed = slot.has(flag::PUMP) || self.claims.claim(slot.fd.load(Relaxed));
        match roster.lane_of(slot.home.load(Relaxed)) {
            Some(home) => self.register_with(roster, id, slot, watch, home)?,
            None => self.register_in_lobby(id, slot, watch)?,
        }
        self.register_peers(roster, id, slot, watch, self.level(roster))
    }

    /// Registers with as many peers as `level` says, from home on, and notes what that follows.
    fn register_peers(
        &self,
        roster: &Roster,
        id: EventId,
        slot: &Slot,
        watch: &mut Watch,
        level: u32,
    ) -> io::Result<()> {
        watch.epoch = roster.epoch;
        slot.drift.follows.store(goal(roster.epoch, level), Relaxed);
        let Some(home) = roster.lane_of(slot.home.load(Relaxed)) else { return Ok(()) };
        let wanted = 1 + self.peers_of(roster, slot, watch, level);
        for lane in (0..roster.lanes()).map(|i| (home + i) % roster.lanes()) {
            if watch.ports.len() >= wanted {
                break;
            }
            if !watch.ports.contains(&roster.ports[lane].number) {
                self.register_with(roster, id, slot, watch, lane)?;
            }
        }
        Ok(())
    }

    fn register_with(
        &self,
        roster: &Roster,
        id: EventId,
        slot: &Slot,
        watch: &mut Watch,
        lane: usize,
    ) -> io::Result<()> {
        let port = &roster.ports[lane];
        // Whether there are peers just now makes no difference to what the program sees. Of a signal that is sent to one thread, the
        // others see nothing; an epoll cannot be watched exclusively.
        let is_exclusive = self.peers_of(roster, slot, watch, self.most_peers(roster)) > 0;
        let is_exclusive = is_exclusive && !slot.has(flag::SIGNAL | flag::ORPHANS);
        let events = self.wanted(slot);
        let fd = slot.fd.load(Relaxed);
        let is_keeper = watch.ports.is_empty();
        let key = WatchKey { id, is_keeper }.into();
        let begin = || port.epoll.watch(fd, key, events, is_exclusive);
        begin().or_else(|error| {
            if !is(&error, Errno::EXIST) {
                return Err(error);
            }
            // A number that was closed, deregistered after that, and means the same file again, of which a copy stayed open.
            port.epoll.unwatch(fd);
            begin()
        })?;
        if is_keeper {
            self.begin_keeping(port, slot, watch);
        }
        watch.ports.push(port.number);
        Ok(())
    }

    /// Nobody waits there: it only is known which descriptor it was, and whether it can be watched.
    fn register_in_lobby(&self, id: EventId, slot: &Slot, watch: &mut Watch) -> io::Result<()> {
        self.lobby()?.watch(
            slot.fd.load(Relaxed),
            WatchKey { id, is_keeper: true }.into(),
            0,
            false,
        )?;
        watch.ports.push(NONE);
        Ok(())
    }

    fn lobby(&self) -> io::Result<&Epoll> {
        if let Some(lobby) = self.lobby.get() {
            return Ok(lobby);
        }
        let lobby = Epoll::new()?;
        Ok(self.lobby.get_or_init(|| lobby))
    }

    /// Calls `with` with the epoll of a port, unless its thread has left with it.
    fn with_epoll<T>(
        &self,
        roster: &Roster,
        port: u32,
        with: impl FnOnce(&Epoll) -> T,
    ) -> Option<T> {
        if port == NONE {
            return self.lobby.get().map(with);
        }
        match roster.lane_of(port) {
            Some(lane) => Some(with(&roster.ports[lane].epoll)),
            None => self.orphans.find(port).map(|orphan| with(&orphan.epoll)),
        }
    }

    /// The first registration of a descriptor is with `port`.
    fn begin_keeping(&self, port: &Port, slot: &Slot, watch: &mut Watch) {
        if self.has_edges(slot) {
            slot.keeper.store(port.number, Relaxed);
            watch.is_counted = !slot.has(flag::PINNED);
            port.kept.fetch_add(usize::from(watch.is_counted), SeqCst);
        }
    }

    /// The first registration of a descriptor has ended.
    fn end_keeping(&self, roster: &Roster, port: u32, slot: &Slot, watch: &mut Watch) {
        slot.keeper.store(NONE, Relaxed);
        if !std::mem::take(&mut watch.is_counted) {
            return;
        }
        match roster.lane_of(port) {
            Some(lane) => {
                roster.ports[lane].kept.fetch_sub(1, SeqCst);
            }
            None => self.orphans.end_one(port),
        }
    }

    /// Whether an event of the descriptor is edge-triggered.
    fn has_edges(&self, slot: &Slot) -> bool {
        let second = slot.second.load(Relaxed);
        slot.is_edge_triggered() || second != NONE && self.table.slot(second).is_edge_triggered()
    }

    /// Whether the descriptor's edges have to be kept where they are.
    fn stays(&self, roster: &Roster, slot: &Slot, watch: &Watch) -> bool {
        let keeper = watch.ports.first().filter(|&&port| port != NONE && self.has_edges(slot));
        let is_there = |&port: &u32| self.with_epoll(roster, port, |_| ()).is_some();
        let is_ready = || epoll::ready_now(slot.fd.load(Relaxed), self.wanted(slot)) != 0;
        keeper.is_some_and(is_there) && is_ready()
    }

    /// Whether the descriptor of `id`, whose number is asked for again, was closed since: epoll knows files, not numbers. The descriptor
    /// is locked.
    pub fn is_stale(&self, id: EventId) -> Result<bool, EventError> {
        let (roster, slot) = (self.roster(), self.table.slot(id.index));
        let (watch, fd) = (slot.watch.lock().unwrap(), slot.fd.load(Relaxed));
        let try_in =
            |epoll: &Epoll| epoll.watch(fd, id.into(), 0, false).inspect(|()| epoll.unwatch(fd));
        let known = watch.ports.iter().find_map(|&port| self.with_epoll(&roster, port, try_in));
        let tried = match known {
            Some(tried) => tried,
            // The thread that it was pinned to has left, or it could not be watched any more.
            None if !slot.has(flag::ALWAYS) => return Ok(true),
            None => try_in(self.lobby().map_err(system("make an epoll"))?),
        };
        match tried {
            Ok(()) => Ok(true),
            Err(error) if is(&error, Errno::EXIST) || is(&error, Errno::PERM) => Ok(false),
            Err(error) => Err(system("watch a descriptor")(error)),
        }
    }

    /// With how many peers a descriptor may be registered: what the program or the policy says.
    fn most_peers(&self, roster: &Roster) -> u32 {
        let most = self.peers.unwrap_or_else(|| roster.schedule.peers());
        u32::try_from(most).unwrap_or(MOST_PEERS).min(MOST_PEERS)
    }

    /// The same as things are: fewer while nobody idles, unless the program has chosen.
    pub fn level(&self, roster: &Roster) -> u32 {
        let most = self.most_peers(roster);
        if self.peers.is_some() { most } else { most.min(self.spread.level()) }
    }

    fn peers_of(&self, roster: &Roster, slot: &Slot, watch: &Watch, level: u32) -> usize {
        let others = roster.lanes().saturating_sub(1);
        if slot.has(flag::PINNED) || !watch.is_claimed {
            return 0;
        }
        if slot.has(flag::PUMP) {
            return others;
        }
        // What is urgent waits for whoever is done first, not for its home, also when nobody idles.
        let level = if slot.has(flag::HIGH) { self.most_peers(roster) } else { level };
        others.min(level as usize)
    }

    /// The level has changed: peers more or fewer. Those that go are the last to which the kernel comes, so home has all that they had.
    pub fn follow_level(&self, roster: &Roster, slot: &Slot, id: EventId, goal: u64) {
        let Ok(mut watch) = slot.watch.try_lock() else { return };
        let level = (goal & 0xFF) as u32;
        let has_home = roster.lane_of(slot.home.load(Relaxed)).is_some();
        if !has_home || watch.epoch != roster.epoch || !slot.state.is_alive(id.generation) {
            return;
        }
        let wanted = self.peers_of(roster, slot, &watch, level);
        self.unwatch_peers(roster, slot, &mut watch, wanted);
        if !watch.ports.is_empty() {
            // A descriptor that was closed meanwhile cannot be watched, and need not be.
            let _ = self.register_peers(roster, id, slot, &mut watch, level);
        }
    }

    /// Ends the registrations with peers beyond the first `left`.
    fn unwatch_peers(&self, roster: &Roster, slot: &Slot, watch: &mut Watch, left: usize) {
        let fd = slot.fd.load(Relaxed);
        for port in watch.ports.drain((1 + left).min(watch.ports.len())..) {
            self.with_epoll(roster, port, |epoll| epoll.unwatch(fd));
        }
    }

    /// What is asked of the descriptor: for the event and for the other one that it has, if any.
    fn wanted(&self, slot: &Slot) -> u32 {
        let second = slot.second.load(Relaxed);
        let others = if second == NONE { 0 } else { self.table.slot(second).wants.load(Relaxed) };
        slot.wants.load(Relaxed) | others
    }

    /// Ends all registrations of the descriptor.
    pub fn unwatch(&self, slot: &Slot, watch: &mut Watch) {
        let roster = self.roster();
        self.unwatch_peers(&roster, slot, watch, 0);
        if let Some(keeper) = watch.ports.pop() {
            self.with_epoll(&roster, keeper, |epoll| epoll.unwatch(slot.fd.load(Relaxed)));
            self.end_keeping(&roster, keeper, slot, watch);
        }
        if std::mem::take(&mut watch.is_claimed) {
            self.claims.release(slot.fd.load(Relaxed));
        }
    }

    /// Registers the descriptor of an event anew, after a change of interest. What is ready is told.
    pub fn rewatch(&self, id: EventId) -> Result<(), EventError> {
        self.with_carrier(id, |id| self.rewatch_carrier(id))
    }

    /// Has the registrations of an event's descriptor follow its home, after a change of threads or policy. What is ready is not told again
    /// where it was told.
    pub fn relocate(&self, id: EventId) -> Result<(), EventError> {
        self.with_carrier(id, |id| self.relocate_carrier(id))
    }

    /// Calls `change` with the event that stands in epoll for the descriptor of `id`, and the descriptor locked.
    fn with_carrier(
        &self,
        id: EventId,
        change: impl FnOnce(EventId) -> Result<(), EventError>,
    ) -> Result<(), EventError> {
        let fd = self.table.alive(id)?.fd.load(Relaxed);
        let _carriers = self.descriptors.lock(fd);
        // It may have ended, and its slot have begun anew, before the descriptor was locked.
        let slot = self.table.alive(id)?;
        match slot.first.load(Relaxed) {
            NONE => change(id),
            first => change(self.table.id(first)),
        }
    }

    /// As [`Inner::rewatch`], for an event that stands in epoll itself. The descriptor is locked.
    pub fn rewatch_carrier(&self, id: EventId) -> Result<(), EventError> {
        let slot = self.table.alive(id)?;
        let mut watch = slot.watch.lock().unwrap();
        let roster = self.roster();
        self.give_home(&roster, id, slot);
        self.unwatch(slot, &mut watch);
        self.register(&roster, id, slot, &mut watch).map_err(system("watch a descriptor"))
    }

    fn relocate_carrier(&self, id: EventId) -> Result<(), EventError> {
        let slot = self.table.alive(id)?;
        let mut watch = slot.watch.lock().unwrap();
        let roster = self.roster();
        self.give_home(&roster, id, slot);
        let followed = if !self.stays(&roster, slot, &watch) {
            self.unwatch(slot, &mut watch);
            self.register(&roster, id, slot, &mut watch)
        } else if watch.epoch != roster.epoch {
            self.unwatch_peers(&roster, slot, &mut watch, 0);
            self.register_peers(&roster, id, slot, &mut watch, self.level(&roster))
        } else {
            Ok(())
        };
        followed.map_err(system("watch a descriptor"))
    }

    /// An event whose home has gone, or that never had one, gets one.
    fn give_home(&self, roster: &Roster, id: EventId, slot: &Slot) {
        let is_homeless = roster.lane_of(slot.home.load(Relaxed)).is_none();
        if is_homeless && roster.lanes() > 0 && !slot.has(flag::PINNED) {
            let lane = id.index as usize % roster.lanes();
            slot.home.store(roster.ports[lane].number, Relaxed);
        }
    }

    /// After the roster has changed: descriptors whose home has gone, or that never had one, get one. Pumps are
    /// registered with all. The others follow when they are released next.
    pub fn settle(&self, roster: &Arc<Roster>) {
        for id in self.table.ids() {
            let slot = self.table.slot(id.index);
            let is_there = |port: u32| port != NONE && roster.lane_of(port).is_some();
            let keeper = slot.keeper.load(Relaxed);
            let is_settled = is_there(slot.home.load(Relaxed))
                && (keeper == NONE || is_there(keeper))
                && !slot.has(flag::PUMP);
            if is_settled
                || slot.first.load(Relaxed) != NONE
                || slot.fd.load(Relaxed) < 0
                || slot.has(flag::PINNED | flag::ALWAYS)
            {
                continue;
            }
            // A descriptor that was closed meanwhile cannot be watched, and need not be.
            let _ = self.relocate(id);
        }
    }

    /// An event is released: its registrations follow the roster, and its home the policy.
    pub fn follow_roster(&self, roster: &Roster, id: EventId) {
        let slot = match self.table.slot(id.index).first.load(Relaxed) {
            NONE => self.table.slot(id.index),
            first => self.table.slot(first),
        };
        let Ok(watch) = slot.watch.try_lock() else { return };
        let is_old = watch.epoch != roster.epoch && slot.fd.load(Relaxed) >= 0;
        drop(watch);
        if is_old && !slot.has(flag::PINNED | flag::ALWAYS) {
            let lane = id.index as usize % roster.lanes();
            slot.home.store(roster.ports[lane].number, Relaxed);
            let _ = self.relocate(id);
        }
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
