//! A runtime in virtual time: the schedule of a workload, exact to the nanosecond. Only under `--cfg virtual_time`.
//!
//! The runtime makes every decision itself, on its usual paths; only the clock is replaced. The clock advances while
//! tasks *compute* ([`Step::Run`]), to the next time at which something happens: a task arrives or is woken, the
//! running task checks whether its quantum is over, or it finishes. What happens at the same time happens in this
//! order.
//!
//! # Why the driver does not affect the order
//!
//! - The driver is neither a task nor a worker, but the thread that asked for the schedule. It creates and wakes tasks
//!   as any thread outside the runtime would.
//! - One thread is active at a time: the driver or a worker ([`Turns`]). A worker is active until it parks or its task
//!   computes; then the driver continues. It resumes unparked workers first, then delivers arrivals and wakeups, then
//!   resumes the CPUs by number, each for what is due there. Time advances when none of these is left.
//! - Arrivals and wakeups enter their run queue at once, not when a worker next reads its inbox.
//! - There is no ticker. A worker's alarm has no timer behind it; it takes effect when it would ring, as a signal
//!   would.

mod turns;

use crate::config::ConfigError;
use crate::engine::Engine;
use crate::futures;
use crate::preempt::{NoPreempt, no_preempt};
use crate::spawn::Builder;
use crate::sync::Semaphore;
use crate::task::Task;
use crate::time::sleep_until;
use crate::trace::{self, EventKind, Trace};
use crate::worker::Worker;
use crate::{Runtime, RuntimeBuilder, yield_now};
use heddle_arch::PreemptCount;
use heddle_core::{CpuInfo, Ns, TaskAttrs};
use heddle_sys::{clock, thread};
use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use turns::{Activity, Turns};

/// A task of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// When it is created.
    pub at: Ns,
    /// What the policy knows about it.
    pub attrs: TaskAttrs,
    /// What it does.
    pub steps: Vec<Step>,
}

impl Job {
    /// Returns a task that arrives at `at` and needs the CPU for `service`.
    pub fn new(at: Ns, service: Ns) -> Job {
        Job { at, attrs: TaskAttrs::default(), steps: vec![Step::Run(service)] }
    }
}

/// A step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Computes for this long.
    Run(Ns),
    /// Yields to other tasks.
    Yield,
    /// Blocks for this long, and is woken at exactly that time, whatever runs then.
    Block(Ns),
    /// Sleeps for this long on the runtime's timers, which fire where the runtime checks them.
    Sleep(Ns),
}

/// What the tasks of a workload are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Threads.
    Threads,
    /// Futures: they yield and block at an await, and sleep within a poll.
    Futures,
}

/// Returns the schedule of `jobs`, each a task of this `kind`, under the policy `text`, on `cpus` CPUs that are equally
/// near to each other. Time starts at zero. Tasks are numbered in order of arrival; those that arrive at the same time
/// keep the order of `jobs`. They are assigned to the CPUs in turn, starting with the second CPU, as in the simulator.
///
/// # Errors
/// [`ConfigError`], for instance if the policy does not exist.
///
/// # Panics
/// If the schedule has more than a million events, the most that can be recorded.
pub fn schedule(
    kind: Kind,
    text: &str,
    cpus: u16,
    jobs: &[Job],
) -> Result<Vec<trace::Event>, ConfigError> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _clock = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let runtime = RuntimeBuilder::new().policy(text).workers(1).build_on(machine(cpus))?;
    // Policies may divide time into intervals, which must be the same in every run.
    clock::restart();
    let Trace { events, lost } = run(&runtime, kind, jobs);
    assert_eq!(lost, 0, "the schedule has more events than a ring");
    Ok(numbered(events))
}

/// Numbers tasks in the order of their arrival. The runtime uses their numbers again.
fn numbered(mut events: Vec<trace::Event>) -> Vec<trace::Event> {
    let (mut born, mut numbers) = (0, HashMap::new());
    for event in &mut events {
        if event.kind == EventKind::New {
            numbers.insert(event.who, born);
            born += 1;
        }
        event.who = numbers[&event.who];
    }
    events
}

/// Returns the CPU of the system on which all run, as only one thread is active at a time.
fn shared_cpu() -> u32 {
    let cpu = thread::affinity().ok().and_then(|cpus| cpus.first().copied());
    cpu.unwrap_or_default()
}

/// Returns a machine with one node, one cache and no hyperthreads.
fn machine(cpus: u16) -> Vec<CpuInfo> {
    let os_id = shared_cpu();
    (0..cpus).map(|core| CpuInfo { os_id, core, llc: 0, node: 0 }).collect()
}

