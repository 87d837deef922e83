//! The runtime as its users see it: tasks, their ends, their names, their scopes.

mod common;

use common::{policies, runtime, two_workers};
use heddle_rt::{Builder, Mechanism, Ns, RuntimeBuilder};
use heddle_rt::{in_task, scope, spawn, task_name, yield_now};
use std::os::fd::AsRawFd;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[test]
fn tasks_return_their_values_under_every_policy() {
    for policy in &policies() {
        let sum = two_workers(policy).run(|| {
            let task = |i| {
                move || {
                    yield_now();
                    i
                }
            };
            let handles: Vec<_> = (0..1000).map(|i| spawn(task(i))).collect();
            handles.into_iter().map(|h| h.join().unwrap()).sum::<i32>()
        });
        assert_eq!(sum, 499_500, "{policy}");
    }
}

#[test]
fn a_panic_ends_its_task_only_and_reaches_the_handle() {
    let rt = runtime("work-stealing");
    let text = rt.run(|| {
        let bad = spawn(|| panic!("on purpose"));
        let good = spawn(|| 7);
        let panic = bad.join().unwrap_err();
        assert_eq!(good.join().unwrap(), 7);
        heddle_rt::panic_message(&*panic).to_owned()
    });
    assert_eq!(text, "on purpose");
    let carried = panic::catch_unwind(panic::AssertUnwindSafe(|| rt.run(|| panic!("through run"))));
    assert!(carried.is_err());
}

