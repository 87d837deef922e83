//! A worker: a kernel thread that runs tasks for one CPU, and its block behind GS.

use crate::alarm::{self, Alarm};
use crate::stack_cache::StackCache;
use crate::stats::WorkerStats;
use crate::task::{Liveness, Task, TaskRef};
use heddle_arch::PreemptCount;
use heddle_core::{Ns, Rng};
use heddle_sync::SpinLock;
use heddle_sys::{clock, memory};
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// What the next context does for the one that went off the CPU. Until then the run queue is locked.
#[derive(Clone, Copy)]
pub(crate) enum After {
    /// Release the run queue's lock: the old context is queued, or was no task.
    Unlock,
    /// Complete its parking, then release the lock.
    Park(TaskRef),
    /// Release the lock, then tell who waits for the task's end, unless that was `woken` already.
    Exit { task: TaskRef, woken: bool },
}

/// The block behind GS: what only the worker's own thread reaches, beside what others may look at. Not `Sync`, so that
/// the compiler keeps other threads to [`Remote`].
#[repr(C)]
pub(crate) struct Worker {
    remote: Remote,
    /// Poll the network before the next pick.
    pub(crate) poll_first: Cell<bool>,
    /// Direct switches left before it looks at network and timers.
    pub(crate) budget: Cell<u32>,
    pub(crate) after: Cell<After>,
    /// The lock that the context which left took, and the next one releases.
    held: Cell<*const SpinLock>,
    /// The context of its scheduling loop.
    pub(crate) loop_sp: Cell<usize>,
    pub(crate) loop_fs: Cell<usize>,
    /// Time stamp at which the task checks for itself whether it must go; `u64::MAX` if it never must.
    pub(crate) look_at: Cell<u64>,
    /// Stacks for new tasks.
    cache: UnsafeCell<StackCache>,
    pub(crate) rng: Rng,
    /// Its alternate signal stack, and the one that the thread had before.
    pub(crate) altstack: Cell<libc::stack_t>,
    previous_altstack: Cell<libc::stack_t>,
    /// Identity of the runtime that it belongs to; see [`Worker::create`].
    pub(crate) runtime: *const (),
    pub(crate) liveness: &'static Liveness,
    /// The CPU to which its thread is pinned, by the system's number.
    os_cpu: Cell<u32>,
}

/// What other threads see of a worker, on cache lines of its own. The worker writes most of it, at each dispatch.
///
/// The first two fields are where `heddle-arch` expects them.
#[repr(C, align(128))]
pub(crate) struct Remote {
    this: usize,
    count: AtomicU32,
    /// Index of the CPU that it serves, or served last.
    pub(crate) cpu: AtomicU32,
    /// The task that it runs.
    pub(crate) current: AtomicPtr<Task>,
    /// Counts dispatches: same count, same task still running.
    pub(crate) generation: AtomicU64,
    /// Time stamp of the last dispatch, where the policy preempts.
    pub(crate) started: AtomicU64,
    /// Its task has looked, its quantum was over and nothing waited: what comes from then on makes it due at once.
    pub(crate) over: AtomicBool,
    /// It was asked to preempt its task, whatever the policy answers when the request is handled.
    pub(crate) asked: AtomicBool,
    pub(crate) alarm: Alarm,
    pub(crate) stats: WorkerStats,
    /// The kernel's number of the thread.
    pub(crate) tid: AtomicU32,
    /// Whether it serves its CPU. A worker that is blocked in the kernel is detached by the thread that notices, and
    /// gives up its place at its next scheduling point.
    pub(crate) attached: AtomicBool,
    /// Where a worker without a CPU sleeps: 1 when it has got one.
    pub(crate) spare_word: AtomicU32,
    pub(crate) next_of_all: Link,
    pub(crate) next_in_reserve: Link,
}

/// Where a worker holds the next one of a list.
pub(crate) type Link = AtomicPtr<Remote>;

/// The one way to a worker's own part, on its way to the worker's thread.
pub(crate) struct Owner(&'static Worker);

// SAFETY: `Worker::create` makes one for a block, so no other thread reaches what is not `Sync` in it.
unsafe impl Send for Owner {}

thread_local! {
    /// The kernel thread whose own storage this is has entered a block: it runs a worker's loop.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Direct switches between two looks at network and timers, as in Go and tokio.
pub(crate) const BUDGET: u32 = 61;

impl Deref for Worker {
    type Target = Remote;

    #[inline]
    fn deref(&self) -> &Remote {
        &self.remote
    }
}

impl Owner {
    /// What others see of the worker.
    pub(crate) fn remote(&self) -> &'static Remote {
        &self.0.remote
    }

    /// The way to the block of `remote`, once more.
    ///
    /// # Safety
    /// It came from [`Owner::remote`], and the owner is gone.
    pub(crate) unsafe fn again(remote: &'static Remote) -> Owner {
        // SAFETY: blocks live as long as their runtime.
        Owner(unsafe { &*(remote.this as *const Worker) })
    }

    /// Makes the block that of the calling kernel thread. Its alarm is for tasks with this `quantum`, if there is one.
    pub(crate) fn enter(self, quantum: Option<Ns>) -> &'static Worker {
        let worker = self.0;
        worker.tid.store(heddle_sys::thread::id(), Ordering::Relaxed);
        worker.loop_fs.set(heddle_arch::fs_base());
        IS_WORKER.set(true);
        // SAFETY: stack and block live until `exit`, the block starts as the crate wants, and both belong to this
        // thread.
        unsafe {
            let previous = heddle_sys::signal::set_alternate_stack(worker.altstack.get());
            worker.previous_altstack.set(previous);
            heddle_arch::set_gs_base(worker.this);
        }
        if let Some(quantum) = quantum {
            worker.alarm.install(alarm::SIGNAL, clock::ns_to_ticks(quantum));
        }
        worker
    }
}

