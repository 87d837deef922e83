//! The public handle of a queue, and its builder.

use crate::dispatch::Dispatcher;
use crate::inner::{Inner, Priority};
use crate::sources::Sources;
use crate::watch::Watches;
use crate::{EventError, Worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The default policy: SKQ's recommendation for imbalanced and IO-heavy work (section 4.3).
pub const DEFAULT_POLICY: &str = "hybrid";
/// The default capacity, in events.
pub const DEFAULT_CAPACITY: usize = 65_536;
/// The largest capacity.
const MOST: usize = 1 << 24;

/// One event queue for all threads of a program: a handle, cheap to clone.
///
/// A thread that handles events becomes a [`Worker`] of the queue. Each event is reported to one worker at a
/// time, which the policy chooses.
#[derive(Clone)]
pub struct EventQueue(pub(crate) Arc<Inner>);

/// Builds an [`EventQueue`].
#[derive(Clone, Debug)]
pub struct EventQueueBuilder {
    policy: String,
    capacity: usize,
    peers: Option<usize>,
    share: u32,
    frequency: u32,
    telemetry: Option<bool>,
}

impl Default for EventQueueBuilder {
    fn default() -> Self {
        EventQueueBuilder {
            policy: DEFAULT_POLICY.into(),
            capacity: DEFAULT_CAPACITY,
            peers: None,
            share: 100,
            frequency: 0,
            telemetry: None,
        }
    }
}

impl EventQueueBuilder {
    /// Sets the policy: `name` or `name:key=value,...`.
    #[must_use]
    pub fn policy(mut self, text: &str) -> Self {
        self.policy = text.into();
        self
    }

    /// Sets how many events may be registered: 1 to 2^24, 65,536 by default. Each takes about 200 bytes.
    #[must_use]
    pub fn capacity(mut self, events: usize) -> Self {
        self.capacity = events;
        self
    }

    /// Sets with how many workers besides its home a descriptor is registered, so that the kernel gives the
    /// event to an idle one. By default the policy decides, and there are none while no worker is idle.
    #[must_use]
    pub fn peers(mut self, threads: usize) -> Self {
        self.peers = Some(threads);
        self
    }

    /// Sets how much of a batch may be of high priority: 1 to 100 per cent, 100 by default (SKQ's rtshare).
    #[must_use]
    pub fn high_share(mut self, percent: u32) -> Self {
        self.share = percent;
        self
    }

    /// Sets how often a second a worker should come back to look for events of high priority: it gets fewer
    /// at once if they take long (SKQ's rtfreq). 0, the default, sets no rule.
    #[must_use]
    pub fn high_frequency(mut self, hertz: u32) -> Self {
        self.frequency = hertz;
        self
    }

    /// Sets whether other processes of the user can read what the workers count (`heddle_telemetry`); they can
    /// by default, unless `HEDDLE_TELEMETRY` is `off`. The queue has a file descriptor for that.
    #[must_use]
    pub fn telemetry(mut self, seen: bool) -> Self {
        self.telemetry = Some(seen);
        self
    }

    /// Makes the queue.
    ///
    /// # Errors
    /// [`EventError::Policy`] for an unknown policy or a wrong parameter, [`EventError::Lacks`] for a policy
    /// that preempts, [`EventError::Range`] for a number out of range,
    /// [`EventError::System`] if there is no memory.
    pub fn build(self) -> Result<EventQueue, EventError> {
        if !(1..=MOST).contains(&self.capacity) {
            return Err(EventError::Range {
                what: "the capacity",
                given: self.capacity as u64,
                allowed: "1 to 16,777,216",
            });
        }
        check_share(self.share)?;
        let seen = self.telemetry.unwrap_or_else(heddle_telemetry::is_wanted);
        let inner = Inner {
            dispatch: Dispatcher::new(self.capacity, self.policy, seen)?,
            watches: Watches::new(self.peers),
            sources: Sources::default(),
            priority: Priority::new(self.share, self.frequency),
            closed: AtomicBool::new(false),
            process: heddle_sys::fork::generation(),
        };
        Ok(EventQueue(Arc::new(inner)))
    }
}

fn check_share(percent: u32) -> Result<(), EventError> {
    match percent {
        1..=100 => Ok(()),
        // With 0, a worker that has only such events would return forever without one.
        given => Err(EventError::Range {
            what: "the share of high priority",
            given: given.into(),
            allowed: "1 to 100 per cent",
        }),
    }
}

impl EventQueue {
    /// Makes a queue with the default policy and capacity.
    ///
    /// # Errors
    /// None with the current defaults.
    pub fn new() -> Result<EventQueue, EventError> {
        EventQueue::builder().build()
    }

    /// Returns a builder.
    #[must_use]
    pub fn builder() -> EventQueueBuilder {
        EventQueueBuilder::default()
    }

    /// Makes the calling thread a worker of the queue until the result is dropped. A thread may serve several
    /// queues.
    ///
    /// # Errors
    /// [`EventError::Crowded`], [`EventError::Closed`], [`EventError::Forked`]; [`EventError::System`] if no
    /// descriptors are left.
    pub fn worker(&self) -> Result<Worker, EventError> {
        self.0.check()?;
        Worker::join(Arc::clone(&self.0))
    }

    /// Changes the policy while workers wait and handle events; no event is lost. A new policy starts without
    /// what the old one knew about the events.
    ///
    /// # Errors
    /// As [`EventQueueBuilder::build`]; the policy stays as it was.
    pub fn set_policy(&self, text: &str) -> Result<(), EventError> {
        self.0.check()?;
        self.0.regroup(Some(text), |_| ())
    }

    /// Returns the policy, as it was chosen.
    #[must_use]
    pub fn policy(&self) -> String {
        self.0.dispatch.policy()
    }

    /// As [`EventQueueBuilder::high_share`], at run time.
    ///
    /// # Errors
    /// [`EventError::Range`].
    pub fn set_high_share(&self, percent: u32) -> Result<(), EventError> {
        check_share(percent)?;
        self.0.priority.share.store(percent, Ordering::Relaxed);
        Ok(())
    }

    /// As [`EventQueueBuilder::high_frequency`], at run time.
    pub fn set_high_frequency(&self, hertz: u32) {
        self.0.priority.frequency.store(hertz, Ordering::Relaxed);
    }

    /// Returns the number of registered events. Takes time linear in the most that were ever registered at
    /// once.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.dispatch.table.len()
    }

    /// Returns how many events were dropped because they are pinned to a thread that has left.
    #[must_use]
    pub fn undelivered(&self) -> u64 {
        self.0.dispatch.telemetry.lost()
    }

    /// Whether no events are registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.0.dispatch.workers().len()
    }

    /// Closes the queue: waiting workers return with [`EventError::Closed`], as do all later calls.
    /// Descriptors stay open.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
        // The bells of a forked child belong to its parent.
        if !self.0.is_foreign() {
            self.0.ring_all();
        }
    }
}
