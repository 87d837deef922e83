//! The parts of a runtime that do not depend on its policy: CPUs, sleepers, inputs, spare threads.

use crate::poller::Poller;
use crate::preempt::Mechanism;
use crate::sched::Scheduler;
use crate::stats::TickerStats;
use crate::task::TaskRef;
use crate::timers::Timers;
use crate::worker::Worker;
use heddle_core::{CpuInfo, Model, Ns};
use heddle_sys::clock;
use heddle_sys::futex;
use heddle_sys::sync::IdleSet;
use std::ptr;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// How a worker without work sleeps (`Worker::bed`).
const AWAKE: u32 = 0;
const IN_FUTEX: u32 = 1;
const IN_POLL: u32 = 2;
const CALLED: u32 = 3;

/// One CPU of the runtime.
#[repr(align(128))]
pub(crate) struct Cpu {
    server: AtomicPtr<Worker>,
    /// The task that the dispatcher, if there is one, has left for it: its address.
    pub(crate) mailbox: AtomicUsize,
}

impl Cpu {
    /// Who serves it.
    #[inline]
    pub(crate) fn server(&self) -> Option<&'static Worker> {
        // SAFETY: null or a worker, and workers live for ever.
        unsafe { self.server.load(Ordering::Acquire).as_ref() }
    }
}

/// See the module.
pub(crate) struct Core {
    pub(crate) cpus: Box<[Cpu]>,
    pub(crate) topology: Box<[CpuInfo]>,
    pub(crate) idle: IdleSet,
    pub(crate) timers: Timers,
    pub(crate) poller: Poller,
    pub(crate) mechanism: Mechanism,
    /// Bytes of a task's stack where it does not say.
    pub(crate) stack_class: u8,
    /// Every worker ever made, and those that wait for a CPU.
    pub(crate) workers: Mutex<Vec<&'static Worker>>,
    pub(crate) spares: Mutex<Vec<&'static Worker>>,
    /// Tasks are handed out by a dispatcher, not taken from the queue by workers.
    pub(crate) has_dispatcher: bool,
    dispatcher_bed: AtomicU32,
    pub(crate) ticker: TickerStats,
    pub(crate) ticker_bed: AtomicU32,
    pub(crate) spawned_outside: AtomicU64,
    /// Kernel threads that were started, and those that have ended; the ticker included.
    pub(crate) threads_started: AtomicU32,
    pub(crate) ended: AtomicU32,
    /// When the runtime is over, once it stops; zero before.
    stop_by: AtomicU64,
    next_cpu: AtomicUsize,
    this: OnceLock<&'static dyn Scheduler>,
}

