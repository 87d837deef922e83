//! A thread that handles events.

use crate::port::Port;
use crate::queue::Inner;
use crate::seat::Seat;
use crate::{Batch, EventError, EventId};
use heddle_core::Ns;
use heddle_sys::clock;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// An event that a thread was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fired {
    /// Its registration.
    pub id: EventId,
    /// What the program calls it.
    pub token: u64,
    /// What the descriptor is ready for, as bits of epoll.
    pub ready: u32,
    /// What a timer, signal or other source counted.
    pub data: u64,
}

/// What has become of an event that was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nobody has looked at it: it is told again.
    Unseen,
    /// It is handled and not let go of.
    Seen,
    /// It is this thread's no more.
    Released,
}

/// A thread's place in an [`crate::EventQueue`]. Leaves when it is dropped; what it held is told to others.
pub struct Worker {
    pub(crate) inner: Arc<Inner>,
    pub(crate) seat: Seat,
    /// It belongs to the thread that made it: its events do.
    _thread: PhantomData<*mut ()>,
}

impl Worker {
    pub(crate) fn join(inner: Arc<Inner>) -> Result<Worker, EventError> {
        let port = inner.open_port()?;
        let info = heddle_sys::topology::cpu_info(heddle_sys::thread::current_cpu());
        let mine = Arc::clone(&port);
        inner.regroup(None, |ports, infos| {
            ports.push(mine);
            infos.push(info);
            Ok(())
        })?;
        let mut seat = Seat::new(port, inner.roster(), inner.seed());
        seat.sit(&inner)?;
        Ok(Worker { inner, seat, _thread: PhantomData })
    }

    pub(crate) fn port(&self) -> &Arc<Port> {
        &self.seat.port
    }

    /// How many events [`Worker::wait`] gives at once at most. By default as many as take about 10 us, by their average, and 32 at most:
    /// what a thread was given no other can take.
    pub fn set_batch(&mut self, events: usize) {
        self.seat.most = Some(events.max(1));
    }

    /// For how many events there is room from now on: [`Worker::wait`] gives no more, and fewer where [`Worker::set_batch`] or its default
    /// say so.
    pub fn set_room(&mut self, events: usize) {
        self.seat.bound = events.max(1);
    }

    /// Waits for events, for ever without a timeout. What the last wait brought is released. Empty when the time is over or a signal
    /// came.
    ///
    /// # Errors
    /// [`EventError::Closed`], [`EventError::Forked`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Batch<'_>, EventError> {
        self.fill(timeout, Fate::Unseen)?;
        Ok(Batch::new(self))
    }

    /// As [`Worker::wait`], for those who do not handle events one by one: all are held until the next wait.
    ///
    /// # Errors
    /// As [`Worker::wait`].
    pub fn wait_held(&mut self, timeout: Option<Duration>) -> Result<&[Fired], EventError> {
        self.fill(timeout, Fate::Seen)?;
        Ok(&self.seat.fired)
    }

    fn fill(&mut self, timeout: Option<Duration>, fate: Fate) -> Result<(), EventError> {
        let (inner, seat) = (&*self.inner, &mut self.seat);
        inner.check()?;
        seat.release_all(inner);
        seat.comes_back(inner);
        let until = timeout.map(until);
        loop {
            seat.refresh(inner)?;
            if seat.gather(inner) || !seat.rest(inner, until)? {
                break;
            }
        }
        seat.goes(fate);
        Ok(())
    }

    /// One event is handled.
    #[inline]
    pub(crate) fn release(&self, at: usize, fired: &Fired, is_drained: bool) {
        if self.inner.is_foreign() {
            return;
        }
        let slot = self.inner.table.slot(fired.id.index);
        if is_drained || !slot.is_looked_at() {
            self.seat.fates[at].set(Fate::Released);
            self.seat.release(&self.inner, fired.id);
        } else {
            self.seat.fates[at].set(Fate::Seen);
        }
    }
}

/// When a wait ends; zero if it does not wait at all.
fn until(timeout: Duration) -> Ns {
    match timeout {
        Duration::ZERO => Ns::ZERO,
        time => Ns(clock::now().0.saturating_add(Ns::from(time).0)),
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.inner.is_foreign() {
            self.seat.release_all(&self.inner);
            self.inner.leave(&self.seat.port);
        }
    }
}
