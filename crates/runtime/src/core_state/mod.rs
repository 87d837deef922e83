//! The policy-independent parts of a runtime, each with a narrow job: settings fixed at the start ([`Settings`]), CPUs
//! and the workers that serve them ([`Cpu`], [`Servers`]), sockets and timers ([`Inputs`]), shutdown ([`Lifecycle`]),
//! parking (`park`).
//!
//! All threads share everything here. State that belongs to one thread lies elsewhere: a worker's in [`Worker`], the
//! ticker's in [`Watches`].

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
use crate::share::Share;
use crate::task::Liveness;
use crate::telemetry::Telemetry;
use crate::watches::Watches;
use crate::worker::Worker;
use heddle_core::{CpuInfo, Ns};
use heddle_sync::park::Parking;
use heddle_sys::thread::Promptness;
use heddle_sys::{clock, futex};
use std::fmt::Display;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

/// Settings fixed at the start.
pub(crate) struct Settings {
    /// The runtime's name, if it has one.
    pub(crate) name: Option<Box<str>>,
    /// The CPUs that have a worker.
    pub(crate) topology: Box<[CpuInfo]>,
    pub(crate) mechanism: Mechanism,
    /// The shortest time after which a running task is checked, if tasks are preempted.
    pub(crate) quantum: Option<Ns>,
    /// The longest turn while others wait, if the policy has no quantum: the ticker sees to it.
    pub(crate) slice: Option<Ns>,
    /// Stack class of tasks that specify no size.
    pub(crate) stack_class: u8,
    /// How many polls of futures may hold a stack because they were preempted.
    pub(crate) max_preempted_polls: u32,
    /// A dispatcher hands out tasks; workers do not take them from the queue.
    pub(crate) has_dispatcher: bool,
    /// Its CPUs are shared with other programs.
    pub(crate) share: Option<Share>,
}

/// See the module.
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) cpus: Box<[Cpu]>,
    pub(crate) servers: Servers,
    pub(crate) inputs: Inputs,
    pub(crate) parking: Parking,
    pub(crate) lifecycle: Lifecycle,
    /// Controls how soon the kernel runs a woken worker.
    pub(crate) promptness: Promptness,
    /// 1 once the ticker runs as it is meant to.
    pub(crate) ticker_runs: AtomicU32,
    /// Owned by the ticker while it runs.
    pub(crate) watches: Mutex<Watches>,
    /// Polls of futures that have been preempted and not returned.
    pub(crate) preempted_polls: AtomicU32,
    /// Number of placements so far, counted if the policy may hold workers back from tasks (`Shared::HOLDS_BACK`).
    pub(crate) placements: AtomicU64,
    pub(crate) idle_hook: IdleHook,
    next_cpu: AtomicUsize,
    pub(crate) draws: Draws,
    liveness: OnceLock<&'static Liveness>,
    /// Last: workers count there.
    pub(crate) telemetry: Telemetry,
}

impl Core {
    pub(crate) fn new(settings: Settings, inputs: Inputs, telemetry: Telemetry) -> Core {
        let cpus = settings.topology.len();
        Core {
            cpus: (0..cpus).map(|_| Cpu::default()).collect(),
            servers: Servers::default(),
            inputs,
            parking: Parking::new(cpus, settings.has_dispatcher),
            lifecycle: Lifecycle::default(),
            promptness: Promptness::of_caller(),
            ticker_runs: AtomicU32::new(0),
            watches: Mutex::new(Watches::new(cpus)),
            preempted_polls: AtomicU32::new(0),
            placements: AtomicU64::new(0),
            idle_hook: IdleHook::default(),
            next_cpu: AtomicUsize::new(0),
            draws: Draws::default(),
            liveness: OnceLock::new(),
            settings,
            telemetry,
        }
    }

    /// Sets the runtime that the core belongs to; called once, before any worker starts.
    pub(crate) fn set_liveness(&self, liveness: &'static Liveness) {
        let _ = self.liveness.set(liveness);
    }

    /// Returns the handle that tells whether the runtime still exists.
    pub(crate) fn liveness(&self) -> &'static Liveness {
        self.liveness.get().expect("set before any worker starts")
    }

    /// Returns the identity by which workers recognise this runtime.
    pub(crate) fn identity(&self) -> *const () {
        ptr::from_ref(self).cast()
    }

    /// Returns whether `worker` belongs to this runtime.
    #[inline]
    pub(crate) fn owns(&self, worker: &Worker) -> bool {
        ptr::eq(worker.runtime, self.identity())
    }

    /// Returns the CPUs round-robin, for tasks from outside.
    pub(crate) fn next_cpu(&self) -> usize {
        self.next_cpu.fetch_add(1, Ordering::Relaxed) % self.cpus.len()
    }

    /// Returns the name of a runtime thread. The kernel keeps 15 bytes, so the runtime's own name is truncated to fit.
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

    /// Returns whether workers are to end, now or once nothing is queued; see [`Lifecycle`].
    pub(crate) fn is_stopping(&self) -> bool {
        self.lifecycle.is_stopping()
    }

    /// Returns whether workers are to end at their next scheduling point, whatever is queued.
    pub(crate) fn is_over(&self) -> bool {
        self.lifecycle.is_over()
    }

    /// Runs runnable tasks until they block or end, then ends the workers.
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

    /// Ends each worker at its next scheduling point. A task that computes is preempted if the runtime has a mechanism.
    pub(crate) fn end_workers(&self) {
        self.lifecycle.end();
        for worker in self.cpus.iter().filter_map(Cpu::server) {
            worker.attached.store(false, Ordering::Release);
            self.settings.mechanism.send(worker);
        }
        self.unpark_dispatcher();
        self.unpark_ticker();
    }

    /// Returns the number of tasks created but not yet ended.
    pub(crate) fn unended(&self) -> usize {
        let stats = || self.servers.all.iter().map(|worker| &worker.stats);
        // Order matters: a task that has ended was created before.
        let exited: u64 = stats().map(|stats| stats.exited.get()).sum();
        let spawned: u64 = stats().map(|stats| stats.spawned.get()).sum();
        (self.telemetry.others().spawned.get() + spawned).saturating_sub(exited) as usize
    }

    /// Returns how long a task may run that has `limit` if nothing is enqueued: no longer than until it must look after
    /// sockets and timers, which it does after each `quantum` unless others do.
    pub(crate) fn late(&self, limit: Ns, quantum: Ns) -> Ns {
        if self.settings.has_dispatcher || !self.inputs.exist() {
            return limit;
        }
        match self.inputs.are_watched() {
            true => limit.min((self.inputs.next_timer() - clock::now()).max(quantum)),
            // The ticker sees that this one is late, and will watch within a millisecond.
            false => limit.min(quantum),
        }
    }

    /// The task of `worker`, the caller's, has used up its quantum, and nothing else wants the CPU.
    pub(crate) fn nothing_waits(&self, worker: &Worker) {
        worker.stats.skipped.add(1);
        let Some(quantum) = self.settings.quantum else { return worker.look_no_more() };
        // Some thread must poll sockets and timers: the ticker does within a millisecond.
        let others_look = self.settings.has_dispatcher || self.inputs.are_watched();
        worker.quantum_is_over(quantum, !others_look && self.inputs.exist());
    }
}
