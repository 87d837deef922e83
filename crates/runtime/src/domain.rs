//! A run queue, its lock, and the inbox in which other threads leave tasks for it.

use crate::carriers::Carriers;
use crate::preempted::Preempted;
use crate::task::EntityRef;
use heddle_core::{Policy, Rng};
use heddle_sync::{Inbox, InboxNode, SpinLock};
use heddle_telemetry::RingWriter;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

/// One run queue of policy `P`: of one CPU, or of all in the central model.
#[repr(align(128))]
pub(crate) struct Domain<P: Policy> {
    lock: SpinLock,
    /// How many tasks wait, for readers without the lock.
    queued: AtomicU32,
    pub(crate) inbox: Inbox,
    pub(crate) index: u32,
    queue: UnsafeCell<P::Queue>,
    carriers: UnsafeCell<Carriers>,
    preempted: UnsafeCell<Preempted>,
    pub(crate) rng: Rng,
    /// Its events; written under the lock.
    pub(crate) ring: RingWriter<'static>,
}

// SAFETY: queue, carriers and generator are used by the holder of the lock only.
unsafe impl<P: Policy> Sync for Domain<P> {}

impl<P: Policy> Domain<P> {
    /// Returns the run queue `index`, of this many CPUs, with the ring for its events.
    pub(crate) fn new(index: u32, cpus: usize, queue: P::Queue, ring: RingWriter<'static>) -> Self {
        Domain {
            lock: SpinLock::new(),
            queued: AtomicU32::new(0),
            inbox: Inbox::default(),
            index,
            queue: UnsafeCell::new(queue),
            carriers: UnsafeCell::new(Carriers::new(cpus)),
            preempted: UnsafeCell::default(),
            rng: Rng::new(u64::from(index)),
            ring,
        }
    }

    #[inline]
    pub(crate) fn lock(&self) {
        self.lock.lock();
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        self.lock.try_lock()
    }

    #[inline]
    pub(crate) fn unlock(&self) {
        self.lock.unlock();
    }

    /// Returns the lock, for the context that releases it on the other side of a switch.
    #[inline]
    pub(crate) fn lock_itself(&self) -> &SpinLock {
        &self.lock
    }

    /// Returns the queue.
    ///
    /// # Safety
    /// The caller holds the lock and no other reference to the queue.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub(crate) unsafe fn queue(&self) -> &mut P::Queue {
        debug_assert!(self.lock.is_locked());
        // SAFETY: by the caller's promise.
        unsafe { &mut *self.queue.get() }
    }

    /// Returns the free carriers of its CPUs.
    ///
    /// # Safety
    /// The caller holds the lock and no other reference to them.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    pub(crate) unsafe fn carriers(&self) -> &mut Carriers {
        debug_assert!(self.lock.is_locked());
        // SAFETY: by the caller's promise.
        unsafe { &mut *self.carriers.get() }
    }

    /// Returns the tasks that were preempted last.
    ///
    /// # Safety
    /// The caller holds the lock and no other reference to them.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub(crate) unsafe fn preempted(&self) -> &mut Preempted {
        debug_assert!(self.lock.is_locked());
        // SAFETY: by the caller's promise.
        unsafe { &mut *self.preempted.get() }
    }

    /// Publishes how many tasks wait.
    #[inline]
    pub(crate) fn publish(&self, len: usize) {
        self.queued.store(len as u32, Ordering::Relaxed);
    }

    /// Returns roughly how many tasks wait: never zero while one does. A worker that is about to sleep relies on that,
    /// so the inbox is read first; see [`Domain::take_inbox`].
    #[inline]
    pub(crate) fn len(&self) -> usize {
        let left = usize::from(!self.inbox.is_empty());
        left + self.queued.load(Ordering::Relaxed) as usize
    }

    /// Takes the tasks in the inbox, which `enqueue` puts into the queue. The caller holds the lock.
    ///
    /// Between the inbox and the queue a task is in neither, and the worker that takes it is not always the one that
    /// runs it. So the length is raised before the inbox is emptied, and each `enqueue` publishes the right one after
    /// it.
    #[inline(always)]
    pub(crate) fn take_inbox(&self, enqueue: impl FnMut(*mut InboxNode)) {
        if !self.inbox.is_empty() {
            self.empty_inbox(enqueue);
        }
    }

    fn empty_inbox(&self, enqueue: impl FnMut(*mut InboxNode)) {
        self.queued.store(self.queued.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.inbox.take(enqueue);
    }

    /// Leaves a task whose `home` is this queue, without the lock.
    pub(crate) fn leave(&self, task: EntityRef) {
        // SAFETY: entities are never freed, and a task is in one inbox at a time: only its waker or creator puts it
        // there.
        unsafe { self.inbox.push(task.addr() as *mut InboxNode) };
    }
}
