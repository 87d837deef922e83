//! Tasks: the control block, which lies on the task's stack; the handle to it; and the scheduler's interface to tasks.

pub(crate) mod debug;
mod scheduler;

pub(crate) use scheduler::{Next, Scheduler};

use crate::cpu_time::CpuTime;
use heddle_core::TaskId;
use heddle_sync::{EndWord, InboxNode, WakeWord};
use std::arch::{asm, global_asm};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};

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

/// The control block of a task, at the top of its stack.
///
/// Blocks are never unmapped: a stale [`TaskRef`] points to a valid block, perhaps of a later task.
#[repr(C, align(64))]
pub(crate) struct Task {
    /// Link in an inbox. First, so that its address is the task's.
    pub(crate) inbox: InboxNode,
    /// Saved stack pointer while the task is off CPU.
    pub(crate) sp: Cell<usize>,
    /// Thread control block.
    pub(crate) fs: usize,
    /// State of sleeping and waking.
    pub(crate) wake: WakeWord,
    /// Index of its run queue; written under that queue's lock or by its waker.
    pub(crate) home: AtomicU32,
    /// CPU on which it was created or last ran.
    pub(crate) cpu: AtomicU32,
    run: AtomicU8,
    /// Whether it has ended, and its joiner.
    pub(crate) end: EndWord,
    sched: Cell<Option<&'static dyn Scheduler>>,
    /// Whether `sched` still exists, for users other than the task itself.
    liveness: AtomicPtr<Liveness>,
    id: Cell<TaskId>,
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
    /// Number of tasks that its runtime created before it.
    #[cfg(feature = "trace")]
    pub(crate) number: std::sync::atomic::AtomicU64,
    /// Start of the closure and the first frame; everything below is free.
    pub(crate) top: Cell<usize>,
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
            keeps_thread: AtomicBool::new(false),
            extension: AtomicPtr::new(ptr::null_mut()),
            name: UnsafeCell::default(),
            cpu_time: CpuTime::default(),
            stack,
            next_of_all: AtomicPtr::new(ptr::null_mut()),
            #[cfg(feature = "trace")]
            number: std::sync::atomic::AtomicU64::new(0),
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
        debug_assert!(self.run().can_become(run), "{}: {:?} to {run:?}", self.id(), self.run());
        self.run.store(run as u8, Ordering::Relaxed);
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

    /// Returns the runtime that the block last belonged to, with its id there.
    pub(crate) fn owner(&self) -> Option<(&'static dyn Scheduler, TaskId)> {
        self.sched.get().map(|s| (s, self.id.get()))
    }

    /// Returns the liveness of the task's runtime; `None` if the block has no runtime.
    #[inline]
    pub(crate) fn liveness(&self) -> Option<&'static Liveness> {
        // SAFETY: null, or the reference that `adopt` stored.
        unsafe { self.liveness.load(Ordering::Acquire).as_ref() }
    }

    /// Assigns the block to a runtime. The caller is the block's only owner.
    pub(crate) fn adopt(&self, owner: &'static dyn Scheduler, id: TaskId) {
        self.liveness.store(ptr::from_ref(owner.liveness()).cast_mut(), Ordering::Release);
        self.sched.set(Some(owner));
        self.id.set(id);
    }

    /// Detaches the block from its runtime. The caller is the block's only owner.
    pub(crate) fn disown(&self) {
        self.liveness.store(ptr::null_mut(), Ordering::Release);
        self.sched.set(None);
        self.id.set(TaskId(u32::MAX));
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

    fn task() -> Task {
        Task::new(0, Stack { base: 0, size: 0, class: 0 })
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
