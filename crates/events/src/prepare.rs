//! Workers whose threads wait in a loop that is not the queue's, for example tokio's.

use crate::EventError;
use crate::inner::Inner;
use crate::worker::Worker;
use crate::worker_state::{Fate, WorkerState};
use heddle_sys::clock;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// What a thread does next that waits in a loop of its own: [`Worker::prepare_poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollState {
    /// There are events: [`Worker::wait`] returns them.
    Ready,
    /// There is nothing until the worker's descriptor is readable. If a time is given, call [`Worker::wait`]
    /// after it all the same: events may wait behind a worker that is busy.
    Idle(Option<Duration>),
}

impl AsFd for Worker {
    /// Returns the descriptor that [`Worker::prepare_poll`] speaks of. It is only for polling.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.state.port.epoll.as_fd()
    }
}

impl AsRawFd for Worker {
    /// As [`AsFd`], for libraries that ask for a number.
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Worker {
    /// Releases the previous batch and prepares the thread to wait elsewhere, in a loop that is not this
    /// queue's: until the worker's descriptor ([`AsFd`]) is readable, or the returned time is over. Then call
    /// [`Worker::wait`] with no time, and this again. With [`PollState::Ready`] there are events already.
    ///
    /// As long as it has not waited again the worker counts as idle: events wake it, and it may be given some
    /// of others. So the thread should do nothing lengthy in between.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # fn poll(_: &[std::os::fd::BorrowedFd<'_>], _: Option<std::time::Duration>) {}
    /// use heddle_events::{EventQueue, PollState};
    /// use std::os::fd::AsFd as _;
    /// use std::time::Duration;
    ///
    /// let mut worker = EventQueue::new()?.worker()?;
    /// loop {
    ///     for event in worker.wait(Some(Duration::ZERO))? {
    ///         println!("{}", event.token());
    ///     }
    ///     if let PollState::Idle(time) = worker.prepare_poll()? {
    ///         // Also for what else the program waits for.
    ///         poll(&[worker.as_fd()], time);
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Worker::wait`].
    pub fn prepare_poll(&mut self) -> Result<PollState, EventError> {
        let (inner, state) = (&*self.inner, &mut self.state);
        inner.check()?;
        state.release_all(inner);
        state.finish_turn(inner);
        state.refresh(inner)?;
        state.prepare_poll(inner)
    }
}

impl WorkerState {
    /// As [`Worker::prepare_poll`]. What is found is delivered by the next wait.
    pub fn prepare_poll(&mut self, inner: &Inner) -> Result<PollState, EventError> {
        if self.polls_since.is_none() {
            self.polls_since = Some(clock::now());
        }
        if let Some(again) = self.begin_idle(inner)? {
            self.patience = self.more_patience(self.patience);
            return Ok(PollState::Idle(again.map(Into::into)));
        }
        self.take(inner, self.turn_quota(inner));
        if !self.fired.is_empty() {
            self.begin_turn(Fate::Unseen);
        }
        Ok(PollState::Ready)
    }

    /// The worker waits, perhaps after it was polled. Returns whether it has been given events already.
    pub fn end_poll(&mut self) -> bool {
        let Some(since) = self.polls_since.take() else { return false };
        self.workers.idle.unmark(self.index);
        if self.has_others() {
            self.window.parked(clock::now() - since);
        }
        !self.fired.is_empty()
    }
}
