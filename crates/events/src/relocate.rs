//! How the registrations of descriptors follow the workers, the level of peers and the policy.

use crate::EventError;
use crate::dispatch::Dispatcher;
use crate::error::system;
use crate::ids::{EventId, NONE};
use crate::slot::{Slot, Watch, flag};
use crate::watch::Watches;
use crate::workers::WorkerSet;
use heddle_sys::epoll;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Watches {
    /// The level of peers has changed. Peers that are removed are the last to which the kernel comes, so home
    /// has all that they had.
    pub fn follow_level(
        &self,
        dispatch: &Dispatcher,
        workers: &WorkerSet,
        slot: &Slot,
        id: EventId,
        goal: u64,
    ) {
        let Ok(mut watch) = slot.watch.try_lock() else { return };
        let level = (goal & 0xFF) as u32;
        let has_home = workers.index_of(slot.home.load(Relaxed)).is_some();
        if !has_home || watch.epoch != workers.epoch || !slot.state.is_alive(id.generation) {
            return;
        }
        let wanted = self.peers_of(workers, slot, &watch, level);
        self.unwatch_peers(workers, slot, &mut watch, wanted);
        if !watch.ports.is_empty() {
            // A descriptor that was closed meanwhile cannot be watched and need not be.
            let _ = self.register_peers(dispatch, workers, id, slot, &mut watch, level);
        }
    }

    /// Whether the descriptor's edges have to be kept where they are.
    fn must_stay(
        &self,
        dispatch: &Dispatcher,
        workers: &WorkerSet,
        slot: &Slot,
        watch: &Watch,
    ) -> bool {
        let keeper =
            watch.ports.first().filter(|&&port| port != NONE && self.has_edges(dispatch, slot));
        let is_there = |&port: &u32| self.with_epoll(workers, port, |_| ()).is_some();
        let is_ready = || epoll::ready_now(slot.fd.load(Relaxed), self.wanted(dispatch, slot)) != 0;
        keeper.is_some_and(is_there) && is_ready()
    }

    /// Registers the descriptor of an event anew after a change of interest. It is reported if it is ready.
    pub fn rewatch(&self, dispatch: &Dispatcher, id: EventId) -> Result<(), EventError> {
        self.with_carrier(dispatch, id, |id| self.rewatch_carrier(dispatch, id))
    }

    /// Makes the registrations of an event's descriptor follow its home, after a change of workers or policy.
    /// What was already reported is not reported again.
    pub fn relocate(&self, dispatch: &Dispatcher, id: EventId) -> Result<(), EventError> {
        self.with_carrier(dispatch, id, |id| self.relocate_carrier(dispatch, id))
    }

    /// Calls `change` with the carrier of the descriptor of `id`, while the descriptor is locked.
    fn with_carrier(
        &self,
        dispatch: &Dispatcher,
        id: EventId,
        change: impl FnOnce(EventId) -> Result<(), EventError>,
    ) -> Result<(), EventError> {
        let fd = dispatch.table.alive(id)?.fd.load(Relaxed);
        let _carriers = self.descriptors.lock(fd);
        // Before the descriptor was locked, the event may have ended and its slot been reused.
        let slot = dispatch.table.alive(id)?;
        match slot.first.load(Relaxed) {
            NONE => change(id),
            first => change(dispatch.table.id(first)),
        }
    }

    /// As [`Watches::rewatch`], for a carrier. The descriptor is locked.
    pub fn rewatch_carrier(&self, dispatch: &Dispatcher, id: EventId) -> Result<(), EventError> {
        let slot = dispatch.table.alive(id)?;
        let mut watch = slot.watch.lock().unwrap();
        let workers = dispatch.workers();
        self.assign_home(&workers, id, slot);
        self.unwatch(dispatch, slot, &mut watch);
        self.register(dispatch, &workers, id, slot, &mut watch)
            .map_err(system("watch a descriptor"))
    }

    fn relocate_carrier(&self, dispatch: &Dispatcher, id: EventId) -> Result<(), EventError> {
        let slot = dispatch.table.alive(id)?;
        let mut watch = slot.watch.lock().unwrap();
        let workers = dispatch.workers();
        self.assign_home(&workers, id, slot);
        // Before the check: what becomes ready after it is reported once, by the new registration.
        slot.begin_move();
        let followed = if !self.must_stay(dispatch, &workers, slot, &watch) {
            self.unwatch(dispatch, slot, &mut watch);
            self.register(dispatch, &workers, id, slot, &mut watch)
        } else if watch.epoch != workers.epoch {
            self.unwatch_peers(&workers, slot, &mut watch, 0);
            self.register_peers(dispatch, &workers, id, slot, &mut watch, self.level(&workers))
        } else {
            Ok(())
        };
        slot.end_move();
        followed.map_err(system("watch a descriptor"))
    }

    /// Assigns a home to an event that has none, or whose home has left.
    fn assign_home(&self, workers: &WorkerSet, id: EventId, slot: &Slot) {
        let is_homeless = workers.index_of(slot.home.load(Relaxed)).is_none();
        if is_homeless && workers.len() > 0 && !slot.has(flag::PINNED) {
            let index = id.index as usize % workers.len();
            slot.home.store(workers.ports[index].number, Relaxed);
        }
    }

    /// After a change of workers: assigns a home to descriptors that have none or whose home has left, and
    /// registers pumps with all workers. Other descriptors follow at their next release.
    pub fn settle(&self, dispatch: &Dispatcher, workers: &Arc<WorkerSet>) {
        for id in dispatch.table.ids() {
            let slot = dispatch.table.slot(id.index);
            let is_there = |port: u32| port != NONE && workers.index_of(port).is_some();
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
            // A descriptor that was closed meanwhile cannot be watched and need not be.
            let _ = self.relocate(dispatch, id);
        }
    }

    /// An event is released: its registrations follow the worker set.
    pub fn follow_workers(&self, dispatch: &Dispatcher, workers: &WorkerSet, id: EventId) {
        let slot = match dispatch.table.slot(id.index).first.load(Relaxed) {
            NONE => dispatch.table.slot(id.index),
            first => dispatch.table.slot(first),
        };
        let Ok(watch) = slot.watch.try_lock() else { return };
        let is_old = watch.epoch != workers.epoch && slot.fd.load(Relaxed) >= 0;
        drop(watch);
        if is_old && !slot.has(flag::PINNED | flag::ALWAYS) {
            let index = id.index as usize % workers.len();
            slot.home.store(workers.ports[index].number, Relaxed);
            let _ = self.relocate(dispatch, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventOptions, EventQueue, Interest};
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// A descriptor becomes ready after the check that found it not ready, and a worker takes the report of the
    /// old registration before or after that ends.
    #[test]
    fn an_edge_in_the_middle_of_a_move_is_delivered_once() {
        for moves in [false, true] {
            let queue = EventQueue::builder().policy("fifo").build().unwrap();
            let mut worker = queue.worker().unwrap();
            let (near, far) = UnixStream::pair().unwrap();
            let id =
                queue.register(&near, Interest::READ, 7, EventOptions::default().edge()).unwrap();
            let inner = Arc::clone(&worker.inner);
            let (dispatch, watches) = (&inner.dispatch, &inner.watches);
            let (workers, slot) = (dispatch.workers(), dispatch.table.slot(id.index));
            let (is_ready, ready) = channel();
            let delivered = std::thread::scope(|scope| {
                let far = &far;
                scope.spawn(move || {
                    let mut watch = slot.watch.lock().unwrap();
                    slot.begin_move();
                    let mut far = far;
                    far.write_all(b"x").unwrap();
                    is_ready.send(()).unwrap();
                    // The epoll has nothing more to report once the worker has its event.
                    let epoll = &workers.ports[0].epoll;
                    while epoll::ready_now(epoll.as_raw_fd(), epoll::READ) != 0 {
                        std::thread::yield_now();
                    }
                    if moves {
                        watches.unwatch(dispatch, slot, &mut watch);
                        watches.register(dispatch, &workers, id, slot, &mut watch).unwrap();
                    }
                    slot.end_move();
                });
                ready.recv().unwrap();
                worker.wait(Some(Duration::ZERO)).unwrap().count()
            });
            let later = worker.wait(Some(Duration::ZERO)).unwrap().count();
            assert_eq!(delivered + later, 1, "the keeper moves: {moves}");
        }
    }
}
