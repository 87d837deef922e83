//! The operations on Heddle's threads, which wait where a future would be pending.

use crate::futures::{Op, System};
use crate::threads::child::paced;
use heddle::{block_on, scope, spawn, yield_now};
use heddle_core::Ns;
use tokio::sync::Notify;

pub(super) fn measure(op: Op, budget: Ns, quantum: Ns, batch: u64) -> f64 {
    let runtime = runtime(quantum);
    paced(budget, |n| runtime.run(move || run(op, n, batch)))
}

/// # Panics
/// If it cannot be started.
pub(super) fn runtime(quantum: Ns) -> heddle::Runtime {
    let policy = System::Threads.policy(quantum).expect("a policy of Heddle's");
    let builder = heddle::Runtime::builder().workers(1).policy(policy);
    builder.build().expect("the machine can run Heddle")
}

fn run(op: Op, n: u64, batch: u64) {
    match op {
        Op::SpawnAwait => (0..n).for_each(|_| spawn(|| ()).join().expect("an empty thread")),
        Op::SpawnBatch => {
            for first in (0..n).step_by(batch as usize) {
                let all: Vec<_> = (first..n.min(first + batch)).map(|_| spawn(|| ())).collect();
                all.into_iter().for_each(|thread| thread.join().expect("an empty thread"));
            }
        }
        Op::Yield => scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..n / 2).for_each(|_| yield_now()));
            }
        }),
        Op::Wake => wake(n),
    }
}

fn wake(n: u64) {
    let bells = [Notify::new(), Notify::new()];
    let player = |me: usize| {
        for _ in 0..n / 2 {
            block_on(bells[me].notified());
            bells[1 - me].notify_one();
        }
    };
    bells[0].notify_one();
    scope(|scope| {
        scope.spawn(|| player(0));
        scope.spawn(|| player(1));
    });
}
