//! A worker: a kernel thread that runs tasks for one CPU, and its block behind GS.

use crate::alarm::{self, Alarm, Asked};
use crate::slab::SlabCache;
use crate::stack_cache::StackCache;
use crate::task::{Entity, EntityRef, HeaderRef, Liveness, Task, TaskRef};
use crate::telemetry::{WorkerCounters, WorkerStats};
use crate::uintr::{self, NO_TARGET};
use heddle_arch::PreemptCount;
use heddle_core::{Ns, Rng};
use heddle_sync::SpinLock;
use heddle_sys::timer::ThreadTimer;
use heddle_sys::{clock, memory, thread};
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::mem::offset_of;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// What the next context does on behalf of the one that left the CPU. Until then the run queue is locked.
#[derive(Clone, Copy)]
pub(crate) enum After {
    /// Release the run queue's lock: the old context is queued, or was no task.
    Unlock,
    /// Complete its parking, then release the lock.
    Park(TaskRef),
    /// Release the lock, then drop the scheduler's reference of a future that has ended.
    End(HeaderRef),
    /// Release the lock, then notify the task that waits for this one's end, unless it was already `woken`.
    Exit { task: TaskRef, woken: bool },
}

/// The block behind GS: state that only the worker's own thread reaches, next to what others may read. Not `Sync`, so
/// the compiler restricts other threads to [`Remote`].
#[repr(C)]
pub(crate) struct Worker {
    remote: Remote,
    /// Poll the network before the next pick.
    pub(crate) poll_first: Cell<bool>,
    /// Time stamp of the last [`Worker::looks_at_inputs`] that said so.
    inputs_at: Cell<u64>,
    /// Since when its loop has looked at lanes and found nothing: a time stamp, or 0.
    pub(crate) idle_since: Cell<u64>,
    /// Direct switches left before it polls the network and timers.
    pub(crate) budget: Cell<u32>,
    pub(crate) after: Cell<After>,
    /// The lock taken by the context that left, to be released by the next one.
    held: Cell<*const SpinLock>,
    /// Stack pointer of its scheduling loop.
    pub(crate) loop_sp: Cell<usize>,
    pub(crate) loop_fs: Cell<usize>,
    /// What the policy has chosen where no carrier was free: its loop makes one.
    pub(crate) stranded: Cell<Option<EntityRef>>,
    /// Stacks for new tasks.
    cache: UnsafeCell<StackCache>,
    /// Memory for new futures.
    slabs: UnsafeCell<SlabCache>,
    pub(crate) rng: Rng,
    /// Its alternate signal stack, and the one that the thread had before.
    pub(crate) altstack: Cell<libc::stack_t>,
    previous_altstack: Cell<libc::stack_t>,
    /// Identity of its runtime; see [`Worker::create`].
    pub(crate) runtime: *const (),
    pub(crate) liveness: &'static Liveness,
    /// The CPU to which its thread is pinned, by the system's number.
    os_cpu: Cell<u32>,
    /// Its number as a receiver of user interrupts, once it has one. Its target leads there, whatever its thread.
    pub(crate) receiver: Cell<Option<u32>>,
    /// Its thread may send user interrupts.
    pub(crate) can_send: Cell<bool>,
    /// Its thread has forked. A child may have asked for a signal when its parent ends, and to the kernel that is this
    /// thread.
    pub(crate) is_parent: Cell<bool>,
}

