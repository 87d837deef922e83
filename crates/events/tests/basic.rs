//! The queue end to end: sockets, threads, policies. No test depends on how long anything takes.

use heddle_events::{EventError, EventOptions, EventQueue, Interest};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The longest wait for something that should come at once.
const HANG: Option<Duration> = Some(heddle_test_support::PATIENCE);

fn pairs(n: usize) -> (Vec<UnixStream>, Vec<UnixStream>) {
    let pair = || {
        let (a, b) = UnixStream::pair().unwrap();
        a.set_nonblocking(true).unwrap();
        (a, b)
    };
    (0..n).map(|_| pair()).unzip()
}

#[test]
fn a_descriptor_is_reported_with_its_token_until_it_is_read() {
    let queue = EventQueue::new().unwrap();
    let (here, mut there) = UnixStream::pair().unwrap();
    queue.register(&here, Interest::READ, 7, EventOptions::default()).unwrap();
    let mut worker = queue.worker().unwrap();
    assert!(worker.wait(Some(Duration::ZERO)).unwrap().is_empty());
    there.write_all(b"ab").unwrap();
    for _ in 0..2 {
        let mut batch = worker.wait(HANG).unwrap();
        let event = batch.next().unwrap();
        assert_eq!((event.token(), event.is_readable()), (7, true));
        assert_eq!((&here).read(&mut [0; 1]).unwrap(), 1);
        drop(event);
        assert!(batch.next().is_none());
    }
    assert!(worker.wait(Some(Duration::from_millis(1))).unwrap().is_empty());
}

#[test]
fn events_that_are_not_looked_at_are_reported_again() {
    let queue = EventQueue::new().unwrap();
    let user = queue.register_user(3, EventOptions::default()).unwrap();
    let mut worker = queue.worker().unwrap();
    queue.trigger(user).unwrap();
    assert_eq!(worker.wait(HANG).unwrap().len(), 1);
    assert_eq!(worker.wait(HANG).unwrap().map(|event| event.token()).collect::<Vec<_>>(), [3]);
    assert!(worker.wait(Some(Duration::ZERO)).unwrap().is_empty());
}

/// Sends four-byte requests over all connections to threads that join and leave while the policy changes.
/// Each is answered once, and no two threads handle one connection at a time.
fn all_requests_are_answered_once(policies: &[&str], connections: usize, rounds: usize) {
    let queue = EventQueue::builder().policy(policies[0]).build().unwrap();
    let (servers, mut clients) = pairs(connections);
    for (token, server) in servers.iter().enumerate() {
        queue.register(server, Interest::READ, token as u64, EventOptions::default()).unwrap();
    }
    let busy: Vec<AtomicBool> = servers.iter().map(|_| AtomicBool::new(false)).collect();
    let (served, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let by_thread = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (queue, servers, busy, served, by_thread, done) =
                (&queue, &servers, &busy, &served, &by_thread, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    // The first thread stays; the others leave and come back.
                    let turns = if thread == 0 { usize::MAX } else { 50 + thread };
                    let mut worker = queue.worker().unwrap();
                    for _ in 0..turns {
                        let Ok(batch) = worker.wait(HANG) else { return };
                        for event in batch {
                            let token = event.token() as usize;
                            assert!(
                                !busy[token].swap(true, Ordering::SeqCst),
                                "two threads at one connection"
                            );
                            let mut request = [0; 4];
                            if (&servers[token]).read_exact(&mut request).is_ok() {
                                (&servers[token]).write_all(&request).unwrap();
                                served.fetch_add(1, Ordering::Relaxed);
                            }
                            *by_thread.lock().unwrap().entry(thread).or_insert(0) += 1;
                            busy[token].store(false, Ordering::SeqCst);
                        }
                    }
                }
            });
        }
        for round in 0..rounds {
            queue.set_policy(policies[round % policies.len()]).unwrap();
            for client in &mut clients {
                client.write_all(&(round as u32).to_ne_bytes()).unwrap();
            }
            for client in &mut clients {
                client.set_read_timeout(HANG).unwrap();
                let mut answer = [0; 4];
                client.read_exact(&mut answer).expect("an answer");
                assert_eq!(u32::from_ne_bytes(answer), round as u32);
            }
        }
        done.store(true, Ordering::Relaxed);
        queue.close();
    });
    assert_eq!(served.into_inner(), (connections * rounds) as u64);
    println!("{policies:?}: {:?}", by_thread.into_inner().unwrap());
}

#[test]
fn each_request_is_answered_once_under_every_policy() {
    for policy in [
        "queue-affinity",
        "cpu-affinity",
        "best-of-two",
        "hybrid",
        "hybrid:affinity=queue,steal=4,retry=100us",
        "fifo",
        "work-stealing",
    ] {
        all_requests_are_answered_once(&[policy], 20, 100);
    }
}

