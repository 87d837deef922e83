//! Async tasks: values, panics, aborts, wakes, preemption and the end of a runtime.

mod common;

use common::futures::{Counted, POLICIES, runtime, with_each};
use heddle_rt::futures::{self, JoinHandle, spawn, yield_now};
use heddle_rt::{RuntimeBuilder, block_on};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Computes for this long.
fn spin(time: Duration) {
    let end = std::time::Instant::now() + time;
    while std::time::Instant::now() < end {
        std::hint::spin_loop();
    }
}

#[test]
fn values_come_back() {
    with_each(|runtime| {
        let sum = runtime.block_on(async {
            let tasks: Vec<_> = (0..1000u64).map(|i| spawn(async move { i })).collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.await.unwrap();
            }
            sum
        });
        assert_eq!(sum, 499_500);
    });
}

#[test]
fn large_futures_and_outputs_are_boxed() {
    with_each(|runtime| {
        runtime.block_on(async {
            let large = [7u8; 10_000];
            let kept = spawn(async move {
                yield_now().await;
                large
            });
            assert_eq!(kept.await.unwrap(), [7; 10_000]);
            #[repr(align(256))]
            struct Aligned(u8);
            let aligned = spawn(async { Aligned(3) }).await.unwrap();
            assert_eq!((aligned.0, &raw const aligned as usize % 256), (3, 0));
        });
    });
}

