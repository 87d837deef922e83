//! The operations on may's coroutines.

use std::sync::Arc;

use heddle_core::Ns;
use may::coroutine::yield_now;
use may::go;
use may::sync::{Condvar, Mutex};

use super::paced;
use crate::threads::Op;

pub fn measure(op: Op, budget: Ns) -> f64 {
    may::config().set_workers(1);
    paced(budget, |n| {
        go!(move || run(op, n)).join().expect("the measured coroutine does not panic")
    })
}

fn run(op: Op, n: u64) {
    match op {
        Op::Yield => yields(n),
        Op::SpawnJoin => (0..n).for_each(|_| go!(|| ()).join().expect("an empty coroutine")),
        Op::SpawnYield => unreachable!("`System::lacks` says why"),
        Op::Mutex => mutex(n),
        Op::Condvar => condvar(n),
    }
}

fn yields(n: u64) {
    let pair = [(); 2].map(|()| go!(move || (0..n / 2).for_each(|_| yield_now())));
    pair.into_iter().for_each(|coroutine| coroutine.join().expect("yields only"));
}

fn mutex(n: u64) {
    let mutex = Mutex::new(0_u64);
    for _ in 0..n {
        *mutex.lock().expect("not poisoned") += 1;
    }
}

fn condvar(n: u64) {
    let table = Arc::new((Mutex::new(0_usize), [Condvar::new(), Condvar::new()]));
    let players = [0, 1].map(|me| {
        let table = Arc::clone(&table);
        go!(move || {
            let (turn, turn_of) = &*table;
            let mut turn = turn.lock().expect("not poisoned");
            for _ in 0..n / 2 {
                while *turn != me {
                    turn = turn_of[me].wait(turn).expect("not poisoned");
                }
                *turn = 1 - me;
                turn_of[1 - me].notify_one();
            }
        })
    });
    players.into_iter().for_each(|player| player.join().expect("plays to the end"));
}
