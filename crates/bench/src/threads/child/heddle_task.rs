//! The operations on Heddle's tasks, through the public API, with all defaults: the policy, its calls,
//! preemption, the counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use heddle::sync::{Condvar, Mutex};
use heddle::{Runtime, scope, spawn, yield_now};
use heddle_core::Ns;

use super::paced;
use crate::threads::Op;

pub fn measure(op: Op, budget: Ns, workers: usize) -> f64 {
    let runtime = Runtime::builder().workers(workers).build().expect("the machine can run Heddle");
    paced(budget, |n| runtime.run(move || side_by_side(op, n, workers as u64)))
}

fn side_by_side(op: Op, n: u64, workers: u64) {
    if workers == 1 {
        return run(op, n);
    }
    scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(move || run(op, n / workers)))));
}

fn run(op: Op, n: u64) {
    match op {
        Op::Yield => yields(n),
        Op::SpawnJoin => (0..n).for_each(|_| spawn(|| ()).join().expect("an empty task")),
        Op::SpawnYield => spawn_yield(n),
        Op::Mutex => mutex(n),
        Op::Condvar => condvar(n),
    }
}

fn yields(n: u64) {
    scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..n / 2).for_each(|_| yield_now()));
        }
    });
}

fn spawn_yield(n: u64) {
    let finished = Arc::new(AtomicU64::new(0));
    for _ in 0..n {
        let finished = Arc::clone(&finished);
        spawn(move || finished.fetch_add(1, Ordering::Relaxed));
        yield_now();
    }
    while finished.load(Ordering::Relaxed) < n {
        yield_now();
    }
}

fn mutex(n: u64) {
    let mutex = Mutex::new(0_u64);
    for _ in 0..n {
        *mutex.lock() += 1;
    }
}

fn condvar(n: u64) {
    let (turn, turn_of) = (Mutex::new(0), [Condvar::new(), Condvar::new()]);
    let player = |me: usize| {
        let mut turn = turn.lock();
        for _ in 0..n / 2 {
            while *turn != me {
                turn_of[me].wait(&mut turn);
            }
            *turn = 1 - me;
            turn_of[1 - me].notify_one();
        }
    };
    scope(|scope| {
        scope.spawn(|| player(0));
        scope.spawn(|| player(1));
    });
}