/// What other threads see of a worker, on its own cache lines. The worker writes most of it, at each dispatch.
///
/// The first two fields are where `heddle-arch` expects them, the next two where [`crate::probe`] does.
#[repr(C, align(128))]
pub(crate) struct Remote {
    this: usize,
    count: AtomicU32,
    /// Index of the CPU that it serves, or served last.
    pub(crate) cpu: AtomicU32,
    /// Time stamp at which its task checks for itself whether it must yield, at the next probe or end of a section
    /// without preemption; [`NEVER`]. Other threads bring it forward if the task has probes.
    pub(crate) look_at: AtomicU64,
    /// Time stamp of the last dispatch, if the policy preempts.
    pub(crate) started: AtomicU64,
    /// The task that it runs.
    pub(crate) current: AtomicPtr<Entity>,
    /// Counts dispatches: if the count is unchanged, the same task still runs.
    pub(crate) generation: AtomicU64,
    /// Its task checked after its quantum and nothing was waiting: the next task that is queued makes it due at once.
    pub(crate) over: AtomicBool,
    /// It was asked to preempt its task, whatever the policy answers when the request is handled.
    pub(crate) asked: AtomicBool,
    /// A signal came between two tasks, or while its task could not be preempted: the task that runs next looks whether
    /// it was meant. Only for other programs' requests, which may come at any time.
    pub(crate) unanswered: AtomicBool,
    pub(crate) alarm: Alarm,
    pub(crate) stats: WorkerStats,
    /// How registered threads send it user interrupts; [`NO_TARGET`].
    pub(crate) target: AtomicU32,
    /// What the handler of its user interrupts sends at once, so that the next tick is one, too; [`NO_TARGET`].
    pub(crate) repost: AtomicU32,
    /// User interrupts are ticks of a timer: most find that the time to look has not come.
    pub(crate) has_ticks: AtomicBool,
    /// The thread's kernel id.
    pub(crate) tid: AtomicU32,
    /// Whether it serves its CPU. A worker that is blocked in the kernel is detached by the thread that notices, and
    /// gives up its place at its next scheduling point.
    pub(crate) attached: AtomicBool,
    /// Futex word on which a worker without a CPU sleeps: 1 once it has one.
    pub(crate) spare_word: AtomicU32,
    pub(crate) next_of_all: Link,
    pub(crate) next_in_reserve: Link,
}

/// The offsets of `look_at` and `started`, for [`crate::probe`].
pub(crate) const LOOK_AT: usize = offset_of!(Remote, look_at);
pub(crate) const STARTED: usize = offset_of!(Remote, started);

/// Offsets for [`crate::uintr`].
pub(crate) const ASKED: usize = offset_of!(Remote, asked);
pub(crate) const REPOST: usize = offset_of!(Remote, repost);
pub(crate) const HAS_TICKS: usize = offset_of!(Remote, has_ticks);

/// Between two looks of a worker at sockets and timers, beside probes.
const INPUTS_PERIOD: Ns = Ns::from_us(20);

/// A time stamp that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// A link to the next worker in a list.
pub(crate) type Link = AtomicPtr<Remote>;

/// The only handle to a worker's own part, on its way to the worker's thread.
pub(crate) struct Owner(&'static Worker);

// SAFETY: `Worker::create` makes one for a block, so no other thread reaches what is not `Sync` in it.
unsafe impl Send for Owner {}

thread_local! {
    /// Set in a kernel thread that has entered a block and runs a worker's loop.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
    /// The runtime of a kernel thread that is no worker, but polls sockets and timers: ticker, dispatcher.
    static HELPS: Cell<Option<&'static Liveness>> = const { Cell::new(None) };
}

/// Makes the calling kernel thread, which is no worker, a helper of a runtime.
pub(crate) fn help(runtime: &'static Liveness) {
    HELPS.set(Some(runtime));
}

/// Returns the runtime that the calling kernel thread helps.
pub(crate) fn runtime_of_helper() -> Option<&'static Liveness> {
    HELPS.get()
}

/// Direct switches between two polls of network and timers, as in Go and tokio.
pub(crate) const BUDGET: u32 = 61;

impl Deref for Worker {
    type Target = Remote;

    #[inline]
    fn deref(&self) -> &Remote {
        &self.remote
    }
}

