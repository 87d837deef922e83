//! Time limits of idle connections, end to end. No test depends on how long anything takes, except that no limit ends
//! early.

use heddle_events::{EventError, EventOptions, EventQueue, Interest, Worker};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest wait for something that should come soon.
const HANG: Option<Duration> = Some(heddle_test_support::PATIENCE);
const LIMIT: Duration = Duration::from_millis(10);
/// Never, as far as a test is concerned.
const LATER: Duration = Duration::from_secs(3600);

fn pair() -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    (near, far)
}

/// Waits for one event. Returns whether it is idle, and otherwise readable.
fn is_next_idle(worker: &mut Worker) -> bool {
    let event = worker.wait(HANG).unwrap().next().expect("an event");
    assert_eq!((event.token(), event.is_readable()), (7, !event.is_idle()));
    event.is_idle()
}

fn options() -> [EventOptions; 3] {
    let plain = EventOptions::default();
    [plain, plain.edge(), plain.high()]
}

#[test]
fn a_connection_is_reported_when_it_was_idle_for_its_limit_and_never_early() {
    for options in options() {
        for others in 0..2 {
            let queue = EventQueue::new().unwrap();
            let mut worker = queue.worker().unwrap();
            let _others: Vec<_> = (0..others).map(|_| queue.worker().unwrap()).collect();
            let (near, mut far) = pair();
            let id = queue.register(&near, Interest::READ, 7, options).unwrap();
            let mut since = Instant::now();
            queue.set_idle_limit(id, Some(LIMIT)).unwrap();
            for _ in 0..3 {
                let asked = Instant::now();
                assert!(is_next_idle(&mut worker));
                assert!(since.elapsed() >= LIMIT, "early: {:?}", since.elapsed());
                // The next limit counts from the report, which came later.
                since = asked;
            }
            // What comes is reported as ever.
            far.write_all(b"x").unwrap();
            while is_next_idle(&mut worker) {}
            assert_eq!((&near).read(&mut [0; 2]).unwrap(), 1);
            queue.deregister(id).unwrap();
            assert!(worker.wait(Some(3 * LIMIT)).unwrap().is_empty());
        }
    }
}

/// A connection that is in use is not idle, however short its limit is.
#[test]
fn what_is_handled_is_not_idle_and_each_report_starts_anew() {
    let queue = EventQueue::new().unwrap();
    let mut worker = queue.worker().unwrap();
    let (near, mut far) = pair();
    let id = queue.register(&near, Interest::READ, 7, EventOptions::default().edge()).unwrap();
    far.write_all(b"x").unwrap();
    let mut batch = worker.wait(HANG).unwrap();
    let event = batch.next().unwrap();
    assert!(event.is_readable());
    queue.set_idle_limit(id, Some(Duration::from_micros(1))).unwrap();
    // Another worker finds the limits that are over while this one holds the event.
    let mut other = queue.worker().unwrap();
    assert!(other.wait(Some(5 * LIMIT)).unwrap().is_empty());
    drop(event);
    assert!(is_next_idle(&mut other));
}

#[test]
fn a_limit_can_be_changed_and_ended_and_rests_while_the_event_is_off() {
    let queue = EventQueue::new().unwrap();
    let mut worker = queue.worker().unwrap();
    let (near, _far) = pair();
    let id = queue.register(&near, Interest::READ, 7, EventOptions::default()).unwrap();
    let mut is_quiet = || worker.wait(Some(3 * LIMIT)).unwrap().is_empty();
    queue.set_idle_limit(id, Some(LATER)).unwrap();
    assert!(is_quiet());
    queue.turn_off(id).unwrap();
    queue.set_idle_limit(id, Some(LIMIT)).unwrap();
    assert!(is_quiet());
    queue.set_idle_limit(id, None).unwrap();
    queue.turn_on(id).unwrap();
    assert!(is_quiet());
    queue.set_idle_limit(id, Some(LIMIT)).unwrap();
    assert!(is_next_idle(&mut worker));
    assert!(matches!(
        queue.set_idle_limit(id, Some(Duration::ZERO)),
        Err(EventError::Range { .. })
    ));
    let timer = queue.register_timer(LATER, None, 1, EventOptions::default()).unwrap();
    assert!(matches!(queue.set_idle_limit(timer, Some(LIMIT)), Err(EventError::Ended)));
    queue.deregister(id).unwrap();
    assert!(matches!(queue.set_idle_limit(id, Some(LIMIT)), Err(EventError::Ended)));
}

#[test]
fn the_one_report_of_an_event_may_be_that_it_is_idle() {
    let queue = EventQueue::new().unwrap();
    let mut worker = queue.worker().unwrap();
    let (near, mut far) = pair();
    let id = queue.register(&near, Interest::READ, 7, EventOptions::default().once()).unwrap();
    queue.set_idle_limit(id, Some(LIMIT)).unwrap();
    assert!(is_next_idle(&mut worker));
    far.write_all(b"x").unwrap();
    assert!(worker.wait(Some(3 * LIMIT)).unwrap().is_empty());
    assert!(matches!(queue.deregister(id), Err(EventError::Ended)));
}

/// Limits that end all the time disturb nothing: each request is answered once, by one thread at a time.
#[test]
fn requests_are_answered_once_beside_limits() {
    const CONNECTIONS: usize = 16;
    const ROUNDS: usize = 200;
    for options in options() {
        let queue = EventQueue::new().unwrap();
        let (servers, mut clients): (Vec<_>, Vec<_>) = (0..CONNECTIONS).map(|_| pair()).unzip();
        for (token, server) in (0..).zip(&servers) {
            let id = queue.register(server, Interest::READ, token, options).unwrap();
            queue.set_idle_limit(id, Some(Duration::from_micros(50))).unwrap();
        }
        let busy: Vec<AtomicBool> = servers.iter().map(|_| AtomicBool::new(false)).collect();
        let (answered, idle) = (AtomicU64::new(0), Mutex::new(BTreeMap::new()));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut worker = queue.worker().unwrap();
                    while let Ok(batch) = worker.wait(HANG) {
                        for event in batch {
                            let token = event.token() as usize;
                            assert!(!busy[token].swap(true, Ordering::SeqCst), "two threads");
                            if event.is_idle() {
                                *idle.lock().unwrap().entry(token).or_insert(0) += 1;
                            }
                            let mut request = [0; 64];
                            let n = (&servers[token]).read(&mut request).unwrap_or(0);
                            (&servers[token]).write_all(&request[..n]).unwrap();
                            answered.fetch_add(n as u64, Ordering::Relaxed);
                            busy[token].store(false, Ordering::SeqCst);
                        }
                    }
                });
            }
            for round in 0..ROUNDS {
                for client in &mut clients {
                    client.write_all(&[round as u8]).unwrap();
                }
                for client in &mut clients {
                    client.set_read_timeout(HANG).unwrap();
                    let mut answer = [0];
                    client.read_exact(&mut answer).expect("an answer");
                    assert_eq!(answer, [round as u8]);
                }
            }
            heddle_test_support::until("each was idle", || {
                idle.lock().unwrap().len() == CONNECTIONS
            });
            queue.close();
        });
        assert_eq!(answered.into_inner(), (CONNECTIONS * ROUNDS) as u64);
    }
}
