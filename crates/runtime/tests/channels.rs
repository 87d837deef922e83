//! Channels: in order, nothing lost, nothing twice, and with the answers of the standard library's channels.

mod common;

use common::{policies, runtime, two_workers};
use heddle_rt::sync::mpsc::{
    Receiver, RecvTimeoutError, SendTimeoutError, SyncSender, TryRecvError, TrySendError, channel,
    sync_channel,
};
use heddle_rt::sync::{mpmc, oneshot};
use heddle_rt::{sleep, spawn, yield_now};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};

#[test]
fn values_arrive_once_and_in_each_senders_order() {
    for policy in &policies() {
        for rt in [runtime(policy), two_workers(policy)] {
            for bound in [0, 1, 8] {
                let (tx, rx) = sync_channel(bound);
                let send = |from: usize, tx: SyncSender<(usize, usize)>| {
                    move || (0..500).for_each(|i| tx.send((from, i)).unwrap())
                };
                let tasks: Vec<_> = (0..3).map(|i| rt.spawn(send(i, tx.clone()))).collect();
                let threads: Vec<_> =
                    (3..5).map(|i| std::thread::spawn(send(i, tx.clone()))).collect();
                drop(tx);
                rt.run(move || assert_in_order(rx));
                tasks.into_iter().for_each(|t| t.join().unwrap());
                threads.into_iter().for_each(|t| t.join().unwrap());
            }
        }
    }
}

/// Receives from five senders what each numbered from 0 to 499.
fn assert_in_order(rx: Receiver<(usize, usize)>) {
    let mut next = [0; 5];
    for (from, i) in &rx {
        assert_eq!(i, next[from]);
        next[from] += 1;
    }
    assert_eq!(next, [500; 5]);
}

#[test]
fn a_send_without_a_bound_does_not_wait() {
    runtime("fifo").run(|| {
        let (tx, rx) = channel();
        // There is one worker, so nothing is received yet.
        (0..5).for_each(|from| (0..500).for_each(|i| tx.send((from, i)).unwrap()));
        drop(tx);
        assert_in_order(rx);
        let (tx, rx) = channel();
        drop(rx);
        assert_eq!(tx.send(7).unwrap_err().0, 7);
    });
}

#[test]
fn a_sender_that_waits_for_room_learns_that_the_receiver_is_gone() {
    runtime("fifo").run(|| {
        let (tx, rx) = sync_channel(1);
        tx.send(1).unwrap();
        let waiting = spawn(move || tx.send(2));
        yield_now();
        drop(rx);
        assert_eq!(waiting.join().unwrap().unwrap_err().0, 2);
    });
}

#[test]
fn a_rendezvous_returns_once_its_value_was_received() {
    runtime("fifo").run(|| {
        let (tx, rx) = sync_channel(0);
        assert_eq!(tx.try_send(0), Err(TrySendError::Full(0)), "no receiver waits");
        let sent = Arc::new(AtomicBool::new(false));
        let set = sent.clone();
        let sender = spawn(move || {
            tx.send(1).unwrap();
            set.store(true, Ordering::Relaxed);
            tx
        });
        (0..10).for_each(|_| yield_now());
        assert!(!sent.load(Ordering::Relaxed), "it has not been received");
        assert_eq!(rx.recv(), Ok(1));
        let tx = sender.join().unwrap();
        let receiver = spawn(move || rx.recv());
        while tx.try_send(2).is_err() {
            yield_now();
        }
        assert_eq!(receiver.join().unwrap(), Ok(2));
    });
}

#[test]
fn a_rendezvous_without_a_receiver_gives_the_value_back() {
    runtime("fifo").run(|| {
        let (tx, rx) = sync_channel(0);
        let other = tx.clone();
        let waiting = [spawn(move || tx.send(1)), spawn(move || other.send(2))];
        yield_now();
        drop(rx);
        let back = waiting.map(|sender| sender.join().unwrap().unwrap_err().0);
        assert_eq!(back, [1, 2]);
    });
}

