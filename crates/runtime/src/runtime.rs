//! Runtimes: how they are started and stopped.

use crate::config::{ConfigError, RuntimeBuilder};
use crate::core_state::Core;
use crate::poller::Source;
use crate::preempt::{Mechanism, NoPreempt};
use crate::sched::{Scheduler, Shared};
use crate::spawn::{Builder, JoinHandle};
use crate::stats::Stats;
use crate::task::Task;
use crate::{threads, tls};
use heddle_core::{CpuInfo, Model, Ns, Policy};
use heddle_policies::Visitor;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Starts a runtime once the type of its policy is known.
pub(crate) struct Start {
    pub(crate) topology: Vec<CpuInfo>,
    pub(crate) dispatcher: Option<CpuInfo>,
    pub(crate) mechanism: Mechanism,
    pub(crate) stack_class: u8,
}

impl Visitor for Start {
    type Out = Result<Runtime, ConfigError>;

    fn visit<P: Policy>(self, policy: P) -> Self::Out {
        let mechanism = self.mechanism;
        let quantum = policy.quantum().filter(|_| mechanism != Mechanism::None);
        if let Some(quantum) = quantum.filter(|&q| q < mechanism.shortest_quantum()) {
            let shortest = mechanism.shortest_quantum();
            return Err(ConfigError::QuantumTooShort { quantum, mechanism, shortest });
        }
        if self.dispatcher.is_some() && P::MODEL != Model::Central {
            return Err(ConfigError::DispatcherNotCentral(P::NAME));
        }
        tls::choice();
        mechanism.install()?;
        let workers = self.topology.len();
        let core =
            Core::new(self.topology, mechanism, self.stack_class, self.dispatcher.is_some())?;
        // Tasks and foreign threads may hold on to it for as long as they like: it stays (some kilobytes).
        let sched: &'static Shared<P> = Box::leak(Box::new(Shared::new(core, policy)?));
        sched.core().set_this(sched);
        let runtime = Runtime { sched, name: P::NAME };
        for cpu in 0..workers {
            threads::start_worker(sched, cpu)?;
        }
        if let Some(cpu) = self.dispatcher {
            threads::start_dispatcher(sched, cpu.os_id)?;
        }
        // In virtual time no quantum ends but by what tasks do, and they look for themselves.
        if !cfg!(virtual_time) {
            threads::start_ticker(sched, quantum)?;
        }
        Ok(runtime)
    }
}

/// Workers that run tasks under a policy.
///
/// Dropping it lets tasks that can run come to where they wait, or end, for a tenth of a second at most, and then stops the
/// workers: a task that was preempted inside a C library gets to release what it holds there. Tasks that have not ended are
/// never run again.
pub struct Runtime {
    pub(crate) sched: &'static dyn Scheduler,
    name: &'static str,
}

impl Runtime {
    /// A builder.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::new()
    }

    /// Runs `f` in a task and waits for it; passes its panic on. Do not call this in a task of the same runtime: spawn.
    pub fn run<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        // SAFETY: this function returns only after the task has ended.
        let handle = unsafe { Builder::new().name("main").spawn_on(self.sched, f) }
            .expect("cannot create a task");
        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Creates a task in this runtime.
    ///
    /// # Panics
    /// If the system has no memory for a stack.
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: closure and result borrow nothing.
        unsafe { Builder::new().spawn_on(self.sched, f) }.expect("cannot create a task")
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        stats_of(self.sched)
    }

    /// Records what happens to its tasks from now on, the next `steps` steps; forgets what was recorded before.
    ///
    /// ```no_run
    /// let runtime = heddle_rt::RuntimeBuilder::new().workers(1).build()?;
    /// runtime.record(10_000);
    /// runtime.run(|| heddle_rt::spawn(heddle_rt::yield_now).join().unwrap());
    /// for step in runtime.recorded().steps {
    ///     println!("{} {} task {} {}", step.at, step.cpu, step.task, step.what);
    /// }
    /// # Ok::<(), heddle_rt::ConfigError>(())
    /// ```
    #[cfg(feature = "trace")]
    pub fn record(&self, steps: usize) {
        drop(self.sched.core().recorder.exchange(steps));
    }

    /// Ends [`Runtime::record`]; what was recorded.
    #[cfg(feature = "trace")]
    pub fn recorded(&self) -> crate::trace::Trace {
        self.sched.core().recorder.exchange(0)
    }

    /// The policy's name.
    pub fn policy(&self) -> &'static str {
        self.name
    }

    /// How tasks get their thread-local storage in this process, and why so.
    pub fn tls(&self) -> (tls::TlsMode, &'static str) {
        (tls::choice().mode, &tls::choice().reason)
    }
}

