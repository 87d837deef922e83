//! In which threads' epolls a descriptor is registered.
//!
//! First at home, then at up to `peers` others, all exclusive and edge-triggered: when the descriptor becomes ready, the kernel goes
//! through the registrations in this order and stops at the first thread that is parked. Where nobody is, all have it, and whoever comes
//! back first takes it; the kernel looks at the descriptor again before it tells another, and the state word keeps the rest away. That is
//! "the idle one of several" decided by the kernel at activation (research: events.md, section 2), without a hand-over.
//!
//! Exclusive registrations cannot be modified: a change is an end and a beginning. Nothing is lost by it, for a descriptor that is ready
//! when it is registered is told.

use crate::EventError;
use crate::error::system;
use crate::queue::Inner;
use crate::roster::Roster;
use crate::slot::{EventId, NONE, Slot, Watch, flag};
use crate::spread::{MOST_PEERS, goal};
use heddle_sys::epoll::Epoll;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

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
        let level = self.level(roster);
        watch.epoch = roster.epoch;
        slot.drift.follows.store(goal(roster.epoch, level), Relaxed);
        let Some(home) = roster.lane_of(slot.home.load(Relaxed)) else {
            return self.register_in_lobby(id, slot, watch);
        };
        for lane in (0..=self.peers_of(roster, slot, level)).map(|i| (home + i) % roster.lanes()) {
            self.register_with(roster, id, slot, watch, lane)?;
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
        // others see nothing.
        let is_exclusive = self.peers_of(roster, slot, self.most_peers(roster)) > 0;
        let is_exclusive = is_exclusive && !slot.has(flag::SIGNAL);
        let events = self.wanted(slot);
        let fd = slot.fd.load(Relaxed);
        let begin = || port.epoll.watch(fd, id.into(), events, is_exclusive);
        begin().or_else(|error| {
            if !is(&error, Errno::EXIST) {
                return Err(error);
            }
            // A number that was closed, deregistered after that, and means the same file again, of which a copy stayed open.
            port.epoll.unwatch(fd);
            begin()
        })?;
        watch.ports.push(port.number);
        Ok(())
    }

    /// Nobody waits there: it only is known which descriptor it was, and whether it can be watched.
    fn register_in_lobby(&self, id: EventId, slot: &Slot, watch: &mut Watch) -> io::Result<()> {
        self.lobby()?.watch(slot.fd.load(Relaxed), id.into(), 0, false)?;
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

    /// The epoll of a port, if its thread has not left.
    fn epoll_of<'a>(&'a self, roster: &'a Roster, port: u32) -> Option<&'a Epoll> {
        match port {
            NONE => self.lobby.get(),
            _ => roster.lane_of(port).map(|lane| &roster.ports[lane].epoll),
        }
    }

    /// Whether the descriptor of `id`, whose number is asked for again, was closed since: epoll knows files, not numbers. The descriptor
    /// is locked.
    pub fn is_stale(&self, id: EventId) -> Result<bool, EventError> {
        let (roster, slot) = (self.roster(), self.table.slot(id.index));
        let (watch, fd) = (slot.watch.lock().unwrap(), slot.fd.load(Relaxed));
        let known = watch.ports.iter().find_map(|&port| self.epoll_of(&roster, port));
        if known.is_none() && !slot.has(flag::ALWAYS) {
            // The thread that it was pinned to has left, or it could not be watched any more.
            return Ok(true);
        }
        let epoll = known.map_or_else(|| self.lobby(), Ok).map_err(system("make an epoll"))?;
        match epoll.watch(fd, id.into(), 0, false) {
            Ok(()) => {
                epoll.unwatch(fd);
                Ok(true)
            }
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

    fn peers_of(&self, roster: &Roster, slot: &Slot, level: u32) -> usize {
        let others = roster.lanes().saturating_sub(1);
        if slot.has(flag::PINNED) {
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
        let (level, home) = ((goal & 0xFF) as u32, roster.lane_of(slot.home.load(Relaxed)));
        let Some(home) = home.filter(|_| watch.epoch == roster.epoch) else { return };
        if !slot.state.is_alive(id.generation) {
            return;
        }
        let wanted = 1 + self.peers_of(roster, slot, level);
        while watch.ports.len() > wanted {
            let lane = watch.ports.pop().and_then(|port| roster.lane_of(port));
            lane.inspect(|&lane| roster.ports[lane].epoll.unwatch(slot.fd.load(Relaxed)));
        }
        while (1..wanted).contains(&watch.ports.len()) {
            let lane = (home + watch.ports.len()) % roster.lanes();
            // A descriptor that was closed meanwhile cannot be watched, and need not be.
            if self.register_with(roster, id, slot, &mut watch, lane).is_err() {
                break;
            }
        }
        slot.drift.follows.store(goal, Relaxed);
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
        for port in watch.ports.drain(..) {
            if let Some(epoll) = self.epoll_of(&roster, port) {
                epoll.unwatch(slot.fd.load(Relaxed));
            }
        }
    }

    /// Registers the descriptor of an event anew, after a change of threads, policy or interest.
    pub fn rewatch(&self, id: EventId) -> Result<(), EventError> {
        let fd = self.table.alive(id)?.fd.load(Relaxed);
        let _carriers = self.descriptors.lock(fd);
        // It may have ended, and its slot have begun anew, before the descriptor was locked.
        let slot = self.table.alive(id)?;
        match slot.first.load(Relaxed) {
            NONE => self.rewatch_carrier(id),
            first => self.rewatch_carrier(self.table.id(first)),
        }
    }

    /// The same for an event that stands in epoll itself. The descriptor is locked.
    pub fn rewatch_carrier(&self, id: EventId) -> Result<(), EventError> {
        let slot = self.table.alive(id)?;
        let mut watch = slot.watch.lock().unwrap();
        self.unwatch(slot, &mut watch);
        let roster = self.roster();
        let is_homeless = roster.lane_of(slot.home.load(Relaxed)).is_none();
        if is_homeless && roster.lanes() > 0 && !slot.has(flag::PINNED) {
            let lane = id.index as usize % roster.lanes();
            slot.home.store(roster.ports[lane].number, Relaxed);
        }
        self.register(&roster, id, slot, &mut watch).map_err(system("watch a descriptor"))
    }

    /// After the roster has changed: descriptors whose home has gone, or that never had one, get one. Pumps are
    /// registered with all. The others follow when they are released next.
    pub fn settle(&self, roster: &Arc<Roster>) {
        for id in self.table.ids() {
            let slot = self.table.slot(id.index);
            let has_home =
                roster.lane_of(slot.home.load(Relaxed)).is_some() && !slot.has(flag::PUMP);
            if has_home
                || slot.first.load(Relaxed) != NONE
                || slot.fd.load(Relaxed) < 0
                || slot.has(flag::PINNED | flag::ALWAYS)
            {
                continue;
            }
            // A descriptor that was closed meanwhile cannot be watched, and need not be.
            let _ = self.rewatch(id);
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
            let _ = self.rewatch(id);
        }
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
