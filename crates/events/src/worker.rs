//! The handle of a thread that handles events.

use crate::EventError;
use crate::inner::Inner;
use crate::port::Port;
use crate::worker_state::{Fate, Fired, WorkerState};
use heddle_core::Ns;
use heddle_sys::clock;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// A thread's membership in an [`EventQueue`](crate::EventQueue). Dropping it leaves the queue; events that
/// it held are reported to others.
pub struct Worker {
    pub(crate) inner: Arc<Inner>,
    pub(crate) state: WorkerState,
    /// Bound to the thread that made it, as its events are.
    _thread: PhantomData<*mut ()>,
}

impl Worker {
    pub(crate) fn join(inner: Arc<Inner>) -> Result<Worker, EventError> {
        let port = inner.dispatch.open_port()?;
        let mine = Arc::clone(&port);
        inner.regroup(None, |ports| ports.push(mine))?;
        let workers = Arc::clone(&inner.dispatch.workers());
        let mut state = WorkerState::new(port, workers, inner.dispatch.seed());
        state.locate(&inner)?;
        Ok(Worker { inner, state, _thread: PhantomData })
    }

    pub(crate) fn port(&self) -> &Arc<Port> {
        &self.state.port
    }

    /// Sets how many events [`Worker::wait`] returns at most. The default is as many as take about 10 us on
    /// average, and at most 32: other workers cannot take what this one was given.
    pub fn set_batch(&mut self, events: usize) {
        self.state.batch_limit = Some(events.max(1));
    }

    /// Sets for how many events the caller has room: [`Worker::wait`] returns no more, and fewer if
    /// [`Worker::set_batch`] or its default says so.
    pub fn set_room(&mut self, events: usize) {
        self.state.room_limit = events.max(1);
    }

    /// As [`Worker::wait`], for callers that do not handle events one by one: all are held until the next
    /// wait.
    ///
    /// # Errors
    /// As [`Worker::wait`].
    pub fn wait_held(&mut self, timeout: Option<Duration>) -> Result<&[Fired], EventError> {
        self.fill(timeout, Fate::Seen)?;
        Ok(&self.state.fired)
    }

    pub(crate) fn fill(&mut self, timeout: Option<Duration>, fate: Fate) -> Result<(), EventError> {
        let (inner, state) = (&*self.inner, &mut self.state);
        inner.check()?;
        if state.end_poll() {
            // Events that it found when it prepared to poll.
            state.fates.fill(Cell::new(fate));
            return Ok(());
        }
        state.release_all(inner);
        state.finish_turn(inner);
        let until = timeout.map(until);
        loop {
            state.refresh(inner)?;
            if state.gather(inner) || !state.park(inner, until)? {
                break;
            }
        }
        state.begin_turn(fate);
        Ok(())
    }

    /// The program has dropped the guard of one event.
    #[inline]
    pub(crate) fn release(&self, at: usize, fired: &Fired, is_drained: bool) {
        if self.inner.is_foreign() {
            return;
        }
        let slot = self.inner.dispatch.table.slot(fired.id.index);
        if is_drained || !slot.is_checked_on_release() {
            self.state.fates[at].set(Fate::Released);
            self.state.release(&self.inner, fired.id);
        } else {
            self.state.fates[at].set(Fate::Seen);
        }
    }
}

/// Returns when a wait ends; zero if it does not wait at all.
fn until(timeout: Duration) -> Ns {
    match timeout {
        Duration::ZERO => Ns::ZERO,
        time => Ns(clock::now().0.saturating_add(Ns::from(time).0)),
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.inner.is_foreign() {
            self.state.release_all(&self.inner);
            self.inner.leave(&self.state.port);
        }
    }
}
