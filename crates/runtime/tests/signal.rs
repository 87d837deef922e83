//! Signals as values. Each test is a process of its own, since signals go to a whole process.

mod common;

use common::{alone, assert_success, runtime, two_workers};
use heddle_rt::signal::{
    SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, Signals, ctrl_c, ctrl_c_async, name,
};
use heddle_rt::{Elapsed, futures, scope, sleep, spawn, timeout, timeout_async};
use rustix::process::{Signal, getpid, kill_process};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(5);

/// Sends a signal to this process, to whichever thread the kernel chooses.
fn raise(signal: i32) {
    let signal = Signal::from_named_raw(signal).unwrap();
    kill_process(getpid(), signal).unwrap();
}

#[test]
fn signals_are_received_by_tasks_and_threads() {
    let test = || {
        let signals = Signals::new([SIGHUP, SIGUSR1]).unwrap();
        assert_eq!(signals.try_recv(), None);
        raise(SIGUSR1);
        assert_eq!(signals.recv().unwrap(), SIGUSR1);
        signals.add(SIGUSR2).unwrap();
        raise(SIGUSR2);
        raise(SIGHUP);
        let mut both = [signals.recv().unwrap(), signals.recv().unwrap()];
        both.sort();
        assert_eq!(both, [SIGHUP, SIGUSR2]);
        assert_eq!(signals.recv_timeout(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(timeout(SHORT, || signals.recv().is_err()), Err(Elapsed));
        raise(SIGHUP);
        assert_eq!(signals.iter().next(), Some(SIGHUP));
        assert_eq!(name(SIGHUP), Some("SIGHUP"));
    };
    let body = || {
        runtime("fifo").run(test);
        test();
    };
    alone("signals_are_received_by_tasks_and_threads", body, assert_success);
}

#[test]
fn signals_are_received_by_futures() {
    let test = async || {
        let signals = Arc::new(Signals::new([SIGHUP]).unwrap());
        assert_eq!(timeout_async(SHORT, signals.recv_async()).await.err(), Some(Elapsed));
        raise(SIGHUP);
        assert_eq!(signals.recv_async().await.unwrap(), SIGHUP);
        // A task and a thread of the runtime share a receiver.
        let (task, thread) = (signals.clone(), signals.clone());
        let first = futures::spawn(async move { task.recv_async().await.unwrap() });
        let second = spawn(move || thread.recv().unwrap());
        raise(SIGHUP);
        while !first.is_finished() && !second.is_finished() {
            futures::yield_now().await;
        }
        raise(SIGHUP);
        assert_eq!(first.await.unwrap(), SIGHUP);
        assert_eq!(second.join().unwrap(), SIGHUP);

        let interrupted = futures::spawn(ctrl_c_async());
        // Ours, so that SIGINT does not end the process before the other one waits.
        let ours = Signals::new([SIGINT]).unwrap();
        while !interrupted.is_finished() {
            raise(SIGINT);
            assert_eq!(ours.recv_async().await.unwrap(), SIGINT);
            futures::yield_now().await;
        }
        interrupted.await.unwrap().unwrap();
    };
    let body = || {
        two_workers("work-stealing:quantum=100us").block_on(test());
        runtime("fifo").block_on(test());
    };
    alone("signals_are_received_by_futures", body, assert_success);
}

#[test]
fn every_signal_of_a_storm_is_received_while_tasks_are_preempted() {
    let body = || {
        let rt = two_workers("two-queue:quantum=50us");
        rt.run(|| {
            let done = AtomicBool::new(false);
            scope(|s| {
                for _ in 0..6 {
                    // Computes and allocates, so that signals find all kinds of code.
                    s.spawn(|| {
                        let mut count = 0;
                        while !done.load(Ordering::Relaxed) {
                            count += std::hint::black_box(vec![1u8; 1 + count % 5000]).len();
                        }
                    });
                }
                let signals = Signals::new([SIGUSR1]).unwrap();
                for _ in 0..300 {
                    raise(SIGUSR1);
                    assert_eq!(signals.recv().unwrap(), SIGUSR1);
                }
                done.store(true, Ordering::Relaxed);
            });
        });
        assert!(rt.stats().preemptions > 0, "{:?}", rt.stats());
    };
    let test = "every_signal_of_a_storm_is_received_while_tasks_are_preempted";
    alone(test, body, assert_success);
}

#[test]
fn each_receiver_hears_of_a_signal_and_its_tasks_share_it() {
    let body = || {
        two_workers("work-stealing").run(|| {
            let (shared, own) =
                (Signals::new([SIGUSR1]).unwrap(), Signals::new([SIGUSR1]).unwrap());
            let received = AtomicUsize::new(0);
            scope(|s| {
                for _ in 0..3 {
                    s.spawn(|| {
                        shared.recv().unwrap();
                        received.fetch_add(1, Ordering::Relaxed);
                    });
                }
                for nth in 1..=3 {
                    raise(SIGUSR1);
                    assert_eq!(own.recv().unwrap(), SIGUSR1);
                    while received.load(Ordering::Relaxed) < nth {
                        sleep(Duration::from_micros(100));
                    }
                    assert_eq!(received.load(Ordering::Relaxed), nth, "one task for each signal");
                }
            });
        });
    };
    alone("each_receiver_hears_of_a_signal_and_its_tasks_share_it", body, assert_success);
}

#[test]
fn several_signals_at_once_wake_several_receivers() {
    let body = || {
        two_workers("work-stealing").run(|| {
            let signals = Signals::new([SIGUSR1, SIGUSR2, SIGHUP]).unwrap();
            scope(|s| {
                let tasks: Vec<_> = (0..3).map(|_| s.spawn(|| signals.recv().unwrap())).collect();
                sleep(SHORT);
                [SIGUSR1, SIGUSR2, SIGHUP].into_iter().for_each(raise);
                let mut all: Vec<_> = tasks.into_iter().map(|t| t.join().unwrap()).collect();
                all.sort();
                assert_eq!(all, [SIGHUP, SIGUSR1, SIGUSR2]);
            });
        });
    };
    alone("several_signals_at_once_wake_several_receivers", body, assert_success);
}

#[test]
fn ctrl_c_waits_for_sigint() {
    let body = || {
        runtime("fifo").run(|| {
            // Keeps the signal from ending the process before the task waits.
            let _guard = Signals::new([SIGINT]).unwrap();
            let task = spawn(ctrl_c);
            let ended = std::sync::Arc::new(AtomicBool::new(false));
            let seen = ended.clone();
            let joined = spawn(move || {
                task.join().unwrap().unwrap();
                seen.store(true, Ordering::Relaxed);
            });
            while !ended.load(Ordering::Relaxed) {
                raise(SIGINT);
                sleep(Duration::from_millis(1));
            }
            joined.join().unwrap();
        });
    };
    alone("ctrl_c_waits_for_sigint", body, assert_success);
}

#[test]
fn signals_that_cannot_be_waited_for_are_refused_with_the_reason() {
    let refused = [
        (libc::SIGKILL, "cannot wait for SIGKILL: no program can handle it"),
        (libc::SIGSTOP, "cannot wait for SIGSTOP: no program can handle it"),
        (libc::SIGSEGV, "cannot wait for SIGSEGV: it reports a fault of the program"),
        (libc::SIGURG, "cannot wait for SIGURG: the runtime preempts tasks with it"),
        (0, "cannot wait for signal 0: signals have numbers from 1 to 64"),
        (-1, "cannot wait for signal -1: signals have numbers from 1 to 64"),
        (1000, "cannot wait for signal 1000: signals have numbers from 1 to 64"),
    ];
    for (signal, text) in refused {
        let error = Signals::new([SIGTERM, signal]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().starts_with(text), "{error}");
    }
    // Reserved by the C library.
    assert!(Signals::new([32]).is_err());
}

#[test]
fn sigchld_reports_children_and_takes_no_status() {
    let body = || {
        runtime("fifo").run(|| {
            let signals = Signals::new([SIGCHLD]).unwrap();
            let mut child = heddle_rt::process::Command::new("true").spawn().unwrap();
            assert_eq!(signals.recv().unwrap(), SIGCHLD);
            assert!(child.wait().unwrap().success());
        });
    };
    alone("sigchld_reports_children_and_takes_no_status", body, assert_success);
}