/// Runs `jobs` on `runtime`.
fn run(runtime: &Runtime, kind: Kind, jobs: &[Job]) -> Trace {
    let core = runtime.engine.core();
    let turns = Turns::new(core.cpus.len());
    let driver =
        Arc::new(Driver { engine: runtime.engine, kind, pending: Mutex::default(), turns });
    // The driver takes turns with the workers: a turn that wakes another CPU costs ten times as much in a virtual
    // machine.
    let _affinity = thread::SavedAffinity::save();
    let _ = thread::pin(&[shared_cpu()]);
    for job in jobs {
        driver.schedule(job.at, Event::Arrival(job.clone()));
    }
    runtime.record(Duration::MAX);
    // The simulator's round robin begins with the second CPU.
    core.next_cpu();
    let (hook, _close) = (driver.clone(), CloseOnDrop(&driver.turns));
    core.idle_hook.set(move |cpu, at_most| {
        hook.turns.wait_turn(cpu, Activity::Idle { until: clock::now() + at_most })
    });
    // Workers that already sleep must enter the hook.
    (0..core.cpus.len()).for_each(|cpu| core.notify(cpu));
    driver.run();
    runtime.recorded()
}

/// Releases the workers at the end, even if the driver panics.
struct CloseOnDrop<'a>(&'a Turns);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The pending events, and the runtime on which they happen.
struct Driver {
    engine: &'static dyn Engine,
    kind: Kind,
    pending: Mutex<BTreeMap<(Ns, usize), Event>>,
    turns: Turns,
}

/// An event at a known time.
enum Event {
    /// A task is created.
    Arrival(Job),
    /// A blocked task is woken; it last ran on this CPU.
    Wake(Sleeper, usize),
}

/// Who is blocked.
enum Sleeper {
    Thread(Arc<Semaphore>),
    Future(Waker),
}

impl Driver {
    /// Locks the pending events. Preemption is off.
    fn pending(&self) -> MutexGuard<'_, BTreeMap<(Ns, usize), Event>> {
        self.pending.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Schedules `event` at `at`, after the events already scheduled for that time.
    fn schedule(&self, at: Ns, event: Event) {
        let _guard = NoPreempt::new();
        let mut pending = self.pending();
        let last = pending.range((at, 0)..=(at, usize::MAX)).next_back();
        let index = last.map_or(0, |((_, index), _)| index + 1);
        pending.insert((at, index), event);
    }

    /// Resumes workers, delivers events and advances time until nothing is left to do.
    fn run(self: &Arc<Self>) {
        let mut home = 0;
        loop {
            let activities = self.turns.wait_until_none_active();
            if let Some(cpu) = self.unparked(&activities, home) {
                self.turns.resume(cpu);
                continue;
            }
            let event = self.pending().first_key_value().map_or(Ns::MAX, |((at, _), _)| *at);
            let due = (0..activities.len()).map(|cpu| self.due(cpu, activities[cpu])).min();
            let (at, _, cpu) = due.expect("a machine has CPUs");
            // Without this, a worker whose policy asks it to check again later would do so forever.
            if event == Ns::MAX && (at == Ns::MAX || self.engine.core().unended() == 0) {
                return;
            }
            clock::advance_to(event.min(at));
            match event <= at {
                true => home = self.deliver_next(),
                false => self.turns.resume(cpu),
            }
        }
    }

    /// Returns the first worker that was unparked and has not been active since: that of `home`, else by number.
    fn unparked(&self, activities: &[Activity], home: usize) -> Option<usize> {
        let idle = self.engine.core().parking.idle();
        let was_unparked =
            |cpu: &usize| matches!(activities[*cpu], Activity::Idle { .. }) && !idle.contains(*cpu);
        std::iter::once(home).chain(0..activities.len()).find(was_unparked)
    }

    /// Returns when the worker of `cpu`, in this `activity`, must next be resumed; whether other CPUs come before it at
    /// that time; and `cpu`.
    fn due(&self, cpu: usize, activity: Activity) -> (Ns, bool, usize) {
        let (core, now) = (self.engine.core(), clock::now());
        match activity {
            Activity::Active => unreachable!("only the driver is active"),
            Activity::Idle { until } => (until.min(core.inputs.next_timer()).max(now), false, cpu),
            Activity::Computing { .. } if self.must_yield(cpu) => (now, false, cpu),
            Activity::Computing { until, check_at } => {
                let rings = core.cpus[cpu].server().map_or(Ns::MAX, |w| w.alarm.rings_at());
                let check_at = check_at.min(rings).max(now);
                (until.min(check_at), check_at < until && self.has_enough_yields(cpu), cpu)
            }
        }
    }

    /// Returns whether the task of `cpu` was asked to yield.
    fn must_yield(&self, cpu: usize) -> bool {
        let server = self.engine.core().cpus[cpu].server();
        server.is_some_and(|worker| worker.asked.load(Ordering::Relaxed))
    }

