//! What the policies with a queue per CPU share: where to place, where to steal, when to ask again.

use heddle_core::{CpuId, Cx, Ns, Resched};

/// The nearest idle CPU to `from`, itself first.
///
/// Constant time while nobody is idle; else it grows with the number of CPUs, whose hints are one load each.
#[inline]
pub fn nearest_idle<T>(cx: &Cx<'_, T>, from: CpuId) -> Option<CpuId> {
    if !cx.any_idle() {
        return None;
    }
    if cx.is_idle(from) {
        return Some(from);
    }
    let topology = cx.topology();
    let all = (0..topology.len() as u16).map(CpuId);
    all.filter(|&cpu| cx.is_idle(cpu)).min_by_key(|&cpu| topology.distance(from, cpu))
}

/// Whose queue an idle `cx.cpu` looks into at its `attempt`: the near CPUs before the far, among equals
/// from a random start, skipping those whose queue seems empty.
///
/// Randomness keeps idle CPUs from all going to the same victim. Later attempts, which follow a failed steal,
/// are counted from the CPU itself instead of a fresh random start: so they visit every victim once and
/// then end, without state to carry from one to the next.
pub fn victim<T>(cx: &Cx<'_, T>, attempt: usize) -> Option<CpuId> {
    let topology = cx.topology();
    let n = topology.len();
    let (start, skip) = match attempt {
        0 => (cx.rng().below(n), 0),
        _ => (cx.cpu.index(), attempt - 1),
    };
    let around = move || (0..n).map(move |i| CpuId(((start + i) % n) as u16));
    let at = |far| around().filter(move |&cpu| topology.distance(cx.cpu, cpu) == far);
    (1..=FARTHEST).flat_map(at).filter(|&cpu| cx.queue_len(cpu) > 0).nth(skip)
}

/// The largest distance that [`heddle_core::Topology::distance`] answers.
const FARTHEST: u32 = 4;

/// The answer to a tick under a plain quantum.
#[inline]
pub fn after(quantum: Ns, ran: Ns) -> Resched {
    match ran >= quantum {
        true => Resched::Now,
        false => Resched::After(quantum - ran),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::Desk;
    use crate::{RoundRobin, WorkStealing};
    use heddle_core::{Enqueue, Policy};
    use std::vec::Vec;

    /// The model's machine pairs CPUs into cores and cores into nodes: 0 1 | 2 3 || 4 5 | 6 7.
    fn desk(busy: &[u16]) -> Desk<RoundRobin> {
        let mut desk = Desk::new("round-robin", 8);
        busy.iter().for_each(|&cpu| desk.set_idle(cpu, false));
        desk
    }

    #[test]
    fn the_nearest_idle_cpu_is_found() {
        let nearest = |busy: &[u16]| nearest_idle(&desk(busy).cx(0), CpuId(0)).map(|c| c.0);
        assert_eq!(nearest(&[]), Some(0));
        assert_eq!(nearest(&[0]), Some(1));
        assert_eq!(nearest(&[0, 1]), Some(2));
        assert_eq!(nearest(&[0, 1, 2, 3, 4]), Some(5));
        assert_eq!(nearest(&[0, 1, 2, 3, 4, 5, 6, 7]), None);
    }

    #[test]
    fn every_victim_is_visited_once_near_ones_first() {
        let mut desk = desk(&[]);
        for (task, cpu) in [(0, 6), (1, 1), (2, 3)] {
            desk.enqueue(cpu, task, Enqueue::New);
        }
        let visits: Vec<_> = (1..).map_while(|k| victim(&desk.cx(0), k)).map(|c| c.0).collect();
        assert_eq!(visits, [1, 3, 6]);
        assert_eq!(victim(&desk.cx(0), 0), Some(CpuId(1)));
        assert_eq!(victim(&desk.cx(1), 0), Some(CpuId(3)), "never itself");
    }

    #[test]
    fn equally_near_victims_share_the_first_visits() {
        let mut desk = Desk::<WorkStealing>::new("work-stealing", 8);
        for (task, cpu) in [(0, 4), (1, 5), (2, 6), (3, 7)] {
            desk.enqueue(cpu, task, Enqueue::New);
        }
        let cx = desk.cx(0);
        let first = |_| desk.policy.balance(&cx, 0).unwrap().index();
        let mut visits = [0; 8];
        (0..400).map(first).for_each(|cpu| visits[cpu] += 1);
        assert!(visits[4..].iter().all(|&n| n > 40), "{visits:?}");
    }

    #[test]
    fn a_lone_cpu_has_nobody_to_steal_from() {
        let mut desk = Desk::<RoundRobin>::new("round-robin", 1);
        desk.enqueue(0, 0, Enqueue::New);
        assert_eq!(victim(&desk.cx(0), 0), None);
    }
}
