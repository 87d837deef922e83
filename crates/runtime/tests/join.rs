//! Waiting for tasks: with a limit, for the first of many, and in scopes.

mod common;

use common::{policies, runtime, two_workers};
use heddle_rt::sync::{Semaphore, mpsc, oneshot};
use heddle_rt::{
    Builder, Elapsed, JoinHandle, JoinSet, RuntimeBuilder, RuntimeDropped, panic_message, scope,
    sleep, spawn, yield_now,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(1);

/// Counts how often it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_join_with_a_limit_returns_the_result_or_the_handle() {
    let rt = two_workers("work-stealing:quantum=100us");
    let test = || {
        let (tx, rx) = oneshot::channel();
        let handle = spawn(move || rx.recv().unwrap());
        let handle = handle.join_timeout(SHORT).unwrap_err();
        let handle = handle.join_timeout(Duration::ZERO).unwrap_err();
        assert!(!handle.is_finished());
        tx.send("done").unwrap();
        assert_eq!(handle.join_timeout(LONG).unwrap().unwrap(), "done");
    };
    rt.run(test);
    test();
    let large = rt.spawn(|| [7u8; 10_000]);
    assert_eq!(large.join_timeout(LONG).unwrap().unwrap()[9_999], 7);
    let panics = rt.spawn(|| panic!("on purpose"));
    assert_eq!(panic_message(&*panics.join_timeout(LONG).unwrap().unwrap_err()), "on purpose");
}

/// The handle is dropped or joined after a wait whose time passed just as the task ended.
#[test]
fn the_result_is_there_once_however_limited_waits_and_the_end_meet() {
    for policy in &policies() {
        two_workers(policy).run(|| {
            let (drops, mut joined) = (Arc::new(AtomicUsize::new(0)), 0);
            const TASKS: usize = 400;
            for i in 0..TASKS {
                let counted = Counted(drops.clone());
                let handle = spawn(move || {
                    (0..i % 4).for_each(|_| yield_now());
                    counted
                });
                let result = handle.join_timeout(Duration::from_micros(i as u64 % 9));
                match result {
                    Ok(result) => drop(result.unwrap()),
                    Err(handle) if i % 2 == 0 => drop(handle),
                    Err(handle) => drop(handle.join().unwrap()),
                }
                joined += 1;
            }
            assert_eq!(joined, TASKS);
            while drops.load(Ordering::Relaxed) < TASKS {
                sleep(SHORT);
            }
            assert_eq!(drops.load(Ordering::Relaxed), TASKS);
        });
    }
}

#[test]
fn a_limited_join_learns_that_the_runtime_was_dropped() {
    let rt = runtime("fifo");
    let sleeper = rt.spawn(|| sleep(LONG));
    let sleeper = sleeper.join_timeout(SHORT).unwrap_err();
    let waiting = std::thread::spawn(move || sleeper.join_timeout(LONG));
    sleep(SHORT);
    drop(rt);
    assert!(waiting.join().unwrap().unwrap().unwrap_err().is::<RuntimeDropped>());
}

#[test]
fn a_handle_may_move_on_to_another_waiter_after_its_limit() {
    let rt = two_workers("work-stealing");
    for _ in 0..50 {
        let (tx, rx) = oneshot::channel::<()>();
        let handle = rt.spawn(move || rx.recv().is_ok());
        let handle = handle.join_timeout(Duration::from_micros(50)).unwrap_err();
        let other = std::thread::spawn(move || handle.join_timeout(Duration::from_micros(50)));
        let handle = other.join().unwrap().unwrap_err();
        let last = rt.spawn(move || handle.join().unwrap());
        tx.send(()).unwrap();
        assert!(last.join().unwrap());
    }
}