impl Worker {
    /// Creates a block, until [`Worker::free`]: one handle for its thread, one for other threads. The block has a
    /// mapping of its own, with its alternate stack behind it, because replacing a worker must not wait for an
    /// allocator.
    ///
    /// `runtime` is the address of something that the runtime alone has; it is compared, never followed.
    ///
    /// # Errors
    /// The system's: no memory.
    pub(crate) fn create(
        runtime: *const (),
        liveness: &'static Liveness,
        cpu: u32,
        seed: u64,
    ) -> io::Result<(Owner, &'static Remote)> {
        let at = memory::reserve(mapped_size())?.cast::<Worker>();
        let no_stack =
            libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: behind the block, in the mapping.
        let ss_sp = unsafe { at.add(1) }.cast();
        let mut new = Worker {
            remote: Remote::new(cpu),
            poll_first: Cell::new(false),
            budget: Cell::new(BUDGET),
            after: Cell::new(After::Unlock),
            held: Cell::new(ptr::null()),
            loop_sp: Cell::new(0),
            loop_fs: Cell::new(0),
            look_at: Cell::new(u64::MAX),
            cache: UnsafeCell::default(),
            rng: Rng::new(seed),
            altstack: Cell::new(libc::stack_t { ss_sp, ss_flags: 0, ss_size: altstack_size() }),
            previous_altstack: Cell::new(no_stack),
            runtime,
            liveness,
            os_cpu: Cell::new(0),
        };
        new.remote.this = at as usize;
        // SAFETY: fresh memory that is large enough and aligned to a page, and stays until `free`.
        let worker = unsafe {
            at.write(new);
            &*at
        };
        Ok((Owner(worker), &worker.remote))
    }

    /// Frees a block.
    ///
    /// # Safety
    /// `remote` is that of [`Worker::create`]; its thread has ended or was never started, and it is unused from here
    /// on.
    pub(crate) unsafe fn free(remote: &'static Remote) {
        let at = remote.this as *mut Worker;
        // SAFETY: by the caller's promise; `create` mapped it.
        unsafe {
            at.drop_in_place();
            memory::release(at.cast(), mapped_size());
        }
    }

    /// Ends what [`Owner::enter`] began: the calling thread is an ordinary one again, and the block serves another one.
    pub(crate) fn exit(&'static self) -> Owner {
        IS_WORKER.set(false);
        self.alarm.remove();
        self.tid.store(0, Ordering::Relaxed);
        // SAFETY: zero means no block, and the stack from before is still there.
        unsafe {
            heddle_arch::set_gs_base(0);
            heddle_sys::signal::set_alternate_stack(self.previous_altstack.get());
        }
        Owner(self)
    }

    /// Pins the calling thread, which is the worker's, to the CPU that the system calls `os_cpu`. If that CPU has
    /// gone away, anywhere is better than nowhere.
    pub(crate) fn pin(&self, os_cpu: u32) {
        self.os_cpu.set(os_cpu);
        self.pin_again();
    }

    /// Pins the calling thread to the CPU to which it was pinned before.
    pub(crate) fn pin_again(&self) {
        let _ = heddle_sys::thread::pin(&[self.os_cpu.get()]);
    }

