//! The parts of a runtime that do not depend on its policy: CPUs, inputs, spare threads. Which of its threads park is in `park`.

use crate::idle_hook::IdleHook;
use crate::poller::Poller;
use crate::preempt::Mechanism;
use crate::sched::Scheduler;
use crate::stats::TickerStats;
use crate::task::TaskRef;
use crate::timers::Timers;
use crate::trace::Recorder;
use crate::worker::{Remote, Worker};
use heddle_core::{CpuInfo, Ns};
use heddle_sys::clock;
use heddle_sys::futex;
use heddle_sys::sync::park::Parking;
use std::ptr;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

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
        // SAFETY: null or a worker, and workers live for ever.
        unsafe { self.server.load(Ordering::Acquire).as_ref() }
    }
}

/// See the module.
pub(crate) struct Core {
    pub(crate) cpus: Box<[Cpu]>,
    pub(crate) topology: Box<[CpuInfo]>,
    pub(crate) parking: Parking,
    pub(crate) timers: Timers,
    pub(crate) poller: Poller,
    pub(crate) mechanism: Mechanism,
    /// Bytes of a task's stack where it does not say.
    pub(crate) stack_class: u8,
    /// Every worker ever made, and those that wait for a CPU.
    pub(crate) workers: Mutex<Vec<&'static Remote>>,
    pub(crate) spares: Mutex<Vec<&'static Remote>>,
    /// Tasks are handed out by a dispatcher, not taken from the queue by workers.
    pub(crate) has_dispatcher: bool,
    pub(crate) ticker: TickerStats,
    pub(crate) spawned_outside: AtomicU64,
    /// Tasks put anywhere, where the policy may keep workers from them (`Shared::HOLDS_BACK`).
    pub(crate) placements: AtomicU64,
    pub(crate) recorder: Recorder,
    pub(crate) idle_hook: IdleHook,
    /// Kernel threads that were started, and those that have ended; the ticker included.
    pub(crate) threads_started: AtomicU32,
    pub(crate) ended: AtomicU32,
    /// When the runtime is over, once it stops; zero before.
    stop_by: AtomicU64,
    next_cpu: AtomicUsize,
    next_seed: AtomicU64,
    this: OnceLock<&'static dyn Scheduler>,
}

impl Core {
    pub(crate) fn new(
        topology: Vec<CpuInfo>,
        mechanism: Mechanism,
        stack_class: u8,
        has_dispatcher: bool,
    ) -> std::io::Result<Core> {
        let cpu = || Cpu { server: AtomicPtr::new(ptr::null_mut()), mailbox: AtomicUsize::new(0) };
        Ok(Core {
            cpus: topology.iter().map(|_| cpu()).collect(),
            parking: Parking::new(topology.len(), has_dispatcher),
            topology: topology.into(),
            timers: Timers::default(),
            poller: Poller::new()?,
            mechanism,
            stack_class,
            workers: Mutex::default(),
            spares: Mutex::default(),
            has_dispatcher,
            ticker: TickerStats::default(),
            spawned_outside: AtomicU64::new(0),
            placements: AtomicU64::new(0),
            recorder: Recorder::default(),
            idle_hook: IdleHook::default(),
            threads_started: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            stop_by: AtomicU64::new(0),
            next_cpu: AtomicUsize::new(0),
            next_seed: AtomicU64::new(0),
            this: OnceLock::new(),
        })
    }

    /// Tells the core which scheduler it is part of; once, before any worker starts.
    pub(crate) fn set_this(&self, this: &'static dyn Scheduler) {
        let _ = self.this.set(this);
    }

    pub(crate) fn this(&self) -> &'static dyn Scheduler {
        *self.this.get().expect("set before any worker starts")
    }

    /// Whether `worker` belongs to this runtime.
    #[inline]
    pub(crate) fn owns(&self, worker: &Worker) -> bool {
        ptr::eq(worker.core, self)
    }

    /// A seed for the choices of one call from outside: a new one each time.
    pub(crate) fn next_seed(&self) -> u64 {
        self.next_seed.fetch_add(1, Ordering::Relaxed)
    }

    /// CPUs in turn, for tasks that come from outside.
    pub(crate) fn next_cpu(&self) -> usize {
        self.next_cpu.fetch_add(1, Ordering::Relaxed) % self.cpus.len()
    }

    /// No new work is waited for: workers end once nothing is queued.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop_by.load(Ordering::Acquire) != 0
    }

    /// Workers end at their next scheduling point, whatever is queued.
    pub(crate) fn is_over(&self) -> bool {
        let by = self.stop_by.load(Ordering::Acquire);
        by != 0 && clock::now().0 >= by
    }

    /// Lets tasks that can run come to where they wait or end, until `by`, and ends the workers.
    pub(crate) fn stop(&self, by: Ns) {
        self.stop_by.store(by.0, Ordering::SeqCst);
        for cpu in 0..self.cpus.len() {
            self.notify(cpu);
        }
        for spare in self.spares.lock().unwrap_or_else(|e| e.into_inner()).drain(..) {
            spare.spare_word.store(1, Ordering::Release);
            futex::wake(&spare.spare_word, 1);
        }
        self.unpark_dispatcher();
        self.unpark_ticker();
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
        let spare = self.spares.lock().unwrap_or_else(|e| e.into_inner()).pop();
        match spare {
            Some(spare) => {
                spare.cpu.store(cpu as u32, Ordering::Relaxed);
                self.attach(spare);
                spare.spare_word.store(1, Ordering::Release);
                futex::wake(&spare.spare_word, 1);
            }
            // No thread to be had: better late than never.
            None if crate::threads::start_worker(self.this(), cpu).is_err() => self.attach(worker),
            None => {}
        }
    }

    /// Makes `worker` the server of its CPU.
    pub(crate) fn attach(&self, worker: &'static Remote) {
        worker.attached.store(true, Ordering::Release);
        self.cpus[worker.cpu()].server.store(ptr::from_ref(worker).cast_mut(), Ordering::Release);
    }
}

/// Wakes `task`, wherever it belongs. Preemption is off.
#[inline]
pub(crate) fn wake(task: TaskRef) {
    if task.get().wake.wake() {
        task.get().sched().enqueue_woken(task);
    }
}
