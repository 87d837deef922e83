//! Workers whose threads wait in a loop that is not the queue's.

use heddle_events::{EventError, EventOptions, EventQueue, Interest, PollState, Worker};
use heddle_test_support::PATIENCE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const NOW: Option<Duration> = Some(Duration::ZERO);

fn is_readable(worker: &Worker, timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).unwrap();
    poll(&mut [PollFd::new(worker, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

fn tokens(worker: &mut Worker) -> Vec<u64> {
    worker.wait(NOW).unwrap().map(|event| event.token()).collect()
}

/// Prepares until there is nothing to do. A wait that was in vain is over then: its bell was rung for an event that
/// has been taken since.
fn idle(worker: &mut Worker) {
    assert!(matches!(worker.prepare_poll().unwrap(), PollState::Idle(_)));
    if is_readable(worker, Duration::ZERO) {
        assert_eq!(tokens(worker), [] as [u64; 0]);
        assert!(matches!(worker.prepare_poll().unwrap(), PollState::Idle(_)));
    }
    assert!(!is_readable(worker, Duration::ZERO));
}

#[test]
fn whatever_happens_makes_the_descriptor_readable() {
    for policy in ["hybrid", "queue-affinity", "best-of-two", "work-stealing", "fifo"] {
        let queue = EventQueue::builder().policy(policy).build().unwrap();
        let mut worker = queue.worker().unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        queue.register(&near, Interest::READ, 1, EventOptions::default()).unwrap();
        let user = queue.register_user(2, EventOptions::default()).unwrap();
        let pinned = queue.register_user(3, EventOptions::default().pin(&worker)).unwrap();
        let mut expect = |happen: &mut dyn FnMut(), token| {
            idle(&mut worker);
            happen();
            assert!(is_readable(&worker, PATIENCE), "{policy}: {token}");
            assert_eq!(tokens(&mut worker), [token], "{policy}");
        };
        for _ in 0..3 {
            expect(&mut || queue.trigger(user).unwrap(), 2);
            expect(&mut || queue.trigger(pinned).unwrap(), 3);
            expect(&mut || far.write_all(b"x").unwrap(), 1);
            assert_eq!((&near).read(&mut [0; 8]).unwrap(), 1);
        }
        idle(&mut worker);
        queue.close();
        assert!(is_readable(&worker, PATIENCE));
        assert!(matches!(worker.wait(NOW).err(), Some(EventError::Closed)));
        assert!(matches!(worker.prepare_poll(), Err(EventError::Closed)));
    }
}

#[test]
fn events_of_a_busy_worker_are_ready_or_wake_one_that_polls() {
    let queue = EventQueue::builder().policy("work-stealing:quantum=none").build().unwrap();
    let mut busy = queue.worker().unwrap();
    busy.set_batch(1);
    let events: Vec<_> =
        (0..3).map(|token| queue.register_user(token, EventOptions::default()).unwrap()).collect();
    events[..2].iter().for_each(|&id| queue.trigger(id).unwrap());
    let mut seen = Vec::new();
    // It holds its event until it waits again.
    seen.extend(busy.wait_held(NOW).unwrap().iter().map(|fired| fired.token));
    let mut other = queue.worker().unwrap();
    assert_eq!(
        other.prepare_poll().unwrap(),
        PollState::Ready,
        "one more waits in the other's queue"
    );
    seen.extend(tokens(&mut other));
    assert!(matches!(other.prepare_poll(), Ok(PollState::Idle(Some(_)))), "one is busy");
    queue.trigger(events[2]).unwrap();
    assert!(is_readable(&other, PATIENCE));
    seen.extend(tokens(&mut other));
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2]);
}

/// What was found when it prepared is not lost if the worker leaves instead of waiting.
#[test]
fn a_worker_that_leaves_after_it_prepared_returns_what_it_found() {
    let queue = EventQueue::builder().policy("work-stealing:quantum=none").build().unwrap();
    let mut first = queue.worker().unwrap();
    let id = queue.register_user(7, EventOptions::default()).unwrap();
    queue.trigger(id).unwrap();
    assert_eq!(first.prepare_poll().unwrap(), PollState::Ready);
    let mut second = queue.worker().unwrap();
    assert_eq!(tokens(&mut second), [] as [u64; 0]);
    drop(first);
    assert_eq!(tokens(&mut second), [7]);
}

/// A server on a queue, in a thread that tokio runs.
#[test]
fn a_queue_is_served_in_a_runtime_of_tokio() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let queue = EventQueue::new().unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    queue.register(&near, Interest::READ, 1, EventOptions::default()).unwrap();
    runtime.block_on(tokio::task::LocalSet::new().run_until(async {
        let server = tokio::task::spawn_local(serve(queue.worker().unwrap(), near));
        let client = tokio::net::UnixStream::from_std(far).unwrap();
        for round in 0..100u8 {
            client.writable().await.unwrap();
            assert_eq!(client.try_write(&[round]).unwrap(), 1);
            let mut answer = [0];
            loop {
                tokio::time::timeout(PATIENCE, client.readable()).await.unwrap().unwrap();
                match client.try_read(&mut answer) {
                    Ok(n) => break assert_eq!((n, answer[0]), (1, round)),
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
                }
            }
        }
        queue.close();
        assert!(matches!(server.await.unwrap(), EventError::Closed));
        client.readable().await.unwrap();
        drop(client);
    }));
}

async fn serve(worker: Worker, connection: UnixStream) -> EventError {
    #[expect(deprecated, reason = "a worker has the same descriptor, open, as long as it exists")]
    let mut worker = tokio::io::unix::AsyncFd::new(worker).unwrap();
    loop {
        match worker.get_mut().wait(NOW) {
            Ok(batch) => batch.for_each(|_| {
                let mut bytes = [0; 8];
                while let Ok(n @ 1..) = (&connection).read(&mut bytes) {
                    (&connection).write_all(&bytes[..n]).unwrap();
                }
            }),
            Err(error) => return error,
        }
        match worker.get_mut().prepare_poll() {
            Ok(PollState::Ready) => {}
            Ok(PollState::Idle(time)) => {
                let readable = worker.readable_mut();
                let wait = tokio::time::timeout(time.unwrap_or(Duration::MAX), readable);
                if let Ok(guard) = wait.await {
                    guard.unwrap().clear_ready();
                }
            }
            Err(error) => return error,
        }
    }
}
