//! The dispatcher of the central model.

use super::machine::{Machine, Step};
use heddle_core::{CpuId, CpuSet, Model, Policy};
use std::vec::Vec;

impl<P: Policy> Machine<P> {
    /// Calls the dispatcher once and carries out its decisions.
    pub(super) fn poll(&mut self) -> Step {
        if P::MODEL == Model::PerCpu {
            return Ok(());
        }
        let mut idle = CpuSet::EMPTY;
        let free = self.all_cpus().filter(|cpu| self.ledger.running[cpu.index()].is_none());
        free.for_each(|cpu| idle.insert(cpu));
        let mut made = Vec::new();
        self.on(CpuId(0)).poll(idle, |cpu, proposal| made.push((cpu, proposal.withdraw())));
        for &(cpu, task) in &made {
            self.ledger.start(cpu, task);
            idle.remove(cpu);
        }
        idle.iter().try_for_each(|cpu| self.may_idle(cpu))
    }
}
