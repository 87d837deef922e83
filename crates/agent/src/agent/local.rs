//! An agent for each CPU.

use super::crew::Crew;
use heddle_core::{CpuId, Policy};

impl<P: Policy> Crew<'_, P> {
    /// Decides for `cpu`, asleep while there is no news in its queue, no quantum ends and nobody nudges it.
    pub(super) fn decide_locally(&self, cpu: CpuId) {
        let mut share = self.share(cpu.index());
        while !self.is_over() {
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
