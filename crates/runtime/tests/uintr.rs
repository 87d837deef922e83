//! User interrupts. Where the machine has none, only how that is said; `scripts/test-uintr` has a machine.

mod common;

use heddle_rt::{Class, ConfigError, Mechanism, Runtime, RuntimeBuilder, TaskAttrs};
use heddle_rt::{attrs, set_attrs, spawn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const BOTH: [Mechanism; 2] = [Mechanism::Uintr, Mechanism::UintrTimer];

/// Returns whether there are user interrupts here; says so if not.
fn has_uintr() -> bool {
    let has = std::path::Path::new("/dev/heddle-uintr").exists();
    if !has {
        println!("skipped: no /dev/heddle-uintr");
    }
    has
}

fn runtime(mechanism: Mechanism, policy: &str, workers: usize) -> Runtime {
    RuntimeBuilder::new().mechanism(mechanism).policy(policy).workers(workers).build().unwrap()
}

#[test]
fn without_the_module_the_mechanism_is_refused_with_what_to_do() {
    for mechanism in BOTH {
        let built = RuntimeBuilder::new().mechanism(mechanism).workers(1).build();
        if has_uintr() {
            assert!(built.is_ok(), "{:?}", built.err().map(|e| e.to_string()));
            continue;
        }
        let error = built.err().unwrap();
        assert!(matches!(error, ConfigError::NoUserInterrupts(_)), "{error}");
        let text = error.to_string();
        let says = ["heddle_uintr", "kmod/README.md", "heddle doctor", "HEDDLE_MECHANISM=signal"];
        assert!(says.iter().all(|word| text.contains(word)), "{text}");
    }
}

#[test]
fn they_are_chosen_where_they_are() {
    if has_uintr() {
        assert_eq!(Mechanism::automatic(), Mechanism::Uintr);
    } else {
        assert!(!BOTH.contains(&Mechanism::automatic()));
    }
}

/// With the signal blocked only they can preempt a task.
#[test]
fn quanta_end_without_signals() {
    if !has_uintr() {
        return;
    }
    for mechanism in BOTH {
        let rt = runtime(mechanism, "round-robin:quantum=100us", 1);
        let stop = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..2)
            .map(|_| {
                let stop = stop.clone();
                rt.spawn(move || {
                    common::block_preemption();
                    common::spin_until(|| stop.load(Ordering::Relaxed));
                })
            })
            .collect();
        while rt.stats().preemptions < 100 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        tasks.into_iter().for_each(|task| task.join().unwrap());
    }
}

/// A thread that is no worker, and a worker, ask others to make way: by SENDUIPI.
#[test]
fn urgent_tasks_of_other_threads_get_in_without_signals() {
    if !has_uintr() {
        return;
    }
    for mechanism in BOTH {
        let rt = runtime(mechanism, "priority:quantum=1s", 1);
        let [ready, stop] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (runs, stopped) = (ready.clone(), stop.clone());
        let long = rt.spawn(move || {
            set_attrs(TaskAttrs { class: Class::BE, ..attrs() });
            common::block_preemption();
            runs.store(true, Ordering::Release);
            common::spin_until(|| stopped.load(Ordering::Relaxed));
        });
        common::spin_until(|| ready.load(Ordering::Acquire));
        rt.spawn(move || stop.store(true, Ordering::Relaxed)).join().unwrap();
        long.join().unwrap();
    }
}

/// Each kind may interrupt the other's handler, anywhere.
#[test]
fn signals_and_user_interrupts_nest() {
    if !has_uintr() {
        return;
    }
    for mechanism in BOTH {
        let rt = runtime(mechanism, "round-robin:quantum=200us", 1);
        let stop = Arc::new(AtomicBool::new(false));
        // SAFETY: asks for a number.
        let thread = rt.spawn(|| unsafe { libc::gettid() }).join().unwrap();
        let tasks: Vec<_> = (0..3u64)
            .map(|seed| {
                let stop = stop.clone();
                rt.spawn(move || {
                    let sum = |n: u64| (0..n).fold(seed as f64, |x, i| (x + i as f64).sqrt());
                    let expected = sum(5_000).to_bits();
                    while !stop.load(Ordering::Relaxed) {
                        assert_eq!(sum(5_000).to_bits(), expected);
                    }
                })
            })
            .collect();
        let mut seen = 0;
        while seen < 1_000 {
            // SAFETY: a signal to the worker's thread, which lives as long as the runtime.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGURG) };
            // Not faster than it can handle them.
            let before = std::mem::replace(&mut seen, rt.stats().preemptions);
            if before == seen {
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        }
        stop.store(true, Ordering::Relaxed);
        tasks.into_iter().for_each(|task| task.join().unwrap());
    }
}

/// A process has 256 receivers at a time.
#[test]
fn workers_of_runtimes_that_have_ended_leave_nothing() {
    if !has_uintr() {
        return;
    }
    for round in 0..300 {
        let rt = runtime(BOTH[round % 2], "round-robin:quantum=100us", common::cpus());
        assert_eq!(rt.run(move || spawn(move || round).join().unwrap()), round);
    }
}

#[test]
fn a_child_of_fork_can_have_a_runtime_with_them_of_its_own() {
    if !has_uintr() {
        return;
    }
    let count = Arc::new(AtomicU64::new(0));
    let rt = runtime(Mechanism::Uintr, "round-robin:quantum=100us", 1);
    rt.run(move || count.fetch_add(1, Ordering::Relaxed));
    heddle_rt::raw::before_fork();
    // SAFETY: the child uses only what works in the child of a process with threads: its own runtime, and the end.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: prepared above.
        unsafe { heddle_rt::raw::after_fork() };
        let rt = runtime(Mechanism::Uintr, "round-robin:quantum=100us", 1);
        let sum =
            rt.run(|| (0..4).map(|i| spawn(move || i)).map(|t| t.join().unwrap()).sum::<i32>());
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(sum != 6)) };
    }
    heddle_rt::raw::end_fork();
    let mut status = -1;
    // SAFETY: waits for the child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}