#[test]
fn an_untaken_result_is_dropped_once() {
    struct Count(Arc<AtomicUsize>);
    impl Drop for Count {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let rt = two_workers("work-stealing");
    for _ in 0..500 {
        let (a, b) = (drops.clone(), drops.clone());
        // Dropped before the end, after the end, and somewhere in between.
        drop(rt.spawn(move || Count(a)));
        let finished = rt.spawn(move || Count(b));
        while !finished.is_finished() {
            std::thread::yield_now();
        }
        drop(finished);
    }
    while drops.load(Ordering::SeqCst) < 1000 {
        std::thread::yield_now();
    }
    drop(rt);
    assert_eq!(drops.load(Ordering::SeqCst), 1000);
}

#[test]
fn large_closures_and_results_go_through() {
    let rt = runtime("fifo");
    let big = [7u8; 20_000];
    let back = rt.run(move || spawn(move || big).join().unwrap());
    assert!(back.iter().all(|&b| b == 7));
}

#[test]
fn names_and_attributes_are_the_tasks_own() {
    let rt = runtime("work-stealing");
    let name = rt.run(|| {
        let named = Builder::new().name("scan-7").class(heddle_rt::Class::BE).stack_size(40_000);
        let handle = named.spawn(task_name).unwrap();
        assert_eq!(spawn(task_name).join().unwrap(), None);
        handle.join().unwrap()
    });
    assert_eq!(name.as_deref(), Some("scan-7"));
    assert!(!in_task());
    let too_large = Builder::new().stack_size(1 << 40).spawn(|| ());
    let error = too_large.err().unwrap().to_string();
    assert!(error.contains("too large; the maximum is 1073807360"), "{error}");
}

#[test]
fn scoped_tasks_borrow() {
    let mut counts = vec![0; 50];
    two_workers("work-stealing").run(|| {
        scope(|s| {
            for (i, count) in counts.iter_mut().enumerate() {
                s.spawn(move || *count = i);
            }
        })
    });
    assert!(counts.iter().enumerate().all(|(i, &c)| c == i));
}

#[test]
fn a_scope_passes_on_untaken_panics() {
    let rt = runtime("work-stealing");
    rt.run(|| {
        let taken = scope(|s| s.spawn(|| panic!("taken")).join().is_err());
        assert!(taken);
        let passed = panic::catch_unwind(|| scope(|s| drop(s.spawn(|| panic!("not taken")))));
        assert!(passed.is_err());
    });
}

#[test]
fn two_runtimes_live_side_by_side() {
    let (a, b) = (runtime("fifo"), runtime("two-queue"));
    let inner =
        a.run(|| b.spawn(|| spawn(|| task_name().is_none()).join().unwrap()).join().unwrap());
    assert!(inner);
    assert_eq!((a.policy(), b.policy()), ("fifo", "two-queue"));
    drop(a);
    assert_eq!(b.run(|| 3), 3);
}

#[test]
fn runtimes_come_and_go() {
    for i in 0..50 {
        assert_eq!(two_workers("work-stealing").run(move || spawn(move || i).join().unwrap()), i);
    }
}

#[test]
fn spawning_from_a_thread_uses_a_runtime_of_the_process() {
    assert!(spawn(in_task).join().unwrap());
    assert!(heddle_rt::stats().unwrap().spawned >= 1);
}

#[test]
fn wrong_configurations_are_refused_before_anything_starts() {
    let error = |b: RuntimeBuilder| b.build().err().unwrap().to_string();
    let new = RuntimeBuilder::new;
    let unknown = error(new().policy("fastest"));
    assert!(unknown.contains("fastest") && unknown.contains("two-queue"), "{unknown}");
    let parameter = error(new().policy("two-queue:quantom=1ms"));
    assert!(parameter.contains("quantom") && parameter.contains("long"), "{parameter}");
    assert!(error(new().workers(0)).contains("at least one worker"));
    assert!(error(new().workers(500)).contains("each worker needs its own"));
    assert!(error(new().cpus([4000])).contains("CPU 4000 does not exist"));
    let short = error(new().mechanism(Mechanism::Signal).policy("round-robin:quantum=1us"));
    assert!(short.contains("at least 10us"), "{short}");
    assert!(error(new().name("a\0b")).contains("zero byte"));
    assert!(error(new().stack_size(1 << 40)).contains("the maximum is 1073807360"));
}

#[test]
fn what_the_system_refuses_is_said_with_what_to_do() {
    let body = || {
        let one = || RuntimeBuilder::new().workers(1).build();
        drop(one().unwrap());
        // The next descriptor has a number that is over the limit.
        let next = std::fs::File::open("/dev/null").unwrap();
        let limit = libc::rlimit { rlim_cur: next.as_raw_fd() as u64, rlim_max: 1 << 10 };
        drop(next);
        // SAFETY: a valid limit, for this process alone.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        let error = one().err().unwrap().to_string();
        assert!(error.contains("epoll") && error.contains("raise `ulimit -n`"), "{error}");
    };
    common::alone("what_the_system_refuses_is_said_with_what_to_do", body, common::assert_success);
}

/// What a policy's own defaults ask for and the mechanism cannot do is lengthened, and the runtime says so.
#[test]
fn every_policy_starts_with_its_defaults_and_signals() {
    let signals = RuntimeBuilder::new().mechanism(Mechanism::Signal);
    let shortest = Mechanism::Signal.shortest_quantum();
    for info in heddle_policies::list() {
        let rt = signals.clone().policy(info.name).workers(1).build();
        let rt = rt.unwrap_or_else(|e| panic!("{}: {e}", info.name));
        assert_eq!(rt.run(|| heddle_rt::spawn(|| 1).join().unwrap()), 1);
        assert!(rt.stats().quantum.is_none_or(|quantum| quantum >= shortest), "{}", info.name);
    }
    let rt = signals.clone().policy("shinjuku-shenango:long=2ms").workers(1).build().unwrap();
    assert_eq!(rt.stats().quantum, Some(shortest), "its own default is 5us");
    let asked = signals.policy("shinjuku-shenango:check=4us").build();
    assert!(asked.err().unwrap().to_string().contains("at least 10us"));
}

#[test]
fn a_slice_ends_the_turn_of_a_task_that_waits_in_a_loop() {
    let runtime = RuntimeBuilder::new().policy("fifo").workers(1).slice(Ns::from_ms(2));
    runtime.build().unwrap().run(|| {
        let flag = Arc::new(AtomicBool::new(false));
        let seen = flag.clone();
        let waits = spawn(move || {
            while !seen.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
        });
        let sets = spawn(move || flag.store(true, Ordering::Release));
        waits.join().unwrap();
        sets.join().unwrap();
    });
}
