//! The parts of a runtime that do not depend on its policy, each narrow: what is fixed from the start ([`Settings`]),
//! CPUs and the workers that serve them ([`Cpu`], [`Servers`]), sockets and timers ([`Inputs`]), how it ends
//! ([`Lifecycle`]), who parks (`park`).
//!
//! Everything here is shared by all threads. What belongs to one thread lies elsewhere: a worker's own state in
//! [`Worker`], the ticker's in [`Watches`].

mod inputs;
mod lifecycle;
mod park;
mod servers;

pub(crate) use inputs::Inputs;
pub(crate) use lifecycle::Lifecycle;
pub(crate) use park::Placed;
pub(crate) use servers::{Cpu, Servers};

use crate::draws::Draws;
use crate::idle_hook::IdleHook;
use crate::kernel_thread::Name;
use crate::preempt::Mechanism;
use crate::stats::TickerStats;
use crate::task::Liveness;
use crate::trace::Recorder;
use crate::watches::Watches;
use crate::worker::Worker;
use heddle_core::{CpuInfo, Ns};
use heddle_sync::park::Parking;
use heddle_sys::futex;
use heddle_sys::thread::Promptness;
use std::fmt::Display;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

/// What is fixed from the start.
pub(crate) struct Settings {
    /// The runtime's name, if it has one.
    pub(crate) name: Option<Box<str>>,
    /// The CPUs that have a worker.
    pub(crate) topology: Box<[CpuInfo]>,
    pub(crate) mechanism: Mechanism,
    /// The shortest time after which a running task is looked at, if tasks are preempted.
    pub(crate) quantum: Option<Ns>,
    /// Class of a stack whose size is not specified.
    pub(crate) stack_class: u8,
    /// Tasks are handed out by a dispatcher, not taken from the queue by workers.
    pub(crate) has_dispatcher: bool,
}

/// See the module.
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) cpus: Box<[Cpu]>,
    pub(crate) servers: Servers,
    pub(crate) inputs: Inputs,
    pub(crate) parking: Parking,
    pub(crate) lifecycle: Lifecycle,
    /// How soon the kernel runs a worker that wakes.
    pub(crate) promptness: Promptness,
    pub(crate) ticker: TickerStats,
    /// The ticker's own, for as long as it runs.
    pub(crate) watches: Mutex<Watches>,
    pub(crate) spawned_outside: AtomicU64,
    /// How often a task was put anywhere, if the policy may keep workers from tasks (`Shared::HOLDS_BACK`).
    pub(crate) placements: AtomicU64,
    pub(crate) recorder: Recorder,
    pub(crate) idle_hook: IdleHook,
    next_cpu: AtomicUsize,
    pub(crate) draws: Draws,
    liveness: OnceLock<&'static Liveness>,
}

impl Core {
    /// # Errors
    /// The system's: no descriptor for the poller.
    pub(crate) fn new(settings: Settings) -> std::io::Result<Core> {
        let cpus = settings.topology.len();
        Ok(Core {
            cpus: (0..cpus).map(|_| Cpu::default()).collect(),
            servers: Servers::default(),
            inputs: Inputs::new(cpus)?,
            parking: Parking::new(cpus, settings.has_dispatcher),
            lifecycle: Lifecycle::default(),
            promptness: Promptness::of_caller(),
            ticker: TickerStats::default(),
            watches: Mutex::new(Watches::new(cpus)),
            spawned_outside: AtomicU64::new(0),
            placements: AtomicU64::new(0),
            recorder: Recorder::default(),
            idle_hook: IdleHook::default(),
            next_cpu: AtomicUsize::new(0),
            draws: Draws::default(),
            liveness: OnceLock::new(),
            settings,
        })
    }

    /// Tells the core which runtime it belongs to; once, before any worker starts.
    pub(crate) fn set_liveness(&self, liveness: &'static Liveness) {
        let _ = self.liveness.set(liveness);
    }

    /// Whether the runtime still exists.
    pub(crate) fn liveness(&self) -> &'static Liveness {
        self.liveness.get().expect("set before any worker starts")
    }

    /// What the workers of this runtime know it by.
    pub(crate) fn identity(&self) -> *const () {
        ptr::from_ref(self).cast()
    }

    /// Whether `worker` belongs to this runtime.
    #[inline]
    pub(crate) fn owns(&self, worker: &Worker) -> bool {
        ptr::eq(worker.runtime, self.identity())
    }

    /// CPUs in turn, for tasks that come from outside.
    pub(crate) fn next_cpu(&self) -> usize {
        self.next_cpu.fetch_add(1, Ordering::Relaxed) % self.cpus.len()
    }

    /// The name of a thread of the runtime. The kernel keeps 15 bytes, so the runtime's own name is cut to what fits.
    pub(crate) fn thread_name(&self, thread: impl Display) -> Name {
        let thread = Name::of(thread);
        let Some(name) = &self.settings.name else {
            return Name::of(format_args!("heddle-{thread}"));
        };
        let room = 15usize.saturating_sub("heddle--".len() + thread.as_str().len());
        let fits = |&end: &usize| end <= room && name.is_char_boundary(end);
        let end = (0..=name.len()).rev().find(fits).unwrap_or(0);
        Name::of(format_args!("heddle-{}-{thread}", &name[..end]))
    }

    /// Whether workers are to end, now or once nothing is queued; see [`Lifecycle`].
    pub(crate) fn is_stopping(&self) -> bool {
        self.lifecycle.is_stopping()
    }

    /// Whether workers are to end at their next scheduling point, whatever is queued.
    pub(crate) fn is_over(&self) -> bool {
        self.lifecycle.is_over()
    }

    /// Lets runnable tasks run until they wait or end, and ends the workers.
    pub(crate) fn drain(&self) {
        self.lifecycle.begin_draining();
        for cpu in 0..self.cpus.len() {
            self.notify(cpu);
        }
        let mut spares = self.servers.spares();
        while let Some(spare) = spares.pop() {
            spare.spare_word.store(1, Ordering::Release);
            futex::wake(&spare.spare_word, 1);
        }
        drop(spares);
        self.unpark_dispatcher();
        self.unpark_ticker();
    }

    /// Takes the CPUs from the workers: those that reach a scheduling point end. A task that computes is preempted,
    /// if the runtime has a mechanism.
    pub(crate) fn end_workers(&self) {
        self.lifecycle.end();
        for worker in self.cpus.iter().filter_map(Cpu::server) {
            worker.attached.store(false, Ordering::Release);
            self.settings.mechanism.send(worker);
        }
        self.unpark_dispatcher();
        self.unpark_ticker();
    }

    /// How many tasks were created and have not ended.
    pub(crate) fn unended(&self) -> usize {
        let stats = || self.servers.all.iter().map(|worker| &worker.stats);
        // In this order: what has ended was created before.
        let exited: u64 = stats().map(|stats| stats.exited.get()).sum();
        let spawned: u64 = stats().map(|stats| stats.spawned.get()).sum();
        (self.spawned_outside.load(Ordering::Relaxed) + spawned).saturating_sub(exited) as usize
    }

    /// The task of `worker`, the caller's, has used up its quantum, and nothing else wants the CPU.
    pub(crate) fn nothing_waits(&self, worker: &Worker) {
        worker.stats.skipped.add(1);
        let Some(quantum) = self.settings.quantum else { return worker.look_no_more() };
        // Some thread must look after sockets and timers: the ticker will within a millisecond.
        let others_look = self.settings.has_dispatcher || self.inputs.are_watched();
        worker.quantum_is_over(quantum, !others_look && self.inputs.exist());
    }
}
