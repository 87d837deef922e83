//! Runtimes: how they are started and stopped.

use crate::engine::Engine;
use crate::preempt::NoPreempt;
use crate::stats::Stats;
use crate::task::Task;
use crate::tls;
use heddle_core::Ns;
use heddle_netstack::net::Net;
use std::time::{Duration, Instant};

/// Workers that run tasks under a policy.
///
/// Dropping it cancels all async tasks, whose futures are dropped on its workers. It lets other runnable tasks run
/// until they block or end, for at most a tenth of a second, and then stops the workers: a task that was preempted
/// inside a C library gets to release what it holds there. Tasks that have not ended never run again, and what they own
/// is not dropped; joining one fails with [`crate::RuntimeDropped`]. To wait for tasks first, use
/// [`Runtime::shutdown`].
///
/// All its resources go back to the system: threads, descriptors and memory, except the stacks of tasks that have not
/// ended. A task that sits in the kernel or cannot be preempted keeps them until it comes back.
pub struct Runtime {
    pub(crate) engine: &'static dyn Engine,
    pub(crate) policy: &'static str,
}

impl Runtime {
    /// Returns its counters so far.
    pub fn stats(&self) -> Stats {
        stats_of(self.engine)
    }

    /// Returns how long its workers have waited for the CPUs that it [shares](crate::RuntimeBuilder::share), each CPU's
    /// as in [`heddle_share::Member::waits`]; nothing if it shares none.
    pub fn share_waits(&self) -> Vec<[u64; heddle_share::WAIT_CLASSES]> {
        let core = self.engine.core();
        let Some(share) = &core.settings.share else { return Vec::new() };
        (0..core.cpus.len()).map(|cpu| share.member().waits(cpu)).collect()
    }

    /// Records what happens to its tasks from now on, for `time`. Each run queue keeps the last 8,191 events
    /// (fewer on machines with more than 1,024 CPUs); another process can have them recorded, too (`heddle_telemetry`).
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// let runtime = heddle_rt::RuntimeBuilder::new().workers(1).build()?;
    /// runtime.record(Duration::from_secs(1));
    /// runtime.run(|| heddle_rt::spawn(heddle_rt::yield_now).join().unwrap());
    /// for event in runtime.recorded().events {
    ///     println!("{} {} task {} {}", event.at, event.cpu, event.who, event.kind);
    /// }
    /// # Ok::<(), heddle_rt::ConfigError>(())
    /// ```
    pub fn record(&self, time: Duration) {
        let _guard = NoPreempt::new();
        self.engine.core().telemetry.record(time.into());
    }

    /// Returns what was recorded since [`Runtime::record`], or since the last call of this.
    pub fn recorded(&self) -> crate::trace::Trace {
        let _guard = NoPreempt::new();
        self.engine.core().telemetry.recorded()
    }

    /// Returns the policy's name.
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// Returns the name that [`crate::RuntimeBuilder::name`] gave it.
    pub fn name(&self) -> Option<&str> {
        self.engine.core().settings.name.as_deref()
    }

    /// Waits at most `within` for all tasks to end, and then drops the runtime. Returns how many tasks had not ended.
    ///
    /// Meanwhile tasks run, sleep, wait for sockets and create other tasks as before. No tasks can be created from
    /// outside, where the runtime is gone.
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
        let core = self.engine.core();
        let begin = Instant::now();
        // Ends are not counted in one place, which would cost each task a locked instruction. Hence this polls instead
        // of waiting for a wake-up.
        while core.unended() > 0 && begin.elapsed() < within {
            crate::sleep(LOOK.min(within.saturating_sub(begin.elapsed())));
        }
        let engine = self.engine;
        std::mem::forget(self);
        crate::blocking(|| end(engine))
    }

    /// Returns whether the caller is a task of this runtime.
    fn is_own_task(&self) -> bool {
        let ours = self.engine.liveness();
        Task::current().and_then(Task::liveness).is_some_and(|home| std::ptr::eq(home, ours))
    }

    /// Returns its own network, with what that counts, if it has one ([`crate::RuntimeBuilder::net`]).
    pub fn network(&self) -> Option<&Net> {
        self.engine.core().inputs.lanes().map(|lanes| &**lanes.net())
    }

    /// Returns how tasks get their thread-local storage in this process, and why.
    pub fn tls(&self) -> (tls::TlsMode, &'static str) {
        (tls::choice().mode, &tls::choice().reason)
    }
}

