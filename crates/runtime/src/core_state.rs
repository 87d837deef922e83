//! The parts of a runtime that do not depend on its policy: CPUs, inputs, spare threads. Which of its threads park is in `park`.

use crate::draws::Draws;
use crate::idle_hook::IdleHook;
use crate::kernel_thread::{Ending, Name};
use crate::liveness::{self, Liveness};
use crate::poller::Poller;
use crate::preempt::Mechanism;
use crate::sched::Scheduler;
use crate::stats::TickerStats;
use crate::task::TaskRef;
use crate::ticker::Notes;
use crate::timers::Timers;
use crate::trace::Recorder;
use crate::worker::{Owner, Remote, Worker};
use crate::worker_list::{AllWorkers, Reserve};
use heddle_core::{CpuInfo, Ns};
use heddle_sync::park::Parking;
use heddle_sys::clock;
use heddle_sys::futex;
use heddle_sys::thread::Promptness;
use std::fmt::Display;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// One CPU of the runtime.
#[repr(align(128))]
pub(crate) struct Cpu {
    server: AtomicPtr<Remote>,
    /// The task that the dispatcher, if there is one, has left for it: its address.
    pub(crate) mailbox: AtomicUsize,
}

impl Cpu {
    /// Who serves it.
    #[inline]
    pub(crate) fn server(&self) -> Option<&'static Remote> {
        // SAFETY: null or a worker, and workers live as long as their runtime.
        unsafe { self.server.load(Ordering::Acquire).as_ref() }
    }
}

/// What workers do with tasks that are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u32)]
pub(crate) enum Phase {
    /// They run them, and wait for more.
    Runs,
    /// They run them, and end once nothing is queued.
    Drains,
    /// They end at their next scheduling point.
    Over,
}

/// See the module.
pub(crate) struct Core {
    pub(crate) cpus: Box<[Cpu]>,
    pub(crate) topology: Box<[CpuInfo]>,
    pub(crate) parking: Parking,
    pub(crate) timers: Timers<TaskRef>,
    pub(crate) poller: Poller,
    pub(crate) mechanism: Mechanism,
    /// The shortest time after which a running task is looked at, where tasks are preempted.
    pub(crate) quantum: Option<Ns>,
    /// Bytes of a task's stack where it does not say.
    pub(crate) stack_class: u8,
    /// Every worker ever made, and those that wait for a CPU.
    pub(crate) workers: AllWorkers,
    spares: Mutex<Reserve>,
    /// Workers whose threads have ended: the next thread takes one.
    retired: Mutex<Reserve>,
    /// How soon the kernel runs a worker that wakes.
    pub(crate) promptness: Promptness,
    /// Tasks are handed out by a dispatcher, not taken from the queue by workers.
    pub(crate) has_dispatcher: bool,
    pub(crate) ticker: TickerStats,
    /// The ticker's own, for as long as it runs.
    pub(crate) notes: Mutex<Notes>,
    /// The ticker looks after sockets and timers, and tasks that compute need not.
    pub(crate) inputs_watched: AtomicBool,
    pub(crate) spawned_outside: AtomicU64,
    /// Tasks put anywhere, where the policy may keep workers from them (`Shared::HOLDS_BACK`).
    pub(crate) placements: AtomicU64,
    pub(crate) recorder: Recorder,
    pub(crate) idle_hook: IdleHook,
    /// The runtime's name, if it has one.
    pub(crate) name: Option<Box<str>>,
    /// Kernel threads that were started, and those that have ended; the ticker included.
    pub(crate) started: AtomicU32,
    pub(crate) ended: AtomicU32,
    pub(crate) ending: Ending,
    /// A [`Phase`].
    phase: AtomicU32,
    next_cpu: AtomicUsize,
    pub(crate) draws: Draws,
    liveness: OnceLock<&'static Liveness>,
}