#[test]
fn a_receiver_is_iterated_as_in_std() {
    let (tx, rx) = channel();
    (0..4).for_each(|i| tx.send(i).unwrap());
    assert_eq!(rx.try_iter().take(2).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(rx.try_iter().collect::<Vec<_>>(), [2, 3]);
    tx.send(4).unwrap();
    drop(tx);
    assert_eq!((&rx).into_iter().collect::<Vec<_>>(), [4]);
    assert_eq!(rx.into_iter().next(), None);
}

#[test]
fn receiving_with_a_limit_ends_with_a_value_or_the_limit() {
    two_workers("work-stealing:quantum=100us").run(|| {
        let (tx, rx) = sync_channel(4);
        assert_eq!(rx.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
        let sender = spawn(move || {
            (0..200).for_each(|i| {
                sleep(Duration::from_micros(i % 3 * 40));
                tx.send(i).unwrap();
            })
        });
        let mut next = 0;
        loop {
            match rx.recv_timeout(Duration::from_micros(50)) {
                Ok(i) => {
                    assert_eq!(i, next);
                    next += 1;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        assert_eq!(next, 200);
        sender.join().unwrap();
    });
}

const SHORT: Duration = Duration::from_millis(1);

#[test]
fn a_send_with_a_time_limit_gives_its_value_back() {
    for bound in [0, 1] {
        let test = move || {
            let (tx, rx) = sync_channel(bound);
            (0..bound).for_each(|_| tx.send(0).unwrap());
            assert_eq!(tx.send_timeout(1, SHORT), Err(SendTimeoutError::Timeout(1)));
            assert_eq!(
                rx.try_recv().is_ok(),
                bound > 0,
                "the value that was given back is not there"
            );
            assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
            drop(rx);
            assert_eq!(tx.send_timeout(2, SHORT), Err(SendTimeoutError::Disconnected(2)));
        };
        test();
        runtime("fifo").run(test);
    }
}

/// Receivers and senders with time limits, of a rendezvous and of a channel with room: what was sent is received.
#[test]
fn time_limits_on_both_sides_lose_nothing() {
    for bound in [0, 2] {
        two_workers("work-stealing:quantum=100us").run(move || {
            let (tx, rx) = mpmc::sync_channel(bound);
            let senders: Vec<_> = (0..3u64)
                .map(|i| {
                    let tx = tx.clone();
                    spawn(move || {
                        let limit = |round| Duration::from_micros((i + round) % 5 * 20);
                        (0..300).filter(|&round| tx.send_timeout(1, limit(round)).is_ok()).count()
                    })
                })
                .collect();
            drop(tx);
            let receivers: Vec<_> = (0..3u64)
                .map(|i| {
                    let rx = rx.clone();
                    spawn(move || {
                        let mut received = 0;
                        for round in 0.. {
                            match rx.recv_timeout(Duration::from_micros((i + round) % 7 * 10)) {
                                Ok(value) => received += value,
                                Err(RecvTimeoutError::Timeout) => yield_now(),
                                Err(RecvTimeoutError::Disconnected) => break,
                            }
                        }
                        received
                    })
                })
                .collect();
            let sum = |tasks: Vec<heddle_rt::JoinHandle<usize>>| -> usize {
                tasks.into_iter().map(|task| task.join().unwrap()).sum()
            };
            assert_eq!(sum(senders), sum(receivers));
        });
    }
}

#[test]
fn many_receivers_share_what_many_senders_send() {
    for policy in &policies() {
        let rt = two_workers(policy);
        for bound in [None, Some(0), Some(3)] {
            let (tx, rx) = bound.map_or_else(mpmc::channel, mpmc::sync_channel);
            assert_eq!((tx.capacity(), rx.is_empty(), tx.len()), (bound, true, 0));
            let send = |from: usize, tx: mpmc::Sender<usize>| {
                move || (from..400).step_by(4).for_each(|i| tx.send(i).unwrap())
            };
            let senders: Vec<_> = (0..3).map(|i| rt.spawn(send(i, tx.clone()))).collect();
            let thread = std::thread::spawn(send(3, tx));
            let receive = |rx: mpmc::Receiver<usize>| move || rx.iter().collect::<Vec<_>>();
            let receivers: Vec<_> = (0..3).map(|_| rt.spawn(receive(rx.clone()))).collect();
            let mut all = std::thread::spawn(receive(rx)).join().unwrap();
            receivers.into_iter().for_each(|task| all.extend(task.join().unwrap()));
            senders.into_iter().for_each(|task| task.join().unwrap());
            thread.join().unwrap();
            all.sort_unstable();
            assert_eq!(all, (0..400).collect::<Vec<_>>(), "{policy}, {bound:?}");
        }
    }
}

#[test]
fn a_channel_is_disconnected_with_its_last_receiver() {
    let (tx, rx) = mpmc::sync_channel(1);
    let other = rx.clone();
    assert!(rx.same_channel(&other) && tx.same_channel(&tx.clone()));
    drop(rx);
    tx.send(1).unwrap();
    assert_eq!(tx.send_deadline(2, Instant::now()), Err(SendTimeoutError::Timeout(2)));
    assert_eq!(other.recv_deadline(Instant::now() + SHORT), Ok(1));
    assert_eq!(other.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout));
    drop(other);
    assert_eq!(tx.send(3).unwrap_err().0, 3);
}

#[test]
fn a_oneshot_delivers_its_value_or_reports_that_none_will_come() {
    runtime("fifo").run(|| {
        let (tx, rx) = oneshot::channel();
        let Err(oneshot::TryRecvError::Empty(rx)) = rx.try_recv() else { panic!("not sent yet") };
        let Err(oneshot::RecvTimeoutError::Timeout(rx)) = rx.recv_timeout(SHORT) else {
            panic!("not sent yet")
        };
        let waiting = spawn(move || rx.recv());
        yield_now();
        assert!(!tx.is_closed());
        tx.send(7).unwrap();
        assert_eq!(waiting.join().unwrap(), Ok(7));
        let (tx, rx) = oneshot::channel::<u32>();
        let waiting = spawn(move || rx.recv_timeout(Duration::from_secs(3600)));
        yield_now();
        drop(tx);
        assert!(matches!(waiting.join().unwrap(), Err(oneshot::RecvTimeoutError::Disconnected)));
        let (tx, rx) = oneshot::channel();
        drop(rx);
        assert!(tx.is_closed());
        assert_eq!(tx.send(1).unwrap_err().0, 1);
    });
}

/// An operation on a channel that does not wait.
#[derive(Clone, Debug)]
enum Op {
    Send(u8),
    Receive,
    AddSender,
    DropSender,
    DropReceiver,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => any::<u8>().prop_map(Op::Send),
        8 => Just(Op::Receive),
        2 => Just(Op::AddSender),
        2 => Just(Op::DropSender),
        1 => Just(Op::DropReceiver),
    ];
    proptest::collection::vec(op, 0..60)
}

/// Applies `ops` to a channel and to one of the standard library with the same bound, and compares the answers.
fn compare(bound: usize, ops: Vec<Op>) {
    let ((tx, rx), (std_tx, std_rx)) =
        (sync_channel::<u8>(bound), std_mpsc::sync_channel::<u8>(bound));
    let (mut senders, mut receivers) = (vec![(tx, std_tx)], Some((rx, std_rx)));
    for op in ops {
        match op {
            Op::Send(v) => {
                let Some((tx, std_tx)) = senders.last() else { continue };
                assert_eq!(tx.try_send(v), std_tx.try_send(v));
            }
            Op::Receive => {
                let Some((rx, std_rx)) = &receivers else { continue };
                assert_eq!(rx.try_recv(), std_rx.try_recv());
            }
            Op::AddSender => senders.extend(senders.last().cloned()),
            Op::DropSender => drop(senders.pop()),
            Op::DropReceiver => receivers = None,
        }
    }
}

proptest! {
    #[test]
    fn a_channel_answers_as_that_of_std_does(bound in 0usize..5, ops in ops()) {
        compare(bound, ops);
    }

    #[test]
    fn sent_values_are_received_whatever_the_bound(
        bound in 0usize..6,
        values in proptest::collection::vec(any::<u16>(), 0..200),
    ) {
        let expected = values.clone();
        let received: Vec<u16> = RT.with(|rt| rt.run(move || {
            let (tx, rx) = sync_channel(bound);
            let sender = spawn(move || values.into_iter().for_each(|v| tx.send(v).unwrap()));
            let received = rx.iter().collect();
            sender.join().unwrap();
            received
        }));
        prop_assert_eq!(received, expected);
    }
}

thread_local!(static RT: heddle_rt::Runtime = two_workers("work-stealing:quantum=100us"));
