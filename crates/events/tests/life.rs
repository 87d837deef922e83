//! The life of registrations: descriptors that are closed, reused or registered twice; events that are
//! one-shot, turned off, or pinned to threads that leave; queues that are closed or forked.

use heddle_events::{EventError, EventId, EventOptions, EventQueue, Interest, Worker};
use heddle_sys::fork::in_child;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

const NOW: Option<Duration> = Some(Duration::ZERO);
const HANG: Option<Duration> = Some(heddle_test_support::PATIENCE);

fn level() -> EventOptions {
    EventOptions::default()
}

/// Returns a descriptor that can be read: it has one byte.
fn ready() -> (UnixStream, UnixStream) {
    let (here, mut there) = UnixStream::pair().unwrap();
    there.write_all(b"x").unwrap();
    (here, there)
}

fn register(queue: &EventQueue, fd: &UnixStream, token: u64) -> Result<EventId, EventError> {
    queue.register(fd, Interest::READ, token, level())
}

fn tokens(worker: &mut Worker) -> Vec<u64> {
    let mut tokens: Vec<u64> = worker.wait(NOW).unwrap().map(|event| event.token()).collect();
    tokens.sort_unstable();
    tokens
}

#[test]
fn a_descriptor_is_registered_once_however_many_threads_there_are() {
    for threads in [0, 1, 5] {
        let queue = EventQueue::new().unwrap();
        let _workers: Vec<Worker> = (0..threads).map(|_| queue.worker().unwrap()).collect();
        let (here, _there) = UnixStream::pair().unwrap();
        let id = register(&queue, &here, 1).unwrap();
        for options in [level(), level().edge(), level().once().high()] {
            let again = queue.register(&here, Interest::WRITE, 2, options);
            assert!(matches!(again, Err(EventError::Registered(fd)) if fd == here.as_raw_fd()));
        }
        assert_eq!(queue.len(), 1);
        queue.deregister(id).unwrap();
        register(&queue, &here, 3).unwrap();
    }
}

/// Returns another open file with the number that `closed` had.
fn again(closed: UnixStream) -> (UnixStream, UnixStream) {
    let number = closed.as_raw_fd();
    let mut others = Vec::new();
    drop(closed);
    loop {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        if there.as_raw_fd() == number {
            std::mem::swap(&mut here, &mut there);
        }
        if here.as_raw_fd() == number {
            there.write_all(b"y").unwrap();
            return (here, there);
        }
        // Other tests open and close descriptors at the same time.
        others.push((here, there));
        assert!(others.len() < 10_000, "the number does not come again");
    }
}

#[test]
fn the_number_of_a_closed_descriptor_can_be_registered_anew() {
    for threads in [0, 1, 3] {
        let queue = EventQueue::new().unwrap();
        let mut workers: Vec<Worker> = (0..threads).map(|_| queue.worker().unwrap()).collect();
        let (old, _old) = UnixStream::pair().unwrap();
        let stale = register(&queue, &old, 1).unwrap();
        let second = queue.register_second(stale, Interest::WRITE, 2, level()).unwrap();
        let (new, _new) = again(old);
        let id = register(&queue, &new, 3).unwrap();
        for ended in [stale, second] {
            assert!(matches!(queue.deregister(ended), Err(EventError::Ended)));
        }
        assert!(matches!(register(&queue, &new, 4), Err(EventError::Registered(_))));
        if workers.is_empty() {
            workers.push(queue.worker().unwrap());
        }
        let delivered: Vec<u64> = workers.iter_mut().flat_map(tokens).collect();
        assert_eq!(delivered, [3], "{threads} threads");
        queue.deregister(id).unwrap();
    }
}

#[test]
fn a_descriptor_that_is_not_open_is_refused_and_leaves_nothing() {
    struct Closed;
    impl std::os::fd::AsRawFd for Closed {
        fn as_raw_fd(&self) -> i32 {
            1 << 20
        }
    }
    for threads in [0, 2] {
        let queue = EventQueue::new().unwrap();
        let _workers: Vec<Worker> = (0..threads).map(|_| queue.worker().unwrap()).collect();
        let refused = queue.register(&Closed, Interest::READ, 1, level()).unwrap_err();
        assert_eq!(refused.errno(), EventError::Closed.errno(), "EBADF: {refused}");
        assert!(queue.is_empty());
    }
}

