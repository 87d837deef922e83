//! One agent for each CPU.

use super::threads::AgentThreads;
use heddle_core::{CpuId, Policy};

impl<P: Policy> AgentThreads<'_, P> {
    /// Decides for `cpu`, asleep while its queue has no message, no quantum ends and no other agent nudges it.
    pub(super) fn decide_locally(&self, cpu: CpuId) {
        let mut share = self.share(cpu.index());
        let mut home = self.home(cpu);
        while !self.is_over() {
            home.keep(self.backend.cpu(cpu).online);
            let mut scheduler = self.scheduler();
            let round = scheduler.round_of(cpu);
            self.show(&scheduler);
            drop(scheduler);
            for other in round.nudged.iter().filter(|&other| other != cpu) {
                self.backend.wake(self.queues[other.index()]);
            }
            self.rest(&mut share, self.queues[cpu.index()], &round);
        }
    }
}