impl Owner {
    /// Returns the part of the worker that others see.
    pub(crate) fn remote(&self) -> &'static Remote {
        &self.0.remote
    }

    /// Recreates the owner's handle to the block of `remote`.
    ///
    /// # Safety
    /// It came from [`Owner::remote`], and the owner is gone.
    pub(crate) unsafe fn again(remote: &'static Remote) -> Owner {
        // SAFETY: blocks live as long as their runtime.
        Owner(unsafe { &*(remote.this as *const Worker) })
    }

    /// Installs the block in the calling kernel thread. Its alarm serves tasks with this `quantum`, if there is one. It
    /// leaves them `grace` to find out by themselves that a quantum is over. The runtime `shares` its CPUs or not.
    ///
    /// `receive` prepares the thread for user interrupts, and returns the timer that ends quanta then.
    pub(crate) fn enter(
        self,
        quantum: Option<Ns>,
        grace: Ns,
        shares: bool,
        receive: impl FnOnce(&Worker) -> Option<ThreadTimer>,
    ) -> &'static Worker {
        let worker = self.0;
        worker.tid.store(heddle_sys::thread::id(), Ordering::Relaxed);
        worker.loop_fs.set(heddle_arch::fs_base());
        // SAFETY: stack and block live until `exit`, the block starts with the layout that the crate requires, and both
        // belong to this thread.
        unsafe {
            // The block first: a signal's handler looks into that of a worker.
            heddle_arch::set_gs_base(worker.this);
            IS_WORKER.set(true);
            let previous = heddle_sys::signal::set_alternate_stack(worker.altstack.get());
            worker.previous_altstack.set(previous);
        }
        let timer = receive(worker);
        if let Some(quantum) = quantum {
            let (quantum, grace) = (clock::ns_to_ticks(quantum), clock::ns_to_ticks(grace));
            worker.alarm.install(alarm::SIGNAL, timer, quantum, grace);
        } else if shares {
            worker.alarm.install_for_retries(alarm::SIGNAL);
        }
        worker
    }
}

