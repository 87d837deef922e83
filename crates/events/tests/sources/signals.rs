//! Signals. Each test has its own process.

use super::{HANG, USR1, USR2, delivered, delivered_now, is_alone};
use heddle_events::{EventError, EventOptions, EventQueue, block_signals};
use rustix::process::{Signal, getpid, kill_process};
use std::process::Command;

fn send(signal: Signal) {
    kill_process(getpid(), signal).unwrap();
}

#[test]
fn a_signal_is_reported_and_counted_until_it_is_deregistered() {
    if !is_alone("signals::a_signal_is_reported_and_counted_until_it_is_deregistered", "") {
        return;
    }
    let queue = EventQueue::new().unwrap();
    let mut worker = queue.worker().unwrap();
    let first = queue.register_signal(USR1, 1, EventOptions::default()).unwrap();
    let second = queue.register_signal(USR1, 2, EventOptions::default().dispatch()).unwrap();
    queue.register_signal(USR2, 3, EventOptions::default()).unwrap();
    send(Signal::USR1);
    let mut both = delivered(&mut worker, 2);
    both.sort_unstable();
    assert_eq!(both, [(1, 1), (2, 1)], "all registrations report it");
    for _ in 0..3 {
        send(Signal::USR1);
        assert_eq!(delivered(&mut worker, 1), [(1, 1)]);
    }
    queue.turn_on(second).unwrap();
    assert_eq!(delivered(&mut worker, 1), [(2, 3)], "each was read on its own");
    queue.deregister(first).unwrap();
    queue.deregister(second).unwrap();
    send(Signal::USR1);
    send(Signal::USR2);
    assert_eq!(delivered(&mut worker, 1), [(3, 1)]);
    // The signal is still blocked and pending, and is reported to the next registration.
    queue.register_signal(USR1, 4, EventOptions::default().once()).unwrap();
    assert_eq!(delivered(&mut worker, 1), [(4, 1)]);
    assert_eq!(delivered_now(&mut worker), []);
    assert_eq!(queue.len(), 1);
}

#[test]
fn the_end_of_a_child_is_a_signal_too_though_that_is_ignored_by_default() {
    let name = "signals::the_end_of_a_child_is_a_signal_too_though_that_is_ignored_by_default";
    if !is_alone(name, "") {
        return;
    }
    let queue = EventQueue::new().unwrap();
    queue.register_signal(Signal::CHILD.as_raw(), 1, EventOptions::default()).unwrap();
    let mut child = Command::new("true").spawn().unwrap();
    assert_eq!(delivered(&mut queue.worker().unwrap(), 1), [(1, 1)]);
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_ignored_signal_is_reported() {
    if !is_alone("signals::an_ignored_signal_is_reported", "trap '' USR1;") {
        return;
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    assert!(ignored & 1 << (USR1 - 1) != 0, "the test has its premise");
    let queue = EventQueue::new().unwrap();
    queue.register_signal(USR1, 1, EventOptions::default()).unwrap();
    send(Signal::USR1);
    assert_eq!(delivered(&mut queue.worker().unwrap(), 1), [(1, 1)]);
}

/// Each signal is delivered to one of several threads, which leave and join.
#[test]
fn signals_are_delivered_once_while_workers_come_and_go() {
    if !is_alone("signals::signals_are_delivered_once_while_workers_come_and_go", "") {
        return;
    }
    let queue = EventQueue::new().unwrap();
    queue.register_signal(USR1, 1, EventOptions::default()).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (queue, sender) = (&queue, sender.clone());
            scope.spawn(move || {
                while let Ok(mut worker) = queue.worker() {
                    for _ in 0..if thread == 0 { usize::MAX } else { 5 } {
                        let Ok(batch) = worker.wait(HANG) else { return };
                        batch.for_each(|event| sender.send(event.data()).unwrap());
                    }
                }
            });
        }
        let _closes = Closes(&queue);
        for _ in 0..500 {
            send(Signal::USR1);
            assert_eq!(receiver.recv_timeout(HANG.unwrap()), Ok(1));
        }
    });
    assert!(receiver.try_recv().is_err());
}

/// Closes the queue even if an assertion fails, so that threads that wait for its events end.
struct Closes<'a>(&'a EventQueue);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Only the thread that a signal was sent to can read it, and it does although others wait too and look at
/// its epoll meanwhile. The latter needs many signals: with 50, one run in five lost one.
#[test]
fn a_signal_raised_by_a_worker_is_reported() {
    if !is_alone("signals::a_signal_raised_by_a_worker_is_reported", "") {
        return;
    }
    let queue = EventQueue::new().unwrap();
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        for _ in 0..2 {
            let (queue, sender) = (&queue, sender.clone());
            scope.spawn(move || {
                let mut worker = queue.worker().unwrap();
                sender.send(()).unwrap();
                while let Ok(batch) = worker.wait(HANG) {
                    assert!(batch.is_empty(), "delivered to another thread than it is pinned to");
                }
            });
        }
        (0..2).for_each(|_| receiver.recv().unwrap());
        let mut worker = queue.worker().unwrap();
        queue.register_signal(USR1, 1, EventOptions::default().pin(&worker)).unwrap();
        let _closes = Closes(&queue);
        for _ in 0..2_000 {
            heddle_sys::signalfd::raise(USR1).unwrap();
            assert_eq!(delivered(&mut worker, 1), [(1, 1)]);
        }
    });
}

#[test]
fn all_queues_that_register_a_signal_report_it() {
    if !is_alone("signals::all_queues_that_register_a_signal_report_it", "") {
        return;
    }
    let queues: Vec<EventQueue> = (0..3).map(|_| EventQueue::new().unwrap()).collect();
    let mut workers: Vec<_> = queues.iter().map(|queue| queue.worker().unwrap()).collect();
    for queue in &queues {
        queue.register_signal(USR1, 1, EventOptions::default()).unwrap();
    }
    for turn in 0..30 {
        send(Signal::USR1);
        for nth in 0..3 {
            assert_eq!(delivered(&mut workers[(turn + nth) % 3], 1), [(1, 1)]);
        }
    }
    // A queue that does not register the signal, or does so later, does not report it.
    queues[1].register_signal(USR2, 2, EventOptions::default()).unwrap();
    queues[2].close();
    send(Signal::USR1);
    send(Signal::USR2);
    assert_eq!(delivered(&mut workers[0], 1), [(1, 1)]);
    let mut both = delivered(&mut workers[1], 2);
    both.sort_unstable();
    assert_eq!(both, [(1, 1), (2, 1)]);
    queues[2].worker().map(drop).unwrap_err();
    let late = EventQueue::new().unwrap();
    let mut worker = late.worker().unwrap();
    late.register_signal(USR1, 3, EventOptions::default()).unwrap();
    assert_eq!(delivered_now(&mut worker), []);
    send(Signal::USR1);
    assert_eq!(delivered(&mut worker, 1), [(3, 1)]);
    assert_eq!(delivered(&mut workers[0], 1), [(1, 1)]);
}

#[test]
fn signals_that_cannot_be_watched_are_refused() {
    let queue = EventQueue::new().unwrap();
    for signal in [Signal::KILL.as_raw(), Signal::STOP.as_raw(), 0, -1, 32, 65] {
        let refused = queue.register_signal(signal, 0, EventOptions::default());
        assert!(matches!(refused, Err(EventError::Signal(s)) if s == signal));
        assert!(matches!(block_signals(&[USR1, signal]), Err(EventError::Signal(_))));
    }
    assert!(queue.is_empty());
    assert_eq!(EventError::Signal(9).errno(), 22);
}
