//! A runtime in virtual time: the schedule of a workload, to the nanosecond. Exists under `--cfg virtual_time` only.
//!
//! Every decision is the runtime's own, taken on the paths that it always takes; only the clock is not the system's. It
//! moves where a task *computes* ([`Step::Run`]), up to the next instant in which something happens: a task arrives or is
//! woken, the running one looks whether its quantum is over, or it is done. In one instant they happen in this order.
//!
//! # Why the driver does not disturb the order
//!
//! - It is no task. What falls due while a task computes is done by that task, as if the machine had interrupted it:
//!   creating and waking are calls into the scheduler that a running task makes anyway, and it goes on behind them.
//! - What falls due while nothing runs is done by the worker's loop, after the policy has said that there is nothing: one
//!   arrival or wake-up, upon which the loop asks the policy again. So the first of several that fall due in one instant
//!   finds an idle CPU and gets it, and the task that runs then does the others.
//! - There is one worker and no ticker: no other thread touches the queue.

use crate::config::ConfigError;
use crate::preempt::{NoPreempt, no_preempt};
use crate::sched::Scheduler;
use crate::spawn::Builder;
use crate::sync::Semaphore;
use crate::time::sleep_until;
use crate::trace::Trace;
use crate::worker::Worker;
use crate::{Runtime, RuntimeBuilder, yield_now};
use heddle_core::{Ns, TaskAttrs};
use heddle_sys::clock;
use std::collections::BTreeMap;
use std::sync::mpsc::{SyncSender, sync_channel};
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

/// Room for the steps of a schedule; a workload has to do with it.
const STEPS: usize = 1 << 20;

/// The schedule of `jobs` under the policy that `text` chooses, with one worker. Time begins at zero; tasks are
/// numbered in the order of their arrival, those that arrive in one instant in the order of `jobs`.
///
/// # Errors
/// [`ConfigError`], for instance where there is no such policy.
///
/// # Panics
/// If the schedule has more steps than can be recorded, a million.
pub fn schedule(text: &str, jobs: &[Job]) -> Result<Vec<heddle_core::Step>, ConfigError> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _clock = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let runtime = RuntimeBuilder::new().policy(text).workers(1).build()?;
    // Policies may cut time into pieces, and shall find the same ones in every run.
    clock::restart();
    let Trace { steps, lost } = run(&runtime, jobs);
    assert_eq!(lost, 0, "a schedule of more than {STEPS} steps");
    Ok(steps)
}

/// Lets `jobs` happen in `runtime`.
fn run(runtime: &Runtime, jobs: &[Job]) -> Trace {
    let (ended, end) = sync_channel(1);
    let core = runtime.sched.core();
    let world = Arc::new(World { sched: runtime.sched, agenda: Mutex::default(), ended });
    for job in jobs {
        world.enter(job.at, Happening::Arrival(job.clone()));
    }
    runtime.record(STEPS);
    core.idle_hook.set(move || world.pass_time());
    core.notify(0);
    end.recv().expect("the world ends before its runtime");
    runtime.recorded()
}

/// What will happen, and to whom.
struct World {
    sched: &'static dyn Scheduler,
    agenda: Mutex<BTreeMap<(Ns, usize), Happening>>,
    ended: SyncSender<()>,
}

/// Something that happens at a known time.
enum Happening {
    /// A task is created.
    Arrival(Job),
    /// A task that waits is woken.
    Wake(Arc<Semaphore>),
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

    /// When something happens next; [`Ns::MAX`] if nothing does.
    fn next(&self) -> Ns {
        let _guard = NoPreempt::new();
        self.agenda().first_key_value().map_or(Ns::MAX, |((at, _), _)| *at)
    }

    /// Makes one thing happen that is due; false if none is. Preemption is off.
    fn happen(self: &Arc<Self>) -> bool {
        let due =
            self.agenda().first_entry().filter(|e| e.key().0 <= clock::now()).map(|e| e.remove());
        match due {
            None => return false,
            Some(Happening::Wake(sleeper)) => sleeper.release(1),
            Some(Happening::Arrival(job)) => {
                let (world, builder) = (self.clone(), Builder::new().attrs(job.attrs));
                // SAFETY: the closure borrows nothing.
                let spawned =
                    unsafe { builder.spawn_on(self.sched, move || world.live(&job.steps)) };
                drop(spawned.expect("memory for a task"));
            }
        }
        true
    }

    /// Called by the worker's loop when there is nothing to run: lets time pass until something happens.
    fn pass_time(self: &Arc<Self>) -> bool {
        let (happening, timer) = (self.next(), self.sched.core().timers.next());
        if happening.min(timer) == Ns::MAX {
            // Full if it has been told before.
            let _ = self.ended.try_send(());
            return false;
        }
        clock::advance_to(happening.min(timer));
        // The loop looks at the timers itself.
        timer < happening || self.happen()
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
        self.enter(clock::now() + time, Happening::Wake(sleeper.clone()));
        sleeper.acquire().forget();
    }

    /// Has the CPU for `left`, not counting when others have it; in the end with preemption held off.
    fn compute(self: &Arc<Self>, mut left: Ns) -> NoPreempt {
        let mut looked = None;
        loop {
            let held = NoPreempt::new();
            while self.happen() {}
            if left == Ns::ZERO {
                return held;
            }
            // Here a preemption is taken that one of these has asked for.
            drop(held);
            let at = clock::now();
            if look_at() <= at && looked != Some(at) {
                looked = Some(at);
                // What looks is the end of a section without preemption, as in any task.
                no_preempt(|| ());
                continue;
            }
            let until = (at + left).min(self.next()).min(look_at().max(at + Ns(1)));
            clock::advance_to(until);
            left -= until.max(at) - at;
        }
    }
}

/// When the calling task looks next whether it has to go.
fn look_at() -> Ns {
    let _guard = NoPreempt::new();
    // SAFETY: the caller is a task, and preemption is off.
    Ns(unsafe { Worker::current() }.look_at.get())
}