impl Worker {
    /// Creates a block that lives until [`Worker::free`], with one handle for its thread and one for other threads. The
    /// block has its own mapping, followed by counters of its own and its alternate stack, because replacing a worker
    /// must not wait for an allocator.
    ///
    /// `runtime` is the address of something unique to the runtime; it is compared, never dereferenced. The worker
    /// counts where others see it (`shown`), if there is room.
    ///
    /// # Errors
    /// The system's, if it is out of memory.
    pub(crate) fn create(
        runtime: *const (),
        liveness: &'static Liveness,
        cpu: u32,
        seed: u64,
        shown: Option<&'static WorkerCounters>,
    ) -> io::Result<(Owner, &'static Remote)> {
        let at = memory::reserve(mapped_size())?.cast::<Worker>();
        let no_stack =
            libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: behind the block, in the mapping, which is aligned as the block is and zeroed: counters at 0.
        let own: &'static WorkerCounters = unsafe { &*at.add(1).cast() };
        // SAFETY: behind these, in the mapping.
        let ss_sp = unsafe { at.add(1).byte_add(size_of::<WorkerCounters>()) }.cast();
        let mut new = Worker {
            remote: Remote::new(cpu, shown.unwrap_or(own)),
            poll_first: Cell::new(false),
            inputs_at: Cell::new(0),
            idle_since: Cell::new(0),
            budget: Cell::new(BUDGET),
            after: Cell::new(After::Unlock),
            held: Cell::new(ptr::null()),
            loop_sp: Cell::new(0),
            loop_fs: Cell::new(0),
            stranded: Cell::new(None),
            cache: UnsafeCell::default(),
            slabs: UnsafeCell::default(),
            rng: Rng::new(seed),
            altstack: Cell::new(libc::stack_t { ss_sp, ss_flags: 0, ss_size: altstack_size() }),
            previous_altstack: Cell::new(no_stack),
            runtime,
            liveness,
            os_cpu: Cell::new(0),
            receiver: Cell::new(None),
            can_send: Cell::new(false),
            is_parent: Cell::new(false),
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
    /// `remote` is that of [`Worker::create`]; its thread has ended or was never started, and it is not used from here
    /// on.
    pub(crate) unsafe fn free(remote: &'static Remote) {
        let at = remote.this as *mut Worker;
        let target = remote.target.load(Ordering::Relaxed);
        if target != NO_TARGET {
            heddle_sys::uintr::disconnect(target);
        }
        // SAFETY: by the caller's promise; `create` mapped it.
        unsafe {
            at.drop_in_place();
            memory::release(at.cast(), mapped_size());
        }
    }

    /// Undoes [`Owner::enter`]: the calling thread is an ordinary one again, and the block may serve another.
    pub(crate) fn exit(&'static self) -> Owner {
        IS_WORKER.set(false);
        self.alarm.remove();
        self.receive_no_more();
        self.tid.store(0, Ordering::Relaxed);
        // SAFETY: zero means no block, and the stack from before is still there.
        unsafe {
            heddle_arch::set_gs_base(0);
            heddle_sys::signal::set_alternate_stack(self.previous_altstack.get());
        }
        Owner(self)
    }

    /// Makes the calling thread, which is the worker's, a receiver of user interrupts, with the same target as the
    /// threads that were the worker's before. Returns its number.
    ///
    /// # Errors
    /// The module's.
    ///
    /// # Safety
    /// As for [`heddle_sys::uintr::register`].
    pub(crate) unsafe fn receive(&self, handler: unsafe extern "C" fn()) -> io::Result<u32> {
        uintr::become_worker();
        // SAFETY: by the caller's promise.
        let receiver = unsafe { heddle_sys::uintr::register(handler, self.receiver.get())? };
        self.receiver.set(Some(receiver));
        self.can_send.set(true);
        if self.target.load(Ordering::Relaxed) == NO_TARGET {
            let target = heddle_sys::uintr::connect(receiver, uintr::VECTOR)
                .inspect_err(|_| self.receive_no_more())?;
            self.target.store(target, Ordering::Release);
        }
        Ok(receiver)
    }

    /// Makes a timer interrupt the calling thread, the worker's, each `period`: its CPU's own, or the kernel's if it
    /// may not have that.
    pub(crate) fn tick(&self, receiver: u32, period: Ns) {
        self.has_ticks.store(true, Ordering::Relaxed);
        self.repost.store(self.target.load(Ordering::Relaxed), Ordering::Relaxed);
        if heddle_sys::uintr::set_apic_timer(uintr::VECTOR, period).is_err() {
            self.repost.store(NO_TARGET, Ordering::Relaxed);
            ThreadTimer::of_receiver(receiver, uintr::VECTOR).repeat(period);
        }
    }

    /// Undoes [`Worker::receive`] and [`Worker::tick`]. The target stays, for the next thread.
    fn receive_no_more(&self) {
        if self.can_send.replace(false) {
            // First: where the timer is the kernel's again, sending to oneself causes an interrupt.
            self.repost.store(NO_TARGET, Ordering::Relaxed);
            heddle_sys::uintr::unregister();
            self.has_ticks.store(false, Ordering::Relaxed);
        }
    }

    /// Pins the calling thread, which is the worker's, to the CPU that the system calls `os_cpu`. If that CPU has gone
    /// away, the thread runs on any.
    pub(crate) fn pin(&self, os_cpu: u32) {
        self.os_cpu.set(os_cpu);
        self.pin_again();
    }

    /// Pins the calling thread to its previous CPU again.
    pub(crate) fn pin_again(&self) {
        let _ = heddle_sys::thread::pin(&[self.os_cpu.get()]);
    }

    /// Returns the worker that runs the caller.
    ///
    /// # Safety
    /// The caller is a task or a worker's loop, and preemption is off for as long as it relies on the answer.
    #[inline]
    pub(crate) unsafe fn current() -> &'static Worker {
        // SAFETY: tasks and loops run on threads that have entered a block, which lives longer than they do.
        unsafe { &*(heddle_arch::gs_word() as *const Worker) }
    }

    /// Returns the worker that runs the caller, if the caller is a task or a worker's loop. Preemption is off, as
    /// above.
    #[inline]
    pub(crate) fn here() -> Option<&'static Worker> {
        // SAFETY: a task is on a worker, and so is a loop.
        Worker::is_here().then(|| unsafe { Worker::current() })
    }

    /// Returns whether the calling thread is a worker.
    #[inline]
    pub(crate) fn is_here() -> bool {
        // GS cannot tell: a thread that a task has started inherits it from the worker.
        Task::current().is_some() || IS_WORKER.get()
    }

    /// Hands `lock`, which the caller holds, and the remaining work to the context after the next switch.
    #[inline(always)]
    pub(crate) fn hold(&self, lock: &SpinLock, after: After) {
        self.held.set(lock);
        self.after.set(after);
    }

    /// Releases the lock that [`Worker::hold`] handed over.
    #[inline(always)]
    pub(crate) fn release(&self) {
        // SAFETY: the lock's holder left its address; a run queue outlives its runtime's workers.
        unsafe { (*self.held.get()).unlock() };
    }

