//! The cost of a preemption and the precision of quanta, through the public API: two tasks that compute on
//! one worker, with and without preemption.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use heddle::{Mechanism, Runtime, scope};
use heddle_core::Ns;
use heddle_sys::clock::{now, process_cpu_time};

/// The results, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// CPU time of the process per preemption. A difference of noisy times, so it can be negative.
    pub each: f64,
    /// The p99 of how much turns exceed the quantum.
    pub late_p99: f64,
    /// The maximum.
    pub late_max: f64,
}

/// The quantum under which the tasks alternate.
const QUANTUM: Ns = Ns::from_us(100);
/// Runs of each kind, in turn: a slow moment hits all kinds.
const TURNS: u64 = 3;
/// Steps of work for the first estimate.
const PROBE: u64 = 1 << 20;

/// CPU time of the process, not wall time: other processes' turns on the CPU are not part of the cost;
/// handlers, the kernel's share of a signal and helper threads are.
#[derive(Default)]
struct Timed {
    time: Ns,
    preemptions: u64,
}

/// Measures for about `budget` of CPU time.
pub fn measure(budget: Ns) -> Costs {
    let probe = compute(Mechanism::None, PROBE);
    let share = budget.0 as f64 / (3 * TURNS) as f64;
    let steps = (PROBE as f64 * share / probe.time.0.max(1) as f64) as u64;
    let [mut quiet, mut alternate] = [(); 2].map(|()| Timed::default());
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        quiet.add(compute(Mechanism::None, steps));
        alternate.add(compute(Mechanism::Signal, steps));
        turns.extend(lengths(Ns(share as u64)));
    }
    costs(&quiet, &alternate, turns)
}

fn costs(quiet: &Timed, alternate: &Timed, mut turns: Vec<u64>) -> Costs {
    let more = alternate.time.0 as f64 - quiet.time.0 as f64;
    turns.sort_unstable();
    let late = |at: usize| turns.get(at).map_or(f64::NAN, |&ns| ns as f64 - QUANTUM.0 as f64);
    Costs {
        each: more / alternate.preemptions as f64,
        late_p99: late(turns.len() * 99 / 100),
        late_max: late(turns.len().wrapping_sub(1)),
    }
}

impl Timed {
    fn add(&mut self, run: Timed) {
        self.time += run.time;
        self.preemptions += run.preemptions;
    }
}

fn runtime(mechanism: Mechanism) -> Runtime {
    let policy = format!("round-robin:quantum={}ns", QUANTUM.0);
    let builder = Runtime::builder().policy(policy).mechanism(mechanism).workers(1);
    builder.build().expect("the machine can run Heddle")
}

/// Two tasks share `steps` of work.
fn compute(mechanism: Mechanism, steps: u64) -> Timed {
    let runtime = runtime(mechanism);
    let time = runtime.run(|| {
        let begin = process_cpu_time();
        scope(|scope| {
            scope.spawn(|| work(steps / 2));
            scope.spawn(|| work(steps / 2));
        });
        process_cpu_time() - begin
    });
    Timed { time, preemptions: runtime.stats().preemptions }
}

/// Computes for `steps` steps.
pub(crate) fn work(steps: u64) {
    let mut x = 1_u64;
    for _ in 0..steps {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).rotate_left(17));
    }
}

/// The lengths of the turns of two tasks that watch the clock for `time`.
fn lengths(time: Ns) -> Vec<u64> {
    let (owner, turn_start) = (AtomicU64::new(0), AtomicU64::new(now().0));
    let end = now() + time;
    let watch = |me: u64| {
        let mut turns = Vec::with_capacity(1 << 16);
        while now() < end {
            if owner.swap(me, Ordering::Relaxed) != me {
                let now = now().0;
                let length = now - turn_start.swap(now, Ordering::Relaxed);
                if turns.len() < turns.capacity() {
                    turns.push(length);
                }
            }
        }
        turns
    };
    runtime(Mechanism::Signal).run(|| {
        scope(|scope| {
            let other = scope.spawn(|| watch(2));
            let mut turns = watch(1);
            turns.extend(other.join().unwrap_or_default());
            turns
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preemption_costs_what_it_adds_and_turns_are_late_beyond_the_quantum() {
        let run = |ms, preemptions| Timed { time: Ns::from_ms(ms), preemptions };
        let turns = (0..200).map(|i| QUANTUM.0 + i).collect();
        let costs = costs(&run(100, 0), &run(103, 200), turns);
        assert_eq!(costs, Costs { each: 15_000.0, late_p99: 198.0, late_max: 199.0 });
    }

    #[test]
    fn without_turns_nothing_is_said_of_them() {
        let costs = costs(&Timed::default(), &Timed::default(), vec![]);
        assert!(costs.late_p99.is_nan() && costs.late_max.is_nan());
    }

    #[test]
    fn a_real_measurement_has_turns() {
        let costs = measure(Ns::from_ms(300));
        assert!(costs.each.is_finite() && costs.late_p99 <= costs.late_max, "{costs:?}");
    }
}
