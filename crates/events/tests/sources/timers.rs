//! Timers. No test depends on how long anything takes, except that a timer is never early.

use super::{HANG, delivered, delivered_now};
use heddle_events::{EventError, EventOptions, EventQueue};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
/// Never, as far as a test is concerned.
const LATER: Duration = Duration::from_secs(3600);

#[test]
fn a_timer_is_reported_once_and_never_early_and_can_be_set_again() {
    let queue = EventQueue::new().unwrap();
    let mut worker = queue.worker().unwrap();
    let start = Instant::now();
    let timer = queue.register_timer(20 * MS, None, 5, EventOptions::default()).unwrap();
    assert_eq!(delivered(&mut worker, 1), [(5, 1)]);
    assert!(start.elapsed() >= 20 * MS, "early: {:?}", start.elapsed());
    assert!(worker.wait(Some(5 * MS)).unwrap().is_empty());
    let then = Instant::now() + 10 * MS;
    queue.set_timer(timer, then, None).unwrap();
    assert_eq!(delivered(&mut worker, 1), [(5, 1)]);
    assert!(Instant::now() >= then);
    queue.set_timer(timer, start, None).unwrap();
    assert_eq!(delivered(&mut worker, 1), [(5, 1)], "a time that is over is now");
}

#[test]
fn timers_are_delivered_in_the_order_of_their_times() {
    let queue = EventQueue::builder().policy("fifo").build().unwrap();
    let base = Instant::now() + 10 * MS;
    for token in (0..20).rev() {
        let at = base + MS * token;
        queue.register_timer(at, None, token.into(), EventOptions::default()).unwrap();
    }
    let mut worker = queue.worker().unwrap();
    let tokens: Vec<u64> = delivered(&mut worker, 20).into_iter().map(|(token, _)| token).collect();
    assert_eq!(tokens, (0..20).collect::<Vec<_>>());
}

#[test]
fn overdue_timers_are_delivered_in_order_with_missed_expirations() {
    let queue = EventQueue::builder().policy("fifo").build().unwrap();
    let options = EventOptions::default();
    std::thread::sleep(10 * MS);
    let now = Instant::now();
    let ago = |ms| now - MS * ms;
    queue.register_timer(ago(1), None, 1, options).unwrap();
    queue.register_timer(ago(9), Some(MS), 2, options).unwrap();
    queue.register_timer(ago(4), None, 3, options).unwrap();
    let all = delivered(&mut queue.worker().unwrap(), 3);
    assert_eq!(all.iter().map(|one| one.0).collect::<Vec<_>>(), [2, 3, 1]);
    assert!(all[0].1 >= 10, "{all:?}");
}

#[test]
fn a_periodic_timer_counts_missed_expirations_and_does_not_drift() {
    let queue = EventQueue::new().unwrap();
    let start = Instant::now() + 3 * MS;
    queue.register_timer(start, Some(2 * MS), 1, EventOptions::default()).unwrap();
    let mut worker = queue.worker().unwrap();
    let mut times = 0;
    while times < 20 {
        times += delivered(&mut worker, 1)[0].1;
        // A handler that takes longer than the period.
        std::thread::sleep(3 * MS);
        let possible = start.elapsed().as_micros() as u64 / 2000 + 1;
        assert!(times <= possible, "{times} expirations, {possible} periods");
    }
}

#[test]
fn a_timer_that_ends_stops_or_moves_while_queued_is_not_delivered() {
    let queue = EventQueue::new().unwrap();
    let register =
        |token| queue.register_timer(Duration::ZERO, None, token, EventOptions::default()).unwrap();
    let (ended, stopped, moved, last) = (register(1), register(2), register(3), register(4));
    let mut worker = queue.worker().unwrap();
    worker.set_batch(1);
    // The first is delivered, the others wait in the run queue.
    let (first, _) = delivered(&mut worker, 1)[0];
    queue.deregister(ended).unwrap();
    queue.stop_timer(stopped).unwrap();
    queue.set_timer(moved, LATER, None).unwrap();
    queue.set_timer(last, Duration::ZERO, None).unwrap();
    assert!((1..=4).contains(&first));
    assert_eq!(delivered(&mut worker, 1), [(4, 1)]);
    assert_eq!(delivered_now(&mut worker), []);
    queue.set_timer(stopped, Duration::ZERO, None).unwrap();
    queue.set_timer(moved, Duration::ZERO, None).unwrap();
    let mut both = delivered(&mut worker, 2);
    both.sort_unstable();
    assert_eq!(both, [(2, 1), (3, 1)]);
}

