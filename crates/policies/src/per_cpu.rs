//! Shared by the policies with a queue per CPU: where to place, where to steal, when to ask again.

use heddle_core::{Balance, CpuId, Cx, Ns, Resched};

/// Returns whose queue an idle `cx.cpu` visits at its `attempt`: near CPUs before far ones, starting at
/// random among equals, skipping queues that seem empty.
///
/// Randomness keeps idle CPUs from all going to the same victim. Later attempts, which follow a failed
/// steal, count from the CPU itself instead of a new random start: so they visit every victim once and
/// then end, without state to carry from one to the next.
pub fn victim<T>(cx: &Cx<'_, T>, attempt: usize) -> Balance {
    // A number is drawn only if there is a choice, so that it does not matter how often a hook asks
    // while nothing waits.
    let (start, nth) = match attempt {
        0 if cx.nearest_waiting(cx.cpu, 0).is_none() => return Balance::Nowhere,
        0 => (CpuId(cx.rng().below(cx.topology().len()) as u16), 0),
        _ => (cx.cpu, attempt - 1),
    };
    cx.nearest_waiting(start, nth).map_or(Balance::Nowhere, Balance::From)
}

/// The answer to a tick under a plain quantum.
#[inline]
pub fn after(quantum: Ns, ran: Ns) -> Resched {
    match ran >= quantum {
        true => Resched::Now,
        false => Resched::After(quantum - ran),
    }
}

/// The same if the hook's clock ticks: the quantum ends at the first multiple of `tick` at which it is over.
pub fn at_tick(quantum: Ns, ran: Ns, now: Ns, tick: Ns) -> Resched {
    let due = Ns((now + (quantum - ran)).0.checked_next_multiple_of(tick.0).unwrap_or(u64::MAX));
    match due > now {
        true => Resched::After(due - now),
        false => Resched::Now,
    }
}

/// The same for an optional quantum: without one, tasks run for as long as they like.
#[inline]
pub fn after_or_never(quantum: Option<Ns>, ran: Ns) -> Resched {
    quantum.map_or(Resched::Never, |quantum| after(quantum, ran))
}

/// The same if the quantum may shrink to `quantum` while the task runs: the hook is asked again after
/// each `quantum`, so that a task arriving meanwhile does not wait for all of `limit`.
#[inline]
pub fn after_looking(limit: Ns, quantum: Ns, ran: Ns) -> Resched {
    match after(limit, ran) {
        Resched::After(left) if ran < quantum => Resched::After(left.min(quantum - ran)),
        Resched::After(left) => Resched::After(left.min(quantum)),
        other => other,
    }
}

/// The same if only a task that is enqueued can shrink the limit to `quantum`: hooks then need not look.
#[inline]
pub fn until(limit: Ns, quantum: Ns, ran: Ns) -> Resched {
    match ran < quantum {
        true => after(quantum, ran),
        false if ran < limit => Resched::Until(limit - ran),
        false => Resched::Now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::PolicyHarness;
    use crate::{RoundRobin, WorkStealing};
    use heddle_core::Enqueue;
    use std::vec::Vec;

    /// The model's machine pairs CPUs into cores and cores into nodes: 0 1 | 2 3 || 4 5 | 6 7.
    fn harness(busy: &[u16]) -> PolicyHarness<RoundRobin> {
        let mut harness = PolicyHarness::new("round-robin", 8);
        busy.iter().for_each(|&cpu| harness.set_idle(cpu, false));
        harness
    }

    #[test]
    fn the_nearest_idle_cpu_is_found() {
        let nearest = |busy: &[u16]| harness(busy).cx(0).nearest_idle(CpuId(0)).map(|c| c.0);
        assert_eq!(nearest(&[]), Some(0));
        assert_eq!(nearest(&[0]), Some(1));
        assert_eq!(nearest(&[0, 1]), Some(2));
        assert_eq!(nearest(&[0, 1, 2, 3, 4]), Some(5));
        assert_eq!(nearest(&[0, 1, 2, 3, 4, 5, 6, 7]), None);
    }

    #[test]
    fn a_limit_that_only_arrivals_shrink_is_asked_about_once_a_quantum_is_over() {
        let us = Ns::from_us;
        assert_eq!(super::until(us(30), us(10), us(0)), Resched::After(us(10)));
        assert_eq!(super::until(us(30), us(10), us(4)), Resched::After(us(6)));
        assert_eq!(super::until(us(30), us(10), us(10)), Resched::Until(us(20)));
        assert_eq!(super::until(us(30), us(10), us(29)), Resched::Until(us(1)));
        assert_eq!(super::until(us(30), us(10), us(30)), Resched::Now);
        assert_eq!(super::until(us(10), us(10), us(10)), Resched::Now);
    }

    fn from<T>(cx: &Cx<'_, T>, attempt: usize) -> Option<CpuId> {
        match victim(cx, attempt) {
            Balance::From(cpu) => Some(cpu),
            Balance::Nowhere => None,
            Balance::Later(_) => unreachable!("nothing to wait for"),
        }
    }

    #[test]
    fn every_victim_is_visited_once_near_ones_first() {
        let mut harness = harness(&[]);
        for (task, cpu) in [(0, 6), (1, 1), (2, 3)] {
            harness.enqueue(cpu, task, Enqueue::New);
        }
        let visits: Vec<_> = (1..).map_while(|k| from(&harness.cx(0), k)).map(|c| c.0).collect();
        assert_eq!(visits, [1, 3, 6]);
        assert_eq!(from(&harness.cx(0), 0), Some(CpuId(1)));
        assert_eq!(from(&harness.cx(1), 0), Some(CpuId(3)), "never itself");
    }

    #[test]
    fn equally_near_victims_share_the_first_visits() {
        let mut harness = PolicyHarness::<WorkStealing>::new("work-stealing", 8);
        for (task, cpu) in [(0, 4), (1, 5), (2, 6), (3, 7)] {
            harness.enqueue(cpu, task, Enqueue::New);
        }
        let cx = harness.cx(0);
        let first = |_| from(&cx, 0).unwrap().index();
        let mut visits = [0; 8];
        (0..400).map(first).for_each(|cpu| visits[cpu] += 1);
        assert!(visits[4..].iter().all(|&n| n > 40), "{visits:?}");
    }

    #[test]
    fn a_single_cpu_steals_nothing() {
        let mut harness = PolicyHarness::<RoundRobin>::new("round-robin", 1);
        harness.enqueue(0, 0, Enqueue::New);
        assert_eq!(from(&harness.cx(0), 0), None);
    }
}
