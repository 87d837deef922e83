//! A runtime in virtual time: the schedule of a workload, to the nanosecond. Exists under `--cfg virtual_time` only.
//!
//! Every decision is the runtime's own, taken on the paths that it always takes; only the clock is not the system's. It
//! moves where a task *computes* ([`Step::Run`]), up to the next instant in which something happens: a task arrives
//! or is woken, the running one looks whether its quantum is over, or it is done. In one instant they happen in this
//! order.
//!
//! # Why the driver does not disturb the order
//!
//! - It is no task and no worker, but the thread that asks for the schedule. It creates and wakes as any thread
//!   outside does.
//! - One thread acts at a time: the driver or a worker ([`Stage`]). A worker acts until it parks or its task
//!   computes; then the driver goes on. A worker that was unparked comes first, then what comes from outside, then
//!   the CPUs by their numbers, each with what is due there. Time passes when nothing of this is left.
//! - What comes from outside is in its queue at once, not when a worker next looks into its inbox.
//! - There is no ticker. A worker's alarm has no timer behind it; it is heard where it would ring, as a signal would
//!   be.

mod stage;

use crate::config::ConfigError;
use crate::engine::Engine;
use crate::preempt::{NoPreempt, no_preempt};
use crate::spawn::Builder;
use crate::sync::Semaphore;
use crate::task::Task;
use crate::time::sleep_until;
use crate::trace::Trace;
use crate::worker::Worker;
use crate::{Runtime, RuntimeBuilder, yield_now};
use heddle_arch::PreemptCount;
use heddle_core::{CpuInfo, Ns, TaskAttrs};
use heddle_sys::clock;
use stage::{Part, Stage};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

/// A task of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// When it is created.
    pub at: Ns,
    /// What the policy is told of it.
    pub attrs: TaskAttrs,
    /// What it does.
    pub steps: Vec<Step>,
}

impl Job {
    /// A task that arrives at `at` and needs the CPU for `service`.
    pub fn new(at: Ns, service: Ns) -> Job {
        Job { at, attrs: TaskAttrs::default(), steps: vec![Step::Run(service)] }
    }
}

/// A step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Computes for this long.
    Run(Ns),
    /// Lets others run.
    Yield,
    /// Waits for this long for something that wakes it in that very instant, whatever runs then.
    Block(Ns),
    /// Sleeps for this long by the runtime's timers, which are looked at where the runtime looks at them.
    Sleep(Ns),
}

/// Room for the steps of a schedule; a workload must not need more.
const STEPS: usize = 1 << 20;

/// The schedule of `jobs` under the policy that `text` chooses, on a machine of so many CPUs that are equally near to
/// each other. Time begins at zero; tasks are numbered in the order of their arrival, those that arrive in one
/// instant in the order of `jobs`. They come to the CPUs in turn, to the second one first as in the simulator.
///
/// # Errors
/// [`ConfigError`], for instance where there is no such policy.
///
/// # Panics
/// If the schedule has more steps than can be recorded, a million.
pub fn schedule(
    text: &str,
    cpus: u16,
    jobs: &[Job],
) -> Result<Vec<heddle_core::Step>, ConfigError> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _clock = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let runtime = RuntimeBuilder::new().policy(text).workers(1).build_on(machine(cpus))?;
    // Policies may cut time into pieces, and shall find the same ones in every run.
    clock::restart();
    let Trace { steps, lost } = run(&runtime, jobs);
    assert_eq!(lost, 0, "a schedule of more than {STEPS} steps");
    Ok(steps)
}

/// One node, one cache, no hyperthreads. One thread acts at a time, so all may share a CPU of the system.
fn machine(cpus: u16) -> Vec<CpuInfo> {
    let os_id = heddle_sys::thread::affinity().ok().and_then(|cpus| cpus.first().copied());
    let os_id = os_id.unwrap_or_default();
    (0..cpus).map(|core| CpuInfo { os_id, core, llc: 0, node: 0 }).collect()
}

/// Lets `jobs` happen in `runtime`.
fn run(runtime: &Runtime, jobs: &[Job]) -> Trace {
    let core = runtime.engine.core();
    let stage = Stage::new(core.cpus.len());
    let world = Arc::new(World { engine: runtime.engine, agenda: Mutex::default(), stage });
    for job in jobs {
        world.enter(job.at, Happening::Arrival(job.clone()));
    }
    runtime.record(STEPS);
    // The simulator's round robin begins with the second CPU.
    core.next_cpu();
    let (rests, _closes) = (world.clone(), Closes(&world.stage));
    core.idle_hook.set(move |cpu, at_most| {
        rests.stage.play(cpu, Part::Rests { until: clock::now() + at_most })
    });
    // Those that sleep already come to the stage.
    (0..core.cpus.len()).for_each(|cpu| core.notify(cpu));
    world.go_on();
    runtime.recorded()
}

/// Lets the workers go at the end, also where the driver panics.
struct Closes<'a>(&'a Stage);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What will happen, and to whom.
struct World {
    engine: &'static dyn Engine,
    agenda: Mutex<BTreeMap<(Ns, usize), Happening>>,
    stage: Stage,
}

/// Something that happens at a known time.
enum Happening {
    /// A task is created.
    Arrival(Job),
    /// A task that waits is woken; it last ran on this CPU.
    Wake(Arc<Semaphore>, usize),
}

impl World {
    /// The agenda. Preemption is off.
    fn agenda(&self) -> MutexGuard<'_, BTreeMap<(Ns, usize), Happening>> {
        self.agenda.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Enters what happens at `at` into the agenda, behind what happens then already.
    fn enter(&self, at: Ns, what: Happening) {
        let _guard = NoPreempt::new();
        let mut agenda = self.agenda();
        let last = agenda.range((at, 0)..=(at, usize::MAX)).next_back();
        let behind = last.map_or(0, |((_, place), _)| place + 1);
        agenda.insert((at, behind), what);
    }