#[test]
fn events_closed_or_deregistered_while_queued_are_not_delivered() {
    let queue = EventQueue::builder().capacity(3).build().unwrap();
    let mut worker = queue.worker().unwrap();
    worker.set_batch(1);
    let pairs: Vec<_> = (0..3).map(|_| ready()).collect();
    let ids: Vec<_> = pairs.iter().map(|(fd, _)| register(&queue, fd, 9).unwrap()).collect();
    let first = worker.wait(HANG).unwrap().next().unwrap().id();
    let mut others = ids.iter().zip(pairs).filter(|(id, _)| **id != first);
    let (closed, deregistered) = (others.next().unwrap(), others.next().unwrap());
    drop(closed.1);
    queue.deregister(*closed.0).unwrap();
    queue.deregister(*deregistered.0).unwrap();
    queue.deregister(first).unwrap();
    // The slots are reused under other ids.
    let users: Vec<_> = (0..3).map_while(|_| queue.register_user(7, level()).ok()).collect();
    for _ in 0..4 {
        assert_eq!(tokens(&mut worker), []);
    }
    users.iter().for_each(|&user| queue.trigger(user).unwrap());
    let delivered: Vec<u64> = (0..4).flat_map(|_| tokens(&mut worker)).collect();
    assert_eq!(delivered, vec![7; users.len()]);
}

#[test]
fn an_event_may_be_deregistered_and_registered_by_its_handler() {
    let queue = EventQueue::new().unwrap();
    let mut worker = queue.worker().unwrap();
    let (here, _there) = ready();
    register(&queue, &here, 1).unwrap();
    let event = worker.wait(HANG).unwrap().next().unwrap();
    queue.deregister(event.id()).unwrap();
    let id = register(&queue, &here, 2).unwrap();
    assert_ne!(id, event.id(), "the slot is in use until the handler lets go");
    drop(event);
    assert_eq!((tokens(&mut worker), queue.len()), (vec![2], 1));
}

#[test]
fn a_one_shot_event_is_delivered_once_though_the_descriptor_stays_ready() {
    for options in [level().once(), level().edge().once()] {
        let queue = EventQueue::new().unwrap();
        let mut worker = queue.worker().unwrap();
        let (here, _there) = ready();
        queue.register(&here, Interest::READ, 1, options).unwrap();
        assert_eq!(worker.wait(NOW).unwrap().len(), 1, "and it is not looked at");
        assert_eq!((tokens(&mut worker), tokens(&mut worker)), (vec![1], vec![]));
        assert!(queue.is_empty());
        register(&queue, &here, 2).unwrap();
    }
}

#[test]
fn dispatch_waits_to_be_turned_on() {
    for options in [level().dispatch(), level().edge().dispatch()] {
        let queue = EventQueue::new().unwrap();
        let mut worker = queue.worker().unwrap();
        let (here, mut there) = ready();
        let id = queue.register(&here, Interest::READ, 1, options).unwrap();
        assert_eq!((tokens(&mut worker), tokens(&mut worker)), (vec![1], vec![]));
        there.write_all(b"y").unwrap();
        assert_eq!(tokens(&mut worker), []);
        queue.turn_on(id).unwrap();
        assert_eq!((tokens(&mut worker), tokens(&mut worker)), (vec![1], vec![]));
    }
}

#[test]
fn activity_while_an_event_is_off_is_reported_when_it_is_on() {
    for options in [level().off(), level().edge().off()] {
        let queue = EventQueue::new().unwrap();
        let mut worker = queue.worker().unwrap();
        let (here, mut there) = UnixStream::pair().unwrap();
        let id = queue.register(&here, Interest::READ, 1, options).unwrap();
        queue.turn_on(id).unwrap();
        assert_eq!(tokens(&mut worker), [], "nothing has happened");
        queue.turn_off(id).unwrap();
        there.write_all(b"y").unwrap();
        assert_eq!(tokens(&mut worker), []);
        queue.turn_on(id).unwrap();
        queue.turn_off(id).unwrap();
        assert_eq!(tokens(&mut worker), [], "off again before it was delivered");
        queue.turn_on(id).unwrap();
        assert_eq!(tokens(&mut worker), [1]);
    }
}