#[test]
fn yields_alternate_under_fifo() {
    let order = runtime("fifo", 1).block_on(async {
        let order = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..3)
            .map(|number| {
                let order = order.clone();
                spawn(async move {
                    for round in 0..3 {
                        order.lock().unwrap().push((round, number));
                        yield_now().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        Arc::into_inner(order).unwrap().into_inner().unwrap()
    });
    let expected: Vec<_> = (0..3).flat_map(|round| (0..3).map(move |n| (round, n))).collect();
    assert_eq!(order, expected);
}

#[test]
fn a_panic_is_the_tasks_own() {
    with_each(|runtime| {
        runtime.block_on(async {
            let error =
                spawn(async { panic!("a {}", "text") }).await.unwrap_err() as futures::JoinError;
            assert!(error.is_panic() && !error.is_cancelled());
            assert_eq!(error.to_string(), "the task panicked: a text");
            assert_eq!(heddle_rt::panic_message(&*error.into_panic()), "a text");
            // In a drop.
            struct Loud;
            impl Drop for Loud {
                fn drop(&mut self) {
                    panic!("dropped");
                }
            }
            let loud = Loud;
            let task = spawn(async move {
                let _loud = loud;
                pending::<()>().await;
            });
            yield_now().await;
            task.abort();
            assert!(task.await.unwrap_err().is_panic());
        });
    });
}

#[test]
fn an_aborted_task_is_dropped_once_wherever_it_is() {
    with_each(|runtime| {
        let drops = Arc::new(AtomicUsize::new(0));
        runtime.block_on(async {
            for rounds in 0..20 {
                let counted = Counted(drops.clone());
                let task = spawn(async move {
                    let _counted = counted;
                    pending::<()>().await;
                });
                for _ in 0..rounds % 3 {
                    yield_now().await;
                }
                let abort = task.abort_handle();
                abort.abort();
                abort.abort();
                assert!(task.await.unwrap_err().is_cancelled());
                assert!(abort.is_finished());
                assert_eq!(drops.load(Ordering::SeqCst), rounds + 1);
            }
        });
    });
}

#[test]
fn a_value_that_is_there_wins_over_an_abort() {
    runtime("fifo", 1).block_on(async {
        let task = spawn(async { 7 });
        while !task.is_finished() {
            yield_now().await;
        }
        task.abort();
        assert_eq!(task.await.unwrap(), 7);
        // Aborted by its own poll, which returns a value.
        let own = Arc::new(Mutex::new(None::<JoinHandle<u8>>));
        let (send, handle) = mpsc::channel::<futures::AbortHandle>();
        let task = spawn(async move {
            handle.recv().unwrap().abort();
            8
        });
        send.send(task.abort_handle()).unwrap();
        *own.lock().unwrap() = Some(task);
        let task = own.lock().unwrap().take().unwrap();
        assert_eq!(task.await.unwrap(), 8);
    });
}

#[test]
fn a_detached_task_runs_on_and_drops_its_value() {
    with_each(|runtime| {
        let drops = Arc::new(AtomicUsize::new(0));
        runtime.block_on(async {
            for _ in 0..100 {
                let counted = Counted(drops.clone());
                drop(spawn(async move {
                    yield_now().await;
                    counted
                }));
            }
            while drops.load(Ordering::SeqCst) < 100 {
                yield_now().await;
            }
        });
    });
}

/// Wakes a future from elsewhere: remembers its waker.
#[derive(Default)]
struct Signal {
    state: Mutex<(bool, Option<Waker>)>,
}

impl Signal {
    fn set(&self) {
        let waker = {
            let mut state = self.state.lock().unwrap();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock().unwrap();
        if state.0 {
            state.0 = false;
            return Poll::Ready(());
        }
        state.1 = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[test]
fn no_wake_is_lost_between_threads() {
    with_each(|runtime| {
        let (ping, pong) = (Arc::new(Signal::default()), Arc::new(Signal::default()));
        let (ping2, pong2) = (ping.clone(), pong.clone());
        let outside = std::thread::spawn(move || {
            for _ in 0..2000 {
                block_on(poll_fn(|cx| ping2.poll(cx)));
                pong2.set();
            }
        });
        let task = runtime.block_on(async move {
            spawn(async move {
                for _ in 0..2000 {
                    ping.set();
                    poll_fn(|cx| pong.poll(cx)).await;
                }
            })
            .await
        });
        task.unwrap();
        outside.join().unwrap();
    });
}

#[test]
fn a_waker_may_outlive_task_and_runtime() {
    let (send, wakers) = mpsc::channel();
    let runtime = runtime("work-stealing", 1);
    runtime.block_on(async {
        let send = send.clone();
        spawn(poll_fn(move |cx| {
            send.send(cx.waker().clone()).unwrap();
            Poll::Ready(())
        }))
        .await
        .unwrap();
        let task = spawn(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            let another = cx.waker().clone();
            another.wake();
            Poll::<()>::Pending
        }));
        yield_now().await;
        task.abort();
        let _ = task.await;
    });
    let pending_task = futures::Builder::new()
        .spawn_in(&runtime, {
            let send = send.clone();
            poll_fn(move |cx| {
                let _ = send.send(cx.waker().clone());
                Poll::<()>::Pending
            })
        })
        .unwrap();
    let first = wakers.recv().unwrap();
    let second = wakers.recv().unwrap();
    drop(runtime);
    first.wake_by_ref();
    second.wake_by_ref();
    let third = second.clone();
    third.wake();
    assert!(pending_task.join().unwrap_err().is_cancelled());
    drop((first, second));
}

#[test]
fn a_poll_sees_one_thread_from_start_to_end_although_it_is_preempted_and_moved() {
    thread_local! {
        static VALUE: Cell<u64> = const { Cell::new(0) };
        static LIST: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }
    let one_poll = |number: u64| {
        let shared = Rc::new(number);
        VALUE.set(number);
        LIST.with_borrow_mut(Vec::clear);
        let thread = std::thread::current().id();
        // SAFETY: this thread's own variable.
        unsafe { *libc::__errno_location() = number as i32 };
        for step in 0..10 {
            spin(Duration::from_micros(20));
            LIST.with_borrow_mut(|list| list.push(step));
        }
        assert_eq!(VALUE.get(), number);
        LIST.with_borrow(|list| assert_eq!(list[..], (0..10).collect::<Vec<_>>()));
        assert_eq!(std::thread::current().id(), thread);
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, number as i32);
        assert_eq!(Rc::strong_count(&shared), 1);
        drop(shared);
    };
    let runtime = runtime("shinjuku-shenango:quantum=20us", 2);
    let polls = runtime.block_on(async {
        let tasks: Vec<_> = (1..200u64)
            .map(|number| {
                spawn(async move {
                    for _ in 0..5 {
                        one_poll(number);
                        yield_now().await;
                    }
                    5
                })
            })
            .collect();
        let mut polls = 0;
        for task in tasks {
            polls += task.await.unwrap();
        }
        polls
    });
    assert_eq!(polls, 995);
    assert!(runtime.stats().preemptions > 0, "{:?}", runtime.stats());
}

#[test]
fn others_run_while_a_poll_computes() {
    for policy in ["two-queue:quantum=100us", "round-robin:quantum=20us"] {
        let runtime = runtime(policy, 1);
        runtime.block_on(async {
            let stop = Arc::new(AtomicBool::new(false));
            let seen = stop.clone();
            // Without preemption this poll would never end.
            let computes = spawn(async move {
                while !seen.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let stops = spawn(async move { stop.store(true, Ordering::Relaxed) });
            stops.await.unwrap();
            computes.await.unwrap();
        });
    }
}

#[test]
fn a_poll_may_wait_like_a_thread() {
    with_each(|runtime| {
        runtime.block_on(async {
            let mutex = Arc::new(heddle_rt::sync::Mutex::new(0));
            let tasks: Vec<_> = (0..50)
                .map(|_| {
                    let mutex = mutex.clone();
                    spawn(async move {
                        let mut guard = mutex.lock();
                        let before = *guard;
                        heddle_rt::yield_now();
                        *guard = before + 1;
                        drop(guard);
                        heddle_rt::sleep(Duration::from_micros(50));
                        // A future inside a poll, and a thread.
                        block_on(spawn(async { heddle_rt::spawn(|| 1).join().unwrap() })).unwrap()
                    })
                })
                .collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.join().unwrap();
            }
            assert_eq!((sum, *mutex.lock()), (50, 50));
        });
    });
}

#[test]
fn a_runtime_drops_its_futures_as_it_ends() {
    with_each(|_| {});
    for policy in POLICIES {
        let drops = Arc::new(AtomicUsize::new(0));
        let runtime = runtime(policy, 2);
        let tasks: Vec<_> = (0..1000)
            .map(|number| {
                let counted = Counted(drops.clone());
                let future = async move {
                    let _counted = counted;
                    if number % 2 == 0 {
                        yield_now().await;
                    }
                    pending::<()>().await;
                };
                futures::Builder::new().spawn_in(&runtime, future).unwrap()
            })
            .collect();
        drop(runtime);
        assert_eq!(drops.load(Ordering::SeqCst), 1000, "{policy}");
        for task in tasks {
            assert!(task.is_finished());
            assert!(task.join().unwrap_err().is_cancelled());
        }
    }
}

#[test]
fn a_poll_that_never_returns_is_lost_with_its_runtime() {
    let runtime = runtime("two-queue:quantum=100us", 1);
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let (runs, is_running) = mpsc::channel();
    let also_runs = runs.clone();
    let computes = futures::Builder::new()
        .spawn_in(&runtime, async move {
            runs.send(()).unwrap();
            while !seen.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
        .unwrap();
    let waits = futures::Builder::new()
        .spawn_in(&runtime, async move {
            also_runs.send(()).unwrap();
            heddle_rt::sleep(Duration::MAX);
        })
        .unwrap();
    is_running.recv().and_then(|()| is_running.recv()).unwrap();
    drop(runtime);
    let error = computes.join().unwrap_err();
    assert!(error.to_string().contains("runtime was dropped"), "{error}");
    assert!(waits.join().unwrap_err().is_cancelled());
    stop.store(true, Ordering::Relaxed);
}

#[test]
fn thread_local_destructors_of_carriers_run_as_the_runtime_ends() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    struct Ends;
    impl Drop for Ends {
        fn drop(&mut self) {
            ENDED.fetch_add(1, Ordering::SeqCst);
        }
    }
    thread_local! {
        static ENDS: RefCell<Option<Ends>> = const { RefCell::new(None) };
    }
    let runtime = runtime("fifo", 1);
    let task = futures::Builder::new()
        .spawn_in(&runtime, async { ENDS.with_borrow_mut(|ends| *ends = Some(Ends)) })
        .unwrap();
    task.join().unwrap();
    assert_eq!(ENDED.load(Ordering::SeqCst), 0);
    drop(runtime);
    assert_eq!(ENDED.load(Ordering::SeqCst), 1);
}

#[test]
fn carriers_follow_the_polls_that_hold_one() {
    let runtime = runtime("fifo", 1);
    runtime.block_on(async {
        let gate = Arc::new(heddle_rt::sync::Semaphore::new(0));
        let tasks: Vec<_> = (0..300)
            .map(|_| {
                let gate = gate.clone();
                spawn(async move { drop(gate.acquire()) })
            })
            .collect();
        for _ in 0..3 {
            yield_now().await;
        }
        gate.release(300);
        for task in tasks {
            task.await.unwrap();
        }
        // The surplus is ended, one with each carrier that is taken.
        for _ in 0..1000 {
            spawn(async { heddle_rt::yield_now() }).await.unwrap();
        }
    });
}

#[test]
fn polls_beyond_the_limit_are_not_preempted() {
    let runtime = RuntimeBuilder::new()
        .policy("round-robin:quantum=20us")
        .workers(1)
        .max_preempted_polls(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> =
            (0..20).map(|_| spawn(async { spin(Duration::from_micros(500)) })).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    let stats = runtime.stats();
    assert!(stats.preemptions > 0 && stats.polls_kept > 0, "{stats:?}");
}

#[test]
fn policies_see_futures_as_they_see_threads() {
    let runtime = runtime("fifo", 1);
    let before = runtime.stats();
    runtime.block_on(async {
        for _ in 0..10 {
            spawn(yield_now()).await.unwrap();
        }
    });
    let after = runtime.stats();
    // And the thread that waits for them.
    assert_eq!(after.spawned - before.spawned, 11);
    assert!(after.switches - before.switches >= 31, "{after:?}");
}

/// Attributes of a task are the task's, whatever runs in between and wherever it goes on.
#[test]
fn a_task_changes_its_attributes() {
    use heddle_rt::{Class, Ns, TaskAttrs, attrs, set_attrs};
    let of = |number: u64| TaskAttrs {
        class: [Class::LC, Class::BE][number as usize % 2],
        deadline: Some(Ns(1_000_000 + number)),
        expected: Some(Ns(1 + number)),
        weight: Some(1 + number as u32),
    };
    set_attrs(of(1));
    assert_eq!(attrs(), TaskAttrs::default(), "not a task");
    with_each(|runtime| {
        runtime.block_on(async {
            let mut tasks = futures::JoinSet::new();
            for number in 0..20 {
                tasks.spawn(async move {
                    assert_eq!(attrs(), TaskAttrs::default());
                    for turn in number..number + 10 {
                        set_attrs(of(turn));
                        yield_now().await;
                        assert_eq!(attrs(), of(turn));
                    }
                });
            }
            let thread = heddle_rt::spawn(move || {
                set_attrs(of(7));
                heddle_rt::yield_now();
                attrs()
            });
            assert_eq!(thread.join().unwrap(), of(7));
            while let Some(result) = tasks.join_next().await {
                result.unwrap();
            }
        });
    });
}

#[test]
fn a_future_that_was_polled_by_many_wakers_is_woken_by_the_last() {
    runtime("work-stealing", 2).block_on(async {
        let (go, gone) = heddle_rt::sync::oneshot::channel();
        let mut task = Box::pin(spawn(gone));
        // Polled once with a waker that does nothing.
        let first = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(first.is_pending());
        let sends = spawn(async {
            for _ in 0..100 {
                yield_now().await;
            }
            go.send(9)
        });
        assert_eq!(task.await.unwrap(), Ok(9));
        sends.await.unwrap().unwrap();
    });
}

#[test]
fn distinct_tasks_have_distinct_futures() {
    let runtime = runtime("work-stealing", 2);
    let seen = Arc::new(Mutex::new(HashSet::new()));
    runtime.block_on(async {
        let tasks: Vec<_> = (0..20_000u32)
            .map(|number| {
                let seen = seen.clone();
                spawn(async move {
                    if number % 3 == 0 {
                        yield_now().await;
                    }
                    assert!(seen.lock().unwrap().insert(number), "{number} twice");
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(seen.lock().unwrap().len(), 20_000);
}

/// A future that is polled `polls` times and then ready.
struct Polls(u32);

impl Future for Polls {
    type Output = u32;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<u32> {
        if self.0 == 0 {
            return Poll::Ready(7);
        }
        self.0 -= 1;
        let waker = cx.waker().clone();
        // Woken by another task, while this one may still be in its poll.
        drop(spawn(async move { waker.wake() }));
        Poll::Pending
    }
}

#[test]
fn wakes_by_other_tasks_during_a_poll_count() {
    with_each(|runtime| {
        runtime.block_on(async {
            let tasks: Vec<_> = (0..100).map(|number| spawn(Polls(number % 20))).collect();
            for task in tasks {
                assert_eq!(task.await.unwrap(), 7);
            }
        });
    });
}

/// A waker of another library: it takes a lock.
struct LockingWaker {
    lock: Arc<Mutex<u32>>,
    inner: Waker,
}

impl std::task::Wake for LockingWaker {
    fn wake(self: Arc<Self>) {
        *self.lock.lock().unwrap() += 1;
        self.inner.wake_by_ref();
    }
}

#[test]
fn a_timer_does_not_call_foreign_wakers_in_the_middle_of_a_task() {
    for policy in ["round-robin:quantum=20us", "two-queue:quantum=100us", "fifo"] {
        let runtime = runtime(policy, 1);
        runtime.block_on(async {
            let lock = Arc::new(Mutex::new(0));
            let held = lock.clone();
            // Most of the time it is interrupted with the lock held.
            let holds = spawn(async move {
                for _ in 0..200 {
                    let guard = held.lock().unwrap();
                    spin(Duration::from_micros(100));
                    drop(guard);
                    yield_now().await;
                }
            });
            let sleeps = spawn(async move {
                // A sleep is over when it is first polled if the task was preempted before.
                let mut waits = 0;
                while waits < 50 {
                    let mut sleep = Box::pin(heddle_rt::sleep_async(Duration::from_micros(50)));
                    poll_fn(|cx| {
                        let (lock, inner) = (lock.clone(), cx.waker().clone());
                        let waker = Waker::from(Arc::new(LockingWaker { lock, inner }));
                        let polled = sleep.as_mut().poll(&mut Context::from_waker(&waker));
                        waits += u32::from(polled.is_pending());
                        polled
                    })
                    .await;
                }
                assert_eq!(*lock.lock().unwrap(), waits);
            });
            holds.await.unwrap();
            sleeps.await.unwrap();
        });
    }
}
