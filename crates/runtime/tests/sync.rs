//! Locks and conditions between tasks and ordinary threads, under every policy, with one worker and two.

mod common;

use common::{policies, runtime, two_workers};
use heddle_rt::sync::{Barrier, Condvar, Mutex, Once, RwLock, Semaphore};
use heddle_rt::{Runtime, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PARTIES: usize = 6;

/// Runs `work` in tasks and in ordinary threads at the same time.
fn mixed(rt: &Runtime, work: impl Fn(usize) + Send + Sync + 'static) {
    let work = Arc::new(work);
    let task = |i: usize| {
        let work = work.clone();
        move || work(i)
    };
    let tasks: Vec<_> = (0..PARTIES / 2).map(|i| rt.spawn(task(i))).collect();
    let threads: Vec<_> = (PARTIES / 2..PARTIES).map(|i| std::thread::spawn(task(i))).collect();
    tasks.into_iter().for_each(|t| t.join().unwrap());
    threads.into_iter().for_each(|t| t.join().unwrap());
}

fn everywhere(test: impl Fn(&Runtime)) {
    for policy in &policies() {
        for rt in [runtime(policy), two_workers(policy)] {
            test(&rt);
        }
    }
}

/// A counter that loses increments if two count at once.
#[derive(Default)]
struct Fragile(AtomicUsize);

impl Fragile {
    fn count(&self) {
        let seen = self.0.load(Ordering::Relaxed);
        if seen.is_multiple_of(64) {
            yield_now();
        }
        self.0.store(seen + 1, Ordering::Relaxed);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_mutex_admits_one_holder() {
    everywhere(|rt| {
        let shared = Arc::new((Mutex::new(()), Fragile::default()));
        let theirs = shared.clone();
        mixed(rt, move |_| {
            for _ in 0..1000 {
                let _guard = theirs.0.lock();
                theirs.1.count();
            }
        });
        assert_eq!(shared.1.get(), PARTIES * 1000);
    });
}

#[test]
fn a_rwlock_admits_one_writer_or_many_readers() {
    everywhere(|rt| {
        let shared = Arc::new(RwLock::new((0usize, 0usize)));
        let theirs = shared.clone();
        mixed(rt, move |i| {
            for round in 0..300 {
                if (i + round) % 3 == 0 {
                    let mut pair = theirs.write();
                    pair.0 += 1;
                    yield_now();
                    pair.1 += 1;
                } else {
                    let pair = theirs.read();
                    yield_now();
                    assert_eq!(pair.0, pair.1, "a writer is in");
                }
            }
        });
        assert_eq!(*shared.read(), (PARTIES * 100, PARTIES * 100));
    });
}

#[test]
fn a_semaphore_admits_as_many_as_it_has_permits() {
    everywhere(|rt| {
        let shared = Arc::new((Semaphore::new(2), AtomicUsize::new(0)));
        let theirs = shared.clone();
        mixed(rt, move |_| {
            for _ in 0..300 {
                let _permit = theirs.0.acquire();
                assert!(theirs.1.fetch_add(1, Ordering::SeqCst) < 2);
                yield_now();
                theirs.1.fetch_sub(1, Ordering::SeqCst);
            }
        });
        assert_eq!(shared.0.available(), 2);
    });
}

#[test]
fn a_barrier_holds_all_parties_until_the_last_arrives() {
    everywhere(|rt| {
        let shared = Arc::new((Barrier::new(PARTIES), AtomicUsize::new(0), AtomicUsize::new(0)));
        let theirs = shared.clone();
        mixed(rt, move |_| {
            for round in 1..=50 {
                theirs.1.fetch_add(1, Ordering::SeqCst);
                let leader = theirs.0.wait().is_leader();
                assert!(theirs.1.load(Ordering::SeqCst) >= round * PARTIES);
                theirs.2.fetch_add(usize::from(leader), Ordering::SeqCst);
            }
        });
        assert_eq!(shared.2.load(Ordering::SeqCst), 50, "one leader a round");
    });
}

#[test]
fn an_initialiser_runs_once_and_all_wait_for_it() {
    everywhere(|rt| {
        for _ in 0..20 {
            let shared = Arc::new((Once::new(), AtomicUsize::new(0)));
            let theirs = shared.clone();
            mixed(rt, move |_| {
                theirs.0.call_once(|| {
                    yield_now();
                    theirs.1.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(theirs.1.load(Ordering::Relaxed), 1);
            });
        }
    });
}

#[test]
fn a_once_that_panics_is_tried_again() {
    runtime("fifo").run(|| {
        let once = Once::new();
        let tried = std::panic::AssertUnwindSafe(|| once.call_once(|| panic!("no")));
        assert!(std::panic::catch_unwind(tried).is_err());
        assert!(!once.is_completed());
        once.call_once(|| ());
        assert!(once.is_completed());
    });
}

/// Turns are handed round: each party waits for its number. One lost notification stops all of them.
#[test]
fn notifications_are_not_lost() {
    everywhere(|rt| {
        let shared = Arc::new((Mutex::new(0usize), Condvar::new()));
        mixed(rt, move |i| {
            for _ in 0..100 {
                let mut turn = shared.0.lock();
                shared.1.wait_while(&mut turn, |t| *t % PARTIES != i);
                *turn += 1;
                drop(turn);
                shared.1.notify_all();
            }
        });
    });
}

/// Outcomes of waits whose time limit races with notifications.
#[derive(Default)]
struct Account {
    /// Waiters inside of `wait_for`.
    waiting: usize,
    notified: usize,
    timed_out: usize,
}

/// Each wait ends by a notification or by its time limit, never by both.
#[test]
fn a_wait_ends_by_a_notification_or_by_its_time_limit() {
    const ROUNDS: usize = 200;
    everywhere(|rt| {
        let shared = Arc::new((Mutex::new(Account::default()), Condvar::new()));
        let theirs = shared.clone();
        mixed(rt, move |i| {
            for round in 0..ROUNDS {
                let mut account = theirs.0.lock();
                if i % 2 == 0 {
                    account.waiting += 1;
                    let time = Duration::from_micros(((i + round) % 5 * 20) as u64);
                    match theirs.1.wait_for(&mut account, time) {
                        true => account.notified += 1,
                        false => account.timed_out += 1,
                    }
                    account.waiting -= 1;
                } else {
                    drop(account);
                    theirs.1.notify_one();
                    yield_now();
                }
            }
        });
        let account = shared.0.lock();
        assert_eq!(account.waiting, 0);
        assert_eq!(account.notified + account.timed_out, PARTIES / 2 * ROUNDS);
        assert!(account.notified <= PARTIES / 2 * ROUNDS);
    });
}

/// If a waiter took a notification although its time had passed, another waiter, which has no time limit, would sleep
/// forever.
#[test]
fn a_notification_reaches_a_party_that_still_waits() {
    everywhere(|rt| {
        let shared = Arc::new((Mutex::new((0usize, 0usize)), Condvar::new()));
        let theirs = shared.clone();
        // Tokens are added one by one, with one notification each. Takers with a time limit return without one, the
        // others do not.
        mixed(rt, move |i| {
            for _ in 0..200 {
                let mut state = theirs.0.lock();
                if i % 2 == 0 {
                    state.0 += 1;
                    drop(state);
                    theirs.1.notify_one();
                    continue;
                }
                while state.0 == 0 {
                    if i == 1 {
                        theirs.1.wait(&mut state);
                    } else if !theirs.1.wait_for(&mut state, Duration::from_micros(30))
                        && state.0 > 0
                    {
                        // Timed out, and takes a token all the same: its notification went to another taker, which
                        // waits again.
                        break;
                    }
                }
                state.0 -= 1;
                state.1 += 1;
            }
        });
        let state = shared.0.lock();
        assert_eq!(*state, (0, PARTIES / 2 * 200));
    });
}

/// Such a thread inherits from the worker the register that identifies workers, and is not one.
#[test]
fn a_thread_started_by_a_task_wakes_tasks() {
    for rt in [runtime("fifo"), two_workers("work-stealing:quantum=100us")] {
        rt.run(|| {
            for _ in 0..200 {
                let (ask, answer) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
                let (asked, answered) = (ask.clone(), answer.clone());
                let thread = std::thread::spawn(move || {
                    asked.acquire().forget();
                    answered.release(1);
                });
                ask.release(1);
                answer.acquire().forget();
                heddle_rt::blocking(|| thread.join().unwrap());
            }
        });
    }
}

const SHORT: Duration = Duration::from_millis(1);

#[test]
fn a_lock_with_a_time_limit_is_taken_or_given_up() {
    let test = || {
        let mutex = Mutex::new(1);
        let guard = mutex.lock();
        assert!(mutex.try_lock_for(SHORT).is_none());
        assert!(mutex.try_lock_until(Instant::now() + SHORT).is_none());
        drop(guard);
        assert_eq!(mutex.try_lock_for(SHORT).map(|value| *value), Some(1));
        let lock = RwLock::new(2);
        let guard = lock.read();
        assert!(lock.try_write_for(SHORT).is_none());
        assert!(lock.try_write_until(Instant::now() + SHORT).is_none());
        assert!(lock.try_read_for(SHORT).is_some(), "the writer that gave up holds no reader back");
        drop(guard);
        let guard = lock.try_write_for(SHORT).unwrap();
        assert!(lock.try_read_for(SHORT).is_none());
        assert!(lock.try_read_until(Instant::now() + SHORT).is_none());
        drop(guard);
        let semaphore = Semaphore::new(1);
        let permit = semaphore.try_acquire_for(SHORT).unwrap();
        assert!(semaphore.try_acquire_for(SHORT).is_none());
        assert!(semaphore.try_acquire_until(Instant::now() + SHORT).is_none());
        drop(permit);
        assert_eq!(semaphore.available(), 1);
        let condvar = Condvar::new();
        let mut guard = mutex.lock();
        assert!(condvar.wait_timeout(&mut guard, SHORT).timed_out());
        assert!(condvar.wait_timeout_while(&mut guard, SHORT, |value| *value == 1).timed_out());
        assert!(!condvar.wait_timeout_while(&mut guard, SHORT, |value| *value == 2).timed_out());
    };
    test();
    runtime("fifo").run(test);
}

/// If a party that gives up kept a wake-up, one without a time limit would sleep forever. Readers that a writer held
/// back would sleep forever if it left without waking them.
#[test]
fn a_party_that_gives_up_leaves_no_other_asleep() {
    everywhere(|rt| {
        let shared = Arc::new((Mutex::new(0), RwLock::new(0), Semaphore::new(1)));
        let theirs = shared.clone();
        mixed(rt, move |i| {
            let (mutex, lock, semaphore) = &*theirs;
            for round in 0..150 {
                let limit = Duration::from_micros(((i + round) % 5 * 15) as u64);
                if i % 3 == 0 {
                    *mutex.lock() += 1;
                    assert!(*lock.read() >= 0);
                    *lock.write() += 1;
                    drop(semaphore.acquire());
                } else {
                    let guard = mutex.try_lock_for(limit);
                    yield_now();
                    drop(guard);
                    drop(lock.try_write_for(limit));
                    let guard = lock.try_read_for(limit);
                    yield_now();
                    drop(guard);
                    let permit = semaphore.try_acquire_for(limit);
                    yield_now();
                    drop(permit);
                }
            }
        });
        assert_eq!((*shared.0.lock(), *shared.1.read()), (2 * 150, 2 * 150));
        assert_eq!(shared.2.available(), 1);
    });
}
