//! Futures that sleep, with resets and drops at every point, in every place, and beyond the end of their runtime.

use super::*;
use crate::sync::oneshot;
use crate::{Runtime, RuntimeBuilder, block_on, interval, scope, spawn};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

/// Counts how often it is woken, and passes the wake on.
struct Count {
    calls: AtomicUsize,
    next: Waker,
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.next.wake_by_ref();
    }
}

fn runtime() -> Runtime {
    RuntimeBuilder::new().policy("fifo").workers(1).build().unwrap()
}

#[derive(Clone, Debug)]
enum Op {
    /// A sleep of so many microseconds; negative if it is over.
    Add(i64),
    /// The nth is polled, by this one of three wakers.
    Poll(usize, usize),
    Reset(usize, i64),
    Drop(usize),
    /// Waits for so many microseconds.
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (-50i64..400).prop_map(Op::Add),
        1 => Just(Op::Add(1 << 40)),
        5 => (any::<usize>(), 0usize..3).prop_map(|(n, waker)| Op::Poll(n, waker)),
        3 => (any::<usize>(), -50i64..400).prop_map(|(n, time)| Op::Reset(n, time)),
        2 => any::<usize>().prop_map(Op::Drop),
        1 => (0u64..200).prop_map(Op::Pass),
    ]
}

fn later(us: i64) -> Ns {
    Ns(now().0.saturating_add_signed(us * 1000))
}

