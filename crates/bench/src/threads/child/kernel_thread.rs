//! The operations on `std::thread`: kernel threads, with the standard library's futex mutex and condition variable.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, yield_now};

use heddle_core::Ns;

use super::paced;
use crate::threads::Op;

pub fn measure(op: Op, budget: Ns) -> f64 {
    paced(budget, |n| match op {
        Op::Yield => yields(n),
        Op::SpawnJoin => (0..n).for_each(|_| thread::spawn(|| ()).join().expect("an empty thread")),
        Op::SpawnYield => spawn_yield(n),
        Op::Mutex => mutex(n),
        Op::Condvar => condvar(n),
    })
}

fn yields(n: u64) {
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..n / 2).for_each(|_| yield_now()));
        }
    });
}

fn spawn_yield(n: u64) {
    let finished = Arc::new(AtomicU64::new(0));
    let mut started = 0;
    while started < n {
        let finished = Arc::clone(&finished);
        // The kernel may queue many threads before it runs one: at the thread limit, yield.
        let thread = thread::Builder::new().spawn(move || finished.fetch_add(1, Ordering::Relaxed));
        started += u64::from(thread.is_ok());
        yield_now();
    }
    while finished.load(Ordering::Relaxed) < n {
        yield_now();
    }
}

fn mutex(n: u64) {
    let mutex = Mutex::new(0_u64);
    for _ in 0..n {
        *mutex.lock().expect("not poisoned") += 1;
    }
}

fn condvar(n: u64) {
    let (turn, turn_of) = (Mutex::new(0), [Condvar::new(), Condvar::new()]);
    let player = |me: usize| {
        let mut turn = turn.lock().expect("not poisoned");
        for _ in 0..n / 2 {
            while *turn != me {
                turn = turn_of[me].wait(turn).expect("not poisoned");
            }
            *turn = 1 - me;
            turn_of[1 - me].notify_one();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| player(0));
        scope.spawn(|| player(1));
    });
}
