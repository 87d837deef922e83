//! Sets of async tasks, scopes, blocking calls and task-local values.

mod common;

use common::futures::{Counted, with_each};
use heddle_rt::block_on;
use heddle_rt::futures::{self, spawn, yield_now};
use std::cell::Cell;
use std::collections::HashSet;
use std::future::pending;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

#[test]
fn a_join_set_yields_values_as_tasks_end_and_aborts_the_rest() {
    with_each(|runtime| {
        let drops = Arc::new(AtomicUsize::new(0));
        runtime.block_on(async {
            let mut set = futures::JoinSet::new();
            for number in 0..10u32 {
                let counted = Counted(drops.clone());
                set.spawn(async move {
                    let _counted = counted;
                    if number % 2 == 0 {
                        pending::<()>().await;
                    }
                    number
                });
            }
            let mut values = HashSet::new();
            while values.len() < 5 {
                values.insert(set.join_next().await.unwrap().unwrap());
            }
            assert_eq!(values, HashSet::from([1, 3, 5, 7, 9]));
            assert_eq!(set.len(), 5);
            let abort = set.spawn(async { 11 });
            abort.abort();
            set.abort_all();
            let mut aborted = 0;
            while let Some(value) = set.join_next().await {
                aborted += usize::from(value.is_err());
            }
            assert!(aborted >= 5);
            // Dropping the set aborts.
            let counted = Counted(drops.clone());
            set.spawn(async move {
                let _counted = counted;
                pending().await
            });
            drop(set);
            while drops.load(Ordering::SeqCst) < 11 {
                yield_now().await;
            }
        });
    });
}

#[test]
fn local_futures_share_what_is_not_send() {
    with_each(|runtime| {
        let sum = runtime.run(|| {
            let (set, sum) = (futures::LocalSet::new(), Rc::new(Cell::new(0)));
            block_on(set.run_until(async {
                let tasks: Vec<_> = (0..10)
                    .map(|number| {
                        let sum = sum.clone();
                        futures::spawn_local(async move {
                            yield_now().await;
                            sum.set(sum.get() + number);
                            // A member may create others, and other tasks run beside the set.
                            let more = futures::spawn_local(async move { sum.set(sum.get() + 1) });
                            more.await.unwrap();
                            spawn(async { 1 }).await.unwrap()
                        })
                    })
                    .collect();
                for task in tasks {
                    assert_eq!(task.await.unwrap(), 1);
                }
                let lost = futures::spawn_local(async { panic!("local") });
                assert!(lost.await.unwrap_err().is_panic());
                let idle = futures::spawn_local(pending::<()>());
                idle.abort();
                assert!(idle.await.unwrap_err().is_cancelled());
            }));
            block_on(set);
            sum.get()
        });
        assert_eq!(sum, 55);
    });
}

#[test]
#[should_panic(expected = "outside of a `LocalSet`")]
fn a_local_future_needs_a_set() {
    drop(futures::spawn_local(async {}));
}

#[test]
fn scoped_tasks_borrow() {
    with_each(|runtime| {
        runtime.block_on(async {
            let mut counts = vec![0; 20];
            let total = AtomicUsize::new(0);
            heddle_rt::scope(|s| {
                for count in &mut counts {
                    let total = &total;
                    drop(s.spawn_async(async move {
                        yield_now().await;
                        *count += 1;
                        total.fetch_add(1, Ordering::Relaxed);
                    }));
                }
                assert_eq!(s.spawn_async(async { 7 }).join().unwrap(), Some(7));
                let idle = s.spawn_async(pending::<()>());
                idle.abort();
                assert_eq!(idle.join().unwrap(), None);
                assert!(s.spawn_async(async { panic!("scoped") }).join().is_err());
            });
            assert_eq!((counts, total.into_inner()), (vec![1; 20], 20));
        });
    });
}

#[test]
fn blocking_calls_run_beside_the_workers() {
    with_each(|runtime| {
        runtime.block_on(async {
            let (send, receive) = mpsc::channel();
            // Blocks in the kernel until another task, on the same worker, has run.
            let waits = futures::spawn_blocking(move || receive.recv().unwrap());
            yield_now().await;
            spawn(async move { send.send(7).unwrap() }).await.unwrap();
            assert_eq!(waits.await.unwrap(), 7);
        });
    });
}

heddle_rt::task_local! {
    static NUMBER: u32;
}

#[test]
fn task_local_values_move_with_the_future() {
    with_each(|runtime| {
        runtime.block_on(async {
            let tasks: Vec<_> = (0..50)
                .map(|number| {
                    spawn(NUMBER.scope_async(number, async move {
                        for _ in 0..10 {
                            yield_now().await;
                            assert_eq!(NUMBER.get(), number);
                        }
                        let inner = NUMBER.scope_async(number + 1, async {
                            yield_now().await;
                            NUMBER.get()
                        });
                        assert_eq!(inner.await, number + 1);
                        NUMBER.get()
                    }))
                })
                .collect();
            for (number, task) in tasks.into_iter().enumerate() {
                assert_eq!(task.await.unwrap(), number as u32);
            }
            assert!(NUMBER.try_with(|_| ()).is_err());
        });
    });
}