    /// Starts the quantum of its task; see [`Alarm::turn_begins`].
    #[inline(always)]
    pub(crate) fn begin_turn(
        &self,
        quantum: u64,
        waits: impl FnOnce() -> bool,
        late: impl FnOnce() -> Option<Ns>,
    ) {
        let now = clock::ticks();
        self.started.store(now, Ordering::Relaxed);
        self.look_at.store(now + quantum, Ordering::Relaxed);
        self.over.store(false, Ordering::Relaxed);
        self.alarm.turn_begins(now, quantum, waits, late);
    }

    /// Returns whether it looks at sockets and timers where a quantum ends. That takes a system call or two, which at
    /// the short quanta of probes are dearer than the quantum: there it does so once in a while.
    pub(crate) fn looks_at_inputs(&self) -> bool {
        if !self.alarm.has_grace() {
            return true;
        }
        let now = clock::ticks();
        let looks = now - self.inputs_at.get() >= clock::ns_to_ticks(INPUTS_PERIOD);
        if looks {
            self.inputs_at.set(now);
        }
        looks
    }

    /// Makes its task check again after `time`.
    pub(crate) fn look_after(&self, time: Ns) {
        self.look_at_after(time);
        self.alarm.set_after(time);
    }

    fn look_at_after(&self, time: Ns) {
        self.look_at.store(clock::ticks() + clock::ns_to_ticks(time), Ordering::Relaxed);
    }

    /// Its task has used up its `quantum` and may run for `limit`, unless a task is enqueued. Without probes it checks
    /// after a quantum all the same if it makes calls. Follows [`Alarm::before_late`].
    pub(crate) fn look_late(&self, limit: Ns, quantum: Ns) {
        self.over.store(true, Ordering::Relaxed);
        if self.alarm.has_grace() {
            self.look_at_after(limit);
        }
        self.alarm.set_late_after(limit, quantum);
        // Who enqueues makes the alarm no longer late first, and then brings the look forward.
        if !self.alarm.has_grace() || !self.alarm.is_late() {
            self.look_at_after(quantum);
        }
    }

    /// Handles an early interrupt, which comes if the task's turn is younger than the alarm: sets the alarm to the rest
    /// of the turn. A task whose quantum is already over was interrupted for work that arrived since.
    pub(crate) fn is_early(&self) -> bool {
        let (now, look_at) = (clock::ticks(), self.look_at.load(Ordering::Relaxed));
        let is_over = self.over.load(Ordering::Relaxed);
        let rest = self.alarm.with_grace(look_at).saturating_sub(now);
        let early = rest != 0 && look_at != NEVER && !is_over;
        if early {
            self.alarm.set_again(now, rest);
        }
        early
    }

    /// Its task need not check again in this turn.
    pub(crate) fn look_no_more(&self) {
        self.look_at.store(NEVER, Ordering::Relaxed);
        self.alarm.set_after(Ns::from_secs(1));
    }

    /// Its task has used up its `quantum`, and nothing else wants the CPU. It `looks_after` sockets and timers if no
    /// other thread does.
    pub(crate) fn quantum_is_over(&self, quantum: Ns, looks_after: bool) {
        self.over.store(true, Ordering::Relaxed);
        self.look_at_after(quantum);
        if looks_after {
            return self.alarm.set_after(quantum);
        }
        if self.alarm.has_grace() && self.alarm.exists() {
            // A task with probes computes alone at no cost. Before the alarm is off: who enqueues sets that first.
            self.look_at.store(NEVER, Ordering::Relaxed);
        }
        self.alarm.off();
    }

    /// Its task has queued another one: if its own quantum was already over, it checks again at once. For the worker's
    /// own thread, with preemption off.
    #[inline]
    pub(crate) fn hasten(&self) {
        if self.over.load(Ordering::Relaxed) {
            self.over.store(false, Ordering::Relaxed);
            self.look_at.store(0, Ordering::Relaxed);
            if self.alarm.exists() {
                // SAFETY: the caller is on this worker.
                unsafe { PreemptCount::set_pending() };
            }
        }
        if self.ask() == Asked::Due {
            // SAFETY: as above.
            unsafe { PreemptCount::set_pending() };
        }
    }

