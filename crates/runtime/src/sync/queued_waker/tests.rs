//! The queue of futures against a list, with drops at every point, and against other kinds of waiters.

use super::*;
use crate::sync::Semaphore;
use crate::{RuntimeBuilder, block_on, spawn};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// A new future joins.
    Join,
    /// The nth future is polled, with another waker or with its own.
    Poll(usize, bool),
    /// The nth future is dropped.
    Drop(usize),
    WakeOne,
    WakeAll,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Join),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(n, other)| Op::Poll(n, other)),
        3 => any::<usize>().prop_map(Op::Drop),
        3 => Just(Op::WakeOne),
        1 => Just(Op::WakeAll),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    Woken,
    WokenWithAll,
}

/// A future and what the model knows of it.
struct Member<'a> {
    future: Pin<Box<QueuedWaker<'a>>>,
    /// The waker of its latest poll, and how often that was called.
    waker: Arc<Count>,
    calls: usize,
    state: State,
}

struct Model<'a> {
    queue: &'a WaitQueue,
    /// In order of arrival.
    members: Vec<Member<'a>>,
}

impl<'a> Model<'a> {
    fn join(&mut self) {
        let waker = Arc::<Count>::default();
        let mut future = Box::pin(QueuedWaker::new(self.queue));
        assert!(future.as_mut().join_if(&Context::from_waker(&waker.clone().into()), || true));
        self.members.push(Member { future, waker, calls: 0, state: State::Waits });
    }

    fn poll(&mut self, n: usize, other: bool) {
        let n = n % self.members.len().max(1);
        let Some(member) = self.members.get_mut(n) else { return };
        if other && member.state == State::Waits {
            (member.waker, member.calls) = (Arc::default(), 0);
        }
        let waker = member.waker.clone().into();
        let woken = member.future.as_mut().poll_woken(&Context::from_waker(&waker));
        let expected = match member.state {
            State::Waits => Poll::Pending,
            State::Woken => Poll::Ready(true),
            State::WokenWithAll => Poll::Ready(false),
        };
        assert_eq!(woken, expected);
        if woken.is_ready() {
            self.members.remove(n);
        }
    }

    fn drop(&mut self, n: usize) {
        let n = n % self.members.len().max(1);
        if n < self.members.len() {
            let state = self.members.remove(n).state;
            // The member is gone, and a wake that was for it alone has gone to the next.
            if state == State::Woken {
                self.expect_wake(State::Woken);
            }
        }
    }

    /// The longest-waiting member is expected to be woken; whether there is one.
    fn expect_wake(&mut self, state: State) -> bool {
        let first = self.members.iter_mut().find(|member| member.state == State::Waits);
        first.map(|first| (first.state, first.calls) = (state, first.calls + 1)).is_some()
    }

    fn check(&self) {
        for member in &self.members {
            assert_eq!(member.waker.0.load(Ordering::Relaxed), member.calls);
        }
        let waits = self.members.iter().any(|member| member.state == State::Waits);
        assert_eq!(self.queue.has_waiters(), waits);
    }
}

proptest! {
    #[test]
    fn the_queue_wakes_as_a_list_says(ops in prop::collection::vec(op(), 1..60)) {
        let queue = WaitQueue::new();
        let mut model = Model { queue: &queue, members: Vec::new() };
        for op in ops {
            match op {
                Op::Join => model.join(),
                Op::Poll(n, other) => model.poll(n, other),
                Op::Drop(n) => model.drop(n),
                Op::WakeOne => {
                    assert_eq!(model.queue.wake_one(), model.expect_wake(State::Woken));
                }
                Op::WakeAll => {
                    model.queue.wake_all();
                    while model.expect_wake(State::WokenWithAll) {}
                }
            }
            model.check();
        }
    }
}

#[test]
fn a_future_whose_condition_fails_does_not_join() {
    let queue = WaitQueue::new();
    let mut future = Box::pin(QueuedWaker::new(&queue));
    let cx = Context::from_waker(Waker::noop());
    assert!(!future.as_mut().join_if(&cx, || false));
    assert!(future.is_armed() && !queue.has_waiters());
    assert_eq!(future.as_mut().poll_woken(&cx), Poll::Ready(false));
    future.as_mut().join();
    assert!(queue.has_waiters() && !future.is_armed());
    drop(future);
    assert!(!queue.has_waiters());
}

/// A future that is dropped with a wake hands it to a task, to a thread and to a future.
#[test]
fn a_wake_is_passed_on_to_every_kind_of_waiter() {
    let runtime = RuntimeBuilder::new().policy("fifo").workers(1).build().unwrap();
    type Heir = fn(Arc<Semaphore>);
    let task: Heir = |semaphore| drop(semaphore.acquire());
    let future: Heir = |semaphore| block_on(async { drop(semaphore.acquire_async().await) });
    for heir in [task, future] {
        for in_task in [false, true] {
            let semaphore = Arc::new(Semaphore::new(0));
            let mut first = Box::pin(semaphore.acquire_async());
            let mut cx = Context::from_waker(Waker::noop());
            assert!(first.as_mut().poll(&mut cx).is_pending());
            let theirs = semaphore.clone();
            let (thread, task) = match in_task {
                true => (None, Some(runtime.spawn(move || heir(theirs)))),
                false => (Some(std::thread::spawn(move || heir(theirs))), None),
            };
            // Most often the heir waits by now; if not, it finds the permit.
            std::thread::sleep(std::time::Duration::from_millis(1));
            semaphore.release(1);
            drop(first);
            thread.into_iter().for_each(|thread| thread.join().unwrap());
            task.into_iter().for_each(|task| task.join().unwrap());
        }
    }
}

/// Futures are dropped, polled and woken in several threads; permits are neither lost nor doubled.
#[test]
fn permits_survive_a_storm_of_cancellations() {
    const ROUNDS: usize = 3_000;
    let semaphore = Arc::new(Semaphore::new(2));
    let holders = Arc::new(AtomicUsize::new(0));
    let work = |seed: usize| {
        let (semaphore, holders) = (semaphore.clone(), holders.clone());
        move || {
            let mut cx = Context::from_waker(Waker::noop());
            for round in 0..ROUNDS {
                let mut future = Box::pin(semaphore.acquire_async());
                if !(round + seed).is_multiple_of(3) {
                    // Dropped when it was polled once.
                    if let Poll::Ready(permit) = future.as_mut().poll(&mut cx) {
                        drop(permit);
                    }
                    continue;
                }
                let permit = block_on(future);
                assert!(holders.fetch_add(1, Ordering::Relaxed) < 2);
                holders.fetch_sub(1, Ordering::Relaxed);
                drop(permit);
                if round.is_multiple_of(16) {
                    drop(semaphore.acquire());
                }
            }
        }
    };
    let threads: Vec<_> = (0..2).map(|seed| std::thread::spawn(work(seed))).collect();
    let tasks: Vec<_> = (2..5).map(|seed| spawn(work(seed))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    tasks.into_iter().for_each(|task| task.join().unwrap());
    assert_eq!(semaphore.available(), 2);
}