    /// The worker that runs the caller.
    ///
    /// # Safety
    /// The caller is a task or a worker's loop, and preemption is off for as long as it relies on the answer.
    #[inline]
    pub(crate) unsafe fn current() -> &'static Worker {
        // SAFETY: tasks and loops run on threads that have entered a block, which lives longer than they do.
        unsafe { &*(heddle_arch::gs_word() as *const Worker) }
    }

    /// The worker that runs the caller, if it is a task or a worker's loop. Preemption is off, as above.
    #[inline]
    pub(crate) fn here() -> Option<&'static Worker> {
        // GS does not tell: a thread that a task has started inherited it from the worker.
        // SAFETY: a task is on a worker, and so is a loop.
        (Task::current().is_some() || IS_WORKER.get()).then(|| unsafe { Worker::current() })
    }

    /// Leaves `lock`, which the caller holds, and what is left to do to the context after the next switch.
    #[inline(always)]
    pub(crate) fn hold(&self, lock: &SpinLock, after: After) {
        self.held.set(lock);
        self.after.set(after);
    }

    /// Releases the lock that was left by [`Worker::hold`].
    #[inline(always)]
    pub(crate) fn release(&self) {
        // SAFETY: the lock's holder left its address; a run queue outlives its runtime's workers.
        unsafe { (*self.held.get()).unlock() };
    }

    /// The task that it runs has its quantum from now on. `waits` says whether anything else wants the CPU.
    #[inline(always)]
    pub(crate) fn begin_turn(&self, quantum: u64, waits: impl FnOnce() -> bool) {
        let now = clock::ticks();
        self.started.store(now, Ordering::Relaxed);
        self.look_at.set(now + quantum);
        self.over.store(false, Ordering::Relaxed);
        self.alarm.turn_begins(now, quantum, waits);
    }

    /// Its task looks again after `time`.
    pub(crate) fn look_after(&self, time: Ns) {
        self.look_at.set(clock::ticks() + clock::ns_to_ticks(time));
        self.alarm.set_after(time);
    }

    /// The task was interrupted before its time, because its turn is younger than the alarm: sets the alarm to the
    /// rest of it. One whose quantum is over already was interrupted for what has come since.
    pub(crate) fn is_early(&self) -> bool {
        let (now, look_at) = (clock::ticks(), self.look_at.get());
        let is_over = self.over.load(Ordering::Relaxed);
        let early = now < look_at && look_at != u64::MAX && !is_over;
        if early {
            self.alarm.set_after(clock::ticks_to_ns(look_at - now));
        }
        early
    }

    /// Its task need not look again in this turn.
    pub(crate) fn look_no_more(&self) {
        self.look_at.set(u64::MAX);
        self.alarm.set_after(Ns::from_secs(1));
    }

    /// Its task has used up its `quantum`, and nothing else wants the CPU. It `looks_after` sockets and timers if no
    /// other thread does.
    pub(crate) fn quantum_is_over(&self, quantum: Ns, looks_after: bool) {
        self.over.store(true, Ordering::Relaxed);
        self.look_at.set(clock::ticks() + clock::ns_to_ticks(quantum));
        if looks_after {
            self.alarm.set_after(quantum);
        } else {
            self.alarm.off();
        }
    }

    /// Its task has put another one into the queue: where its quantum was over already, it looks again at once. For the
    /// worker's own thread, preemption off.
    #[inline]
    pub(crate) fn hasten(&self) {
        if self.over.load(Ordering::Relaxed) {
            self.over.store(false, Ordering::Relaxed);
            self.look_at.set(0);
            if self.alarm.exists() {
                // SAFETY: the caller is on this worker.
                unsafe { PreemptCount::set_pending() };
            }
        }
        self.hasten_from_afar();
    }

    /// The stack cache. For the worker's own thread, with preemption off.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub(crate) fn cache(&self) -> &mut StackCache {
        // SAFETY: by the caller's promise there is one user, which does not keep the reference over a switch.
        unsafe { &mut *self.cache.get() }
    }
}

impl Remote {
    pub(crate) fn new(cpu: u32) -> Remote {
        Remote {
            this: 0,
            count: AtomicU32::new(PreemptCount::ENABLED + 1),
            cpu: AtomicU32::new(cpu),
            current: AtomicPtr::new(ptr::null_mut()),
            generation: AtomicU64::new(0),
            started: AtomicU64::new(0),
            over: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            alarm: Alarm::default(),
            stats: WorkerStats::default(),
            tid: AtomicU32::new(0),
            attached: AtomicBool::new(true),
            spare_word: AtomicU32::new(0),
            next_of_all: Link::default(),
            next_in_reserve: Link::default(),
        }
    }

    /// Index of the CPU.
    #[inline]
    pub(crate) fn cpu(&self) -> usize {
        self.cpu.load(Ordering::Relaxed) as usize
    }

    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Acquire)
    }

    /// A preemption was asked for and is not held off (any more), but has not been taken: the signal found the task
    /// in the C library. A count of zero says both: not disabled, and pending, which is inverted.
    pub(crate) fn is_overdue(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// A preemption was asked for, and is held off or overdue.
    pub(crate) fn is_pending(&self) -> bool {
        self.count.load(Ordering::Relaxed) & PreemptCount::ENABLED == 0
    }

    /// A task was put into the queue of its CPU: its own has no more than its quantum. For any thread that has put it
    /// there before a full fence.
    #[inline]
    pub(crate) fn hasten_from_afar(&self) {
        self.alarm.ask(|| self.started.load(Ordering::Relaxed));
    }

    /// How long its task has run, where the policy preempts. A dispatch that comes meanwhile makes it zero.
    pub(crate) fn ran(&self) -> Ns {
        let started = self.started.load(Ordering::Relaxed);
        clock::ticks_to_ns(clock::ticks().saturating_sub(started))
    }
}

/// Bytes of a worker's mapping.
fn mapped_size() -> usize {
    size_of::<Worker>() + altstack_size()
}

/// Bytes of a worker's alternate signal stack: room to write the report of an overflow.
fn altstack_size() -> usize {
    (64 << 10).max(4 * heddle_sys::memory::signal_frame_size())
}
