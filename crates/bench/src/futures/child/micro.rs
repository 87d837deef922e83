//! Single operations.

use super::executor::{Executor, Tasks, Use, start};
use crate::futures::{Op, System};
use crate::threads::child::paced;
use heddle_core::Ns;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Notify;

/// Tasks of one batch.
const BATCH: u64 = 10_000;

/// The quantum of policies that have one.
const QUANTUM: Ns = Ns::from_us(100);

/// Measures `op` on `system` for about `budget` of CPU time; returns the CPU nanoseconds of one operation.
pub(super) fn measure(system: System, op: Op, budget: Ns) -> f64 {
    if system == System::Threads {
        return super::threads::measure(op, budget, QUANTUM, BATCH);
    }
    start(system, QUANTUM, Paced { op, budget })
}

struct Paced {
    op: Op,
    budget: Ns,
}

impl Use for Paced {
    type Out = f64;

    fn with(self, executor: impl Executor) -> f64 {
        let run = |n| executor.run(body(executor.tasks(), self.op, n));
        if self.op == Op::SpawnBatch {
            // A runtime takes the memory for so many tasks once.
            run(BATCH);
        }
        paced(self.budget, run)
    }
}

fn body<T: Tasks>(tasks: T, op: Op, n: u64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    match op {
        Op::SpawnAwait => Box::pin(spawn_await(tasks, n)),
        Op::SpawnBatch => Box::pin(spawn_batch(tasks, n)),
        Op::Yield => Box::pin(yields(tasks, n)),
        Op::Wake => Box::pin(wake(tasks, n)),
    }
}

async fn spawn_await<T: Tasks>(tasks: T, n: u64) {
    for _ in 0..n {
        tasks.spawn(async {}).await;
    }
}

async fn spawn_batch<T: Tasks>(tasks: T, n: u64) {
    let mut handles = Vec::with_capacity(BATCH as usize);
    for first in (0..n).step_by(BATCH as usize) {
        for _ in first..n.min(first + BATCH) {
            handles.push(tasks.spawn(async {}));
        }
        for handle in handles.drain(..) {
            handle.await;
        }
    }
}

async fn yields<T: Tasks>(tasks: T, n: u64) {
    let pair = [(); 2].map(|()| {
        tasks.spawn(async move {
            for _ in 0..n / 2 {
                T::yield_now().await;
            }
        })
    });
    for task in pair {
        task.await;
    }
}

async fn wake<T: Tasks>(tasks: T, n: u64) {
    let bells = Arc::new([Notify::new(), Notify::new()]);
    let pair = [0, 1].map(|me| {
        let bells = Arc::clone(&bells);
        tasks.spawn(async move {
            for _ in 0..n / 2 {
                bells[me].notified().await;
                bells[1 - me].notify_one();
            }
        })
    });
    bells[0].notify_one();
    for task in pair {
        task.await;
    }
}