#[test]
fn a_set_returns_results_in_the_order_in_which_tasks_end() {
    for policy in &policies() {
        two_workers(policy).run(|| {
            let mut set = JoinSet::new();
            let gates: [_; 3] = std::array::from_fn(|_| Arc::new(Semaphore::new(0)));
            for (i, gate) in gates.iter().cloned().enumerate() {
                set.spawn(move || {
                    gate.acquire().forget();
                    i
                });
            }
            assert_eq!(set.len(), 3);
            assert!(set.try_join_next().is_none());
            assert_eq!(set.join_next_timeout(SHORT).err(), Some(Elapsed));
            for i in [2, 0, 1] {
                gates[i].release(1);
                assert_eq!(set.join_next().unwrap().unwrap(), i);
            }
            assert!(set.is_empty() && set.join_next().is_none());
            assert_eq!(set.join_next_timeout(LONG).map(|none| none.is_none()), Ok(true));
        });
    }
}

#[test]
fn a_set_joins_thousands_each_once() {
    let rt = two_workers("work-stealing:quantum=100us");
    let (sum, mut by_hand) = rt.run(|| {
        let set: JoinSet<usize> = (0..3000).map(|i| move || i).collect();
        let mut ten: JoinSet<usize> = (0..10).map(|i| move || i).collect();
        let mut seen = vec![];
        while seen.len() < 10 {
            match ten.try_join_next() {
                Some(result) => seen.push(result.unwrap()),
                None => yield_now(),
            }
        }
        (set.join_all().into_iter().sum::<usize>(), seen)
    });
    by_hand.sort_unstable();
    assert_eq!((sum, by_hand), (3000 * 2999 / 2, (0..10).collect()));
}

#[test]
fn a_set_passes_panics_on() {
    runtime("fifo").run(|| {
        let mut set = JoinSet::<()>::new();
        set.spawn(|| panic!("on purpose"));
        let panic = set.join_next().unwrap().unwrap_err();
        assert_eq!(panic_message(&*panic), "on purpose");
        set.try_spawn(Builder::new().name("fails"), || panic!("again")).unwrap();
        let all = std::panic::AssertUnwindSafe(|| set.join_all());
        assert!(std::panic::catch_unwind(all).is_err());
    });
}

#[test]
fn tasks_of_a_dropped_set_run_on() {
    runtime("fifo").run(|| {
        let (tx, rx) = mpsc::channel();
        let mut set = JoinSet::new();
        set.spawn({
            let tx = tx.clone();
            move || tx.send(1)
        });
        set.detach_all();
        assert!(set.join_next().is_none());
        set.spawn(move || tx.send(2));
        drop(set);
        assert_eq!(rx.iter().collect::<Vec<_>>(), [1, 2]);
    });
}

#[test]
fn a_set_learns_that_the_runtime_of_its_tasks_was_dropped() {
    let rt = RuntimeBuilder::new().workers(1).build().unwrap();
    let set = rt.run(|| {
        let mut set = JoinSet::new();
        (0..3).for_each(|_| set.spawn(|| sleep(LONG)));
        set
    });
    let waiting = std::thread::spawn(move || {
        let mut set: JoinSet<()> = set;
        std::iter::from_fn(|| set.join_next()).map(|result| result.unwrap_err()).collect::<Vec<_>>()
    });
    sleep(SHORT);
    drop(rt);
    let errors = waiting.join().unwrap();
    assert_eq!(errors.len(), 3);
    assert!(errors.iter().all(|error| error.is::<RuntimeDropped>()));
}

#[test]
fn a_scoped_task_is_joined_with_a_limit() {
    runtime("fifo").run(|| {
        let gate = Semaphore::new(0);
        scope(|s| {
            let handle = s.spawn(|| gate.acquire().forget());
            assert!(!handle.is_finished());
            let handle = handle.join_timeout(SHORT).expect_err("it waits");
            gate.release(1);
            handle.join_timeout(LONG).unwrap().unwrap();
        });
    });
}

#[test]
fn a_handle_knows_whether_the_task_has_ended() {
    runtime("fifo").run(|| {
        let handle: JoinHandle<()> = spawn(|| ());
        assert!(!handle.is_finished(), "the only worker runs this task");
        while !handle.is_finished() {
            yield_now();
        }
        handle.join().unwrap();
    });
}
