//! `select!`: what it chooses, that nothing is lost or done twice, and that it waits asleep.

mod common;

use common::{policies, runtime, two_workers};
use heddle_rt::sync::mpsc::RecvError;
use heddle_rt::sync::{CancellationToken, mpmc, mpsc, oneshot};
use heddle_rt::{after, now, select, sleep, spawn, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(1);

#[test]
fn a_ready_arm_is_completed_and_the_default_only_if_none_is() {
    let (tx, rx) = mpsc::channel();
    let (full, _keep) = mpsc::sync_channel(1);
    full.send(0).unwrap();
    let look = || {
        select! {
            recv(rx) -> value => value.unwrap(),
            send(full, 9) -> _ => unreachable!("there is no room"),
            default => -1,
        }
    };
    assert_eq!(look(), -1);
    tx.send(5).unwrap();
    assert_eq!(look(), 5);
    assert_eq!(look(), -1);
}

#[test]
fn a_time_limit_ends_the_wait() {
    for in_task in [false, true] {
        let wait = || {
            let (_tx, rx) = mpsc::channel::<()>();
            let begin = now();
            let timed_out = select! {
                recv(rx) -> _ => false,
                default(SHORT) => true,
            };
            assert!(timed_out && now() >= begin + SHORT.into());
            let due = select! {
                recv(rx) -> _ => unreachable!(),
                recv(after(SHORT)) -> due => due.unwrap(),
            };
            assert!(now() >= due);
        };
        if in_task { runtime("fifo").run(wait) } else { wait() }
    }
}

#[test]
fn a_time_is_received_once() {
    let end = after(Duration::ZERO);
    let received = || {
        select! {
            recv(end) -> _ => true,
            default(SHORT) => false,
        }
    };
    assert!(received());
    assert!(!received());
}

#[test]
fn bodies_may_return_break_and_move_what_was_selected() {
    fn first(rx: mpsc::Receiver<u32>) -> Result<u32, RecvError> {
        loop {
            select! {
                recv(rx) -> value => {
                    let value = value?;
                    if value == 0 {
                        continue;
                    }
                    drop(rx);
                    return Ok(value);
                }
                default => break,
            }
        }
        Ok(0)
    }
    let (tx, rx) = mpsc::channel();
    tx.send(0).unwrap();
    tx.send(3).unwrap();
    assert_eq!(first(rx), Ok(3));
    assert!(tx.send(4).is_err());
    let (tx, rx) = mpsc::channel();
    drop(tx);
    assert_eq!(first(rx), Err(RecvError));
}

#[test]
fn a_disconnected_channel_is_ready() {
    let (tx, rx) = mpsc::channel::<()>();
    let (other, gone) = mpsc::sync_channel(0);
    drop(tx);
    let received = select! { recv(rx) -> value => value };
    assert_eq!(received, Err(RecvError));
    drop(gone);
    let sent = select! { send(other, 7) -> result => result };
    assert_eq!(sent.unwrap_err().0, 7);
}

#[test]
fn a_waiting_select_learns_that_the_other_side_is_gone() {
    runtime("fifo").run(|| {
        let (tx, rx) = mpsc::channel::<()>();
        let receiver = spawn(move || select! { recv(rx) -> value => value });
        let (full, gone) = mpsc::sync_channel(1);
        full.send(0).unwrap();
        let sender = spawn(move || select! { send(full, 1) -> result => result });
        yield_now();
        drop(tx);
        drop(gone);
        assert_eq!(receiver.join().unwrap(), Err(RecvError));
        assert_eq!(sender.join().unwrap().unwrap_err().0, 1);
    });
}

/// If the arms were tried in order, or from a random arm on, the later ones of neighbours would be starved.
#[test]
fn each_ready_arm_is_chosen_often() {
    let channels: [_; 4] = std::array::from_fn(|_| mpsc::channel());
    let mut chosen = [0; 4];
    for _ in 0..4000 {
        channels.iter().for_each(|(tx, _)| tx.send(()).unwrap());
        let [a, b, c, d] = &channels;
        let arm = select! {
            recv(a.1) -> _ => 0,
            recv(b.1) -> _ => 1,
            recv(c.1) -> _ => 2,
            recv(d.1) -> _ => 3,
        };
        chosen[arm] += 1;
        channels.iter().for_each(|(_, rx)| rx.try_iter().for_each(drop));
    }
    // 1000 expected; 800 is seven standard deviations away.
    assert!(chosen.iter().all(|&times| times > 800), "{chosen:?}");
}

#[test]
fn the_value_of_an_arm_is_evaluated_only_if_it_is_chosen() {
    let (tx, rx) = mpsc::sync_channel(1);
    let evaluated = AtomicUsize::new(0);
    let send = || {
        select! {
            send(tx, evaluated.fetch_add(1, Ordering::Relaxed)) -> result => result.is_ok(),
            default => false,
        }
    };
    assert!(send());
    assert!(!send());
    assert_eq!((rx.recv(), evaluated.into_inner()), (Ok(0), 1));
}

fn no_value() -> u32 {
    panic!("no value")
}

#[test]
fn a_value_that_panics_leaves_its_place_to_others() {
    for bound in [0, 1] {
        let (tx, rx) = mpsc::sync_channel::<u32>(bound);
        runtime("fifo").run(move || {
            let receiver = spawn(move || rx.recv());
            yield_now();
            let send = || {
                select! {
                    send(tx, no_value()) -> _ => (),
                }
            };
            assert!(catch_unwind(AssertUnwindSafe(send)).is_err());
            tx.try_send(4).unwrap();
            assert_eq!(receiver.join().unwrap(), Ok(4));
        });
    }
}

#[test]
fn a_receiver_whose_sender_panics_waits_for_the_next() {
    runtime("fifo").run(|| {
        let (tx, rx) = mpsc::sync_channel::<u32>(0);
        let receiver = spawn(move || select! { recv(rx) -> value => value });
        yield_now();
        let send = || select! { send(tx, no_value()) -> _ => () };
        assert!(catch_unwind(AssertUnwindSafe(send)).is_err());
        yield_now();
        select! { send(tx, 5) -> result => result.unwrap() }
        assert_eq!(receiver.join().unwrap(), Ok(5));
    });
}

/// Both sides of a rendezvous select, and each might wait for the other to commit first.
#[test]
fn two_selects_meet_at_a_rendezvous() {
    for policy in &policies() {
        let rt = two_workers(policy);
        for in_thread in [false, true] {
            let (there, here) = mpmc::sync_channel(0);
            let (back, home) = mpmc::sync_channel(0);
            // Each operation of one player is the other's: both end at the same time.
            let one = rt.spawn(player(there, home));
            let other = player(back, here);
            let others_sum = match in_thread {
                true => std::thread::spawn(other).join().unwrap(),
                false => rt.spawn(other).join().unwrap(),
            };
            assert_eq!(one.join().unwrap() + others_sum, 300, "{policy}");
        }
    }
}

/// Sends or receives 300 times, whichever is possible; how often it received.
fn player(tx: mpmc::Sender<usize>, rx: mpmc::Receiver<usize>) -> impl FnOnce() -> usize {
    move || {
        let received = |i| {
            select! {
                send(tx, i) -> result => result.map(|()| 0).unwrap(),
                recv(rx) -> value => value.map(|_| 1).unwrap(),
            }
        };
        (0..300).map(received).sum()
    }
}

/// Senders and receivers of all kinds on two channels, in tasks and threads: every value arrives once.
#[test]
fn values_arrive_once_if_many_select() {
    const VALUES: usize = 300;
    for policy in &policies() {
        for bound in [0, 1, 3] {
            let rt = two_workers(policy);
            let channels = [mpmc::sync_channel(bound), mpmc::sync_channel(bound)];
            let [(tx_a, rx_a), (tx_b, rx_b)] = channels;
            let selecting = |from: usize, a: mpmc::Sender<usize>, b: mpmc::Sender<usize>| {
                move || {
                    for i in (from..VALUES).step_by(4) {
                        select! {
                            send(a, i) -> result => result.unwrap(),
                            send(b, i) -> result => result.unwrap(),
                        }
                    }
                }
            };
            let plain = |from: usize, tx: mpmc::Sender<usize>| {
                move || (from..VALUES).step_by(4).for_each(|i| tx.send(i).unwrap())
            };
            let receiving = |a: mpmc::Receiver<usize>, b: mpmc::Receiver<usize>| {
                move || {
                    // A channel whose senders are gone is always ready. To go on with both would be to spin, and
                    // without preemption that keeps the senders of the other one from their CPU.
                    let (mut values, mut closed) = (vec![], false);
                    while !closed {
                        let value = select! {
                            recv(a) -> value => value,
                            recv(b) -> value => value,
                        };
                        closed = value.map(|value| values.push(value)).is_err();
                    }
                    values.extend(a.iter().chain(b.iter()));
                    values
                }
            };
            let senders = [
                rt.spawn(selecting(0, tx_a.clone(), tx_b.clone())),
                rt.spawn(plain(1, tx_a.clone())),
            ];
            let threads = [
                std::thread::spawn(selecting(2, tx_b.clone(), tx_a.clone())),
                std::thread::spawn(plain(3, tx_b.clone())),
            ];
            drop((tx_a, tx_b));
            let receivers = [
                rt.spawn(receiving(rx_a.clone(), rx_b.clone())),
                rt.spawn({
                    let (a, b) = (rx_a.clone(), rx_b.clone());
                    move || a.iter().chain(b.iter()).collect()
                }),
            ];
            let thread = std::thread::spawn(receiving(rx_a, rx_b));
            senders.into_iter().for_each(|task| task.join().unwrap());
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let mut all = thread.join().unwrap();
            receivers.into_iter().for_each(|task| all.extend(task.join().unwrap()));
            all.sort_unstable();
            assert_eq!(all, (0..VALUES).collect::<Vec<_>>(), "{policy}, bound {bound}");
        }
    }
}

/// Each wait ends by its time or by a value just as that comes. A value that a party took note of and then left would
/// be missing at the end.
#[test]
fn a_value_that_races_with_the_time_limit_is_not_lost() {
    for bound in [0, 1] {
        two_workers("work-stealing:quantum=100us").run(|| {
            let (tx, rx) = mpmc::sync_channel(bound);
            let end = CancellationToken::new();
            let receivers: Vec<_> = (0..3)
                .map(|i| {
                    let (rx, end) = (rx.clone(), end.clone());
                    spawn(move || {
                        let mut got = 0;
                        loop {
                            select! {
                                recv(rx) -> value => got += value.map_or(0, |_: u32| 1),
                                cancelled(end) => return got,
                                default(Duration::from_micros(20 + i * 15)) => {}
                            }
                        }
                    })
                })
                .collect();
            let mut sent = 0;
            for i in 0..500 {
                let limit = Duration::from_micros(10 + i % 50);
                sent += usize::from(tx.send_timeout(0, limit).is_ok());
            }
            while !tx.is_empty() {
                yield_now();
            }
            end.cancel();
            let got: usize = receivers.into_iter().map(|task| task.join().unwrap()).sum();
            assert_eq!(got, sent);
        });
    }
}

#[test]
fn a_oneshot_is_an_arm() {
    runtime("fifo").run(|| {
        let (tx, rx) = oneshot::channel();
        let (_keep, other) = mpsc::channel::<u32>();
        let waiting = spawn(move || {
            select! {
                recv(rx) -> value => value.unwrap(),
                recv(other) -> value => value.unwrap(),
            }
        });
        yield_now();
        tx.send(8).unwrap();
        assert_eq!(waiting.join().unwrap(), 8);
    });
}

#[test]
fn a_waiting_select_sleeps() {
    let rt = runtime("fifo");
    let (tx, rx) = mpsc::channel::<()>();
    let is_over = Arc::new(AtomicBool::new(false));
    let set = is_over.clone();
    let task = rt.spawn(move || {
        select! {
            recv(rx) -> _ => {}
            default(LONG) => {}
        }
        set.store(true, Ordering::Relaxed);
    });
    sleep(Duration::from_millis(20));
    let before = rt.stats().switches;
    sleep(Duration::from_millis(20));
    assert_eq!(rt.stats().switches, before, "it does not look again by itself");
    assert!(!is_over.load(Ordering::Relaxed));
    drop(tx);
    task.join().unwrap();
}

#[test]
fn more_arms_than_there_may_be_are_refused() {
    let (_tx, rx) = mpsc::channel::<()>();
    let select = || {
        select! {
            recv(rx) -> _ => {} recv(rx) -> _ => {} recv(rx) -> _ => {} recv(rx) -> _ => {}
            recv(rx) -> _ => {} recv(rx) -> _ => {} recv(rx) -> _ => {} recv(rx) -> _ => {}
            recv(rx) -> _ => {} recv(rx) -> _ => {} recv(rx) -> _ => {} recv(rx) -> _ => {}
            recv(rx) -> _ => {} recv(rx) -> _ => {} recv(rx) -> _ => {} recv(rx) -> _ => {}
            recv(rx) -> _ => {} recv(rx) -> _ => {} recv(rx) -> _ => {} recv(rx) -> _ => {}
            recv(rx) -> _ => {} recv(rx) -> _ => {} recv(rx) -> _ => {} recv(rx) -> _ => {}
            recv(rx) -> _ => {} recv(rx) -> _ => {} recv(rx) -> _ => {} recv(rx) -> _ => {}
            recv(rx) -> _ => {} recv(rx) -> _ => {} recv(rx) -> _ => {} recv(rx) -> _ => {}
            recv(rx) -> _ => {}
            default => {}
        }
    };
    assert!(catch_unwind(AssertUnwindSafe(select)).is_err());
}
