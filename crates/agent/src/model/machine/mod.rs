//! The contract of [`Backend`](crate::Backend) as a state machine without an operating system.
//!
//! [`ModelEnclave`] is what an agent sees. [`Machine`] has the other side, the "kernel": threads come, sleep, wake
//! and go, others take a CPU, time passes, each when the caller says so. Real backends are compared with it, policy
//! agents are tested on it, and [`super::world`] simulates machines of any size on it.
//!
//! - **M1** A thread is on at most one CPU, or latched to one; a CPU runs at most one thread and has at most one
//!   latched.
//! - **M2** Nothing happens by itself except in [`Machine::set_time`]: equal calls give equal states.
//! - **M3** A runnable thread is in exactly one place: parked, latched or on a CPU.
//!
//! ```
//! use heddle_agent::model::machine::{Machine, Spec};
//! use heddle_agent::model::{Group, State, Transaction};
//! use heddle_agent::Backend;
//! use heddle_core::{CpuId, CpuInfo};
//!
//! let machine = Machine::new(vec![CpuInfo::default()]);
//! let enclave = machine.enclave(Spec::of([CpuId(0)])).unwrap();
//! enclave.attach().unwrap();
//! let thread = machine.spawn(enclave.id(), true);
//!
//! let message = enclave.next(enclave.default_queue()).unwrap();
//! let mut commit = [Transaction::new(thread, message.tid, CpuId(0), message.tseq)];
//! assert_eq!(enclave.commit(&mut commit, Group::Each), 1);
//! assert_eq!(enclave.thread(thread).state, State::OnCpu);
//! ```

mod audit;
mod commit;
mod cpu;
mod enclave;
mod kernel;
mod lifecycle;
mod offer;
mod queue;
mod thread;

pub use enclave::ModelEnclave;
use kernel::Kernel;

use super::{CpuOccupant, Kind, Phase, ThreadWord};
use heddle_core::{CpuId, CpuInfo, CpuSet, Ns, TaskId};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// The description of an enclave.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its CPUs, as positions among those of the machine.
    pub cpus: Vec<CpuId>,
    /// How many messages a queue holds.
    pub ring: usize,
    /// How long the enclave waits for an agent, at first and between two.
    pub grace: Ns,
    /// How long a runnable thread may be without a CPU before the agent counts as hung; none: forever.
    pub patience: Option<Ns>,
    /// Whether to send [`Kind::TimerTick`].
    pub ticks: bool,
    /// Whether to send [`Kind::CpuAvailable`] and [`Kind::CpuBusy`].
    pub cpu_messages: bool,
}

impl Spec {
    /// An enclave of `cpus` with room for 4096 messages, no ticks, and no time limits.
    pub fn of(cpus: impl IntoIterator<Item = CpuId>) -> Spec {
        Spec {
            cpus: cpus.into_iter().collect(),
            ring: 4096,
            grace: Ns::MAX,
            patience: None,
            ticks: false,
            cpu_messages: false,
        }
    }
}

/// Why an enclave could not be made, or not get other CPUs.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum MachineError {
    /// A CPU belongs to at most one enclave.
    #[error("{0} is in another enclave")]
    Taken(CpuId),
    /// The machine has no such CPU.
    #[error("the machine has no {0}")]
    NoCpu(CpuId),
    /// Its threads were given back.
    #[error("the enclave is gone")]
    Gone,
    /// An enclave without CPUs could never run anything.
    #[error("an enclave needs a CPU")]
    Empty,
}

/// When a latched thread gets a CPU that is free for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrival {
    /// In the commit itself, as if interrupts took no time.
    #[default]
    AtOnce,
    /// When [`Machine::arrive`] is called, so that tests can act in between.
    ByHand,
}

/// A machine: the kernel's side of all its enclaves. Clones are the same machine.
///
/// Methods that name a thread return whether they did something; they do nothing if the thread is not in the state
/// that the event needs. CPUs are positions in what [`Machine::new`] was given.
#[derive(Clone, Debug)]
pub struct Machine(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    kernel: Mutex<Kernel>,
    bell: Condvar,
}

