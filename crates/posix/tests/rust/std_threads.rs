//! Threads, locks and channels of Rust's standard library, whose waits are futexes by `syscall`. Built by rustc alone,
//! as a program would be. Exits with 0 if all is as it should be.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Longer than any wait here lasts, unless it hangs.
const LONG: Duration = Duration::from_secs(60);

fn spawn_all(n: usize, f: impl Fn(usize) + Clone + Send + 'static) -> Vec<JoinHandle<()>> {
    let start = |i| {
        let f = f.clone();
        thread::spawn(move || f(i))
    };
    (0..n).map(start).collect()
}

fn join_all(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

fn mutex() {
    let counter = Arc::new(Mutex::new(0));
    let count = {
        let counter = counter.clone();
        move |_| {
            for i in 0..3000 {
                let mut count = counter.lock().unwrap();
                *count += 1;
                if i % 64 == 0 {
                    thread::yield_now();
                }
            }
        }
    };
    let threads = spawn_all(16, count.clone());
    count(0);
    join_all(threads);
    assert_eq!(*counter.lock().unwrap(), 17 * 3000);
}

fn poisoning() {
    let lock = Arc::new(Mutex::new(0));
    let own = lock.clone();
    let quiet = Builder::new().name("panics".into()).spawn(move || {
        let _guard = own.lock().unwrap();
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    let error = quiet.unwrap().join().unwrap_err();
    assert_eq!(*error.downcast_ref::<&str>().unwrap(), "on purpose");
    assert!(lock.is_poisoned());
}

/// A ball that goes around.
fn condvar() {
    const PLAYERS: usize = 8;
    let game = Arc::new((Mutex::new(0), Condvar::new()));
    let play = {
        let game = game.clone();
        move |player: usize| {
            let (ball, changed) = &*game;
            for round in 0..1000 {
                let mut ball = ball.lock().unwrap();
                while *ball != round * PLAYERS + player {
                    if round % 2 == 0 {
                        ball = changed.wait(ball).unwrap();
                    } else {
                        let (guard, timeout) = changed.wait_timeout(ball, LONG).unwrap();
                        assert!(!timeout.timed_out());
                        ball = guard;
                    }
                }
                *ball += 1;
                changed.notify_all();
            }
        }
    };
    let other = play.clone();
    let threads = spawn_all(PLAYERS - 1, move |i| other(i + 1));
    play(0);
    join_all(threads);
    assert_eq!(*game.0.lock().unwrap(), 1000 * PLAYERS);
}

fn condvar_timeout() {
    let wait = || {
        let (lock, never) = (Mutex::new(()), Condvar::new());
        let (start, time) = (Instant::now(), Duration::from_millis(20));
        let mut guard = lock.lock().unwrap();
        loop {
            let left = time.saturating_sub(start.elapsed());
            let (again, result) = never.wait_timeout(guard, left).unwrap();
            guard = again;
            if result.timed_out() {
                break;
            }
        }
        assert!(start.elapsed() >= time);
    };
    wait();
    thread::spawn(wait).join().unwrap();
}

fn rw_lock() {
    let pair = Arc::new(RwLock::new((0, 0)));
    let work = {
        let pair = pair.clone();
        move |i: usize| {
            for _ in 0..2000 {
                if i % 4 == 0 {
                    let mut pair = pair.write().unwrap();
                    pair.0 += 1;
                    pair.1 += 1;
                } else {
                    let pair = pair.read().unwrap();
                    assert_eq!(pair.0, pair.1);
                }
            }
        }
    };
    let threads = spawn_all(12, work.clone());
    work(0);
    join_all(threads);
    assert_eq!(pair.read().unwrap().0, 4 * 2000);
}

fn parking() {
    let go = Arc::new(AtomicBool::new(false));
    let seen = go.clone();
    let parked = thread::spawn(move || {
        while !seen.load(Ordering::Acquire) {
            thread::park();
        }
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(10) {
            thread::park_timeout(Duration::from_millis(10));
        }
        thread::current().unpark();
        thread::park();
    });
    thread::sleep(Duration::from_millis(10));
    go.store(true, Ordering::Release);
    parked.thread().unpark();
    parked.join().unwrap();

    // The main thread parks, a thread wakes it; many times.
    let main = thread::current();
    let tokens = Arc::new(AtomicUsize::new(0));
    let given = tokens.clone();
    let giver = thread::spawn(move || {
        for _ in 0..1000 {
            while given.load(Ordering::Acquire) != 0 {
                thread::yield_now();
            }
            given.store(1, Ordering::Release);
            main.unpark();
        }
    });
    for _ in 0..1000 {
        while tokens.swap(0, Ordering::AcqRel) == 0 {
            thread::park();
        }
    }
    giver.join().unwrap();
}

fn scopes() {
    let mut parts = [1u64, 2, 3, 4, 5, 6, 7, 8];
    let total = AtomicUsize::new(0);
    thread::scope(|scope| {
        for part in &mut parts {
            scope.spawn(|| {
                *part *= 10;
                total.fetch_add(*part as usize, Ordering::Relaxed);
                thread::scope(|inner| {
                    inner.spawn(|| total.fetch_add(1, Ordering::Relaxed));
                });
            });
        }
    });
    assert_eq!((parts[7], total.into_inner()), (80, 360 + 8));
}

fn channels() {
    let (sender, receiver) = channel();
    let threads: Vec<_> = (0..8u64)
        .map(|i| {
            let sender = sender.clone();
            thread::spawn(move || (0..1000).for_each(|n| sender.send(i * 1000 + n).unwrap()))
        })
        .collect();
    drop(sender);
    assert_eq!(receiver.iter().sum::<u64>(), (0..8000).sum());
    join_all(threads);

    let (sender, receiver) = sync_channel(0);
    let consumer = thread::spawn(move || receiver.iter().sum::<u64>());
    (0..1000).for_each(|n| sender.send(n).unwrap());
    drop(sender);
    assert_eq!(consumer.join().unwrap(), (0..1000).sum());

    let (_sender, receiver) = channel::<()>();
    let start = Instant::now();
    assert!(receiver.recv_timeout(Duration::from_millis(10)).is_err());
    assert!(start.elapsed() >= Duration::from_millis(10));
}

fn once_and_barrier() {
    static ONCE: Once = Once::new();
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    static LAZY: LazyLock<usize> = LazyLock::new(|| {
        thread::sleep(Duration::from_millis(5));
        CALLS.fetch_add(1, Ordering::Relaxed)
    });
    let cell = Arc::new(OnceLock::new());
    let (barrier, leaders) = (Arc::new(Barrier::new(10)), Arc::new(AtomicUsize::new(0)));
    let shared = (cell.clone(), barrier.clone(), leaders.clone());
    join_all(spawn_all(10, move |i| {
        let (cell, barrier, leaders) = &shared;
        for _ in 0..50 {
            leaders.fetch_add(usize::from(barrier.wait().is_leader()), Ordering::Relaxed);
        }
        ONCE.call_once(|| {
            thread::sleep(Duration::from_millis(5));
            CALLS.fetch_add(1, Ordering::Relaxed);
        });
        assert!(ONCE.is_completed());
        LazyLock::force(&LAZY);
        cell.get_or_init(|| i);
    }));
    assert_eq!((CALLS.load(Ordering::Relaxed), leaders.load(Ordering::Relaxed)), (2, 50));
    assert!(cell.get().is_some());
}

fn names_and_identity() {
    assert_eq!(thread::current().name(), Some("main"));
    let named = Builder::new().name("a name".into()).stack_size(64 << 10);
    let named = named.spawn(|| {
        assert_eq!(thread::current().name(), Some("a name"));
        thread::current().id()
    });
    let named = named.unwrap();
    let id = named.thread().id();
    assert_eq!(named.join().unwrap(), id);
    assert_ne!(id, thread::current().id());
    let unnamed = thread::spawn(|| thread::current().name().map(str::to_owned));
    assert_eq!(unnamed.join().unwrap(), None);
    assert!(thread::available_parallelism().unwrap().get() >= 1);
}

/// Counts its drops.
struct Counted(&'static AtomicUsize);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn thread_locals() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(7) };
        static TEXT: RefCell<Vec<usize>> = RefCell::new(vec![1]);
        static COUNTED: Counted = const { Counted(&DROPS) };
    }
    NUMBER.set(8);
    for round in 0..4 {
        join_all(spawn_all(20, |i| {
            assert_eq!(NUMBER.replace(i), 7);
            TEXT.with_borrow_mut(|text| text.push(i));
            COUNTED.with(|_| thread::yield_now());
            assert_eq!(NUMBER.get(), i);
            TEXT.with_borrow(|text| assert_eq!(*text, [1, i]));
        }));
        // Joined threads have run their destructors.
        assert_eq!(DROPS.load(Ordering::Relaxed), (round + 1) * 20);
    }
    assert_eq!(NUMBER.get(), 8);
}

fn many() {
    let lock = Arc::new(Mutex::new(0));
    let held = lock.lock().unwrap();
    let own = lock.clone();
    let threads = spawn_all(300, move |_| *own.lock().unwrap() += 1);
    drop(held);
    join_all(threads);
    assert_eq!(*lock.lock().unwrap(), 300);
}

fn main() {
    mutex();
    poisoning();
    condvar();
    condvar_timeout();
    rw_lock();
    parking();
    scopes();
    channels();
    once_and_barrier();
    names_and_identity();
    thread_locals();
    many();
}