/// A thread may be two workers: what one of them holds is not delivered to the other.
#[test]
fn a_file_is_always_ready_for_one_thread_at_a_time() {
    let queue = EventQueue::new().unwrap();
    let (mut a, mut b) = (queue.worker().unwrap(), queue.worker().unwrap());
    let file = File::open("/proc/self/exe").unwrap();
    let id = queue.register(&file, Interest::READ, 1, level()).unwrap();
    let twice = queue.register(&file, Interest::READ, 2, level());
    assert!(matches!(twice, Err(EventError::Registered(_))));
    for _ in 0..3 {
        let event = a.wait(HANG).unwrap().next().unwrap();
        assert_eq!((event.token(), event.is_readable()), (1, true));
        assert_eq!(tokens(&mut b), []);
    }
    queue.set_interest(id, Interest::BOTH).unwrap();
    queue.deregister(id).unwrap();
    assert_eq!((tokens(&mut a), tokens(&mut b)), (vec![], vec![]));
    // Its number may belong to a file that is watched next time.
    queue.register(&file, Interest::READ, 3, level()).unwrap();
}

#[test]
fn events_of_a_departed_worker_are_not_delivered() {
    let queue = EventQueue::new().unwrap();
    let (mut other, owner) = (queue.worker().unwrap(), queue.worker().unwrap());
    let (here, mut there) = ready();
    let pinned = level().pin(&owner);
    let id = queue.register(&here, Interest::READ, 1, pinned).unwrap();
    let users: Vec<_> = (2..5).map(|token| queue.register_user(token, pinned).unwrap()).collect();
    // Waits for its thread when that leaves.
    queue.trigger(users[0]).unwrap();
    drop(owner);
    assert_eq!(queue.undelivered(), 1);
    queue.trigger(users[1]).unwrap();
    there.write_all(b"x").unwrap();
    assert_eq!((tokens(&mut other), queue.undelivered()), (vec![], 2));
    let is_gone = |result| matches!(result, Err(EventError::PinnedThreadGone));
    assert!(is_gone(queue.turn_on(id)) && is_gone(queue.set_interest(id, Interest::BOTH)));
    assert!(is_gone(queue.register_user(6, pinned).map(drop)));
    queue.deregister(users[0]).unwrap();
    // Registering anew is the way out, also for the descriptor.
    register(&queue, &here, 7).unwrap();
    assert_eq!(tokens(&mut other), [7]);
    assert_eq!(queue.len(), 3, "two of the user's events are there, though they are not delivered");
}

#[test]
fn events_without_workers_are_delivered_to_the_next_worker() {
    let queue = EventQueue::new().unwrap();
    let (early, _early) = ready();
    register(&queue, &early, 1).unwrap();
    let user = queue.register_user(2, level()).unwrap();
    queue.trigger(user).unwrap();
    let mut worker = queue.worker().unwrap();
    assert!(!worker.wait(NOW).unwrap().is_empty());
    // It leaves with events that it was given and did not look at.
    drop(worker);
    let (late, _late) = ready();
    register(&queue, &late, 3).unwrap();
    queue.set_policy("best-of-two").unwrap();
    let mut worker = queue.worker().unwrap();
    let delivered: Vec<u64> = (0..2).flat_map(|_| tokens(&mut worker)).collect();
    for token in 1..4 {
        assert!(delivered.contains(&token), "{delivered:?}");
    }
}

#[test]
fn events_held_by_a_dead_thread_are_delivered_to_another() {
    let queue = EventQueue::new().unwrap();
    let sockets: Vec<_> = (0..8).map(|_| ready()).collect();
    for (token, (here, _)) in sockets.iter().enumerate() {
        register(&queue, here, token as u64).unwrap();
    }
    let died = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let mut worker = queue.worker().unwrap();
                let event = worker.wait(HANG).unwrap().next().unwrap();
                std::panic::resume_unwind(Box::new(event.token()));
            })
            .join()
    });
    assert!(died.is_err());
    assert_eq!(queue.workers(), 0);
    let mut worker = queue.worker().unwrap();
    assert_eq!(tokens(&mut worker), (0..8).collect::<Vec<u64>>());
}

