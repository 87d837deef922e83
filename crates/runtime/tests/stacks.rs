//! Stacks: overflows are reported, deep recursion has its class, and a hundred thousand tasks fit.

mod common;

use common::{alone, assert_success, child, is_child, runtime, text, two_workers};
use heddle_rt::sync::Semaphore;
use heddle_rt::{Builder, spawn};
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Uses about `bytes` of stack, in frames of 1 KiB.
#[inline(never)]
fn descend(bytes: usize) -> usize {
    let frame = black_box([bytes as u8; 1024]);
    let below = if bytes > 1024 { descend(bytes - 1024) } else { 0 };
    below + usize::from(frame[bytes % 1024])
}

fn names_the_overflow(task: &str, kib: usize) -> impl FnOnce(Output) {
    let expected = format!("({task}) has overflowed its stack of {kib} KiB");
    move |output| {
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", text(&output));
        assert!(text(&output).contains(&expected), "{}", text(&output));
    }
}

#[test]
fn an_overflow_names_the_task_and_its_size() {
    let body = || {
        let deep = || black_box(descend(10 << 20));
        let task = move || Builder::new().name("deep").stack_size(60 << 10).spawn(deep);
        let _ = runtime("fifo").run(move || task().unwrap().join());
    };
    alone("an_overflow_names_the_task_and_its_size", body, names_the_overflow("deep", 64));
}

#[test]
fn an_overflow_is_named_with_donors_too() {
    let test = "an_overflow_is_named_with_donors_too";
    if is_child(test) {
        let deep = || black_box(descend(10 << 20));
        let _ =
            runtime("fifo").run(move || Builder::new().name("deep").spawn(deep).unwrap().join());
        return;
    }
    let output = child(test).env("HEDDLE_TLS", "donor").output().unwrap();
    names_the_overflow("deep", 256)(output);
}

/// Descends until a signal's frame has no room above the guard, and computes there.
#[inline(never)]
fn to_the_edge(low: usize, stop: &AtomicBool) {
    let here = black_box([0u8; 64]);
    if here.as_ptr() as usize > low + 700 {
        to_the_edge(low, stop);
    } else {
        common::spin_until(|| stop.load(Ordering::Relaxed));
    }
    black_box(&here);
}

#[test]
fn no_room_for_a_preemption_is_an_overflow() {
    let body = || {
        let rt = runtime("round-robin:quantum=50us");
        let edge = || {
            let (mut base, mut size) = (std::ptr::null_mut(), 0);
            // SAFETY: the attribute is filled by the first call and destroyed by the last.
            unsafe {
                let mut attr: libc::pthread_attr_t = std::mem::zeroed();
                libc::pthread_getattr_np(libc::pthread_self(), &mut attr);
                libc::pthread_attr_getstack(&attr, &mut base, &mut size);
                libc::pthread_attr_destroy(&mut attr);
            }
            to_the_edge(base as usize, &AtomicBool::new(false));
        };
        rt.run(move || {
            let task = Builder::new().name("edge").spawn(edge).unwrap();
            // Something must wait for the CPU, or nothing is preempted.
            while !task.is_finished() {
                heddle_rt::yield_now();
            }
        });
    };
    alone("no_room_for_a_preemption_is_an_overflow", body, names_the_overflow("edge", 256));
}

#[test]
fn a_null_dereference_is_an_ordinary_fault() {
    let body = || {
        // SAFETY: none: this is the fault that the test is about.
        runtime("fifo").run(|| unsafe { black_box(std::ptr::null::<u8>()).read_volatile() });
    };
    alone("a_null_dereference_is_an_ordinary_fault", body, |output| {
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{}", text(&output));
        assert!(!text(&output).contains("overflowed"), "{}", text(&output));
    });
}

#[test]
fn deep_recursion_works_in_a_larger_class() {
    runtime("fifo").run(|| {
        let deep = || black_box(descend(6 << 20));
        Builder::new().stack_size(8 << 20).spawn(deep).unwrap().join().unwrap();
        // The next task on the same stack is none the worse for it.
        Builder::new().stack_size(8 << 20).spawn(deep).unwrap().join().unwrap();
    });
}

/// Bytes of memory that the process has.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// `n` tasks that all sleep at once; prints and returns what each costs in memory.
fn crowd(n: usize) -> usize {
    let rt = two_workers("work-stealing");
    rt.run(|| {
        let (gate, come) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let before = resident();
        let tasks: Vec<_> = (0..n)
            .map(|_| {
                let (gate, come) = (gate.clone(), come.clone());
                spawn(move || {
                    come.fetch_add(1, Ordering::SeqCst);
                    gate.acquire().forget();
                })
            })
            .collect();
        while come.load(Ordering::SeqCst) < n {
            heddle_rt::yield_now();
        }
        let each = (resident() - before) / n;
        println!("\nmeasured: {each} bytes per live task, {n} tasks, TLS {:?}", heddle_tls());
        gate.release(n);
        tasks.into_iter().for_each(|t| t.join().unwrap());
        each
    })
}

fn heddle_tls() -> String {
    std::env::var("HEDDLE_TLS").unwrap_or_else(|_| "default".into())
}

#[test]
fn a_hundred_thousand_tasks_live_in_one_process() {
    let body = || {
        let n = if runtime("fifo").tls().0 == heddle_rt::TlsMode::Block { 100_000 } else { 200 };
        let each = crowd(n);
        assert!(each < 24 << 10, "{each} bytes each");
    };
    alone("a_hundred_thousand_tasks_live_in_one_process", body, assert_success);
}

#[test]
fn hundreds_of_tasks_live_with_donors() {
    let test = "hundreds_of_tasks_live_with_donors";
    if is_child(test) {
        let each = crowd(200);
        return assert!(each < 40 << 10, "{each} bytes each");
    }
    assert_success(child(test).env("HEDDLE_TLS", "donor").output().unwrap());
}
