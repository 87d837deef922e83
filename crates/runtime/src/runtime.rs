//! Runtimes: how they are started and stopped.

use crate::config::{ConfigError, RuntimeBuilder, refused};
use crate::core_state::Core;
use crate::liveness::Liveness;
use crate::poller::Registration;
use crate::preempt::{Mechanism, NoPreempt};
use crate::sched::{Scheduler, Shared};
use crate::spawn::{Builder, JoinHandle};
use crate::stats::Stats;
use crate::task::Task;
use crate::{threads, tls};
use heddle_core::{CpuInfo, Model, Ns, Params, Policy};
use heddle_policies::Visitor;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Starts a runtime once the type of its policy is known.
pub(crate) struct Start {
    pub(crate) name: Option<Box<str>>,
    pub(crate) topology: Vec<CpuInfo>,
    pub(crate) dispatcher: Option<CpuInfo>,
    pub(crate) mechanism: Mechanism,
    pub(crate) stack_class: u8,
}

impl Start {
    /// How soon a running task is looked at, if ever: the policy's quantum. One that the mechanism cannot do is refused where it
    /// was asked for, and lengthened to what it can where it is the policy's own default.
    fn quantum<P: Policy>(&self, policy: &P) -> Result<Option<Ns>, ConfigError> {
        let mechanism = self.mechanism;
        let Some(quantum) = policy.quantum().filter(|_| mechanism != Mechanism::None) else {
            return Ok(None);
        };
        let shortest = mechanism.shortest_quantum();
        if quantum >= shortest || default_quantum::<P>() == Some(quantum) {
            return Ok(Some(quantum.max(shortest)));
        }
        Err(ConfigError::QuantumTooShort { quantum, mechanism, shortest })
    }
}

/// The quantum of policy `P` where no parameter says anything else.
fn default_quantum<P: Policy>() -> Option<Ns> {
    let mut params = Params::parse(P::NAME).ok()?;
    P::new(&mut params).ok()?.quantum()
}

impl Visitor for Start {
    type Out = Result<Runtime, ConfigError>;

    fn visit<P: Policy>(self, policy: P) -> Self::Out {
        let mechanism = self.mechanism;
        let quantum = self.quantum(&policy)?;
        if self.dispatcher.is_some() && P::MODEL != Model::Central {
            return Err(ConfigError::DispatcherNotCentral(P::NAME));
        }
        tls::choice();
        mechanism.install().map_err(refused("installing the handlers of signals"))?;
        let workers = self.topology.len();
        let dispatched = self.dispatcher.is_some();
        let (name, cpus, class) = (self.name, self.topology, self.stack_class);
        let core = Core::new(name, cpus, mechanism, quantum, class, dispatched);
        let core = core.map_err(refused("opening the epoll for sockets"))?;
        let shared = Shared::new(core, policy).map_err(refused("reserving the table of tasks"))?;
        let liveness = Liveness::new(Box::new(shared));
        // SAFETY: the runtime is a party until it is dropped, and threads are while they use this.
        let sched = unsafe { liveness.sched() };
        sched.core().set_liveness(liveness);
        let runtime = Runtime { sched, policy: P::NAME };
        for cpu in 0..workers {
            threads::start_worker(sched, cpu).map_err(refused("starting a worker's thread"))?;
        }
        if let Some(cpu) = self.dispatcher {
            let started = threads::start_dispatcher(sched, cpu.os_id);
            started.map_err(refused("starting the dispatcher's thread"))?;
        }
        if !cfg!(virtual_time) {
            threads::start_ticker(sched).map_err(refused("starting the ticker's thread"))?;
        }
        Ok(runtime)
    }
}