impl Core {
    pub(crate) fn new(
        name: Option<Box<str>>,
        topology: Vec<CpuInfo>,
        mechanism: Mechanism,
        quantum: Option<Ns>,
        stack_class: u8,
        has_dispatcher: bool,
    ) -> std::io::Result<Core> {
        let cpu = || Cpu { server: AtomicPtr::new(ptr::null_mut()), mailbox: AtomicUsize::new(0) };
        Ok(Core {
            cpus: topology.iter().map(|_| cpu()).collect(),
            parking: Parking::new(topology.len(), has_dispatcher),
            timers: Timers::new(topology.len()),
            poller: Poller::new()?,
            notes: Mutex::new(Notes::new(topology.len())),
            mechanism,
            quantum,
            stack_class,
            workers: AllWorkers::default(),
            spares: Mutex::default(),
            retired: Mutex::default(),
            promptness: Promptness::of_caller(),
            topology: topology.into(),
            has_dispatcher,
            ticker: TickerStats::default(),
            inputs_watched: AtomicBool::new(false),
            spawned_outside: AtomicU64::new(0),
            placements: AtomicU64::new(0),
            recorder: Recorder::default(),
            idle_hook: IdleHook::default(),
            name,
            started: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            ending: Ending::default(),
            phase: AtomicU32::new(Phase::Runs as u32),
            next_cpu: AtomicUsize::new(0),
            draws: Draws::default(),
            liveness: OnceLock::new(),
        })
    }

    /// Tells the core of which runtime it is part; once, before any worker starts.
    pub(crate) fn set_liveness(&self, liveness: &'static Liveness) {
        let _ = self.liveness.set(liveness);
    }

