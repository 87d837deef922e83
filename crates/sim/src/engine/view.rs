//! What a policy sees of the simulated machine.

use crate::machine::Neighbours;
use heddle_core::{CpuId, CpuInfo, CpuSet, Host, Model, Ns, Topology};

/// The weight of the past in averages, in per cent: alpha is 0.05 (SKQ, section 4.2).
const PAST: u64 = 95;

/// What is known of the turns of a CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Turns {
    /// When the present one began; none where the CPU has no task.
    since: Option<Ns>,
    /// How long they take, on average.
    average: u64,
}

impl Turns {
    fn end(&mut self, now: Ns) {
        let Some(since) = self.since.take() else { return };
        let took = now.0.saturating_sub(since.0);
        self.average = match self.average {
            0 => took,
            average => (PAST * average + (100 - PAST) * took) / 100,
        };
    }

    /// `t_ret + t_avg * (n_ret + n_cur)`, from now on, where a task that runs late is thought to end at any moment.
    fn wait(&self, now: Ns, waiting: usize) -> Ns {
        let left = self.since.map_or(0, |since| (since.0 + self.average).saturating_sub(now.0));
        Ns(left + self.average * waiting as u64)
    }
}

/// The hints, always true here: they change in the same instant as what they tell of.
pub(super) struct View {
    pub now: Ns,
    infos: Vec<CpuInfo>,
    neighbours: Neighbours,
    central: bool,
    /// CPUs without a task that look for one.
    pub idle: CpuSet,
    idle_count: usize,
    /// How many tasks wait in each queue (in the central model in the only one), and in which some do.
    waiting: Vec<usize>,
    nonempty: CpuSet,
    turns: Vec<Turns>,
}

impl View {
    pub fn new(infos: Vec<CpuInfo>, model: Model) -> View {
        let cpus = infos.len();
        View {
            now: Ns::ZERO,
            neighbours: Neighbours::new(Topology::new(&infos)),
            infos,
            central: model == Model::Central,
            idle: CpuSet::first(cpus),
            idle_count: cpus,
            waiting: vec![0; cpus],
            nonempty: CpuSet::EMPTY,
            turns: vec![Turns::default(); cpus],
        }
    }

    pub fn set_idle(&mut self, cpu: CpuId, idle: bool) {
        if self.idle.contains(cpu) != idle {
            match idle {
                true => self.idle.insert(cpu),
                false => self.idle.remove(cpu),
            }
            self.idle_count = if idle { self.idle_count + 1 } else { self.idle_count - 1 };
        }
    }

    /// `cpu` has a task from `at` on.
    #[inline]
    pub fn turn_begins(&mut self, cpu: CpuId, at: Ns) {
        self.turns[cpu.index()].since = Some(at);
    }

    /// `cpu` has left its task.
    #[inline]
    pub fn turn_ends(&mut self, cpu: CpuId) {
        self.turns[cpu.index()].end(self.now);
    }

    #[inline]
    pub fn set_waiting(&mut self, queue: usize, tasks: usize) {
        let before = std::mem::replace(&mut self.waiting[queue], tasks);
        match (before, tasks) {
            (0, 1..) => self.nonempty.insert(CpuId(queue as u16)),
            (1.., 0) => self.nonempty.remove(CpuId(queue as u16)),
            _ => {}
        }
    }

    #[inline]
    pub fn waiting(&self, queue: usize) -> usize {
        self.waiting[queue]
    }

    /// The member of `set` that is nearest to `cpu`.
    pub fn nearest_of(&self, set: &CpuSet, cpu: CpuId) -> Option<CpuId> {
        self.neighbours.nearest(set, cpu, CpuId(0))
    }

    pub fn distance(&self, a: CpuId, b: CpuId) -> u32 {
        self.topology().distance(a, b)
    }
}

impl Host for View {
    fn now(&self) -> Ns {
        self.now
    }

    fn topology(&self) -> Topology<'_> {
        Topology::new(&self.infos)
    }

    fn queue_len(&self, cpu: CpuId) -> usize {
        self.waiting[if self.central { 0 } else { cpu.index() }]
    }

    fn is_idle(&self, cpu: CpuId) -> bool {
        self.idle.contains(cpu)
    }

    fn any_idle(&self) -> bool {
        self.idle_count > 0
    }

    fn expected_wait(&self, cpu: CpuId) -> Ns {
        self.turns[cpu.index()].wait(self.now, self.queue_len(cpu))
    }

    fn nearest_idle(&self, from: CpuId) -> Option<CpuId> {
        match self.idle_count {
            0 => None,
            _ => self.neighbours.nearest(&self.idle, from, CpuId(0)),
        }
    }

    fn nearest_waiting(&self, from: CpuId, start: CpuId, nth: usize) -> Option<CpuId> {
        let mut left = self.nonempty;
        left.remove(from);
        for _ in 0..nth {
            let cpu = self.neighbours.nearest(&left, from, start)?;
            left.remove(cpu);
        }
        self.neighbours.nearest(&left, from, start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_forgets_slowly() {
        let mut turns = Turns::default();
        for (begins, ends) in [(100, 200), (300, 500)] {
            turns.since = Some(Ns(begins));
            turns.end(Ns(ends));
        }
        assert_eq!((turns.average, turns.since), (105, None));
    }

    /// The same figures as in the test of `heddle-events` with one event a turn.
    #[test]
    fn a_wait_is_what_is_left_of_the_turn_and_a_turn_for_each_before() {
        let mut turns = Turns { since: None, average: 100 };
        assert_eq!((turns.wait(Ns(1000), 0), turns.wait(Ns(1000), 3)), (Ns(0), Ns(300)));
        turns.since = Some(Ns(1000));
        assert_eq!(turns.wait(Ns(1050), 1), Ns(150));
        // It should have ended at 1100: it may end at any moment, but not in the past.
        assert_eq!(turns.wait(Ns(9000), 1), Ns(100));
    }
}
