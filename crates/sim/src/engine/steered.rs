//! Where a request arrives: the scenario's steering, or an external policy.

use super::jobs::{Job, Kind};
use super::{Cpu, Engine, View};
use crate::Random;
use crate::scenario::Steer;
use heddle_core::{Arrival, Choice, CpuId, Executors, Host, Policy, Rng};

/// Flows if the scenario does not say how many: those of the paper's load generator, 50, rounded up to
/// a power of two.
const FLOWS: u32 = 64;

/// The CPUs as executors, each with its queue.
struct Queues<'e> {
    view: &'e View,
    cpus: &'e [Cpu],
    part_of: &'e dyn Fn(&Cpu) -> Option<usize>,
    rng: &'e Rng,
}

impl Executors for Queues<'_> {
    fn count(&self) -> usize {
        self.cpus.len()
    }

    fn waiting(&self, k: usize) -> usize {
        self.view.queue_len(CpuId(k as u16))
    }

    fn serves(&self, k: usize) -> Option<usize> {
        (self.part_of)(&self.cpus[k])
    }

    fn random(&self) -> u32 {
        (self.rng.next_u64() >> 32) as u32
    }
}

impl<P: Policy> Engine<'_, P> {
    /// Returns the CPU where a request of `part` arrives, on `connection` if one was recorded; `None` if it is dropped.
    /// A client of a closed loop waits for its answer, so its request cannot be dropped.
    #[inline]
    pub(super) fn steer(
        &mut self,
        kind: Kind,
        part: usize,
        connection: Option<u32>,
    ) -> Option<CpuId> {
        if self.steering.is_none() {
            let view = &self.view;
            let tasks = |cpu: CpuId| view.queue_len(cpu) + usize::from(!view.is_idle(cpu));
            let to = self.scenario.steering.to;
            return Some(self.arriving.home(to, (part, connection), tasks, self.cpus.len()));
        }
        self.choose(kind, part, connection)
    }

    fn choose(&mut self, kind: Kind, part: usize, connection: Option<u32>) -> Option<CpuId> {
        let arrival = self.arrival(part, connection);
        let jobs = &self.jobs;
        let part_of = |cpu: &Cpu| {
            let job: &Job = jobs.get(cpu.task?);
            Some(if job.kind == Kind::Batch { usize::MAX } else { job.part as usize })
        };
        let (view, cpus, rng) = (&self.view, &self.cpus[..], &self.rng);
        let executors = Queues { view, cpus, part_of: &part_of, rng };
        let cpu = match self.steering.as_deref_mut()?.choose(&arrival, &executors) {
            Choice::Executor(k) if k < cpus.len() => k,
            Choice::Drop if kind != Kind::Client => {
                self.counts.dropped += 1;
                return None;
            }
            _ => arrival.cpu,
        };
        Some(CpuId(cpu as u16))
    }

    fn arrival(&mut self, part: usize, connection: Option<u32>) -> Arrival {
        let flows = match self.scenario.steering.to {
            Steer::Hash { flows } => flows,
            _ => FLOWS,
        };
        let random = self.arriving.steering_numbers();
        let (flow, key) = (random.below(flows.into()), random.bits());
        let flow = connection.map_or(flow, u64::from);
        let flow = (Random::new(flow, 0).bits() >> 32) as u32;
        Arrival { at: self.view.now, kind: part, flow, key, cpu: flow as usize % self.cpus.len() }
    }
}
