//! Task-local variables and values that are initialised once.

mod common;

use common::{runtime, two_workers};
use heddle_rt::sync::{LazyLock, OnceLock};
use heddle_rt::{AccessError, spawn, task_local, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

task_local! {
    /// The request that the task serves.
    static REQUEST: usize;
    static NAME: String
}

#[test]
fn a_value_is_there_in_its_scope_only_and_scopes_nest() {
    let test = || {
        assert_eq!(REQUEST.try_with(|_| ()), Err(AccessError));
        REQUEST.scope(1, || {
            assert_eq!(REQUEST.get(), 1);
            REQUEST.sync_scope(2, || assert_eq!(REQUEST.get(), 2));
            assert_eq!(REQUEST.get(), 1);
            NAME.scope("a".to_owned(), || assert_eq!(NAME.with(String::len), 1));
        });
        assert!(REQUEST.try_with(|_| ()).is_err() && NAME.try_with(|_| ()).is_err());
    };
    test();
    runtime("fifo").run(test);
}

#[test]
fn each_task_has_its_own_value_wherever_it_runs() {
    two_workers("work-stealing:quantum=100us").run(|| {
        let serve = |i: usize| {
            move || {
                REQUEST.scope(i, || {
                    for _ in 0..50 {
                        yield_now();
                        assert_eq!(REQUEST.get(), i);
                    }
                    let child = spawn(|| REQUEST.try_with(|_| ()));
                    assert_eq!(child.join().unwrap(), Err(AccessError), "not passed on");
                });
            }
        };
        let tasks: Vec<_> = (0..20).map(|i| spawn(serve(i))).collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
    });
}

#[test]
fn a_scope_that_panics_restores_the_outer_value() {
    REQUEST.scope(1, || {
        let inner = || REQUEST.scope(2, || panic!("on purpose"));
        assert!(catch_unwind(inner).is_err());
        assert_eq!(REQUEST.get(), 1);
    });
    assert!(catch_unwind(|| REQUEST.get()).is_err());
}

#[test]
fn a_lazy_value_is_computed_once_while_others_park() {
    for rt in [runtime("fifo"), two_workers("work-stealing:quantum=100us")] {
        let computed = Arc::new(AtomicUsize::new(0));
        let count = computed.clone();
        let value = Arc::new(LazyLock::new(move || {
            // On one worker the others run now, and would block it.
            (0..10).for_each(|_| yield_now());
            count.fetch_add(1, Ordering::Relaxed)
        }));
        let read = || {
            let value = value.clone();
            move || **value
        };
        let tasks: Vec<_> = (0..8).map(|_| rt.spawn(read())).collect();
        let thread = std::thread::spawn(read());
        assert!(tasks.into_iter().all(|task| task.join().unwrap() == 0));
        assert_eq!((thread.join().unwrap(), computed.load(Ordering::Relaxed)), (0, 1));
    }
}

#[test]
fn a_lazy_value_whose_initialiser_panicked_is_poisoned() {
    let value: LazyLock<u32> = LazyLock::new(|| panic!("on purpose"));
    for _ in 0..2 {
        assert!(catch_unwind(AssertUnwindSafe(|| *value)).is_err());
    }
    assert_eq!(format!("{value:?}"), "LazyLock(None)");
}

#[test]
fn a_cell_is_written_once() {
    let mut cell = OnceLock::new();
    let panics = || cell.get_or_init(|| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(cell.get(), None);
    assert_eq!(cell.set(1), Ok(()));
    assert_eq!(cell.set(2), Err(2));
    assert_eq!(cell.get_or_init(|| 3), &1);
    *cell.get_mut().unwrap() += 10;
    assert_eq!(format!("{cell:?}"), "OnceLock(Some(11))");
    assert_eq!(cell.take(), Some(11));
    assert_eq!(cell.set(4), Ok(()));
    assert_eq!(cell.into_inner(), Some(4));
    assert_eq!(OnceLock::from(5).get(), Some(&5));
}
