//! The engine: processes the events on the simulated machine, one after the other.
//!
//! ```text
//!  arrivals.rs        cpus.rs            preempt.rs          dispatcher.rs
//!  requests come  ->  CPUs pick, run  <- quanta end,      <- a core that hands
//!  (steered,          and leave tasks    messages arrive     out tasks (optional)
//!  connections.rs)
//!        \________________|________________/____________________/
//!                     queues.rs: the policy's run queues, and who runs it
//!                     threads.rs: a service's threads instead of requests (affinity.rs: where they may run)
//!                     timetable.rs: whose event is next      meter.rs: what is measured
//! ```
//!
//! # Invariants
//!
//! - **I1** Every source (a CPU, the arrivals, the sleepers, the timer core, the dispatcher) has at
//!   most one pending event.
//! - **I2** A task's work is neither lost nor done twice: what ran is deducted from `remaining` when
//!   the task leaves its CPU.
//! - **I3** A hint ([`View`]) changes in the same instant as the state that it describes.
//! - **I4** All randomness comes from the seed, and the order is by time, then by source: equal
//!   scenarios give equal outcomes.
//! - **I5** In the steady state nothing is allocated; memory grows with the tasks in the system, not
//!   with the length of the run.

mod affinity;
mod arrivals;
mod connections;
mod cpus;
mod dispatcher;
mod jobs;
mod meter;
mod preempt;
mod queues;
mod steered;
#[cfg(test)]
mod tests;
mod threads;
mod timetable;
mod view;
mod watch;

pub(crate) use arrivals::{GAPS, SIZES};
pub(crate) use meter::BATCHES;
pub use watch::{Event, EventKind, Recorder, Watch};

use crate::costs::{Costs, Preemption, PreemptionSource};
use crate::error::SimError;
use crate::outcome::{Counts, Outcome, Unstable};
use crate::replay::ServiceState;
use crate::scenario::{Connections, Scenario};
use affinity::Affinity;
use arrivals::{Arriving, Plan};
use connections::Senders;
use cpus::{Cpu, CpuTime};
use dispatcher::DispatcherState;
use heddle_core::driver::Rule;
use heddle_core::{CpuId, CpuSet, Model, Ns, Policy, Rng, SteeringPolicy};
use jobs::Jobs;
use meter::{Ended, Meter};
use preempt::TimerCore;
use std::cell::RefCell;
use timetable::Timetable;
use view::View;

/// The sources of events; CPUs follow. At equal instants, external events come first.
const ARRIVALS: usize = 0;
const SLEEPERS: usize = 1;
const TIMER: usize = 2;
const DISPATCHER: usize = 3;
const FIRST_CPU: usize = Timetable::EXTERNAL;

/// One run of `scenario` under `policy`; reports every step to `watch`, if there is one.
pub(crate) struct Engine<'s, P: Policy> {
    scenario: &'s Scenario,
    costs: Costs,
    preemption: Preemption,
    policy: P,
    /// The policy's shortest quantum, if this machine can preempt at all.
    quantum: Option<Ns>,
    queues: Vec<P::Queue>,
    /// For each queue, how many running tasks were asked to yield and have not done so yet.
    claims: Vec<usize>,
    jobs: Jobs<P::Task>,
    cpus: Vec<Cpu>,
    /// When the lock of the central queue is free.
    unlocked: Ns,
    /// CPUs whose task has used its quantum while nothing waited.
    overdue: CpuSet,
    view: View,
    rng: Rng,
    timetable: Timetable,
    arriving: Arriving,
    senders: Senders,
    timer: TimerCore,
    dispatcher: Option<DispatcherState>,
    meter: Meter,
    time: CpuTime,
    counts: Counts,
    /// Not a type parameter: one engine per policy is enough code.
    watch: Option<RefCell<&'s mut dyn Watch>>,
    /// Decides about arrivals instead of the scenario's steering.
    steering: Option<&'s mut dyn SteeringPolicy>,
    /// Threads instead of requests, and the CPUs where they may run.
    service: Option<ServiceState<'s>>,
    affinity: Affinity,
}

impl<'s, P: Policy> Engine<'s, P> {
    pub(crate) fn new(
        scenario: &'s Scenario,
        policy: P,
        watch: Option<&'s mut dyn Watch>,
        steering: Option<&'s mut dyn SteeringPolicy>,
    ) -> Result<Self, SimError> {
        let cpus = scenario.machine.cpus;
        let queues = if P::MODEL == Model::Central { 1 } else { cpus };
        let can_preempt = scenario.preemption.by != PreemptionSource::Disabled;
        let arriving = Arriving::new(scenario)?;
        Ok(Engine {
            scenario,
            costs: scenario.costs,
            preemption: scenario.preemption,
            quantum: policy.quantum().filter(|_| can_preempt),
            queues: (0..queues).map(|_| policy.queue()).collect(),
            claims: vec![0; queues],
            jobs: Jobs::default(),
            cpus: (0..cpus).map(|_| Cpu::default()).collect(),
            unlocked: Ns::ZERO,
            overdue: CpuSet::EMPTY,
            view: View::new(scenario.machine.infos(), P::MODEL),
            rng: Rng::new(scenario.seed),
            timetable: Timetable::new(cpus),
            timer: TimerCore::default(),
            dispatcher: scenario
                .dispatcher
                .filter(|_| P::MODEL == Model::Central)
                .map(|costs| DispatcherState::new(costs, cpus)),
            meter: {
                let Plan { names, warmup, requests } = &arriving.plan;
                Meter::new(names, *warmup, *requests, scenario.base)
            },
            arriving,
            senders: {
                let Connections { count, dealt } = scenario.connections;
                Senders::new(count, dealt, &scenario.mix, scenario.seed)
            },
            time: CpuTime::default(),
            counts: Counts::default(),
            policy,
            watch: watch.map(RefCell::new),
            steering,
            service: None,
            affinity: Affinity::default(),
        })
    }

    /// Runs until all requests that count are done, or never will be.
    pub(crate) fn run(mut self) -> Result<Outcome, SimError> {
        self.open()?;
        let mut unstable = self.arriving.overload(self.in_system(), self.counts.dropped);
        while !self.meter.is_complete() && unstable.is_none() {
            let (now, source) = self.timetable.next();
            if now == Ns::MAX {
                unstable = Some(Unstable::Stuck);
                break;
            }
            self.view.now = now;
            match source {
                cpu if cpu >= FIRST_CPU => self.cpu_event(CpuId((cpu - FIRST_CPU) as u16)),
                TIMER => self.timer_sent(),
                DISPATCHER => self.dispatcher_done(),
                arrival => {
                    match arrival {
                        ARRIVALS => self.arrive()?,
                        _ => self.wake_sleeper(),
                    }
                    // Only arrivals add to what `overload` checks.
                    unstable = self.arriving.overload(self.in_system(), self.counts.dropped);
                }
            }
        }
        self.time.settle(&self.cpus, &self.jobs, self.view.now);
        let outcome = self.meter.outcome(&Ended {
            scenario: self.scenario,
            arriving: &self.arriving,
            time: self.time,
            imbalance: cpus::imbalance(&self.cpus),
            counts: self.counts,
            now: self.view.now,
            unstable,
        });
        Ok(outcome)
    }

    /// Returns the index of the queue from which `cpu` takes its tasks.
    #[inline]
    fn queue_of(cpu: CpuId) -> usize {
        if P::MODEL == Model::Central { 0 } else { cpu.index() }
    }
}

/// The policy broke a rule; this unwinds out of [`Engine::run`].
pub(crate) struct Broken {
    pub policy: &'static str,
    pub rule: Rule,
}
