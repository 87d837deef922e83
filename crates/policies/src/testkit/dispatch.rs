//! The dispatcher of the central model.

use super::Violation;
use super::machine::{Machine, Step};
use heddle_core::{CpuId, CpuSet, Dispatch, Model, Policy, TaskId};
use std::vec::Vec;

impl<P: Policy> Machine<P> {
    /// One call of the dispatcher, and its decisions carried out.
    pub(super) fn poll(&mut self) -> Step {
        if P::MODEL == Model::PerCpu {
            return Ok(());
        }
        let mut out = Assignments::default();
        let idle = self.all_cpus().filter(|cpu| self.ledger.running[cpu.index()].is_none());
        idle.for_each(|cpu| out.idle.insert(cpu));
        self.policy.poll(&self.world.cx(CpuId(0)), &mut self.queues[0], &mut out);
        for (cpu, task) in out.made {
            let task = self.ledger.claim(0, task)?;
            self.ledger.start(cpu, task);
        }
        out.refused.map_or(Ok(()), |cpu| Err(Violation::BusyCpu(cpu)))?;
        out.idle.iter().try_for_each(|cpu| self.may_idle(cpu))
    }
}

/// What `poll` decided.
#[derive(Default)]
struct Assignments {
    idle: CpuSet,
    made: Vec<(CpuId, TaskId)>,
    refused: Option<CpuId>,
}

impl Dispatch for Assignments {
    fn idle(&self) -> CpuSet {
        self.idle
    }

    fn assign(&mut self, cpu: CpuId, task: TaskId) {
        match self.idle.contains(cpu) {
            true => self.made.push((cpu, task)),
            false => self.refused = Some(cpu),
        }
        self.idle.remove(cpu);
    }
}
