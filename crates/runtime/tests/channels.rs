//! mpsc: in order, nothing lost, nothing twice, and exactly what a model says.

mod common;

use common::{POLICIES, runtime, two_workers};
use heddle_rt::spawn;
use heddle_rt::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, TrySendError, channel};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Duration;

#[test]
fn values_arrive_once_and_in_each_senders_order() {
    for policy in POLICIES {
        for rt in [runtime(policy), two_workers(policy)] {
            let (tx, rx) = channel(8);
            let send = |from: usize, tx: Sender<(usize, usize)>| {
                move || (0..500).for_each(|i| tx.send((from, i)).unwrap())
            };
            let tasks: Vec<_> = (0..3).map(|i| rt.spawn(send(i, tx.clone()))).collect();
            let threads: Vec<_> = (3..5).map(|i| std::thread::spawn(send(i, tx.clone()))).collect();
            drop(tx);
            let next = rt.run(move || {
                let mut next = [0; 5];
                for (from, i) in rx.iter() {
                    assert_eq!(i, next[from], "{policy}");
                    next[from] += 1;
                }
                next
            });
            assert_eq!(next, [500; 5]);
            tasks.into_iter().for_each(|t| t.join().unwrap());
            threads.into_iter().for_each(|t| t.join().unwrap());
        }
    }
}

#[test]
fn a_sender_that_waits_for_room_learns_that_the_receiver_is_gone() {
    runtime("fifo").run(|| {
        let (tx, rx) = channel(1);
        tx.send(1).unwrap();
        let waiting = spawn(move || tx.send(2));
        heddle_rt::yield_now();
        drop(rx);
        assert_eq!(waiting.join().unwrap().unwrap_err().0, 2);
    });
}

#[test]
fn receiving_with_a_limit_ends_with_a_value_or_the_limit() {
    two_workers("work-stealing:quantum=100us").run(|| {
        let (tx, rx) = channel(4);
        assert_eq!(rx.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
        let sender = spawn(move || {
            (0..200).for_each(|i| {
                heddle_rt::sleep(Duration::from_micros(i % 3 * 40));
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

/// What may be done to a channel without waiting.
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

/// Does `ops` to a channel and to a queue of the same capacity; both must answer alike.
fn compare(capacity: usize, ops: Vec<Op>) {
    let (tx, rx) = channel::<u8>(capacity);
    let (mut senders, mut receiver) = (vec![tx], Some(rx));
    let mut model = VecDeque::new();
    for op in ops {
        match (op, &receiver) {
            (Op::Send(v), rx) => {
                let Some(tx) = senders.last() else { continue };
                let expected = match rx {
                    None => Err(TrySendError::Disconnected(v)),
                    Some(_) if model.len() == capacity => Err(TrySendError::Full(v)),
                    Some(_) => {
                        model.push_back(v);
                        Ok(())
                    }
                };
                assert_eq!(tx.try_send(v), expected);
            }
            (Op::Receive, Some(rx)) => {
                let empty = if senders.is_empty() {
                    TryRecvError::Disconnected
                } else {
                    TryRecvError::Empty
                };
                assert_eq!(rx.try_recv(), model.pop_front().ok_or(empty));
            }
            (Op::Receive, None) => {}
            (Op::AddSender, _) => senders.extend(senders.last().cloned()),
            (Op::DropSender, _) => drop(senders.pop()),
            (Op::DropReceiver, _) => {
                receiver = None;
                model.clear();
            }
        }
    }
}

proptest! {
    #[test]
    fn a_channel_behaves_as_its_model(capacity in 1usize..5, ops in ops()) {
        compare(capacity, ops);
    }

    #[test]
    fn what_is_sent_is_received_whatever_the_capacity(capacity in 1usize..6, values in proptest::collection::vec(any::<u16>(), 0..200)) {
        let expected = values.clone();
        let received: Vec<u16> = RT.with(|rt| rt.run(move || {
            let (tx, rx) = channel(capacity);
            let sender = spawn(move || values.into_iter().for_each(|v| tx.send(v).unwrap()));
            let received = rx.iter().collect();
            sender.join().unwrap();
            received
        }));
        prop_assert_eq!(received, expected);
    }
}

thread_local!(static RT: heddle_rt::Runtime = two_workers("work-stealing:quantum=100us"));