/// How long a runtime that stops lets its tasks run on.
const STOP_WITHIN: Ns = Ns::from_ms(100);

impl Drop for Runtime {
    fn drop(&mut self) {
        let core = self.sched.core();
        let deadline = heddle_sys::clock::now() + STOP_WITHIN;
        core.stop(deadline);
        // Workers that sit in the kernel end when they come back; do not wait for those.
        let all = || core.threads_started.load(Ordering::Acquire);
        loop {
            let ended = core.ended.load(Ordering::Acquire);
            let left = deadline - heddle_sys::clock::now();
            if ended >= all() || left == Ns::ZERO {
                break;
            }
            heddle_sys::futex::wait(&core.ended, ended, Some(left));
        }
    }
}

/// The counters of the calling task's runtime; of the process-wide one in an ordinary thread.
///
/// # Errors
/// If there is no runtime and none can be started.
pub fn stats() -> io::Result<Stats> {
    ambient().map(stats_of)
}

fn stats_of(sched: &'static dyn Scheduler) -> Stats {
    let _guard = NoPreempt::new();
    let core = sched.core();
    let mut stats = Stats {
        preemptions_sent: core.ticker.sent.get(),
        preemption_send_time: Ns(core.ticker.send_ns.get()),
        preemptions_skipped: core.ticker.skipped.get(),
        takeovers: core.ticker.takeovers.get(),
        spawned: core.spawned_outside.load(Ordering::Relaxed),
        queue_lengths: sched.queue_lengths(),
        ..Stats::default()
    };
    for worker in core.workers.lock().unwrap_or_else(|e| e.into_inner()).iter() {
        stats.kernel_threads += 1;
        stats.switches += worker.stats.switches.get();
        stats.preemptions += worker.stats.preemptions.get();
        stats.steals += worker.stats.steals.get();
        stats.spawned += worker.stats.spawned.get();
        stats.exited += worker.stats.exited.get();
        stats.sleeps += worker.stats.sleeps.get();
    }
    stats
}

/// The scheduler of the calling task, or the process-wide one, started at first use.
#[inline]
pub(crate) fn ambient() -> io::Result<&'static dyn Scheduler> {
    match Task::current() {
        Some(task) => Ok(task.sched()),
        None => process_wide(),
    }
}

fn process_wide() -> io::Result<&'static dyn Scheduler> {
    static GLOBAL: Mutex<Option<&'static Runtime>> = Mutex::new(None);
    let mut global = GLOBAL.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(runtime) = *global {
        return Ok(runtime.sched);
    }
    let runtime = RuntimeBuilder::new().build().map_err(io::Error::other)?;
    let runtime: &'static Runtime = Box::leak(Box::new(runtime));
    *global = Some(runtime);
    Ok(runtime.sched)
}

/// Registers a non-blocking descriptor with the calling task's runtime.
pub(crate) fn register(fd: BorrowedFd<'_>) -> io::Result<(Arc<Source>, &'static dyn Scheduler)> {
    let sched = ambient()?;
    let source = sched.core().poller.add(fd)?;
    let _guard = NoPreempt::new();
    sched.core().source_is_new();
    Ok((source, sched))
}
