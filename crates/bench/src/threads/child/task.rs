//! The operations on tokio's tasks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use heddle_core::Ns;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, Notify};
use tokio::task::{JoinHandle, spawn, yield_now};

use super::paced;
use crate::threads::Op;

/// The runtime of single-core servers.
pub fn current_thread() -> Runtime {
    Builder::new_current_thread()
        .build()
        .expect("a runtime without drivers needs nothing that can fail")
}

/// The default runtime with this many workers.
pub fn with_workers(workers: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(workers).build().expect("the process may start a thread")
}

pub fn measure(runtime: Runtime, op: Op, budget: Ns, workers: u64) -> f64 {
    // The body is a spawned task: `block_on` polls its own future in a different and slower way.
    paced(budget, |n| runtime.block_on(side_by_side(op, n, workers)))
}

async fn side_by_side(op: Op, n: u64, workers: u64) {
    let tasks: Vec<_> = (0..workers).map(|_| spawn(run(op, n / workers))).collect();
    for task in tasks {
        done(task).await;
    }
}

fn run(op: Op, n: u64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    match op {
        Op::Yield => Box::pin(yields(n)),
        Op::SpawnJoin => Box::pin(spawn_join(n)),
        Op::SpawnYield => Box::pin(spawn_yield(n)),
        Op::Mutex => Box::pin(mutex(n)),
        Op::Condvar => Box::pin(condvar(n)),
    }
}

async fn done(task: JoinHandle<()>) {
    task.await.expect("the measured task does not panic");
}

async fn yields(n: u64) {
    let [a, b] = [(); 2].map(|()| {
        spawn(async move {
            for _ in 0..n / 2 {
                yield_now().await;
            }
        })
    });
    done(a).await;
    done(b).await;
}

async fn spawn_join(n: u64) {
    for _ in 0..n {
        done(spawn(async {})).await;
    }
}

async fn spawn_yield(n: u64) {
    let finished = Arc::new(AtomicU64::new(0));
    for _ in 0..n {
        let finished = Arc::clone(&finished);
        spawn(async move {
            finished.fetch_add(1, Ordering::Relaxed);
        });
        yield_now().await;
    }
    while finished.load(Ordering::Relaxed) < n {
        yield_now().await;
    }
}

async fn mutex(n: u64) {
    let mutex = Mutex::new(0_u64);
    for _ in 0..n {
        *mutex.lock().await += 1;
    }
}

/// tokio has no condition variable: each of two tasks waits for its own `Notify`.
async fn condvar(n: u64) {
    let bells = Arc::new([Notify::new(), Notify::new()]);
    let [a, b] = [0, 1].map(|me| {
        let bells = Arc::clone(&bells);
        spawn(async move {
            for _ in 0..n / 2 {
                bells[me].notified().await;
                bells[1 - me].notify_one();
            }
        })
    });
    bells[0].notify_one();
    done(a).await;
    done(b).await;
}