    /// The scheduler of which this is part.
    fn this(&self) -> &'static dyn Scheduler {
        // SAFETY: whoever uses the core may use the scheduler.
        unsafe { self.liveness().sched() }
    }

    /// Who owns the runtime, and whether it still exists.
    pub(crate) fn liveness(&self) -> &'static Liveness {
        self.liveness.get().expect("set before any worker starts")
    }

    /// Whether `worker` belongs to this runtime.
    #[inline]
    pub(crate) fn owns(&self, worker: &Worker) -> bool {
        ptr::eq(worker.core, self)
    }

    /// CPUs in turn, for tasks that come from outside.
    pub(crate) fn next_cpu(&self) -> usize {
        self.next_cpu.fetch_add(1, Ordering::Relaxed) % self.cpus.len()
    }

    /// The name of a thread of the runtime: as much of the runtime's as fits, for the kernel keeps 15 bytes.
    pub(crate) fn thread_name(&self, what: impl Display) -> Name {
        let what = Name::of(what);
        let Some(name) = &self.name else { return Name::of(format_args!("heddle-{what}")) };
        let room = 15usize.saturating_sub("heddle--".len() + what.as_str().len());
        let fits = |&end: &usize| end <= room && name.is_char_boundary(end);
        let end = (0..=name.len()).rev().find(fits).unwrap_or(0);
        Name::of(format_args!("heddle-{}-{what}", &name[..end]))
    }

    /// Workers that wait for a CPU.
    pub(crate) fn spares(&self) -> MutexGuard<'_, Reserve> {
        self.spares.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Workers whose threads have ended.
    pub(crate) fn retired(&self) -> MutexGuard<'_, Reserve> {
        self.retired.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// No new work is waited for: workers end once nothing is queued.
    pub(crate) fn is_stopping(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= Phase::Drains as u32
    }

    /// Workers end at their next scheduling point, whatever is queued.
    pub(crate) fn is_over(&self) -> bool {
        self.phase.load(Ordering::Acquire) == Phase::Over as u32
    }

    /// Lets tasks that can run come to where they wait or end, and ends the workers.
    pub(crate) fn drain(&self) {
        self.phase.store(Phase::Drains as u32, Ordering::SeqCst);
        for cpu in 0..self.cpus.len() {
            self.notify(cpu);
        }
        let mut spares = self.spares();
        while let Some(spare) = spares.pop() {
            spare.spare_word.store(1, Ordering::Release);
            futex::wake(&spare.spare_word, 1);
        }
        drop(spares);
        self.unpark_dispatcher();
        self.unpark_ticker();
    }

    /// Takes the CPUs from the workers: those that come to a scheduling point end. A task that computes is preempted, if the
    /// runtime has a mechanism.
    pub(crate) fn end_workers(&self) {
        self.phase.store(Phase::Over as u32, Ordering::SeqCst);
        for worker in self.cpus.iter().filter_map(Cpu::server) {
            worker.attached.store(false, Ordering::Release);
            self.mechanism.send(worker);
        }
        self.unpark_dispatcher();
        self.unpark_ticker();
    }

    /// Waits until all threads have ended, for at most `limit`; whether they have.
    pub(crate) fn await_threads(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let ended = self.ended.load(Ordering::Acquire);
            if ended >= self.started.load(Ordering::Acquire) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            futex::wait(&self.ended, ended, Some(left.into()));
        }
    }

    /// Whether a worker is at a task, on its CPU or in the kernel.
    pub(crate) fn runs_task(&self) -> bool {
        self.workers.iter().any(|worker| !worker.current.load(Ordering::Relaxed).is_null())
    }

    /// Tasks that were made and have not ended.
    pub(crate) fn unended(&self) -> usize {
        let stats = || self.workers.iter().map(|worker| &worker.stats);
        // In this order: what has ended was made before.
        let exited: u64 = stats().map(|stats| stats.exited.get()).sum();
        let spawned: u64 = stats().map(|stats| stats.spawned.get()).sum();
        (self.spawned_outside.load(Ordering::Relaxed) + spawned).saturating_sub(exited) as usize
    }

    /// Whether sockets or timers may bring work.
    #[inline]
    pub(crate) fn has_inputs(&self) -> bool {
        self.poller.is_active() || self.timers.next() != Ns::MAX
    }

    /// Wakes tasks whose time or data has come, waiting for data up to `timeout`; whether there were any.
    pub(crate) fn take_inputs(&self, timeout: Option<Ns>) -> bool {
        let mut woken = self.fire_timers();
        if self.poller.is_active() || timeout != Some(Ns::ZERO) {
            woken |= self.poller.poll(timeout).is_some_and(|reports| reports > 0);
            woken |= self.fire_timers();
        }
        woken
    }

    fn fire_timers(&self) -> bool {
        if self.timers.next() == Ns::MAX {
            return false;
        }
        let now = clock::now();
        let mut any = false;
        while let Some(task) = self.timers.pop_due(now) {
            wake(task);
            any = true;
        }
        any
    }

    /// A kernel thread of the runtime ends.
    pub(crate) fn thread_ended(&self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
        futex::wake(&self.ended, u32::MAX >> 1);
    }

    /// Puts another worker in charge of the CPU of `worker`, which has been detached.
    pub(crate) fn hand_over(&self, worker: &'static Remote) {
        let cpu = worker.cpu();
        let spare = self.spares().pop();
        match spare {
            Some(spare) => {
                spare.cpu.store(cpu as u32, Ordering::Relaxed);
                self.attach(spare);
                spare.spare_word.store(1, Ordering::Release);
                futex::wake(&spare.spare_word, 1);
            }
            // No thread to be had: better late than never.
            None if crate::threads::start_worker(self.this(), cpu).is_err() => {
                self.attach(worker);
                worker.alarm.recalled();
            }
            None => {}
        }
    }

    /// Takes `worker` from the spares if there are more than CPUs; false if it stays, or has got a CPU.
    pub(crate) fn leave_spares(&self, worker: &Remote) -> bool {
        let mut spares = self.spares();
        spares.len() > self.cpus.len() && spares.remove(worker)
    }

    /// Keeps a worker whose thread ends for the next thread.
    pub(crate) fn retire(&self, owner: Owner) {
        self.retired().push(owner.remote());
    }

    /// A worker whose thread has ended, for `cpu`.
    pub(crate) fn take_retired(&self, cpu: usize) -> Option<Owner> {
        let worker = self.retired().pop()?;
        worker.cpu.store(cpu as u32, Ordering::Relaxed);
        // SAFETY: `retire` put it there, and took its owner.
        Some(unsafe { Owner::again(worker) })
    }

    /// Makes `worker` the server of its CPU.
    pub(crate) fn attach(&self, worker: &'static Remote) {
        worker.attached.store(true, Ordering::Release);
        self.cpus[worker.cpu()].server.store(ptr::from_ref(worker).cast_mut(), Ordering::Release);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let mut workers = self.workers.iter();
        let mut next = workers.next();
        while let Some(worker) = next {
            next = workers.next();
            // SAFETY: its thread has ended, and nobody else reaches it but through this core, which has gone on to the next.
            unsafe { Worker::free(worker) };
        }
    }
}

/// Wakes `task`, wherever it belongs. Preemption is off.
#[inline]
pub(crate) fn wake(task: TaskRef) {
    if task.get().wake.wake() {
        // A task of a runtime that was dropped never runs again.
        liveness::reach(task.get(), |sched| sched.enqueue_woken(task));
    }
}
