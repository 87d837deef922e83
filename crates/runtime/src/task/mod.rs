//! Tasks: the control block of a context, which lies on its stack; the handle to it; what of a task is scheduled, which
//! futures have, too; and the scheduler's interface to tasks.
//!
//! A *thread* is a task with a context of its own, for life. A *future* has one only while it is polled: it borrows a
//! *carrier*, which is a context without a task of its own (`futures`).

pub(crate) mod debug;
mod entity;
mod future;
mod scheduler;

pub(crate) use entity::{Entity, EntityRef, NO_ID};
pub(crate) use future::{Header, HeaderRef, Vtable};
pub(crate) use scheduler::{Mark, Next, PollEnd, Scheduler};

use crate::cpu_time::CpuTime;
use heddle_core::TaskId;
use heddle_sync::{EndWord, WakeWord};
use std::arch::{asm, global_asm};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Where a task is, as seen under its run queue's lock.
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
/// A task in an inbox, on its path to a run queue, is Queued if it is new, else Absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Run {
    /// Does not exist, or sleeps.
    Absent = 0,
    /// In its home run queue.
    Queued = 1,
    /// On a worker.
    Running = 2,
}

impl Run {
    /// Returns whether the diagram has an arrow from `self` to `to`: a task leaves a queue only to run, and no worker
    /// picks a running task.
    fn can_become(self, to: Run) -> bool {
        !matches!((self, to), (Run::Queued, Run::Absent) | (Run::Running, Run::Running))
    }
}

/// Tracks whether a task's runtime still exists.
pub(crate) type Liveness = crate::liveness::Liveness<dyn Scheduler>;

/// A registered destructor of a thread-local variable.
pub(crate) struct Destructor {
    pub(crate) run: unsafe extern "C" fn(*mut c_void),
    pub(crate) object: *mut c_void,
}

/// The control block of a context, at the top of its stack: of a thread, or of a carrier of futures.
///
/// Blocks are never unmapped: a stale [`TaskRef`] points to a valid block, perhaps of a later task.
#[repr(C, align(64))]
pub(crate) struct Task {
    /// What is scheduled, if it is a thread. First, so that its address is the task's.
    own: Entity,
    /// Saved stack pointer while the task is off CPU.
    pub(crate) sp: Cell<usize>,
    /// Thread control block.
    pub(crate) fs: usize,
    /// State of sleeping and waking.
    pub(crate) wake: WakeWord,
    /// What it runs: its own entity, or the future whose poll it carries. Written by itself, or under the lock of the
    /// run queue while it is off its stack.
    entity: Cell<*const Entity>,
    /// Whether it has ended, and its joiner.
    pub(crate) end: EndWord,
    sched: Cell<Option<&'static dyn Scheduler>>,
    /// As a carrier: what it is to see to before it polls.
    pub(crate) upkeep: Cell<Upkeep>,
    /// As a carrier: its poll was preempted, and is counted as such.
    pub(crate) was_preempted: Cell<bool>,
    /// As a free carrier: the next one.
    pub(crate) next_carrier: Cell<Option<TaskRef>>,
    dtors: UnsafeCell<Vec<Destructor>>,
    has_keys: Cell<bool>,
    /// It keeps the kernel thread on which it was found blocked, without a CPU of the runtime's ([`crate::raw`]).
    pub(crate) keeps_thread: AtomicBool,
    /// A thread library's, for as long as the block exists.
    pub(crate) extension: AtomicPtr<()>,
    name: UnsafeCell<Option<Box<str>>>,
    pub(crate) cpu_time: CpuTime,
    pub(crate) stack: Stack,
    /// The block that was made before this one ([`debug`]).
    next_of_all: AtomicPtr<Task>,
    /// Start of the closure and the first frame; everything below is free.
    pub(crate) top: Cell<usize>,
}

/// What a carrier that was taken from the free ones sees to before it polls, where it may allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upkeep {
    None,
    /// Too few are left: make one.
    Make,
    /// Too many are left: end one.
    End,
}

/// The memory of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack {
    /// Lowest address: the guard.
    pub(crate) base: usize,
    /// Size in bytes, including the guard.
    pub(crate) size: usize,
    /// Index of its size class, or [`Stack::ADOPTED`].
    pub(crate) class: u8,
}

impl Stack {
    /// The class of a stack that is not the runtime's ([`crate::adopt`]).
    pub(crate) const ADOPTED: u8 = u8::MAX;
}

/// Size of the guard: bytes at the lower end of a stack that fault.
pub(crate) const GUARD: usize = 16 * 1024;

// The task that owns this FS base; null in other threads. It is constant for the lifetime of a task, so the compiler
// may keep it in a register on any path. Defined in assembly because stable Rust cannot say that its offset from FS is
// fixed when the object is loaded: in a shared object, a `thread_local!` costs a call of `__tls_get_addr`.
global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".globl heddle_rt_current",
    ".hidden heddle_rt_current",
    ".type heddle_rt_current, @object",
    ".size heddle_rt_current, 8",
    ".p2align 3",
    "heddle_rt_current:",
    ".zero 8",
    ".popsection",
);