/// Where a task was put.
pub(crate) struct Placed {
    pub(crate) cpu: usize,
    /// The CPU is the caller's own.
    pub(crate) local: bool,
    /// The policy wants the running task off that CPU.
    pub(crate) preempt: bool,
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
            topology: topology.into(),
            idle: IdleSet::default(),
            timers: Timers::default(),
            poller: Poller::new()?,
            mechanism,
            stack_class,
            workers: Mutex::default(),
            spares: Mutex::default(),
            has_dispatcher,
            dispatcher_bed: AtomicU32::new(AWAKE),
            ticker: TickerStats::default(),
            ticker_bed: AtomicU32::new(AWAKE),
            spawned_outside: AtomicU64::new(0),
            threads_started: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            stop_by: AtomicU64::new(0),
            next_cpu: AtomicUsize::new(0),
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
            self.idle.unmark(cpu);
            self.call(cpu);
        }
        for spare in self.spares.lock().unwrap_or_else(|e| e.into_inner()).drain(..) {
            spare.spare_word.store(1, Ordering::Release);
            futex::wake(&spare.spare_word, 1);
        }
        self.kick_dispatcher();
        self.wake_ticker();
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

    /// A task was put somewhere: wakes a sleeper that should run it.
    #[inline]
    pub(crate) fn kick(&self, placed: Placed, model: Model, work_conserving: bool) {
        if self.has_dispatcher {
            return self.kick_dispatcher();
        }
        // Its only worker is awake: it is the caller's.
        if self.cpus.len() == 1 && placed.local {
            return;
        }
        fence(Ordering::SeqCst);
        if model == Model::PerCpu && !placed.local && self.idle.unmark(placed.cpu) {
            return self.call(placed.cpu);
        }
        if (model == Model::Central || work_conserving) && self.wake_any() {
            return;
        }
        if placed.preempt && !placed.local {
            self.cpus[placed.cpu].server().map(|worker| self.mechanism.send(worker));
        }
    }

    /// Wakes one sleeper, if there is one.
    pub(crate) fn wake_any(&self) -> bool {
        let sleeper = self.idle.take_any();
        sleeper.map(|cpu| self.call(cpu)).is_some()
    }

    /// Wakes the worker of `cpu`, which the caller took out of the idle set.
    pub(crate) fn call(&self, cpu: usize) {
        let Some(bed) = self.cpus[cpu].server().map(|w| &w.bed) else { return };
        match bed.swap(CALLED, Ordering::AcqRel) {
            IN_FUTEX => futex::wake(bed, 1),
            IN_POLL => self.poller.ring(),
            _ => {}
        }
    }

    /// A worker's loop has nothing to do: sleeps until somebody wakes it, data or a timer comes.
    pub(crate) fn rest(&self, worker: &Worker, has_work: impl Fn() -> bool) {
        let cpu = worker.cpu();
        for _ in 0..SPINS {
            if has_work() {
                return;
            }
            std::hint::spin_loop();
        }
        self.idle.mark(cpu);
        if self.has_dispatcher {
            self.kick_dispatcher();
        }
        if !(has_work() && self.idle.unmark(cpu)) {
            worker.stats.sleeps.add(1);
            self.sleep(worker);
            self.idle.unmark(cpu);
        }
        worker.bed.store(AWAKE, Ordering::Release);
        // More work than one worker takes at once, or nobody left who polls: wake the next. Not if there is no work: then
        // this one polls again, and two would wake each other for ever.
        if self.cpus.len() > 1 && !self.has_dispatcher && has_work() {
            self.wake_any();
        }
        // The ticker announces its sleep before it looks at the idle set; here the other way round.
        fence(Ordering::SeqCst);
        if self.ticker_bed.load(Ordering::Relaxed) == IN_FUTEX {
            self.wake_ticker();
        }
    }

    fn sleep(&self, worker: &Worker) {
        let bed = &worker.bed;
        if self.has_dispatcher {
            return self.doze(bed, AWAKE);
        }
        let timeout =
            || Some(self.timers.next()).filter(|&n| n != Ns::MAX).map(|n| n - clock::now());
        // Called already, or done polling: up again. Where somebody else polls, for all, a futex will do.
        let lain = bed.compare_exchange(AWAKE, IN_POLL, Ordering::AcqRel, Ordering::Acquire);
        while lain.is_ok() && bed.load(Ordering::Acquire) == IN_POLL && !self.poller.attend(timeout)
        {
            if self.poller.is_attended() {
                return self.doze(bed, IN_POLL);
            }
            // Whoever holds the poller only has a look, and will not call us when something comes.
            std::thread::yield_now();
        }
    }

    /// Sleeps in a futex until called, unless the bed is no longer `from`.
    fn doze(&self, bed: &AtomicU32, from: u32) {
        if bed.compare_exchange(from, IN_FUTEX, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            while bed.load(Ordering::Acquire) == IN_FUTEX {
                futex::wait(bed, IN_FUTEX, None);
            }
        }
    }

    /// Wakes the dispatcher if it sleeps. The caller has changed what it looks at.
    fn kick_dispatcher(&self) {
        fence(Ordering::SeqCst);
        if self.dispatcher_bed.load(Ordering::Relaxed) == IN_POLL {
            self.poller.ring();
        }
    }

    /// The dispatcher sleeps until a task queues, a worker waits, data or a timer comes; not at all if something is `due`.
    pub(crate) fn dispatcher_rest(&self, due: impl Fn() -> bool) {
        self.dispatcher_bed.swap(IN_POLL, Ordering::SeqCst);
        if !due() {
            let next = self.timers.next();
            self.take_inputs(Some((next - clock::now()).min(Ns::from_secs(3600))));
        }
        self.dispatcher_bed.store(AWAKE, Ordering::Release);
    }

    /// A kernel thread of the runtime ends.
    pub(crate) fn thread_ended(&self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
        futex::wake(&self.ended, u32::MAX >> 1);
    }

    /// A timer was set that is the earliest: the worker that sleeps in the poll sleeps too long. If none does, one that
    /// sleeps elsewhere has to.
    pub(crate) fn earlier_timer(&self) {
        fence(Ordering::SeqCst);
        if self.has_dispatcher {
            return self.kick_dispatcher();
        }
        if self.poller.is_attended() {
            self.poller.ring();
        } else {
            self.wake_any();
        }
    }

    /// A descriptor was registered: a sleeper has to poll, if there is one and none does.
    pub(crate) fn new_source(&self) {
        fence(Ordering::SeqCst);
        if !self.has_dispatcher && !self.poller.is_attended() {
            self.wake_any();
        }
    }

    /// Puts another worker in charge of the CPU of `worker`, which has been detached.
    pub(crate) fn hand_over(&self, worker: &'static Worker) {
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
    pub(crate) fn attach(&self, worker: &'static Worker) {
        worker.attached.store(true, Ordering::Release);
        self.cpus[worker.cpu()].server.store(ptr::from_ref(worker).cast_mut(), Ordering::Release);
    }

    fn wake_ticker(&self) {
        if self.ticker_bed.swap(AWAKE, Ordering::AcqRel) == IN_FUTEX {
            futex::wake(&self.ticker_bed, 1);
        }
    }

    /// The ticker sleeps until a worker wakes up; not at all if one is awake.
    pub(crate) fn ticker_sleep(&self) {
        self.ticker_bed.swap(IN_FUTEX, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.is_stopping() || (0..self.cpus.len()).any(|cpu| !self.idle.contains(cpu)) {
            self.ticker_bed.store(AWAKE, Ordering::Release);
        }
        while self.ticker_bed.load(Ordering::Acquire) == IN_FUTEX {
            futex::wait(&self.ticker_bed, IN_FUTEX, None);
        }
    }
}

/// Looks at the queues before a worker lies down: about 2 us.
const SPINS: u32 = 50;

/// Wakes `task`, wherever it belongs. Preemption is off.
#[inline]
pub(crate) fn wake(task: TaskRef) {
    if task.get().wake.wake() {
        task.get().sched().enqueue_woken(task);
    }
}
