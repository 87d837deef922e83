//! What queues, policies and workers know of a task: a thread of its own, or a future that borrows one.

use super::{Liveness, Run, Scheduler, Task};
use heddle_core::TaskId;
use heddle_sync::InboxNode;
use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

/// The part of a task that is scheduled.
///
/// It lies in a [`Task`], or at the start of a future's [`super::Header`]. Neither is ever unmapped: a stale
/// [`EntityRef`] points to a valid entity, perhaps of a later task.
#[repr(C)]
pub(crate) struct Entity {
    /// Link in an inbox. First, so that its address is the entity's.
    pub(crate) inbox: InboxNode,
    /// The context that has its stack: itself for a thread; for a future the carrier of its poll, or null between two
    /// polls. Changes under the lock of a run queue.
    context: AtomicPtr<Task>,
    /// Whether the scheduler still exists, for users other than the task itself.
    liveness: AtomicPtr<Liveness>,
    /// Index of its run queue; written under that queue's lock or by its waker.
    pub(crate) home: AtomicU32,
    /// CPU on which it was created or last ran.
    pub(crate) cpu: AtomicU32,
    pub(super) id: Cell<TaskId>,
    pub(super) run: AtomicU8,
    is_future: bool,
}

impl Entity {
    /// Returns the entity of no task yet, of the given kind.
    pub(crate) fn new(is_future: bool) -> Entity {
        Entity {
            inbox: InboxNode::default(),
            context: AtomicPtr::new(ptr::null_mut()),
            liveness: AtomicPtr::new(ptr::null_mut()),
            home: AtomicU32::new(0),
            cpu: AtomicU32::new(0),
            id: Cell::new(NO_ID),
            run: AtomicU8::new(Run::Absent as u8),
            is_future,
        }
    }

    #[inline]
    pub(crate) fn id(&self) -> TaskId {
        self.id.get()
    }

    /// Returns whether it is a future, which starts with this.
    #[inline]
    pub(crate) fn is_future(&self) -> bool {
        self.is_future
    }

    #[inline]
    pub(crate) fn run(&self) -> Run {
        match self.run.load(Ordering::Relaxed) {
            0 => Run::Absent,
            1 => Run::Queued,
            _ => Run::Running,
        }
    }

    #[inline]
    pub(crate) fn set_run(&self, run: Run) {
        debug_assert!(self.run().can_become(run), "{}: {:?} to {run:?}", self.id(), self.run());
        self.run.store(run as u8, Ordering::Relaxed);
    }

    /// Returns the context that has its stack.
    #[inline(always)]
    pub(crate) fn context(&self) -> Option<&'static Task> {
        // SAFETY: null or a block, and blocks are never unmapped.
        unsafe { self.context.load(Ordering::Relaxed).as_ref() }
    }

    /// Sets the context that has its stack, or that none has. Under the lock of its run queue, or for its only owner.
    #[inline(always)]
    pub(crate) fn set_context(&self, context: Option<&Task>) {
        let at = context.map_or(ptr::null_mut(), |task| ptr::from_ref(task).cast_mut());
        self.context.store(at, Ordering::Relaxed);
    }

    /// Returns whether it may still be on a stack although it was announced as parked ([`heddle_sync::WakeWord`]).
    #[inline(always)]
    pub(crate) fn is_on_cpu(&self) -> bool {
        self.context().is_some_and(|task| task.wake.is_on_cpu())
    }

    /// Returns the liveness of its runtime; `None` if it has none.
    #[inline]
    pub(crate) fn liveness(&self) -> Option<&'static Liveness> {
        // SAFETY: null, or the reference that `adopt` stored.
        unsafe { self.liveness.load(Ordering::Acquire).as_ref() }
    }

    /// Assigns it to a runtime. The caller is its only owner.
    pub(crate) fn adopt(&self, owner: &'static dyn Scheduler, id: TaskId) {
        self.liveness.store(ptr::from_ref(owner.liveness()).cast_mut(), Ordering::Release);
        self.id.set(id);
    }

    /// Detaches it from its runtime. The caller is its only owner.
    pub(crate) fn disown(&self) {
        self.liveness.store(ptr::null_mut(), Ordering::Release);
        self.id.set(NO_ID);
    }

    /// Returns whether it has a number in the runtime of `owner`.
    #[inline]
    pub(crate) fn belongs_to(&self, owner: &'static Liveness) -> bool {
        ptr::eq(self.liveness.load(Ordering::Relaxed), owner) && self.id.get() != NO_ID
    }
}

/// The number of an entity that has none.
pub(crate) const NO_ID: TaskId = TaskId(u32::MAX);

/// An entity by address. Always valid, but the task may have ended and another may use its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntityRef(NonNull<Entity>);

// SAFETY: entities are never unmapped, and what other threads touch in them is atomic.
unsafe impl Send for EntityRef {}
// SAFETY: as above.
unsafe impl Sync for EntityRef {}

impl EntityRef {
    #[inline(always)]
    pub(crate) fn new(entity: &'static Entity) -> EntityRef {
        EntityRef(NonNull::from(entity))
    }

    #[inline(always)]
    pub(crate) fn get(self) -> &'static Entity {
        // SAFETY: made from a reference to an entity, which is never unmapped.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn addr(self) -> usize {
        self.0.as_ptr() as usize
    }

    /// Returns the entity at `addr`.
    ///
    /// # Safety
    /// `addr` came from [`EntityRef::addr`], or is the address of an entity's inbox node.
    #[inline(always)]
    pub(crate) unsafe fn from_addr(addr: usize) -> EntityRef {
        // SAFETY: by the caller's promise it is not null.
        EntityRef(unsafe { NonNull::new_unchecked(addr as *mut Entity) })
    }
}