impl Machine {
    /// Creates a machine with these CPUs, all idle and online, at time 0.
    #[must_use]
    pub fn new(cpus: Vec<CpuInfo>) -> Machine {
        Machine(Arc::new(Shared { kernel: Mutex::new(Kernel::new(cpus)), bell: Condvar::new() }))
    }

    /// Creates a machine of `n` CPUs of one node and cache, each a core of its own.
    ///
    /// # Panics
    /// If there are more CPUs than a [`CpuId`] can count.
    #[must_use]
    pub fn flat(n: usize) -> Machine {
        let number = |n: usize| u16::try_from(n).expect("fewer than 65536 CPUs");
        let info = |n| CpuInfo { os_id: n as u32, node: 0, llc: 0, core: number(n) };
        Machine::new((0..n).map(info).collect())
    }

    /// Sets when latched threads arrive.
    #[must_use]
    pub fn arriving(self, arrival: Arrival) -> Machine {
        self.with(|kernel| kernel.arrival = arrival);
        self
    }

    fn lock(&self) -> MutexGuard<'_, Kernel> {
        self.0.kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `what`, and wakes the threads that have a message by it.
    fn with<R>(&self, what: impl FnOnce(&mut Kernel) -> R) -> R {
        let mut kernel = self.lock();
        let result = what(&mut kernel);
        if std::mem::take(&mut kernel.bell) {
            self.0.bell.notify_all();
        }
        result
    }

    /// Makes an enclave, which waits for its agent.
    ///
    /// # Errors
    /// [`MachineError`] if `spec` names no CPU, one that does not exist, or one of another enclave.
    pub fn enclave(&self, spec: Spec) -> Result<ModelEnclave, MachineError> {
        let id = self.with(|kernel| kernel.make(spec))?;
        Ok(ModelEnclave::new(self.clone(), id))
    }

    /// Gives an enclave other CPUs, as its guardian does between two agents, and returns its new handle. Threads on
    /// CPUs that it loses are parked. Through the old handle they are out of reach: commits to them fail.
    ///
    /// # Errors
    /// [`MachineError`] as for [`Machine::enclave`], or if the enclave is gone; nothing has changed then.
    pub fn resize(
        &self,
        enclave: &ModelEnclave,
        cpus: impl IntoIterator<Item = CpuId>,
    ) -> Result<ModelEnclave, MachineError> {
        let cpus = cpus.into_iter().collect();
        self.with(|kernel| kernel.resize(enclave.id(), cpus))?;
        Ok(ModelEnclave::new(self.clone(), enclave.id()))
    }

    /// Creates a thread in `enclave`, runnable or asleep. It may run on all CPUs.
    ///
    /// # Panics
    /// If there is no such enclave.
    pub fn spawn(&self, enclave: u32, runnable: bool) -> TaskId {
        self.with(|kernel| {
            let first = kernel.enclave(enclave).spec.cpus[0];
            kernel.spawn(enclave, first, runnable)
        })
    }

    /// Creates a thread as [`Machine::spawn`] does, with `cpu` as the one where it was last.
    ///
    /// # Panics
    /// If there is no such enclave or CPU.
    pub fn spawn_on(&self, enclave: u32, cpu: CpuId, runnable: bool) -> TaskId {
        self.with(|kernel| kernel.spawn(enclave, cpu, runnable))
    }

    /// A thread on a CPU goes to sleep.
    pub fn block(&self, thread: TaskId) -> bool {
        self.with(|kernel| kernel.block(thread))
    }

    /// A sleeping thread can run again.
    pub fn wake(&self, thread: TaskId) -> bool {
        self.with(|kernel| kernel.wake(thread))
    }

    /// A thread on a CPU yields it.
    pub fn yield_now(&self, thread: TaskId) -> bool {
        self.with(|kernel| kernel.yield_now(thread))
    }

    /// A thread ends, wherever it is. On a CPU it sends [`Kind::ThreadBlocked`] first, as the kernel does.
    pub fn exit(&self, thread: TaskId) -> bool {
        self.with(|kernel| kernel.leave(thread, Kind::ThreadDead))
    }

    /// A thread leaves for another scheduler.
    pub fn depart(&self, thread: TaskId) -> bool {
        self.with(|kernel| kernel.leave(thread, Kind::ThreadDeparted))
    }

