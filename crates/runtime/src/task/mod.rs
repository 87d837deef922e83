//! A task: its control block, which lies on its own stack; the handle to it; and what it asks of its scheduler.

mod scheduler;

pub(crate) use scheduler::{Next, Scheduler};

use heddle_core::TaskId;
use heddle_sync::{EndWord, InboxNode, WakeWord};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

/// Where a task is, as the holder of its run queue's lock knows it.
///
/// ```text
///            new, woken               picked
///   Absent -------------> Queued -----------------> Running
///    ^  ^                   ^                       |  |  ^
///    |  |                   +-- yields, preempted --+  |  |
///    |  +---------------------------- parks, ends -----+  |
///    +-------------- had been woken before it parked -----+
/// ```
///
/// A task on its way to a queue through its inbox is marked in advance: as Queued if it is new, else as Absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Run {
    /// It does not exist, or sleeps.
    Absent = 0,
    /// In the run queue of its home.
    Queued = 1,
    /// On a worker.
    Running = 2,
}

impl Run {
    /// Whether the diagram has an arrow from `self` to `to`. A task that leaves a queue runs; one that runs is picked
    /// by no worker.
    fn leads_to(self, to: Run) -> bool {
        !matches!((self, to), (Run::Queued, Run::Absent) | (Run::Running, Run::Running))
    }
}

/// Whether a task's runtime still exists.
pub(crate) type Liveness = crate::liveness::Liveness<dyn Scheduler>;

/// A registered destructor of a thread-local variable.
pub(crate) struct Destructor {
    pub(crate) run: unsafe extern "C" fn(*mut c_void),
    pub(crate) object: *mut c_void,
}

/// The control block of a task, at the upper end of its stack.
///
/// Blocks are never unmapped: a stale [`TaskRef`] points to a valid block, perhaps of a later task.
#[repr(C, align(64))]
pub(crate) struct Task {
    /// The runtime's link in an inbox; first, so that its address is the task's.
    pub(crate) inbox: InboxNode,
    /// Saved stack pointer while the task is off CPU.
    pub(crate) sp: Cell<usize>,
    /// Thread control block.
    pub(crate) fs: usize,
    /// How it sleeps and is woken.
    pub(crate) wake: WakeWord,
    /// Index of the run queue to which it belongs; written under that queue's lock or by its waker.
    pub(crate) home: AtomicU32,
    /// CPU on which it was created or last ran.
    pub(crate) cpu: AtomicU32,
    run: AtomicU8,
    /// Whether it has ended, and who waits for that.
    pub(crate) end: EndWord,
    sched: Cell<Option<&'static dyn Scheduler>>,
    /// Tells whether `sched` still exists, for others than the task itself.
    liveness: AtomicPtr<Liveness>,
    id: Cell<TaskId>,
    dtors: UnsafeCell<Vec<Destructor>>,
    has_keys: Cell<bool>,
    name: UnsafeCell<Option<Box<str>>>,
    pub(crate) stack: Stack,
    /// How many tasks its runtime had made before.
    #[cfg(feature = "trace")]
    pub(crate) number: std::sync::atomic::AtomicU64,
    /// Where the closure and the first frame begin: everything below is free.
    pub(crate) top: Cell<usize>,
}

/// The memory of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack {
    /// Lowest address: the guard.
    pub(crate) base: usize,
    /// Bytes in all, guard included.
    pub(crate) size: usize,
    /// Index of its size class.
    pub(crate) class: u8,
}

/// Bytes at the lower end of a stack that fault.
pub(crate) const GUARD: usize = 16 * 1024;

thread_local! {
    /// The task that this FS base belongs to. Constant for the life of a task, hence right however the compiler
    /// caches it.
    static CURRENT: Cell<*const Task> = const { Cell::new(std::ptr::null()) };
}

impl Task {
    pub(crate) fn new(fs: usize, stack: Stack) -> Task {
        Task {
            inbox: InboxNode::default(),
            sp: Cell::new(0),
            fs,
            wake: WakeWord::new(),
            home: AtomicU32::new(0),
            cpu: AtomicU32::new(0),
            run: AtomicU8::new(Run::Absent as u8),
            end: EndWord::new(),
            sched: Cell::new(None),
            liveness: AtomicPtr::new(ptr::null_mut()),
            id: Cell::new(TaskId(u32::MAX)),
            dtors: UnsafeCell::default(),
            has_keys: Cell::new(false),
            name: UnsafeCell::default(),
            stack,
            #[cfg(feature = "trace")]
            number: std::sync::atomic::AtomicU64::new(0),
            top: Cell::new(0),
        }
    }