    /// Returns whether at least as many tasks were asked to yield as wait in the queue of `cpu`. They yield first: a
    /// task that checked before them would yield to the same waiting tasks.
    fn has_enough_yields(&self, cpu: usize) -> bool {
        let waiting = self.engine.queue_lengths();
        let queue_of = |cpu: usize| cpu.min(waiting.len() - 1);
        let yields = |other: &usize| queue_of(*other) == queue_of(cpu) && self.must_yield(*other);
        let yielding = (0..self.engine.core().cpus.len()).filter(yields).count();
        yielding > 0 && yielding >= waiting[queue_of(cpu)]
    }

    /// Delivers the next event. Returns the CPU that it concerns.
    fn deliver_next(self: &Arc<Self>) -> usize {
        let next = self.pending().pop_first().expect("an event");
        let home = match next.1 {
            Event::Wake(sleeper, home) => {
                match sleeper {
                    Sleeper::Thread(sleeper) => sleeper.release(1),
                    Sleeper::Future(waker) => waker.wake(),
                }
                home
            }
            Event::Arrival(job) => {
                let driver = self.clone();
                match self.kind {
                    Kind::Threads => {
                        let builder = Builder::new().with_attrs(job.attrs);
                        // SAFETY: the closure borrows nothing.
                        let spawned = unsafe {
                            builder.spawn_on(self.engine, move || driver.run_steps(&job.steps))
                        };
                        spawned.expect("memory for a task").home()
                    }
                    Kind::Futures => {
                        let steps = Steps { driver, steps: job.steps.into_iter() };
                        futures::spawn_at_home(self.engine, job.attrs, steps)
                    }
                }
            }
        };
        self.engine.take_inboxes();
        home
    }

    /// Runs the steps of a task. If it ends or sleeps after a computation, it does so before it can be preempted.
    fn run_steps(self: &Arc<Self>, steps: &[Step]) {
        let mut held = None;
        for step in steps {
            match *step {
                Step::Run(work) => {
                    drop(held);
                    held = Some(self.compute(work));
                }
                Step::Yield => yield_now(),
                Step::Block(time) => self.wait(time),
                Step::Sleep(time) => sleep_until(clock::now() + time),
            }
        }
        // The task ends with preemption off.
        std::mem::forget(held);
    }

    fn wait(&self, time: Ns) {
        let sleeper = Arc::new(Semaphore::new(0));
        self.wake_after(time, Sleeper::Thread(sleeper.clone()));
        sleeper.acquire().forget();
    }

    /// Schedules that the calling task is woken.
    fn wake_after(&self, time: Ns, sleeper: Sleeper) {
        let task = Task::current().expect("a task waits").entity().get();
        let home = task.cpu.load(Ordering::Relaxed) as usize;
        self.schedule(clock::now() + time, Event::Wake(sleeper, home));
    }

    /// Uses the CPU for `left`, not counting the time in which other tasks have it. Returns with preemption off.
    fn compute(&self, mut left: Ns) -> NoPreempt {
        loop {
            let held = NoPreempt::new();
            // SAFETY: the caller is a task, and preemption is off.
            let worker = unsafe { Worker::current() };
            let began = clock::now();
            let activity =
                Activity::Computing { until: began + left, check_at: next_check(worker) };
            let resumed = self.turns.wait_turn(worker.cpu(), activity);
            let now = clock::now();
            left -= now - began;
            if left == Ns::ZERO || !resumed {
                return held;
            }
            if worker.asked.load(Ordering::Relaxed) || worker.alarm.rings_at() <= now {
                // SAFETY: the caller is on a worker.
                unsafe { PreemptCount::set_pending() };
            }
            let is_check_due = next_check(worker) <= now;
            // Yields here if it was asked to, or if its alarm has rung.
            drop(held);
            if is_check_due {
                // The check is at the end of a section without preemption, as in any task.
                no_preempt(|| ());
            }
        }
    }
}

/// [`Driver::run_steps`] as a future.
struct Steps {
    driver: Arc<Driver>,
    steps: std::vec::IntoIter<Step>,
}

impl Future for Steps {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut held = None;
        let end = loop {
            let Some(step) = self.steps.next() else { break Poll::Ready(()) };
            match step {
                Step::Run(work) => {
                    drop(held);
                    held = Some(self.driver.compute(work));
                }
                Step::Yield => {
                    cx.waker().wake_by_ref();
                    break Poll::Pending;
                }
                Step::Block(time) => {
                    self.driver.wake_after(time, Sleeper::Future(cx.waker().clone()));
                    break Poll::Pending;
                }
                Step::Sleep(time) => sleep_until(clock::now() + time),
            }
        };
        // The poll ends with preemption off.
        std::mem::forget(held);
        end
    }
}

/// Returns when the task of `worker` itself checks whether it must yield. A task that exceeded its quantum while no
/// other waited relies on the alarm.
fn next_check(worker: &Worker) -> Ns {
    match worker.over.load(Ordering::Relaxed) {
        true => Ns::MAX,
        false => Ns(worker.look_at.load(Ordering::Relaxed)),
    }
}
