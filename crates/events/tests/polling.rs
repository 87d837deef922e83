//! The adapter for the `polling` crate's interface: documented behaviour, and several threads on one poller.

use heddle_events::EventQueue;
use heddle_events::polling::{Event, Events, Poller};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// A wait in which nothing should come.
const NOTHING: Option<Duration> = Some(Duration::from_millis(20));
/// A wait in which something should; only a bug makes it take so long.
const PATIENCE: Option<Duration> = Some(heddle_test_support::PATIENCE);

fn pair() -> (UnixStream, UnixStream) {
    let (a, b) = UnixStream::pair().unwrap();
    b.set_nonblocking(true).unwrap();
    (a, b)
}

fn wait(poller: &Poller, timeout: Option<Duration>) -> Vec<Event> {
    let mut events = Events::new();
    let n = poller.wait(&mut events, timeout).unwrap();
    assert_eq!(n, events.len());
    events.iter().collect()
}

#[test]
fn interest_is_reported_once_until_it_is_asked_for_again() {
    let (poller, (mut client, server)) = (Poller::new().unwrap(), pair());
    poller.add(&server, Event::readable(7)).unwrap();
    assert_eq!(wait(&poller, NOTHING), []);
    client.write_all(b"a").unwrap();
    assert_eq!(wait(&poller, PATIENCE), [Event::readable(7)]);
    client.write_all(b"b").unwrap();
    assert_eq!(wait(&poller, NOTHING), []);
    // Still ready: reported at once, under its new key, for all that is asked.
    poller.modify(&server, Event::all(8)).unwrap();
    assert_eq!(wait(&poller, PATIENCE), [Event::all(8)]);
    poller.modify(&server, Event::writable(8)).unwrap();
    assert_eq!(wait(&poller, PATIENCE), [Event::writable(8)]);
    poller.modify(&server, Event::none(8)).unwrap();
    assert_eq!(wait(&poller, NOTHING), []);
    poller.modify(&server, Event::readable(9)).unwrap();
    assert_eq!(wait(&poller, PATIENCE), [Event::readable(9)]);
    (&server).read_exact(&mut [0; 2]).unwrap();
    poller.delete(&server).unwrap();
    client.write_all(b"c").unwrap();
    assert_eq!(wait(&poller, NOTHING), []);
}

#[test]
fn a_source_without_interest_is_reported_once_it_has_one() {
    let (poller, (mut client, server)) = (Poller::new().unwrap(), pair());
    poller.add(&server, Event::none(1)).unwrap();
    client.write_all(b"a").unwrap();
    assert_eq!(wait(&poller, NOTHING), []);
    poller.modify(&server, Event::readable(1)).unwrap();
    assert_eq!(wait(&poller, PATIENCE), [Event::readable(1)]);
}

#[test]
fn sources_are_added_once_and_known_afterwards() {
    let (poller, (_client, server)) = (Poller::new().unwrap(), pair());
    let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(poller.modify(&server, Event::all(1))), ErrorKind::NotFound);
    assert_eq!(kind(poller.delete(&server)), ErrorKind::NotFound);
    poller.add(&server, Event::none(1)).unwrap();
    assert_eq!(kind(poller.add(&server, Event::none(1))), ErrorKind::AlreadyExists);
    poller.delete(&server).unwrap();
    poller.add(&server, Event::none(1)).unwrap();
    // Not open: refused, and not remembered.
    let nowhere: std::os::fd::RawFd = 1 << 20;
    assert!(poller.add(&nowhere, Event::readable(1)).is_err());
    assert_eq!(kind(poller.delete(&nowhere)), ErrorKind::NotFound);
}

#[test]
fn a_notification_ends_the_present_wait_or_the_next() {
    let poller = Poller::new().unwrap();
    poller.notify().unwrap();
    poller.notify().unwrap();
    assert_eq!(wait(&poller, None), []);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(&poller, None));
        poller.leave();
        poller.notify().unwrap();
        assert_eq!(waiting.join().unwrap(), []);
    });
    assert_eq!(wait(&poller, NOTHING), []);
}

#[test]
fn waits_add_to_what_is_there() {
    let (poller, (_client, server)) = (Poller::new().unwrap(), pair());
    let mut events = Events::new();
    poller.add(&server, Event::writable(1)).unwrap();
    assert_eq!(poller.wait(&mut events, PATIENCE).unwrap(), 1);
    poller.modify(&server, Event::writable(2)).unwrap();
    assert_eq!(poller.wait(&mut events, PATIENCE).unwrap(), 1);
    assert_eq!(events.iter().map(|event| event.key).collect::<Vec<_>>(), [1, 2]);
    events.clear();
    assert!(events.is_empty());
}

/// Four threads on one poller: every byte is echoed, and no two threads handle one source at a time.
#[test]
fn several_threads_share_a_poller() {
    const CLIENTS: usize = 20;
    const ROUNDS: usize = 50;
    let poller = Poller::on(EventQueue::builder().policy("hybrid").build().unwrap()).unwrap();
    let (mut clients, servers): (Vec<_>, Vec<_>) = (0..CLIENTS).map(|_| pair()).unzip();
    let busy: Vec<AtomicUsize> = (0..CLIENTS).map(|_| AtomicUsize::new(0)).collect();
    let left = AtomicUsize::new(CLIENTS);
    for (key, server) in servers.iter().enumerate() {
        poller.add(server, Event::readable(key)).unwrap();
    }
    let serve = || {
        let mut events = Events::new();
        while left.load(Ordering::SeqCst) > 0 {
            events.clear();
            poller.wait(&mut events, None).unwrap();
            for Event { key, .. } in events.iter() {
                assert_eq!(busy[key].fetch_add(1, Ordering::SeqCst), 0);
                let mut bytes = [0; 16];
                let n = match (&servers[key]).read(&mut bytes) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                    other => Some(other.unwrap()),
                };
                if let Some(n) = n {
                    (&servers[key]).write_all(&bytes[..n]).unwrap();
                }
                busy[key].fetch_sub(1, Ordering::SeqCst);
                match n {
                    Some(0) => {
                        poller.delete(&servers[key]).unwrap();
                        left.fetch_sub(1, Ordering::SeqCst);
                    }
                    _ => poller.modify(&servers[key], Event::readable(key)).unwrap(),
                }
            }
        }
        // The others may be waiting for the last event.
        poller.notify().unwrap();
    };
    thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(serve)));
        for round in 0..ROUNDS {
            for client in &mut clients {
                client.write_all(&[round as u8; 16]).unwrap();
            }
            for client in &mut clients {
                let mut echo = [0; 16];
                client.set_read_timeout(PATIENCE).unwrap();
                client.read_exact(&mut echo).unwrap();
                assert_eq!(echo, [round as u8; 16]);
            }
        }
        clients.clear();
    });
}

#[test]
fn a_poller_that_is_gone_leaves_no_worker_behind() {
    let first = Poller::new().unwrap();
    let queue = first.queue().clone();
    assert_eq!(wait(&first, NOTHING), []);
    assert_eq!(queue.workers(), 1);
    drop(first);
    assert_eq!(queue.workers(), 0);
}