    /// Restricts a thread to `cpus` of the machine. It loses a CPU outside of them. Nothing happens if no CPU is
    /// left.
    pub fn set_affinity(&self, thread: TaskId, cpus: CpuSet) -> bool {
        self.with(|kernel| kernel.set_affinity(thread, cpus))
    }

    /// Sets a thread's weight, 1 to 10000.
    pub fn set_weight(&self, thread: TaskId, weight: u32) -> bool {
        self.with(|kernel| kernel.set_weight(thread, weight))
    }

    /// An occupant above managed threads takes `cpu`: an ordinary or real-time thread, or an agent. A managed
    /// thread there is parked.
    ///
    /// # Panics
    /// If `who` is not above managed threads.
    pub fn occupy(&self, cpu: CpuId, who: CpuOccupant) {
        let above = !matches!(who, CpuOccupant::Idle | CpuOccupant::Managed);
        assert!(above, "{who:?} is not above managed threads");
        self.with(|kernel| kernel.occupy(cpu.index(), who));
    }

    /// The occupant above managed threads leaves `cpu`.
    pub fn release(&self, cpu: CpuId) {
        self.with(|kernel| kernel.release(cpu.index()));
    }

    /// An ordinary thread waits for `cpu`, on which an agent spins.
    pub fn want(&self, cpu: CpuId) {
        self.with(|kernel| kernel.cpus[cpu.index()].word.handoff += 1);
    }

    /// The interrupt of a commit or preemption reaches `cpu`; with [`Arrival::ByHand`] only.
    pub fn arrive(&self, cpu: CpuId) {
        self.with(|kernel| kernel.arrive(cpu.index()));
    }

    /// Whether an interrupt is to reach `cpu` that would change which thread runs on it.
    #[must_use]
    pub fn is_awaited(&self, cpu: CpuId) -> bool {
        self.lock().is_awaited(cpu.index())
    }

    /// The timer of `cpu` ticks.
    pub fn tick(&self, cpu: CpuId) {
        self.with(|kernel| kernel.tick(cpu.index()));
    }

    /// Takes `cpu` out of the machine, or puts it back. A thread on it is parked.
    pub fn set_online(&self, cpu: CpuId, online: bool) {
        self.with(|kernel| kernel.set_online(cpu.index(), online));
    }

    /// Returns the time.
    #[must_use]
    pub fn time(&self) -> Ns {
        self.lock().now
    }

    /// Sets the time: what is due until then happens, in order. Time does not go back.
    pub fn set_time(&self, now: Ns) {
        self.with(|kernel| kernel.set_time(now));
    }

    /// The agent of `enclave` dies.
    pub fn kill_agent(&self, enclave: u32) {
        self.with(|kernel| kernel.end(enclave, Phase::Active));
    }

    /// The guardian of `enclave` dies: its threads run on without an agent, until [`Machine::give_back`].
    pub fn kill_guardian(&self, enclave: u32) {
        self.with(|kernel| kernel.orphan(enclave));
    }

    /// Gives back all threads of `enclave` and removes it.
    pub fn give_back(&self, enclave: u32) {
        self.with(|kernel| kernel.give_back(enclave));
    }

    /// Returns the status word of a thread of any enclave.
    #[must_use]
    pub fn thread(&self, thread: TaskId) -> ThreadWord {
        self.lock().word(thread)
    }

    /// Returns the managed thread that runs on `cpu`.
    #[must_use]
    pub fn running(&self, cpu: CpuId) -> Option<TaskId> {
        self.lock().cpus[cpu.index()].word.current
    }

    /// Starts recording which threads get a CPU.
    pub(super) fn record_starts(&self) {
        self.with(|kernel| kernel.starts.get_or_insert_default().clear());
    }

    /// Returns the threads that have got a CPU since the last call.
    pub(super) fn take_starts(&self) -> Vec<TaskId> {
        self.with(|kernel| kernel.starts.as_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Checks M1 and M3.
    ///
    /// # Errors
    /// The violation, in words.
    pub fn audit(&self) -> Result<(), String> {
        self.lock().audit()
    }
}