/// Workers that run tasks under a policy.
///
/// Dropping it lets tasks that can run come to where they wait, or end, for a tenth of a second at most, and then stops the
/// workers: a task that was preempted inside a C library gets to release what it holds there. Tasks that have not ended are
/// never run again, and what they own is not dropped; whoever joins one is told ([`crate::RuntimeDropped`]). To wait for
/// tasks first, use [`Runtime::shutdown`].
///
/// All that the runtime had goes back to the system: threads, descriptors and memory, except the stacks of tasks that have not
/// ended. A task that sits in the kernel or cannot be preempted keeps it until it comes back.
pub struct Runtime {
    pub(crate) sched: &'static dyn Scheduler,
    policy: &'static str,
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
        self.policy
    }

    /// The name that [`RuntimeBuilder::name`] gave it.
    pub fn name(&self) -> Option<&str> {
        self.sched.core().name.as_deref()
    }

    /// Waits until all tasks have ended, for at most `within`, and then drops the runtime; how many tasks had not ended.
    ///
    /// Meanwhile tasks run, sleep, wait for sockets and make other tasks as before. From outside nobody makes any, for the
    /// runtime is gone for them.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// let runtime = heddle_rt::RuntimeBuilder::new().workers(1).build()?;
    /// runtime.spawn(|| heddle_rt::sleep(Duration::from_millis(10)));
    /// runtime.spawn(|| heddle_rt::sleep(Duration::MAX));
    /// assert_eq!(runtime.shutdown(Duration::from_secs(1)), 1);
    /// # Ok::<(), heddle_rt::ConfigError>(())
    /// ```
    ///
    /// # Panics
    /// If one of the runtime's own tasks calls this: it would wait for its own end.
    pub fn shutdown(self, within: Duration) -> usize {
        assert!(
            !self.is_own_task(),
            "a task cannot shut down its own runtime: it would wait for its own end"
        );
        let core = self.sched.core();
        let begin = Instant::now();
        // Ends are not counted in one place, which would cost each task a locked instruction: hence no wake-up, but looks.
        while core.unended() > 0 && begin.elapsed() < within {
            crate::sleep(LOOK.min(within.saturating_sub(begin.elapsed())));
        }
        let sched = self.sched;
        std::mem::forget(self);
        crate::blocking(|| end(sched))
    }

    /// Whether the caller is a task of this runtime.
    fn is_own_task(&self) -> bool {
        let ours = self.sched.core().liveness();
        Task::current().and_then(Task::liveness).is_some_and(|home| std::ptr::eq(home, ours))
    }

    /// How tasks get their thread-local storage in this process, and why so.
    pub fn tls(&self) -> (tls::TlsMode, &'static str) {
        (tls::choice().mode, &tls::choice().reason)
    }
}

/// How long a runtime that stops lets its tasks run on, and how long it waits for those that it then interrupts.
const STOP_WITHIN: Duration = Duration::from_millis(100);

/// How often [`Runtime::shutdown`] looks whether all tasks have ended.
const LOOK: Duration = Duration::from_millis(1);

/// The longest time that threads may take to end which only have to get a CPU for that. (After `fork` there are none.)
const BUSY_MACHINE: Duration = Duration::from_secs(10);

/// How often a task is asked to leave its worker, where it was found in the C library.
const ASK_AGAIN: Duration = Duration::from_millis(10);

impl Drop for Runtime {
    fn drop(&mut self) {
        let sched = self.sched;
        if !self.is_own_task() {
            crate::blocking(|| end(sched));
            return;
        }
        // Its worker cannot end before the task has left it: somebody else has to wait for that.
        let name = sched.core().thread_name("end");
        let thread = std::thread::Builder::new().name(name.as_str().to_owned());
        if thread.spawn(move || end(sched)).is_err() {
            // No thread to be had: the workers end once nothing is queued.
            sched.core().drain();
            sched.core().liveness().leave();
        }
    }
}

/// Stops the workers of a runtime and leaves it; how many tasks had not ended.
fn end(sched: &'static dyn Scheduler) -> usize {
    let core = sched.core();
    core.drain();
    let mut ended = core.await_threads(STOP_WITHIN);
    let over = Instant::now();
    // A thread that runs no task comes to its end by itself; on a busy machine that takes its time.
    while !ended && over.elapsed() < if core.runs_task() { STOP_WITHIN } else { BUSY_MACHINE } {
        core.end_workers();
        ended = core.await_threads(ASK_AGAIN);
    }
    let left = core.unended();
    sched.abandon_tasks();
    // Threads that sit in the kernel end when they come back.
    if ended {
        core.ending.last().join();
    }
    core.liveness().leave();
    left
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
        runtime: core.name.as_deref().map(str::to_owned),
        quantum: core.quantum,
        reminders: core.ticker.reminders.get(),
        takeovers: core.ticker.takeovers.get(),
        spawned: core.spawned_outside.load(Ordering::Relaxed),
        queue_lengths: sched.queue_lengths(),
        ..Stats::default()
    };
    let retired = core.retired().len();
    for worker in core.workers.iter() {
        stats.kernel_threads += 1;
        stats.switches += worker.stats.switches.get();
        stats.preemptions += worker.stats.preemptions.get();
        stats.steals += worker.stats.steals.get();
        stats.spawned += worker.stats.spawned.get();
        stats.exited += worker.stats.exited.get();
        stats.sleeps += worker.stats.sleeps.get();
        stats.interrupts += worker.stats.interrupts.get();
        stats.preemptions_skipped += worker.stats.skipped.get();
    }
    stats.kernel_threads -= retired.min(stats.kernel_threads);
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
pub(crate) fn register(fd: BorrowedFd<'_>) -> io::Result<(Registration, &'static Liveness)> {
    let sched = ambient()?;
    let registration = sched.core().poller.add(fd)?;
    let _guard = NoPreempt::new();
    sched.core().source_is_new();
    Ok((registration, sched.core().liveness()))
}
