//! What futures wait for: locks, channels, tokens; on tasks, threads and another library's executor.

// The guards are `lock_api`'s, but futures that wait for these locks do not block a thread.
#![allow(clippy::await_holding_lock)]

mod common;

use common::{runtime, two_workers};
use futures::executor::ThreadPool;
use heddle_rt::sync::{
    CancellationToken, Condvar, Mutex, MutexExt as _, RwLock, RwLockExt as _, Semaphore, mpmc,
    mpsc, oneshot,
};
use heddle_rt::{block_on, scope, spawn, yield_now};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

/// Runs `make(n)` for each n below `each` by tasks, by threads and by a pool of threads, all at once, and waits for
/// them.
fn run_everywhere<F: Future<Output = ()> + Send + 'static>(
    each: usize,
    make: impl Fn(usize) -> F + Send + Clone + 'static,
) {
    let pool = ThreadPool::builder().pool_size(3).create().unwrap();
    let (done, wait) = std::sync::mpsc::channel();
    let runtime = two_workers("work-stealing");
    for n in 0..each {
        let (future, done) = (make(n), done.clone());
        pool.spawn_ok(async move {
            future.await;
            done.send(()).unwrap();
        });
    }
    drop(done);
    let threads: Vec<_> = (0..each)
        .map(|n| {
            let future = make(n);
            std::thread::spawn(move || match n % 2 {
                0 => block_on(future),
                _ => futures::executor::block_on(future),
            })
        })
        .collect();
    runtime.run(move || {
        let tasks: Vec<_> = (0..each)
            .map(|n| {
                let future = make(n);
                spawn(move || block_on(future))
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(wait.iter().count(), each);
}

/// Polls once.
fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Lets other futures of the executor run.
async fn pause() {
    let mut paused = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn a_mutex_excludes_futures_tasks_and_threads() {
    let mutex = Arc::new(Mutex::new(0));
    let theirs = mutex.clone();
    run_everywhere(6, move |n| {
        let mutex = theirs.clone();
        async move {
            for round in 0..300 {
                let seen = {
                    let mut guard = mutex.lock_async().await;
                    let seen = *guard;
                    // Held across an await.
                    pause().await;
                    *guard = seen + 1;
                    seen
                };
                if (seen + round) % 7 == n {
                    *mutex.lock() += 1;
                    *mutex.lock() -= 1;
                }
            }
        }
    });
    assert_eq!(*mutex.lock(), 3 * 6 * 300);
}

#[test]
fn futures_that_wait_for_a_mutex_can_be_dropped() {
    let mutex = Mutex::new(());
    let guard = mutex.lock();
    let mut first = Box::pin(mutex.lock_async());
    let mut second = Box::pin(mutex.lock_async());
    assert!(poll_once(first.as_mut()).is_pending() && poll_once(second.as_mut()).is_pending());
    drop(guard);
    // The first was woken, and passes that on.
    drop(first);
    assert!(poll_once(second.as_mut()).is_ready());
    assert!(mutex.try_lock().is_some());
}

#[test]
fn a_reader_writer_lock_admits_futures() {
    let lock = Arc::new(RwLock::new((0, 0)));
    let theirs = lock.clone();
    run_everywhere(4, move |n| {
        let lock = theirs.clone();
        async move {
            for round in 0..200 {
                if (round + n) % 4 == 0 {
                    let mut pair = lock.write_async().await;
                    pair.0 += 1;
                    pause().await;
                    pair.1 += 1;
                } else {
                    let pair = lock.read_async().await;
                    assert_eq!(pair.0, pair.1);
                    pause().await;
                    assert_eq!(pair.0, pair.1);
                }
            }
        }
    });
    assert_eq!(*lock.read(), (3 * 200, 3 * 200));
}

#[test]
fn a_dropped_writer_lets_readers_in() {
    let lock = RwLock::new(());
    let reader = lock.read();
    let mut writer = Box::pin(lock.write_async());
    assert!(poll_once(writer.as_mut()).is_pending());
    let mut next = Box::pin(lock.read_async());
    assert!(poll_once(next.as_mut()).is_pending(), "held back by the writer");
    drop(writer);
    assert!(poll_once(next.as_mut()).is_ready());
    drop(reader);
    assert!(lock.try_write().is_some());
}

#[test]
fn a_semaphore_limits_futures() {
    let shared = Arc::new((Semaphore::new(3), AtomicUsize::new(0)));
    let theirs = shared.clone();
    run_everywhere(8, move |_| {
        let shared = theirs.clone();
        async move {
            for _ in 0..100 {
                let _permit = shared.0.acquire_async().await;
                assert!(shared.1.fetch_add(1, Ordering::Relaxed) < 3);
                pause().await;
                shared.1.fetch_sub(1, Ordering::Relaxed);
            }
        }
    });
    assert_eq!(shared.0.available(), 3);
}

#[test]
fn a_condition_wakes_futures_and_tasks() {
    let shared = Arc::new((Mutex::new(0usize), Condvar::new()));
    let theirs = shared.clone();
    run_everywhere(4, move |n| {
        let shared = theirs.clone();
        async move {
            // Each waits for its turn, thrice in each round: the numbers come from three executors.
            for turn in 0..50 {
                let mut count = shared.0.lock_async().await;
                while *count < turn * 12 {
                    count = shared.1.wait_async(count).await;
                }
                *count += 1;
                drop(count);
                if n % 2 == 0 {
                    shared.1.notify_all()
                } else {
                    (0..12).for_each(|_| shared.1.notify_one())
                }
            }
        }
    });
    assert_eq!(*shared.0.lock(), 50 * 12);
}

#[test]
fn a_notification_of_a_dropped_future_is_passed_on() {
    let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    let mut waits =
        [(); 2].map(|()| Box::pin(async { drop(condvar.wait_async(mutex.lock()).await) }));
    assert!(waits.iter_mut().all(|wait| poll_once(wait.as_mut()).is_pending()));
    let [first, mut second] = waits;
    condvar.notify_one();
    drop(first);
    assert!(poll_once(second.as_mut()).is_ready());
    // Notified, and waiting for the mutex.
    let mut waits =
        [(); 2].map(|()| Box::pin(async { drop(condvar.wait_async(mutex.lock()).await) }));
    assert!(waits.iter_mut().all(|wait| poll_once(wait.as_mut()).is_pending()));
    let [mut first, mut second] = waits;
    let guard = mutex.lock();
    condvar.notify_one();
    assert!(poll_once(first.as_mut()).is_pending());
    drop(first);
    drop(guard);
    assert!(poll_once(second.as_mut()).is_ready());
    assert!(mutex.try_lock().is_some());
}

#[test]
fn a_token_wakes_futures() {
    let token = CancellationToken::new();
    let (theirs, child) = (token.clone(), token.child_token());
    let canceller = {
        let token = token.clone();
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(5));
            token.cancel();
        })
    };
    assert!(poll_once(token.child_token().cancelled_async()).is_pending());
    run_everywhere(4, move |n| {
        let token = if n % 2 == 0 { theirs.clone() } else { child.clone() };
        async move { token.cancelled_async().await }
    });
    canceller.join().unwrap();
    assert!(poll_once(token.cancelled_async()).is_ready());
}

/// The sum of 0 to n - 1.
fn sum(n: usize) -> usize {
    n * (n - 1) / 2
}

#[test]
fn channels_of_every_bound_carry_values_between_futures_tasks_and_threads() {
    const EACH: usize = 200;
    for bound in [Some(0), Some(1), Some(7), None] {
        let (sender, receiver) = bound.map_or_else(mpmc::channel, mpmc::sync_channel);
        let total = Arc::new(AtomicUsize::new(0));
        let (theirs, count) = (sender.clone(), total.clone());
        // Half of them send and half receive; and of each half, half as futures.
        run_everywhere(4, move |n| {
            let (sender, receiver, total) = (theirs.clone(), receiver.clone(), count.clone());
            async move {
                for value in 0..EACH {
                    match n % 4 {
                        0 => sender.send_async(value).await.unwrap(),
                        1 => sender.send(value).unwrap(),
                        2 => drop(
                            total
                                .fetch_add(receiver.recv_async().await.unwrap(), Ordering::Relaxed),
                        ),
                        _ => drop(total.fetch_add(receiver.recv().unwrap(), Ordering::Relaxed)),
                    }
                }
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 3 * 2 * sum(EACH), "{bound:?}");
        assert!(sender.is_empty());
    }
}

#[test]
fn dropped_futures_of_channels_lose_nothing() {
    let (sender, receiver) = mpsc::sync_channel(1);
    let [mut first, mut second] = [(); 2].map(|()| Box::pin(receiver.recv_async()));
    assert!(poll_once(first.as_mut()).is_pending() && poll_once(second.as_mut()).is_pending());
    sender.send(1).unwrap();
    drop(first);
    assert_eq!(poll_once(second.as_mut()), Poll::Ready(Ok(1)));
    drop(second);
    sender.send(2).unwrap();
    let [mut first, mut second] = [3, 4].map(|value| Box::pin(sender.send_async(value)));
    assert!(poll_once(first.as_mut()).is_pending() && poll_once(second.as_mut()).is_pending());
    assert_eq!(receiver.recv(), Ok(2));
    drop(first);
    assert_eq!(poll_once(second.as_mut()), Poll::Ready(Ok(())));
    assert_eq!(receiver.try_recv(), Ok(4), "the value of the dropped future was not sent");
    assert!(receiver.try_recv().is_err());
    drop(second);
    drop(sender);
    assert!(block_on(receiver.recv_async()).is_err());
    let (sender, receiver) = mpsc::sync_channel(1);
    drop(receiver);
    assert_eq!(block_on(sender.send_async(5)).unwrap_err().0, 5);
}

#[test]
fn a_rendezvous_of_futures_is_taken_back_when_it_is_dropped() {
    let (sender, receiver) = mpmc::sync_channel(0);
    let mut offer = Box::pin(sender.send_async(1));
    assert!(poll_once(offer.as_mut()).is_pending());
    assert_eq!(sender.len(), 1);
    let mut next = Box::pin(sender.send_async(2));
    assert!(poll_once(next.as_mut()).is_pending());
    drop(offer);
    assert_eq!(sender.len(), 0);
    assert!(poll_once(next.as_mut()).is_pending(), "it has offered its value now");
    assert_eq!(block_on(receiver.recv_async()), Ok(2));
    assert_eq!(poll_once(next.as_mut()), Poll::Ready(Ok(())));
    let mut offer = Box::pin(sender.send_async(3));
    assert!(poll_once(offer.as_mut()).is_pending());
    drop(receiver);
    let Poll::Ready(Err(error)) = poll_once(offer.as_mut()) else { panic!("no receiver is left") };
    assert_eq!(error.0, 3);
}

#[test]
fn a_future_meets_a_select_in_a_rendezvous() {
    for in_task in [false, true] {
        let (sender, receiver) = mpmc::sync_channel(0);
        let theirs = sender.clone();
        let sends = move || {
            for value in 0..200 {
                heddle_rt::select! {
                    send(theirs, value) -> sent => sent.unwrap(),
                }
            }
        };
        let receives = || async move {
            for value in 0..200 {
                assert_eq!(receiver.recv_async().await, Ok(value));
            }
        };
        if in_task {
            runtime("fifo").run(move || {
                let task = spawn(sends);
                block_on(receives());
                task.join().unwrap();
            });
        } else {
            let thread = std::thread::spawn(sends);
            futures::executor::block_on(receives());
            thread.join().unwrap();
        }
        // And the other way round.
        let (sender, receiver) = mpmc::sync_channel(0);
        let thread = std::thread::spawn(move || {
            for value in 0..200 {
                heddle_rt::select! { recv(receiver) -> got => assert_eq!(got, Ok(value)) }
            }
        });
        block_on(async {
            for value in 0..200 {
                sender.send_async(value).await.unwrap();
            }
        });
        thread.join().unwrap();
    }
}

#[test]
fn an_answer_reaches_a_future() {
    run_everywhere(8, |n| async move {
        for round in 0..50 {
            let (answer, question) = oneshot::channel();
            if n % 2 == 0 {
                spawn(move || answer.send(round).unwrap());
            } else {
                std::thread::spawn(move || drop(answer));
            }
            let got = question.await;
            assert_eq!(got.ok(), (n % 2 == 0).then_some(round));
        }
    });
}

#[test]
fn a_receiver_that_was_polled_can_be_used_further() {
    let (answer, mut question) = oneshot::channel();
    assert!(poll_once(&mut question).is_pending());
    assert!(poll_once(&mut question).is_pending(), "with the same waker");
    let Err(oneshot::TryRecvError::Empty(mut question)) = question.try_recv() else {
        panic!("there is no value yet");
    };
    answer.send(7).unwrap();
    assert_eq!(poll_once(&mut question), Poll::Ready(Ok(7)));
    assert!(matches!(poll_once(&mut question), Poll::Ready(Err(_))));
    let (answer, question) = oneshot::channel::<i32>();
    drop(answer);
    assert!(matches!(poll_once(question), Poll::Ready(Err(_))));
}

#[test]
fn futures_of_borrowed_things_run_in_scoped_tasks() {
    let mutex = Mutex::new(0);
    runtime("round-robin:quantum=100us").run(|| {
        scope(|s| {
            for _ in 0..20 {
                s.spawn(|| {
                    block_on(async {
                        let mut guard = mutex.lock_async().await;
                        yield_now();
                        *guard += 1;
                    });
                });
            }
        });
    });
    assert_eq!(mutex.into_inner(), 20);
}

#[test]
fn the_futures_can_be_sent() {
    fn is_send<T: Send>(_: T) {}
    let mutex = Mutex::new(0);
    is_send(mutex.lock_async());
    let lock = RwLock::new(0);
    is_send((lock.read_async(), lock.write_async()));
    let (sender, receiver) = mpmc::sync_channel::<String>(1);
    is_send((sender.send_async(String::new()), receiver.recv_async()));
    is_send(Semaphore::new(1).acquire_async());
    is_send(CancellationToken::new().cancelled_async());
    is_send(Condvar::new().wait_async(mutex.lock()));
    is_send(heddle_rt::net::TcpStream::connect_async("localhost:1"));
    is_send(heddle_rt::timeout_async(std::time::Duration::ZERO, async {}));
}
