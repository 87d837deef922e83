//! The control thread.
//!
//! It sleeps until the kernel notifies a change, a sender asks for a neighbour, or one of its neighbours must be given
//! up. Without any of these it never wakes.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::asked::Asking;
use super::counters::add;
use super::handle::Shared;
use super::keeper::Keeper;
use super::mirror::{Mirror, Stale, Table};
use super::netlink::Events;
use super::pace::Pace;

/// Datagrams of notifications read in one go; then requests get their turn.
const BATCH: usize = 64;
/// The wait after an error of the socket for notifications.
const PAUSE: Duration = Duration::from_millis(100);

/// The state of the thread.
pub(super) struct ControlThread {
    shared: Arc<Shared>,
    asking: Arc<Asking>,
    queue: Receiver<IpAddr>,
    events: Events,
    mirror: Mirror,
    keeper: Keeper,
    stale: Stale,
    pace: Pace,
}

impl ControlThread {
    pub(super) fn new(
        shared: Arc<Shared>,
        asking: Arc<Asking>,
        queue: Receiver<IpAddr>,
        events: Events,
        mirror: Mirror,
        stale: Stale,
    ) -> Self {
        let pace = Pace::new(Instant::now());
        Self { shared, asking, queue, events, mirror, keeper: Keeper::default(), stale, pace }
    }

    /// Runs until the handle is dropped.
    pub(super) fn run(mut self) {
        while !self.shared.must_stop() {
            self.wait();
            self.read_events();
            self.answer();
            self.refresh();
        }
        self.keeper.remove_all(&mut self.mirror, &self.shared.counts);
    }

    /// Sleeps until there is something to do.
    fn wait(&self) {
        let refresh = self.stale.any().then(|| self.pace.next());
        // A review needs a new copy.
        let review = self.keeper.deadline().filter(|_| !self.stale.has(Table::Neighbours));
        let deadline = refresh.into_iter().chain(review).min();
        let timeout = deadline.map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        let mut fds = [
            PollFd::new(&self.events, PollFlags::IN),
            PollFd::new(&self.shared.wake, PollFlags::IN),
        ];
        // Interrupted by a signal is as good as woken.
        let _ = poll(&mut fds, timeout.as_ref());
        let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
    }

    /// Notes which tables have changed.
    fn read_events(&mut self) {
        let index = self.mirror.index();
        for _ in 0..BATCH {
            let stale = &mut self.stale;
            match self.events.read(|message| stale.note(message, index)) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    self.stale = Stale::ALL;
                    add(&self.shared.counts.overruns);
                    if error.raw_os_error() != Some(rustix::io::Errno::NOBUFS.raw_os_error()) {
                        // Not known to happen; it must not keep a CPU busy.
                        std::thread::sleep(PAUSE);
                        return;
                    }
                }
            }
        }
    }

    /// Passes the requests of senders on to the kernel.
    fn answer(&mut self) {
        for next_hop in self.queue.try_iter() {
            self.keeper.keep(next_hop, &mut self.mirror, &self.shared.counts, Instant::now());
        }
    }

    /// Reads the tables that have changed, if it is time, and publishes what is different.
    fn refresh(&mut self) {
        let begin = Instant::now();
        let gives_up = self.keeper.deadline().is_some_and(|deadline| begin >= deadline);
        if gives_up {
            self.stale.mark(Table::Neighbours);
        }
        if self.stale.any() && begin >= self.pace.next() {
            let reads_neighbours = self.stale.has(Table::Neighbours);
            let failed = self.mirror.refresh(&mut self.stale, &self.shared.counts).is_err();
            self.pace.record(begin, Instant::now(), failed || self.stale.any());
            // An older copy lacks the entries that were added since, and has those that were removed.
            if reads_neighbours && !self.stale.has(Table::Neighbours) {
                self.keeper.review(&mut self.mirror, &self.shared.counts, Instant::now());
                if gives_up {
                    self.asking.forget();
                }
            }
        }
        if self.mirror.take_changed() {
            self.shared.publish(|generation| self.mirror.snapshot(generation));
            self.asking.forget();
        }
    }
}