/// Runs `ops`; in the end each sleep that is left is ready, and at no time before its deadline.
async fn run(ops: Vec<Op>) {
    let outer = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let wakers: Vec<Waker> = (0..3)
        .map(|_| Arc::new(Count { calls: AtomicUsize::new(0), next: outer.clone() }).into())
        .collect();
    let mut sleeps: Vec<Pin<Box<Sleep>>> = Vec::new();
    for op in ops {
        let len = sleeps.len().max(1);
        match op {
            Op::Add(time) => sleeps.push(Box::pin(sleep_until_async(later(time)))),
            Op::Poll(n, waker) => {
                let Some(sleep) = sleeps.get_mut(n % len) else { continue };
                let was_elapsed = sleep.is_elapsed();
                let ready = sleep.as_mut().poll(&mut Context::from_waker(&wakers[waker]));
                assert!(!was_elapsed || ready.is_ready());
                assert!(ready.is_pending() || sleep.is_elapsed());
            }
            Op::Reset(n, time) => {
                let Some(sleep) = sleeps.get_mut(n % len) else { continue };
                let at = later(time);
                sleep.as_mut().reset(at);
                assert_eq!(sleep.deadline(), at);
            }
            Op::Drop(n) if n % len < sleeps.len() => drop(sleeps.remove(n % len)),
            Op::Drop(_) => {}
            Op::Pass(time) => crate::sleep(Duration::from_micros(time)),
        }
    }
    let far = later(1 << 30);
    for mut sleep in sleeps.into_iter().filter(|sleep| sleep.deadline() < far) {
        sleep.as_mut().await;
        assert!(sleep.is_elapsed());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn sleeps_that_are_reset_and_dropped_end_in_time(ops in prop::collection::vec(op(), 1..40)) {
        block_on(run(ops.clone()));
        runtime().run(move || block_on(run(ops)));
    }
}

#[test]
fn a_sleep_ends_in_every_place() {
    let check = || async {
        let at = now() + Ns::from_ms(1);
        sleep_until_async(at).await;
        assert!(now() >= at);
        sleep_async(Duration::ZERO).await;
    };
    block_on(check());
    futures::executor::block_on(check());
    runtime().run(move || {
        block_on(check());
        futures::executor::block_on(check());
        let far = sleep_async(Duration::MAX);
        assert_eq!(far.deadline(), Ns::MAX);
        assert_eq!(block_on(timeout_async(Duration::from_millis(1), far)), Err(Elapsed));
    });
    let pool = futures::executor::ThreadPool::builder().pool_size(2).create().unwrap();
    let (done, wait) = std::sync::mpsc::channel();
    for _ in 0..20 {
        let done = done.clone();
        pool.spawn_ok(async move {
            check().await;
            done.send(()).unwrap();
        });
    }
    assert_eq!(wait.iter().take(20).count(), 20);
}

#[test]
fn thousands_sleep_on_one_worker() {
    runtime().run(|| {
        let all = (0..5_000u64).map(|i| sleep_async(Duration::from_micros(i % 700)));
        block_on(futures::future::join_all(all));
    });
}

/// The future was set by a task of a runtime that ends; it is woken, and goes on in the process-wide one.
#[test]
fn a_sleep_outlives_its_runtime() {
    let runtime = runtime();
    let (give, take) = oneshot::channel();
    let calls = Arc::new(Count { calls: AtomicUsize::new(0), next: Waker::noop().clone() });
    let waker = Waker::from(calls.clone());
    let first = runtime.run(move || {
        let mut sleep = Box::pin(sleep_async(Duration::from_secs(3600)));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        // A second one, which is dropped when the runtime is gone.
        let mut dropped = Box::pin(sleep_async(Duration::from_secs(3600)));
        assert!(dropped.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(give.send(dropped).is_ok());
        sleep
    });
    let mut sleep = first;
    assert_eq!(calls.calls.load(Ordering::Relaxed), 0);
    drop(runtime);
    assert_eq!(calls.calls.load(Ordering::Relaxed), 2, "both must be polled again");
    drop(take.recv().unwrap());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(sleep.as_mut().poll(&mut cx).is_pending());
    let soon = now() + Ns::from_ms(1);
    sleep.as_mut().reset(soon);
    block_on(sleep);
    assert!(now() >= soon);
}

/// Runtimes end while threads set, reset and drop sleeps that they own.
#[test]
fn sleeps_are_dropped_while_their_runtime_ends() {
    for round in 0..30u64 {
        let runtime = runtime();
        let sleeps = runtime.run(|| {
            let mut cx = Context::from_waker(Waker::noop());
            let set = |i: u64| {
                let mut sleep = Box::pin(sleep_async(Duration::from_secs(1000 + i)));
                assert!(sleep.as_mut().poll(&mut cx).is_pending());
                sleep
            };
            (0..200).map(set).collect::<Vec<_>>()
        });
        let thread = std::thread::spawn(move || {
            for (i, mut sleep) in sleeps.into_iter().enumerate() {
                if i as u64 % 3 == round % 3 {
                    sleep.as_mut().reset(now() + Ns::from_ms(1_000_000));
                }
            }
        });
        drop(runtime);
        thread.join().unwrap();
    }
}

#[test]
fn a_reset_sleep_wakes_its_task_at_the_new_time() {
    runtime().run(|| {
        let sleep = Box::pin(sleep_async(Duration::from_secs(3600)));
        let shared = Arc::new(crate::sync::Mutex::new(sleep));
        let theirs = shared.clone();
        let task = spawn(move || {
            block_on(poll_fn(|cx| theirs.lock().as_mut().poll(cx)));
        });
        crate::sleep(Duration::from_millis(1));
        // Not polled again before that.
        shared.lock().as_mut().reset(now() + Ns::from_ms(1));
        task.join().unwrap();
        assert!(shared.lock().is_elapsed());
    });
}

#[test]
fn a_limit_returns_what_is_ready_and_drops_what_is_not() {
    let long = Duration::from_secs(3600);
    assert_eq!(block_on(timeout_async(long, async { 7 })), Ok(7));
    assert_eq!(block_on(timeout_async(Duration::ZERO, async { 7 })), Ok(7), "ready wins");
    let (answer, question) = oneshot::channel::<()>();
    let limited = timeout_async(Duration::from_millis(1), question);
    assert_eq!(block_on(limited), Err(Elapsed));
    assert!(answer.is_closed());
    runtime().run(|| {
        let nested =
            timeout_async(long, timeout_async(Duration::from_millis(1), sleep_async(long)));
        assert_eq!(block_on(nested), Ok(Err(Elapsed)));
    });
}

#[test]
fn an_interval_ticks_as_a_future() {
    runtime().run(|| {
        let mut ticks = interval(Duration::from_micros(200));
        let first = ticks.tick();
        block_on(async {
            let second = ticks.tick_async().await;
            assert!(second > first && now() >= second);
            assert_eq!((second - first).0 % 200_000, 0);
            // A tick that was not waited for to its end is still to come.
            let next = ticks.next;
            let mut dropped = Box::pin(ticks.tick_async());
            let _ = futures::poll!(dropped.as_mut());
            if futures::poll!(dropped.as_mut()).is_pending() {
                drop(dropped);
                assert_eq!(ticks.next, next);
                assert_eq!(ticks.tick_async().await, next);
            }
        });
    });
}

#[test]
fn a_sleep_can_be_shared_and_sent() {
    fn is_send_and_sync<T: Send + Sync>(_: &T) {}
    is_send_and_sync(&sleep_async(Duration::ZERO));
    scope(|s| {
        let sleep = sleep_async(Duration::from_millis(1));
        assert!(format!("{sleep:?}").contains("deadline"));
        s.spawn(move || block_on(sleep)).join().unwrap();
    });
}
