//! One measurement in a separate process: the systems that are Rust crates, started by the runner as
//! `heddle bench threads --child SYSTEM OP MILLISECONDS`. The output format is that of the compiled peers.
//!
//! With several workers, as many tasks do the operations in parallel, and the result is still the CPU time of
//! one operation: its growth is the cost of sharing.

use heddle_core::Ns;
use heddle_sys::clock::process_cpu_time;

use super::{Op, System};

mod coroutine;
pub mod dispatch;
mod heddle_task;
mod kernel_thread;
pub mod preemption;
mod task;

/// Untimed warm-up operations; also the least number that is timed.
const WARM_UP: u64 = 2000;

/// Measures `op` on `system` for about `budget` of CPU time and returns the CPU nanoseconds of one operation;
/// `None` if `system` lacks `op`, or is a compiled peer.
pub fn measure(system: System, op: Op, budget: Ns, workers: usize) -> Option<f64> {
    match system {
        _ if system.lacks(op).is_some() || (workers > 1 && !system.scales()) => None,
        System::Heddle => Some(heddle_task::measure(op, budget, workers)),
        System::Tokio => Some(task::measure(task::current_thread(), op, budget, 1)),
        System::TokioMt => {
            Some(task::measure(task::with_workers(workers), op, budget, workers as u64))
        }
        System::May => Some(coroutine::measure(op, budget)),
        System::Std => Some(kernel_thread::measure(op, budget)),
        System::BoostFiber | System::Go | System::Pthread => None,
    }
}

/// Warms up, estimates, then runs for about `budget`: the same in every peer. `run(n)` performs `n` operations
/// and returns when all of them are done.
pub(crate) fn paced(budget: Ns, mut run: impl FnMut(u64)) -> f64 {
    let mut ns_per_op = |n: u64| {
        // CPU time of the whole process: a runtime's helper threads are part of the cost.
        let begin = process_cpu_time();
        run(n);
        (process_cpu_time() - begin).0 as f64 / n as f64
    };
    ns_per_op(WARM_UP);
    let estimate = ns_per_op(WARM_UP);
    ns_per_op(((budget.0 as f64 / (estimate + 0.1)) as u64).max(WARM_UP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::peer;

    /// Every operation of every built-in system ends and costs something.
    #[test]
    fn built_in_systems_measure_every_operation() {
        for system in System::ALL {
            for op in Op::ALL {
                if let Some(ns) = measure(system, op, Ns::from_us(100), 1) {
                    assert!(ns > 0.1 && ns < 1e8, "{system} {op}: {ns}");
                }
            }
        }
    }

    #[test]
    fn more_workers_share_the_operations() {
        let workers = heddle_sys::thread::affinity().unwrap().len().min(2);
        for system in System::ALL {
            let measured = measure(system, Op::SpawnJoin, Ns::from_us(100), workers);
            let has_figure = measured.is_some_and(|ns| ns > 0.1 && ns < 1e8);
            assert_eq!(has_figure, workers == 1 && !peer::is_compiled(system) || system.scales());
        }
    }

    #[test]
    fn the_budget_sets_the_number_of_operations() {
        let mut batches = Vec::new();
        paced(Ns::ZERO, |n| batches.push(n));
        assert_eq!(batches, [WARM_UP; 3]);
    }
}