/// Returns the task that owns this FS base.
#[inline(always)]
fn current() -> *const Task {
    let task;
    // SAFETY: reads the variable of the calling thread, which has the offset that the loader has chosen.
    unsafe {
        asm!(
            "mov {task}, [rip + heddle_rt_current@GOTTPOFF]",
            "mov {task}, fs:[{task}]",
            task = out(reg) task,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    task
}

/// Makes `task` the owner of this FS base.
#[inline(always)]
fn set_current(task: *const Task) {
    // SAFETY: writes the variable of the calling thread.
    unsafe {
        asm!(
            "mov {at}, [rip + heddle_rt_current@GOTTPOFF]",
            "mov fs:[{at}], {task}",
            at = out(reg) _,
            task = in(reg) task,
            options(nostack, preserves_flags),
        );
    }
}

impl Task {
    pub(crate) fn new(fs: usize, stack: Stack) -> Task {
        Task {
            own: Entity::new(false),
            sp: Cell::new(0),
            fs,
            wake: WakeWord::new(),
            entity: Cell::new(ptr::null()),
            end: EndWord::new(),
            sched: Cell::new(None),
            upkeep: Cell::new(Upkeep::None),
            was_preempted: Cell::new(false),
            next_carrier: Cell::new(None),
            dtors: UnsafeCell::default(),
            has_keys: Cell::new(false),
            keeps_thread: AtomicBool::new(false),
            extension: AtomicPtr::new(ptr::null_mut()),
            name: UnsafeCell::default(),
            cpu_time: CpuTime::default(),
            stack,
            next_of_all: AtomicPtr::new(ptr::null_mut()),
            top: Cell::new(0),
        }
    }

    /// Returns the calling task; `None` in the scheduler and in ordinary threads.
    #[inline]
    pub(crate) fn current() -> Option<&'static Task> {
        // SAFETY: null or a block, and blocks are never unmapped.
        unsafe { current().as_ref() }
    }

    /// Makes this task the current one in the calling context, which has its FS base.
    pub(crate) fn set_current(&self) {
        set_current(self);
    }

    /// Marks the calling context as no longer a task.
    pub(crate) fn leave_current() {
        set_current(ptr::null());
    }

    /// Returns what it runs: its own entity, or the future whose poll it carries.
    #[inline(always)]
    pub(crate) fn entity(&self) -> EntityRef {
        // SAFETY: set with the scheduler, before anything asks, to an entity, which is never unmapped.
        EntityRef::new(unsafe { &*self.entity.get() })
    }

    /// Makes it run `entity` from now on. See [`Task::entity`].
    #[inline(always)]
    pub(crate) fn set_entity(&self, entity: EntityRef) {
        self.entity.set(entity.get());
    }

    /// Returns whether it runs as a thread, not as a carrier of futures.
    #[inline(always)]
    pub(crate) fn is_thread(&self) -> bool {
        ptr::eq(self.entity.get(), &raw const self.own)
    }

    /// Returns the number of the task that it runs.
    #[inline]
    pub(crate) fn id(&self) -> TaskId {
        self.entity().get().id()
    }

    /// Returns whether it began as a kernel thread, whose stack and thread-local variables it has ([`crate::adopt`]).
    #[inline]
    pub(crate) fn is_adopted(&self) -> bool {
        self.stack.class == Stack::ADOPTED
    }

    /// Returns the task's runtime. For the task itself and its runtime's threads; others use [`Task::liveness`].
    #[inline]
    pub(crate) fn sched(&self) -> &'static dyn Scheduler {
        self.sched.get().expect("a task that runs or waits has a scheduler")
    }

    /// Returns whether it is a thread with a number in the runtime of `owner`.
    pub(crate) fn is_thread_of(&self, owner: &'static Liveness) -> bool {
        self.own.belongs_to(owner) && self.is_thread()
    }

    /// Returns the liveness of the task's runtime; `None` if the block has no runtime.
    #[inline]
    pub(crate) fn liveness(&self) -> Option<&'static Liveness> {
        self.own.liveness()
    }

    /// Assigns the block to a runtime, as a thread if it has a number there ([`NO_ID`]: as a carrier). The caller is
    /// the block's only owner.
    pub(crate) fn adopt(&'static self, owner: &'static dyn Scheduler, id: TaskId) {
        self.own.adopt(owner, id);
        self.own.set_context(Some(self));
        self.sched.set(Some(owner));
        self.set_entity(EntityRef::new(&self.own));
    }

    /// Detaches the block from its runtime. The caller is the block's only owner.
    pub(crate) fn disown(&self) {
        self.own.disown();
        self.sched.set(None);
    }

    /// Clears the state of the previous task. The caller is the block's only owner.
    #[inline]
    pub(crate) fn reset(&self) {
        self.keeps_thread.store(false, Ordering::Relaxed);
        self.cpu_time.reset();
        self.wake.reset();
        self.end.reset();
    }

    /// Returns the destructors to run when the task ends. For the task itself only.
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn dtors(&self) -> &mut Vec<Destructor> {
        // SAFETY: only the task itself calls this, and never holds the reference across another such call.
        unsafe { &mut *self.dtors.get() }
    }

    /// Returns whether the task may have set a value of a `pthread_key_t`. For the task itself only.
    pub(crate) fn has_keys(&self) -> &Cell<bool> {
        &self.has_keys
    }

    /// Returns the name given at creation.
    pub(crate) fn name(&self) -> Option<&str> {
        // SAFETY: written before the task is published and not again until its block is recycled.
        unsafe { (*self.name.get()).as_deref() }
    }

    /// Sets the name. The caller is the block's only owner.
    pub(crate) fn set_name(&self, name: Option<Box<str>>) {
        // SAFETY: by the caller's promise.
        unsafe { *self.name.get() = name };
    }
}

/// A task by address. Always valid, but the task may have ended and another may use its block.
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

    /// Returns the task at `addr`.
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

    fn task() -> Entity {
        Entity::new(false)
    }

    #[test]
    fn a_task_goes_from_state_to_state_along_the_arrows() {
        let task = task();
        let path =
            [Run::Queued, Run::Running, Run::Queued, Run::Running, Run::Absent, Run::Running];
        path.into_iter().for_each(|run| task.set_run(run));
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