    /// The task that calls; none in the scheduler and in ordinary threads.
    #[inline]
    pub(crate) fn current() -> Option<&'static Task> {
        // SAFETY: null or a block, and blocks are never unmapped.
        unsafe { CURRENT.get().as_ref() }
    }

    /// Says that the calling context, which has this task's FS, is this task.
    pub(crate) fn set_current(&self) {
        CURRENT.set(self);
    }

    /// Says that the calling context is no task any more.
    pub(crate) fn leave_current() {
        CURRENT.set(std::ptr::null());
    }

    #[inline]
    pub(crate) fn id(&self) -> TaskId {
        self.id.get()
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
        debug_assert!(self.run().leads_to(run), "{}: {:?} to {run:?}", self.id(), self.run());
        self.run.store(run as u8, Ordering::Relaxed);
    }

    /// The runtime that the task belongs to. For the task itself and for its runtime's threads; see [`Task::liveness`].
    #[inline]
    pub(crate) fn sched(&self) -> &'static dyn Scheduler {
        self.sched.get().expect("a task that runs or waits has a scheduler")
    }

    /// The runtime that the block last served, with its id there.
    pub(crate) fn owner(&self) -> Option<(&'static dyn Scheduler, TaskId)> {
        self.sched.get().map(|s| (s, self.id.get()))
    }

    /// Whether the runtime that the task belongs to still exists; none for a block without a runtime.
    #[inline]
    pub(crate) fn liveness(&self) -> Option<&'static Liveness> {
        // SAFETY: null or what `adopt` was given.
        unsafe { self.liveness.load(Ordering::Acquire).as_ref() }
    }

    /// Gives the block to a runtime. The caller owns the block alone.
    pub(crate) fn adopt(&self, owner: &'static dyn Scheduler, id: TaskId) {
        self.liveness.store(ptr::from_ref(owner.liveness()).cast_mut(), Ordering::Release);
        self.sched.set(Some(owner));
        self.id.set(id);
    }

    /// The block has no runtime any more. The caller owns the block alone.
    pub(crate) fn disown(&self) {
        self.liveness.store(ptr::null_mut(), Ordering::Release);
        self.sched.set(None);
        self.id.set(TaskId(u32::MAX));
    }

    /// Forgets the last task. The caller owns the block alone.
    #[inline]
    pub(crate) fn reset(&self) {
        self.wake.reset();
        self.end.reset();
    }

    /// Destructors to run at its end. For the task itself only.
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn dtors(&self) -> &mut Vec<Destructor> {
        // SAFETY: only the task itself asks, and never keeps the reference over a call that asks again.
        unsafe { &mut *self.dtors.get() }
    }

    /// Whether it may have set a value of a `pthread_key_t`. For the task itself only.
    pub(crate) fn has_keys(&self) -> &Cell<bool> {
        &self.has_keys
    }

    /// The name given at creation.
    pub(crate) fn name(&self) -> Option<&str> {
        // SAFETY: written before the task is published and not again until its block is recycled.
        unsafe { (*self.name.get()).as_deref() }
    }

    /// Sets the name. The caller owns the block alone.
    pub(crate) fn set_name(&self, name: Option<Box<str>>) {
        // SAFETY: by the caller's promise.
        unsafe { *self.name.get() = name };
    }
}

/// A task, by address: always valid, though the task may have ended and another one live there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskRef(NonNull<Task>);

// SAFETY: blocks are never unmapped, and what other threads touch in them is atomic.
unsafe impl Send for TaskRef {}
// SAFETY: as above.
unsafe impl Sync for TaskRef {}

impl TaskRef {
    pub(crate) fn new(task: &'static Task) -> TaskRef {
        TaskRef(NonNull::from(task))
    }

    pub(crate) fn get(self) -> &'static Task {
        // SAFETY: made from a reference to a block, and blocks are never unmapped.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn addr(self) -> usize {
        self.0.as_ptr() as usize
    }

    /// The task at `addr`.
    ///
    /// # Safety
    /// `addr` came from [`TaskRef::addr`], or is the address of a task's inbox node.
    pub(crate) unsafe fn from_addr(addr: usize) -> TaskRef {
        // SAFETY: by the caller's promise it is not null.
        TaskRef(unsafe { NonNull::new_unchecked(addr as *mut Task) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task::new(0, Stack { base: 0, size: 0, class: 0 })
    }

    #[test]
    fn a_task_goes_from_state_to_state_along_the_arrows() {
        let task = task();
        let way = [Run::Queued, Run::Running, Run::Queued, Run::Running, Run::Absent, Run::Running];
        way.into_iter().for_each(|run| task.set_run(run));
        assert_eq!(task.run(), Run::Running);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "Queued to Absent")]
    fn a_task_does_not_vanish_from_a_queue() {
        let task = task();
        task.set_run(Run::Queued);
        task.set_run(Run::Absent);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "Running to Running")]
    fn a_task_that_runs_is_not_run_by_another_worker() {
        let task = task();
        task.set_run(Run::Queued);
        task.set_run(Run::Running);
        task.set_run(Run::Running);
    }
}