#[test]
fn options_hold_for_timers_too() {
    let queue = EventQueue::new().unwrap();
    let (first, every) = (Duration::ZERO, Some(MS));
    let mut worker = queue.worker().unwrap();
    let once = queue.register_timer(first, every, 1, EventOptions::default().once()).unwrap();
    assert_eq!(delivered(&mut worker, 1)[0].0, 1);
    assert_eq!(delivered_now(&mut worker), []);
    assert!(matches!(queue.set_timer(once, first, None), Err(EventError::Ended)));

    let options = EventOptions::default().dispatch();
    let dispatch = queue.register_timer(first, every, 2, options).unwrap();
    assert_eq!(delivered(&mut worker, 1)[0].0, 2);
    assert!(worker.wait(Some(20 * MS)).unwrap().is_empty(), "delivered once, then not");
    queue.turn_on(dispatch).unwrap();
    let (token, times) = delivered(&mut worker, 1)[0];
    assert!(token == 2 && times > 1, "what expired meanwhile is counted: {times}");
    queue.deregister(dispatch).unwrap();

    let off = queue.register_timer(first, None, 3, EventOptions::default().off()).unwrap();
    assert!(worker.wait(Some(5 * MS)).unwrap().is_empty());
    queue.turn_on(off).unwrap();
    assert_eq!(delivered(&mut worker, 1), [(3, 1)]);
}

#[test]
fn a_pinned_timer_is_delivered_to_its_worker_though_another_is_idle() {
    let queue = EventQueue::new().unwrap();
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (queue, there) = (&queue, sender);
        let other = scope.spawn(move || {
            let mut worker = queue.worker().unwrap();
            there.send(()).unwrap();
            loop {
                match worker.wait(HANG) {
                    Ok(batch) => assert!(batch.is_empty(), "delivered to another thread"),
                    Err(EventError::Closed) => return,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        receiver.recv().unwrap();
        let mut worker = queue.worker().unwrap();
        let options = EventOptions::default().pin(&worker);
        let pinned = queue.register_timer(MS, Some(MS), 1, options).unwrap();
        (0..10).for_each(|_| assert_eq!(delivered(&mut worker, 1)[0].0, 1));
        drop(worker);
        let set = queue.set_timer(pinned, LATER, None);
        assert!(matches!(set, Err(EventError::PinnedThreadGone)));
        queue.close();
        other.join().unwrap();
    });
}

/// The worker with which all pumps are registered first is busy; a worker that joins later gets the timers.
#[test]
fn a_thread_that_stalls_delays_no_timer() {
    let queue = EventQueue::new().unwrap();
    let mut stalled = queue.worker().unwrap();
    queue.register_timer(Duration::ZERO, None, 1, EventOptions::default()).unwrap();
    let mut batch = stalled.wait(HANG).unwrap();
    let held = batch.next().unwrap();
    for token in 2..12 {
        let timer = |queue: &EventQueue| {
            queue.register_timer(MS, None, token, EventOptions::default()).unwrap()
        };
        timer(&queue);
        let queue = queue.clone();
        std::thread::spawn(move || {
            assert_eq!(delivered(&mut queue.worker().unwrap(), 1), [(token, 1)]);
        })
        .join()
        .unwrap();
    }
    drop(held);
}

/// Every expiration is delivered once, and no two threads hold one timer, while threads come and go and the
/// policy changes.
#[test]
fn no_expiration_is_lost_or_repeated_while_workers_come_and_go() {
    const TIMERS: u64 = 200;
    const ROUNDS: u64 = 20;
    let queue = EventQueue::new().unwrap();
    let delivered = Mutex::new(BTreeMap::new());
    let ids: Vec<_> = (0..TIMERS)
        .map(|token| queue.register_timer(LATER, None, token, EventOptions::default()).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (queue, delivered, ids) = (&queue, &delivered, &ids);
            scope.spawn(move || {
                loop {
                    let Ok(mut worker) = queue.worker() else { return };
                    for _ in 0..if thread == 0 { usize::MAX } else { 20 } {
                        let Ok(batch) = worker.wait(HANG) else { return };
                        for event in batch {
                            let mut delivered = delivered.lock().unwrap();
                            let count: &mut u64 = delivered.entry(event.token()).or_default();
                            *count += event.data();
                            let is_last = *count >= ROUNDS;
                            drop(delivered);
                            if !is_last {
                                let id = ids[event.token() as usize];
                                queue.set_timer(id, Duration::from_micros(50), None).unwrap();
                            }
                        }
                    }
                }
            });
        }
        for &id in &ids {
            queue.set_timer(id, MS, None).unwrap();
        }
        let policies = ["queue-affinity", "fifo", "best-of-two", "hybrid"];
        for turn in 0.. {
            queue.set_policy(policies[turn % policies.len()]).unwrap();
            std::thread::sleep(MS);
            let all = delivered.lock().unwrap().values().sum::<u64>();
            if all == TIMERS * ROUNDS {
                break;
            }
            assert!(turn < 60_000, "{all} of {}", TIMERS * ROUNDS);
        }
        queue.close();
    });
    let delivered = delivered.into_inner().unwrap();
    assert!(delivered.values().all(|&count| count == ROUNDS), "{delivered:?}");
}