#[test]
fn each_request_is_answered_once_while_the_policy_changes() {
    all_requests_are_answered_once(&["hybrid", "fifo", "queue-affinity", "best-of-two"], 20, 200);
}

/// SKQ's rtshare (section 4.4): high priority comes first, and leaves its part of each batch to the rest.
#[test]
fn high_priority_has_its_share_of_each_batch() {
    for (percent, high) in [(100, 8), (50, 4), (25, 2)] {
        let queue = EventQueue::builder().high_share(percent).build().unwrap();
        let mut worker = queue.worker().unwrap();
        worker.set_batch(8);
        for token in 0..32 {
            let options = EventOptions::default();
            let options = if token % 2 == 0 { options.high() } else { options };
            queue.trigger(queue.register_user(token, options).unwrap()).unwrap();
        }
        for _ in 0..2 {
            let batch: Vec<u64> =
                worker.wait(Some(Duration::ZERO)).unwrap().map(|event| event.token()).collect();
            let (first, rest) = batch.split_at(high);
            assert_eq!(batch.len(), 8, "{percent} %");
            assert!(first.iter().all(|token| token % 2 == 0), "{percent} %: {batch:?}");
            assert!(rest.iter().all(|token| token % 2 == 1), "{percent} %: {batch:?}");
        }
    }
}

/// SKQ's rtfreq (section 4.4): the longer events take, the fewer a worker is given at once, so that it soon comes back
/// for what is of high priority.
#[test]
fn a_frequency_has_the_worker_come_back_for_high_priority() {
    const HIGH: u64 = 0;
    const BATCH: usize = 8;
    let queue = EventQueue::new().unwrap();
    let mut worker = queue.worker().unwrap();
    worker.set_batch(BATCH);
    let (servers, mut clients) = pairs(1 + BATCH);
    for (token, server) in (0..).zip(&servers) {
        let options = EventOptions::default();
        let options = if token == HIGH { options.high() } else { options };
        queue.register(server, Interest::READ, token, options).unwrap();
    }
    // These bytes stay unread: all but the first connection stay ready.
    clients[1..].iter_mut().for_each(|client| client.write_all(b"x").unwrap());
    while queue.stats().workers[0].average.0 == 0 {
        // A sleep lasts at least its time, so the average is at least that.
        worker.wait(HANG).unwrap().for_each(|_| std::thread::sleep(Duration::from_millis(1)));
    }
    // Returns how many events of normal priority the worker had when one of high priority came.
    let mut before_high = |hertz| {
        queue.set_high_frequency(hertz);
        let batch = worker.wait(HANG).unwrap();
        clients[0].write_all(b"x").unwrap();
        let had = batch.map(|event| assert_ne!(event.token(), HIGH)).count();
        let first = worker.wait(HANG).unwrap().next().unwrap().token();
        assert_eq!(first, HIGH, "{hertz} Hz");
        assert_eq!((&servers[0]).read(&mut [0; 2]).unwrap(), 1);
        had
    };
    assert_eq!(before_high(0), BATCH);
    assert!((1..=4).contains(&before_high(250)));
    assert_eq!(before_high(1_000), 1);
    assert_eq!(before_high(0), BATCH);
}

#[test]
fn errors_are_explained_and_change_nothing() {
    let refuse =
        |policy: &str| EventQueue::builder().policy(policy).build().err().unwrap().to_string();
    assert!(refuse("hybird").contains("did you mean `hybrid`"), "{}", refuse("hybird"));
    assert!(refuse("round-robin").contains("quantum=none"));
    assert!(refuse("srpt").contains("is not interrupted"));
    assert!(refuse("jbsq").contains("in batches"));
    assert!(refuse("hybrid:steal=9").contains("from 1 to 8"));
    let queue = EventQueue::builder().capacity(1).build().unwrap();
    assert!(queue.set_policy("nobody").is_err());
    assert_eq!(queue.policy(), "hybrid");
    assert!(matches!(queue.set_high_share(0), Err(EventError::Range { .. })));
    let id = queue.register_user(1, EventOptions::default()).unwrap();
    assert!(matches!(queue.register_user(2, EventOptions::default()), Err(EventError::Full(1))));
    queue.deregister(id).unwrap();
    assert!(matches!(queue.deregister(id), Err(EventError::Ended)));
    assert!(matches!(queue.trigger(id), Err(EventError::Ended)));
    queue.close();
    assert!(matches!(queue.worker().err(), Some(EventError::Closed)));
}