    /// Returns the stack cache. For the worker's own thread, with preemption off.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub(crate) fn cache(&self) -> &mut StackCache {
        // SAFETY: by the caller's promise there is one user, which does not keep the reference across a switch.
        unsafe { &mut *self.cache.get() }
    }

    /// Returns the memory for futures that it keeps. For the worker's own thread, with preemption off.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub(crate) fn slabs(&self) -> &mut SlabCache {
        // SAFETY: by the caller's promise there is one user, which does not keep the reference across a switch.
        unsafe { &mut *self.slabs.get() }
    }
}

impl Remote {
    pub(crate) fn new(cpu: u32, counters: &'static WorkerCounters) -> Remote {
        Remote {
            this: 0,
            count: AtomicU32::new(PreemptCount::ENABLED + 1),
            cpu: AtomicU32::new(cpu),
            look_at: AtomicU64::new(NEVER),
            started: AtomicU64::new(0),
            current: AtomicPtr::new(ptr::null_mut()),
            generation: AtomicU64::new(0),
            over: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            unanswered: AtomicBool::new(false),
            alarm: Alarm::default(),
            stats: WorkerStats::new(counters),
            target: AtomicU32::new(NO_TARGET),
            repost: AtomicU32::new(NO_TARGET),
            has_ticks: AtomicBool::new(false),
            tid: AtomicU32::new(0),
            attached: AtomicBool::new(true),
            spare_word: AtomicU32::new(0),
            next_of_all: Link::default(),
            next_in_reserve: Link::default(),
        }
    }

    /// Returns the CPU's index.
    #[inline]
    pub(crate) fn cpu(&self) -> usize {
        self.cpu.load(Ordering::Relaxed) as usize
    }

    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Acquire)
    }

    /// Returns whether a preemption was requested and is not (or no longer) held off, but has not happened: the signal
    /// found the task in the C library. A count of zero says both: not disabled, and pending, which is inverted.
    pub(crate) fn is_overdue(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Returns whether a preemption was requested and is held off or overdue.
    pub(crate) fn is_pending(&self) -> bool {
        self.count.load(Ordering::Relaxed) & PreemptCount::ENABLED == 0
    }

    /// A task was put into the queue of its CPU: its own task is limited to its quantum. For any thread that queued the
    /// task before a full fence.
    #[inline]
    pub(crate) fn hasten_from_afar(&self) {
        let tid = self.tid.load(Ordering::Relaxed);
        // Without a thread it has no task, and a thread that has ended needs no signal.
        if self.ask() == Asked::Due && tid != 0 {
            let _ = self.send() || thread::signal(tid, alarm::SIGNAL);
        }
    }

    /// Sends it a user interrupt. Returns false if it takes none or the calling thread may not send.
    pub(crate) fn send(&self) -> bool {
        let target = self.target.load(Ordering::Acquire);
        if target == NO_TARGET || self.tid.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let can_send = match Worker::here() {
            Some(worker) => worker.can_send.get(),
            None => uintr::can_send(),
        };
        if can_send {
            // SAFETY: the caller is registered, and a target stays as long as the worker's block.
            unsafe { heddle_arch::uintr::send(target.into()) };
        }
        can_send
    }

    /// Asks its alarm to limit its task to the quantum, and its probes, if it has some, to look then.
    #[inline]
    fn ask(&self) -> Asked {
        let asked = self.alarm.ask(|| self.started.load(Ordering::Relaxed));
        if let Asked::Set { end } = asked
            && self.alarm.has_grace()
        {
            self.look_at.store(end, Ordering::Relaxed);
        }
        asked
    }

    /// Makes the next probe of its task look, and interrupts the task if none does in time. Returns false if only a
    /// signal can be relied on.
    pub(crate) fn look_now(&self) -> bool {
        self.look_at.store(0, Ordering::Release);
        self.alarm.remind()
    }

    /// Returns how long its task has run, if the policy preempts. A concurrent dispatch makes it zero.
    pub(crate) fn ran(&self) -> Ns {
        let started = self.started.load(Ordering::Relaxed);
        clock::ticks_to_ns(clock::ticks().saturating_sub(started))
    }
}

/// Returns the bytes of a worker's mapping.
fn mapped_size() -> usize {
    size_of::<Worker>() + size_of::<WorkerCounters>() + altstack_size()
}

/// Returns the bytes of a worker's alternate signal stack, which leaves room to report an overflow.
fn altstack_size() -> usize {
    (64 << 10).max(4 * heddle_sys::memory::signal_frame_size())
}