    /// The driver: lets one after the other act, and time pass, until nothing happens any more.
    fn go_on(self: &Arc<Self>) {
        let mut home = 0;
        loop {
            let parts = self.stage.settle();
            if let Some(cpu) = self.unparked(&parts, home) {
                self.stage.call(cpu);
                continue;
            }
            let outside = self.agenda().first_key_value().map_or(Ns::MAX, |((at, _), _)| *at);
            let due = (0..parts.len()).map(|cpu| self.due(cpu, parts[cpu])).min();
            let (at, _, cpu) = due.expect("a machine has CPUs");
            // A worker that the policy tells to look again later would do so forever.
            if outside == Ns::MAX && (at == Ns::MAX || self.engine.core().unended() == 0) {
                return;
            }
            clock::advance_to(outside.min(at));
            match outside <= at {
                true => home = self.happen(),
                false => self.stage.call(cpu),
            }
        }
    }

    /// The first worker that was unparked and has not acted since: that of `home`, else by number.
    fn unparked(&self, parts: &[Part], home: usize) -> Option<usize> {
        let idle = self.engine.core().parking.idle();
        let was_unparked =
            |cpu: &usize| matches!(parts[*cpu], Part::Rests { .. }) && !idle.contains(*cpu);
        std::iter::once(home).chain(0..parts.len()).find(was_unparked)
    }

    /// When something happens next on `cpu`, whose worker does this; whether others come before it in that instant;
    /// and `cpu`.
    fn due(&self, cpu: usize, part: Part) -> (Ns, bool, usize) {
        let (core, now) = (self.engine.core(), clock::now());
        match part {
            Part::Acts => unreachable!("only the driver acts"),
            Part::Rests { until } => (until.min(core.inputs.timers.next()).max(now), false, cpu),
            Part::Computes { .. } if self.is_asked(cpu) => (now, false, cpu),
            Part::Computes { until, looks } => {
                let rings = core.cpus[cpu].server().map_or(Ns::MAX, |w| w.alarm.rings_at());
                let looks = looks.min(rings).max(now);
                (until.min(looks), looks < until && self.is_served(cpu), cpu)
            }
        }
    }

    /// Whether the task of `cpu` was asked to go.
    fn is_asked(&self, cpu: usize) -> bool {
        let server = self.engine.core().cpus[cpu].server();
        server.is_some_and(|worker| worker.asked.load(Ordering::Relaxed))
    }

    /// Whether as many tasks have been asked to go as wait for `cpu`. They go first: who looks before would go for
    /// the same ones.
    fn is_served(&self, cpu: usize) -> bool {
        let waiting = self.engine.queue_lengths();
        let queue_of = |cpu: usize| cpu.min(waiting.len() - 1);
        let goes = |other: &usize| queue_of(*other) == queue_of(cpu) && self.is_asked(*other);
        let going = (0..self.engine.core().cpus.len()).filter(goes).count();
        going > 0 && going >= waiting[queue_of(cpu)]
    }

    /// Makes the next thing on the agenda happen, and says at which CPU.
    fn happen(self: &Arc<Self>) -> usize {
        let next = self.agenda().pop_first().expect("something that happens");
        let home = match next.1 {
            Happening::Wake(sleeper, home) => {
                sleeper.release(1);
                home
            }
            Happening::Arrival(job) => {
                let (world, builder) = (self.clone(), Builder::new().attrs(job.attrs));
                // SAFETY: the closure borrows nothing.
                let spawned =
                    unsafe { builder.spawn_on(self.engine, move || world.live(&job.steps)) };
                spawned.expect("memory for a task").home()
            }
        };
        self.engine.take_inboxes();
        home
    }

    /// What a task does. Where it ends or goes to sleep after a computation, it does so before it can be preempted.
    fn live(self: &Arc<Self>, steps: &[Step]) {
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
        // It does not come back.
        std::mem::forget(held);
    }

    fn wait(&self, time: Ns) {
        let sleeper = Arc::new(Semaphore::new(0));
        let home = Task::current().expect("a task waits").cpu.load(Ordering::Relaxed) as usize;
        self.enter(clock::now() + time, Happening::Wake(sleeper.clone(), home));
        sleeper.acquire().forget();
    }

    /// Has the CPU for `left`, not counting when others have it; in the end with preemption held off.
    fn compute(&self, mut left: Ns) -> NoPreempt {
        loop {
            let held = NoPreempt::new();
            // SAFETY: the caller is a task, and preemption is off.
            let worker = unsafe { Worker::current() };
            let began = clock::now();
            let part = Part::Computes { until: began + left, looks: look_at(worker) };
            let goes_on = self.stage.play(worker.cpu(), part);
            let now = clock::now();
            left -= now - began;
            if left == Ns::ZERO || !goes_on {
                return held;
            }
            if worker.asked.load(Ordering::Relaxed) || worker.alarm.rings_at() <= now {
                // SAFETY: the caller is on a worker.
                unsafe { PreemptCount::set_pending() };
            }
            let looks = look_at(worker) <= now;
            // Here it goes if it was asked to, or its alarm has rung.
            drop(held);
            if looks {
                // What looks is the end of a section without preemption, as in any task.
                no_preempt(|| ());
            }
        }
    }
}

/// When the task of `worker` checks by itself whether it must go. One that has outlived its quantum alone waits for
/// the alarm.
fn look_at(worker: &Worker) -> Ns {
    match worker.over.load(Ordering::Relaxed) {
        true => Ns::MAX,
        false => Ns(worker.look_at.get()),
    }
}