/// How long a stopping runtime lets its tasks run on, and how long it waits for those that it then interrupts.
const STOP_WITHIN: Duration = Duration::from_millis(100);

/// The CPU time after which a task keeps a stopping runtime from dropping its futures; an idle machine gives it twice
/// as much in [`STOP_WITHIN`].
const HELD: Ns = Ns::from_ms(50);

/// How often [`Runtime::shutdown`] checks whether all tasks have ended.
const LOOK: Duration = Duration::from_millis(1);

/// The longest time allowed for threads to end that only need a CPU to do so. (After `fork` there are none.)
const BUSY_MACHINE: Duration = Duration::from_secs(10);

/// How often a task found in the C library is asked again to leave its worker.
const ASK_AGAIN: Duration = Duration::from_millis(10);

impl Drop for Runtime {
    fn drop(&mut self) {
        let engine = self.engine;
        if !self.is_own_task() {
            crate::blocking(|| end(engine));
            return;
        }
        // Its worker cannot end before the task has left it, so another thread must wait for that.
        let name = engine.core().thread_name("end");
        let thread = std::thread::Builder::new().name(name.as_str().to_owned());
        if thread.spawn(move || end(engine)).is_err() {
            // No thread is available: the workers end once nothing is queued.
            engine.core().drain();
            engine.core().inputs.close_timers();
            engine.liveness().leave();
        }
    }
}

/// Stops the workers of a runtime and leaves it. Returns how many tasks had not ended.
fn end(engine: &'static dyn Engine) -> usize {
    let core = engine.core();
    let mut futures = engine.cancel_futures();
    core.drain();
    let begin = Instant::now();
    let mut turns = Vec::new();
    if futures > 0 {
        core.servers.is_held(&mut turns, HELD);
    }
    let mut ended = core.lifecycle.await_threads(STOP_WITHIN);
    // Workers drop futures for as long as that takes, if they get on with it or have not got a CPU yet.
    while !ended && futures > 0 && begin.elapsed() < BUSY_MACHINE {
        let left = engine.futures_left();
        if left != futures {
            turns.clear();
        }
        if core.servers.is_held(&mut turns, HELD) {
            break;
        }
        futures = left;
        ended = core.lifecycle.await_threads(STOP_WITHIN);
    }
    let over = Instant::now();
    // A thread that runs no task ends by itself; on a busy machine that may take a while.
    while !ended
        && over.elapsed() < if core.servers.run_task() { STOP_WITHIN } else { BUSY_MACHINE }
    {
        core.end_workers();
        ended = core.lifecycle.await_threads(ASK_AGAIN);
    }
    let left = core.unended();
    engine.abandon_tasks();
    core.inputs.close_timers();
    // Threads blocked in the kernel end when they come back.
    if ended {
        core.lifecycle.ending.last().join();
    }
    engine.liveness().leave();
    left
}

pub(crate) fn stats_of(engine: &'static dyn Engine) -> Stats {
    let _guard = NoPreempt::new();
    let core = engine.core();
    let others = core.telemetry.others();
    let mut stats = Stats {
        runtime: core.settings.name.as_deref().map(str::to_owned),
        quantum: core.settings.quantum,
        reminders: others.reminders.get(),
        takeovers: others.takeovers.get(),
        spawned: others.spawned.get(),
        unseen: core.telemetry.unseen.clone(),
        queue_lengths: engine.queue_lengths(),
        ..Stats::default()
    };
    let retired = core.servers.retired().len();
    for worker in core.servers.all.iter() {
        stats.kernel_threads += 1;
        stats.switches += worker.stats.switches.get();
        stats.preemptions += worker.stats.preemptions.get();
        stats.steals += worker.stats.steals.get();
        stats.spawned += worker.stats.spawned.get();
        stats.exited += worker.stats.exited.get();
        stats.sleeps += worker.stats.sleeps.get();
        stats.interrupts += worker.stats.interrupts.get();
        stats.probes += worker.stats.probes.get();
        stats.preemptions_skipped += worker.stats.skipped.get();
        stats.takeovers += worker.stats.takeovers.get();
        stats.polls_kept += worker.stats.polls_kept.get();
    }
    stats.kernel_threads -= retired.min(stats.kernel_threads);
    stats
}