#[test]
fn a_hundred_thousand_timers_all_come_and_a_queue_closes_over_as_many() {
    const MANY: u64 = 100_000;
    let queue = EventQueue::builder().capacity(2 * MANY as usize).build().unwrap();
    let mut worker = queue.worker().unwrap();
    for token in 0..MANY {
        queue.register_timer(LATER, None, MANY, EventOptions::default()).unwrap();
        let soon = Duration::from_nanos(token * 7919 % 1_000_000);
        queue.register_timer(soon, None, token, EventOptions::default().once()).unwrap();
    }
    let mut tokens: Vec<u64> =
        delivered(&mut worker, MANY as usize).into_iter().map(|(token, _)| token).collect();
    tokens.sort_unstable();
    assert!(tokens.into_iter().eq(0..MANY));
    assert_eq!(delivered_now(&mut worker), []);
    assert_eq!(queue.len(), MANY as usize, "those that were delivered once have ended");
    queue.close();
    assert!(matches!(worker.wait(None).err(), Some(EventError::Closed)));
}

#[test]
fn timer_errors_are_explained_and_change_nothing() {
    let queue = EventQueue::builder().capacity(1).build().unwrap();
    let zero = Some(Duration::ZERO);
    let register = |every| queue.register_timer(MS, every, 0, EventOptions::default());
    assert!(matches!(register(zero), Err(EventError::Range { .. })));
    assert_eq!(queue.len(), 0);
    let user = queue.register_user(0, EventOptions::default()).unwrap();
    assert!(matches!(register(None), Err(EventError::Full(1))));
    assert!(matches!(queue.set_timer(user, MS, None), Err(EventError::Ended)), "no timer");
    queue.deregister(user).unwrap();
    let timer = register(None).expect("the queue's own descriptors need no room of the program's");
    assert!(matches!(queue.set_timer(timer, MS, zero), Err(EventError::Range { .. })));
    queue.deregister(timer).unwrap();
    assert!(matches!(queue.stop_timer(timer), Err(EventError::Ended)));
    assert_eq!(queue.len(), 0);
}
/// A worker that always finds something in its run queue still looks for other events.
#[test]
fn a_timer_is_delivered_though_another_event_never_ends() {
    for workers in 1..=2 {
        let queue = EventQueue::new().unwrap();
        let endless = queue.register_user(0, EventOptions::default()).unwrap();
        queue.register_timer(MS, None, 1, EventOptions::default()).unwrap();
        queue.trigger(endless).unwrap();
        let mut worker = queue.worker().unwrap();
        let _stalled = (1..workers).map(|_| queue.worker().unwrap()).collect::<Vec<_>>();
        let start = Instant::now();
        while delivered(&mut worker, 1).iter().all(|&(token, _)| token == 0) {
            queue.trigger(endless).unwrap();
            assert!(start.elapsed() < HANG.unwrap(), "the timer is never delivered");
        }
    }
}