#[test]
fn closing_a_queue_ends_all_waits() {
    let queue = EventQueue::new().unwrap();
    let (here, _there) = UnixStream::pair().unwrap();
    let id = register(&queue, &here, 1).unwrap();
    let (send, ends) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (queue, send) = (queue.clone(), send.clone());
            scope.spawn(move || {
                let mut worker = queue.worker().unwrap();
                send.send(None).unwrap();
                let end = worker.wait(None).map(drop).unwrap_err();
                assert!(matches!(worker.wait(NOW).err(), Some(EventError::Closed)));
                send.send(Some(end)).unwrap();
            });
        }
        (0..4).for_each(|_| assert!(ends.recv().unwrap().is_none()));
        queue.close();
        let closed = (0..4).all(|_| matches!(ends.recv().unwrap(), Some(EventError::Closed)));
        assert!(closed);
    });
    assert!(matches!(register(&queue, &here, 2), Err(EventError::Closed)));
    assert!(matches!(queue.turn_off(id), Err(EventError::Closed)));
    queue.deregister(id).unwrap();
    assert_eq!((queue.workers(), queue.len()), (0, 0));
}

/// Tries everything that a child may try with its parent's queue. Returns whether all of it was refused.
fn is_refused(queue: &EventQueue, id: EventId, worker: &mut Worker) -> bool {
    let (fd, _there) = ready();
    let answers = [
        register(queue, &fd, 9).map(drop),
        queue.register_second(id, Interest::WRITE, 9, level()).map(drop),
        queue.register_user(9, level()).map(drop),
        queue.set_interest(id, Interest::BOTH),
        queue.trigger(id),
        queue.turn_off(id),
        queue.turn_on(id),
        queue.deregister(id),
        queue.set_policy("fifo"),
        queue.worker().map(drop),
        worker.wait(NOW).map(drop),
    ];
    answers.iter().all(|answer| matches!(answer, Err(EventError::Forked)))
}

#[test]
fn a_child_is_refused_and_leaves_its_parents_registrations_alone() {
    let queue = EventQueue::new().unwrap();
    let mut worker = queue.worker().unwrap();
    let (here, mut there) = ready();
    let id = register(&queue, &here, 1).unwrap();
    let (once, _once) = ready();
    queue.register(&once, Interest::READ, 2, level().once()).unwrap();
    assert_eq!(worker.wait(HANG).unwrap().len(), 2);
    let mut held = Some((queue.clone(), worker));
    // The parent's worker holds both events. The child drops its copy of the worker, and its queue.
    let refused = in_child(|| {
        let Some((queue, mut worker)) = held.take() else { return false };
        let refused = is_refused(&queue, id, &mut worker);
        drop(worker);
        queue.close();
        drop(queue);
        refused
    });
    assert!(refused.unwrap());
    let (_, mut worker) = held.unwrap();
    assert_eq!(tokens(&mut worker), [1, 2]);
    (&here).read_exact(&mut [0]).unwrap();
    assert_eq!(tokens(&mut worker), []);
    there.write_all(b"y").unwrap();
    assert_eq!(tokens(&mut worker), [1], "registered still");
    let own = in_child(|| {
        let Ok(queue) = EventQueue::new() else { return false };
        let Ok(mut worker) = queue.worker() else { return false };
        register(&queue, &here, 5).is_ok() && tokens(&mut worker) == [5]
    });
    assert!(own.unwrap(), "a child makes its own");
}

#[test]
fn an_ended_registration_is_not_counted_though_it_is_queued() {
    let queue = EventQueue::new().unwrap();
    let id = queue.register_user(1, level()).unwrap();
    queue.trigger(id).unwrap();
    assert_eq!(queue.len(), 1);
    queue.deregister(id).unwrap();
    assert!(queue.is_empty());
}
