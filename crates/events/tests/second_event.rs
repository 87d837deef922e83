//! Two events on one descriptor: each has its own token, options and lifetime.

use heddle_events::{EventError, EventOptions, EventQueue, Interest, Worker};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const NOW: Option<Duration> = Some(Duration::ZERO);

/// Returns token, readable and writable of all that is delivered now.
fn delivered(worker: &mut Worker) -> Vec<(u64, bool, bool)> {
    let batch = worker.wait(NOW).unwrap();
    let mut delivered: Vec<_> = batch
        .map(|event| {
            event.drained();
            (event.token(), event.is_readable(), event.is_writable())
        })
        .collect();
    delivered.sort_unstable();
    delivered
}

struct Both {
    queue: EventQueue,
    here: UnixStream,
    there: UnixStream,
    read: heddle_events::EventId,
    write: heddle_events::EventId,
}

fn both() -> Both {
    let queue = EventQueue::new().unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    let read = queue.register(&here, Interest::READ, 1, EventOptions::default()).unwrap();
    let write = queue.register_second(read, Interest::WRITE, 2, EventOptions::default()).unwrap();
    Both { queue, here, there, read, write }
}

#[test]
fn each_event_reports_its_own_readiness() {
    let mut both = both();
    let mut worker = both.queue.worker().unwrap();
    assert_eq!(delivered(&mut worker), [(2, false, true)]);
    both.there.write_all(b"x").unwrap();
    let now = delivered(&mut worker);
    assert!(now.contains(&(1, true, false)), "{now:?}");
    assert!(now.iter().all(|event| [(1, true, false), (2, false, true)].contains(event)));
}

#[test]
fn the_second_lives_on_without_the_first() {
    let both = both();
    let mut worker = both.queue.worker().unwrap();
    delivered(&mut worker);
    both.queue.deregister(both.read).unwrap();
    assert_eq!(delivered(&mut worker), [(2, false, true)], "registered under its own name");
    (&both.there).write_all(b"x").unwrap();
    assert!(
        delivered(&mut worker).iter().all(|&(token, readable, _)| (token, readable) == (2, false))
    );
    let again =
        both.queue.register_second(both.write, Interest::READ, 3, EventOptions::default()).unwrap();
    let now = delivered(&mut worker);
    assert!(now.contains(&(3, true, false)), "{now:?}");
    both.queue.deregister(again).unwrap();
    both.queue.deregister(both.write).unwrap();
    assert!(both.queue.is_empty());
    assert!(delivered(&mut worker).is_empty());
}

#[test]
fn the_first_does_not_report_what_only_the_second_asked_for() {
    let both = both();
    let mut worker = both.queue.worker().unwrap();
    delivered(&mut worker);
    both.queue.deregister(both.write).unwrap();
    assert!(delivered(&mut worker).is_empty());
    // Bytes that the peer reads make room.
    (&both.here).write_all(b"abc").unwrap();
    (&both.there).read_exact(&mut [0; 3]).unwrap();
    assert!(delivered(&mut worker).is_empty());
    (&both.there).write_all(b"x").unwrap();
    assert_eq!(delivered(&mut worker), [(1, true, false)]);
}

#[test]
fn one_is_turned_off_alone() {
    let both = both();
    both.queue.turn_off(both.write).unwrap();
    let mut worker = both.queue.worker().unwrap();
    (&both.there).write_all(b"x").unwrap();
    assert_eq!(delivered(&mut worker), [(1, true, false)]);
    both.queue.turn_on(both.write).unwrap();
    assert_eq!(delivered(&mut worker), [(2, false, true)]);
}

#[test]
fn a_third_and_what_has_ended_are_refused() {
    let both = both();
    let more = |id| both.queue.register_second(id, Interest::READ, 3, EventOptions::default());
    assert!(matches!(more(both.read), Err(EventError::Registered(_))));
    assert!(matches!(more(both.write), Err(EventError::Registered(_))));
    assert_eq!(both.queue.len(), 2);
    let user = both.queue.register_user(4, EventOptions::default()).unwrap();
    assert!(matches!(more(user), Err(EventError::System { .. })));
    both.queue.deregister(both.read).unwrap();
    assert!(matches!(more(both.read), Err(EventError::Ended)));
}
