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
use heddle_sys::epoll::{self, Epoll};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// How many other threads a descriptor is registered with at most: each costs a step of every activation while all are busy.
const MOST_PEERS: usize = 7;

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
        let watched = match roster.lanes() {
            // Where nobody can watch it yet, it is tried whether it can be.
            0 => Epoll::new()
                .and_then(|probe| probe.watch(slot.fd.load(Relaxed), 0, epoll::READ, false)),
            _ => self.register(&roster, id, slot, &mut watch),
        };
        match watched {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error()) => {
                Ok(false)
            }
            other => other.map(|()| true).map_err(system("watch a descriptor")),
        }
    }

    /// Registers at home and with peers, as the roster is now.
    fn register(
        &self,
        roster: &Roster,
        id: EventId,
        slot: &Slot,
        watch: &mut Watch,
    ) -> io::Result<()> {
        watch.epoch = roster.epoch;
        let Some(home) = roster.lane_of(slot.home.load(Relaxed)) else { return Ok(()) };
        let peers = self.peers_of(roster, slot);
        // Of a signal that is sent to one thread, the others see nothing.
        let is_exclusive = peers > 0 && !slot.has(flag::SIGNAL);
        for lane in (0..=peers).map(|i| (home + i) % roster.lanes()) {
            let port = &roster.ports[lane];
            let events = self.wanted(slot);
            port.epoll.watch(slot.fd.load(Relaxed), id.into(), events, is_exclusive)?;
            watch.ports.push(port.number);
        }
        Ok(())
    }

    fn peers_of(&self, roster: &Roster, slot: &Slot) -> usize {
        if slot.has(flag::PINNED) {
            return 0;
        }
        if slot.has(flag::PUMP) {
            return roster.lanes().saturating_sub(1);
        }
        let most = self.peers.unwrap_or_else(|| roster.schedule.peers()).min(MOST_PEERS);
        most.min(roster.lanes().saturating_sub(1))
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
            if let Some(lane) = roster.lane_of(port) {
                roster.ports[lane].epoll.unwatch(slot.fd.load(Relaxed));
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
        if roster.lane_of(slot.home.load(Relaxed)).is_none() && roster.lanes() > 0 {
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

/// Which of `events` are ready now. One system call for all.
pub(crate) fn ready_now(slots: &[(i32, u32)], ready: &mut Vec<u32>) {
    epoll::poll_now(slots, ready);
}
