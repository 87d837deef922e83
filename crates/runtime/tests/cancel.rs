//! Cancellation tokens: what they wake, and what they leave alone.

mod common;

use common::{policies, runtime, two_workers};
use heddle_rt::net::{TcpListener, TcpStream, UdpSocket};
use heddle_rt::sync::mpsc::RecvError;
use heddle_rt::sync::{CancellationToken, Cancelled, Condvar, Mutex, RwLock, Semaphore, mpsc};
use heddle_rt::{JoinHandle, Runtime, select, sleep, spawn, yield_now};
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(1);

/// A wait in a task and one in an ordinary thread, which both begin before the token is cancelled, most of the time.
fn ends_when_cancelled(
    rt: &Runtime,
    wait: impl Fn(&CancellationToken) -> bool + Send + Sync + 'static,
) {
    let token = CancellationToken::new();
    let wait = Arc::new(wait);
    let waiting = || {
        let (wait, token) = (wait.clone(), token.clone());
        move || wait(&token)
    };
    let (task, thread) = (rt.spawn(waiting()), std::thread::spawn(waiting()));
    sleep(Duration::from_millis(5));
    token.cancel();
    assert!(task.join().unwrap());
    assert!(thread.join().unwrap());
    // What is cancelled before does not wait at all.
    assert!(rt.spawn(waiting()).join().unwrap());
}

#[test]
fn a_cancelled_token_ends_waits_of_every_kind() {
    for policy in ["fifo", "work-stealing:quantum=100us"] {
        let rt = two_workers(policy);
        ends_when_cancelled(&rt, |token| {
            token.wait();
            token.wait_timeout(LONG)
        });
        ends_when_cancelled(&rt, |token| token.sleep(LONG) == Err(Cancelled));
        ends_when_cancelled(&rt, |token| {
            let (_tx, rx) = mpsc::channel::<()>();
            token.recv(&rx) == Err(Cancelled)
        });
        ends_when_cancelled(&rt, |token| {
            let (_tx, rx) = mpsc::channel::<()>();
            select! {
                recv(rx) -> _ => false,
                cancelled(token) => true,
            }
        });
        let mutex = Mutex::new(());
        let guard = mutex.lock();
        std::mem::forget(guard);
        ends_when_cancelled(&rt, move |token| token.lock(&mutex).is_err());
        let lock = RwLock::new(());
        let guard = lock.write();
        std::mem::forget(guard);
        ends_when_cancelled(&rt, move |token| {
            token.read(&lock).is_err() && token.write(&lock).is_err()
        });
        let semaphore = Semaphore::new(0);
        ends_when_cancelled(&rt, move |token| token.acquire(&semaphore).is_err());
        let (mutex, condvar) = (Mutex::new(()), Condvar::new());
        ends_when_cancelled(&rt, move |token| {
            token.wait_while(&condvar, &mut mutex.lock(), |()| true) == Err(Cancelled)
        });
        ends_when_cancelled(&rt, |token| {
            let (_tx, rx) = mpsc::channel::<()>();
            let handle: JoinHandle<_> = spawn(move || rx.recv());
            token.join(handle).is_err()
        });
    }
}

#[test]
fn network_operations_end_in_the_section_of_a_cancelled_token() {
    let rt = two_workers("work-stealing:quantum=100us");
    let is_cancelled = |error: std::io::Error| {
        error.kind() == ErrorKind::Other
            && error.get_ref().is_some_and(|inner| inner.is::<Cancelled>())
    };
    ends_when_cancelled(&rt, move |token| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut accepted = None;
        let result = token.run_until_cancelled(|| {
            accepted = Some(listener.accept().map(drop).unwrap_err());
            // What comes after it does not wait either, and neither does it succeed.
            let mut stream = TcpStream::connect(listener.local_addr().unwrap());
            assert!(stream.as_mut().map_or(true, |stream| stream.read(&mut [0]).is_err()));
        });
        // Outside of the section all is as before.
        let client = spawn(move || TcpStream::connect(listener.local_addr().unwrap()).map(drop));
        client.join().unwrap().unwrap();
        result == Err(Cancelled) && is_cancelled(accepted.unwrap())
    });
    ends_when_cancelled(&rt, move |token| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let outer = CancellationToken::new();
        // The inner section is not its token's fault, so its value is returned.
        let inner = CancellationToken::new();
        let result = token.run_until_cancelled(|| {
            outer.run_until_cancelled(|| {
                inner.run_until_cancelled(|| socket.recv(&mut [0]).is_err())
            })
        });
        result == Err(Cancelled)
    });
}

#[test]
fn a_section_whose_operations_were_not_cut_off_returns_its_value() {
    runtime("fifo").run(|| {
        let token = CancellationToken::new();
        assert_eq!(token.run_until_cancelled(|| 1), Ok(1));
        token.cancel();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[7], socket.local_addr().unwrap()).unwrap();
        // Ready at once, or soon: loopback delivers before `send_to` returns.
        assert_eq!(token.run_until_cancelled(|| socket.recv(&mut [0]).unwrap()), Ok(1));
        assert_eq!(
            token.run_until_cancelled(|| sleep(SHORT)),
            Ok(()),
            "it is not a network operation"
        );
    });
}

#[test]
fn what_is_ready_is_done_though_the_token_is_cancelled() {
    runtime("fifo").run(|| {
        let token = CancellationToken::new();
        token.cancel();
        let (tx, rx) = mpsc::channel();
        tx.send(3).unwrap();
        assert_eq!(token.recv(&rx), Ok(Ok(3)));
        drop(tx);
        assert_eq!(token.recv(&rx), Ok(Err(RecvError)));
        let (mutex, lock, semaphore) = (Mutex::new(1), RwLock::new(2), Semaphore::new(1));
        assert_eq!(*token.lock(&mutex).unwrap(), 1);
        assert_eq!(*token.read(&lock).unwrap(), 2);
        assert_eq!(*token.write(&lock).unwrap(), 2);
        assert!(token.acquire(&semaphore).is_ok());
        let condvar = Condvar::new();
        assert_eq!(token.wait_while(&condvar, &mut mutex.lock(), |_| false), Ok(()));
        let ended = spawn(|| 5);
        while !ended.is_finished() {
            yield_now();
        }
        assert_eq!(token.join(ended).unwrap().unwrap(), 5);
    });
}

#[test]
fn children_are_cancelled_with_their_parent_and_not_the_other_way_round() {
    let parent = CancellationToken::new();
    let child = parent.child_token();
    let grandchild = child.child_token();
    let sibling = parent.child_token();
    child.cancel();
    assert!(child.is_cancelled() && grandchild.is_cancelled());
    assert!(!parent.is_cancelled() && !sibling.is_cancelled());
    assert!(child.child_token().is_cancelled(), "a child of a cancelled token");
    let late = sibling.child_token();
    let waiting = std::thread::spawn(move || late.wait());
    parent.cancel();
    waiting.join().unwrap();
    assert!(sibling.is_cancelled());
    parent.cancel();
}

#[test]
fn thousands_of_children_come_and_go() {
    let parent = CancellationToken::new();
    let kept: Vec<_> = (0..10_000)
        .filter_map(|i| {
            let child = parent.child_token();
            (i % 100 == 0).then_some(child)
        })
        .collect();
    parent.cancel();
    assert!(kept.iter().all(CancellationToken::is_cancelled));
}

#[test]
fn a_drop_guard_cancels_unless_it_is_disarmed() {
    let token = CancellationToken::new();
    let guard = token.clone().drop_guard();
    assert!(!guard.disarm().is_cancelled());
    assert!(!token.is_cancelled());
    drop(token.clone().drop_guard());
    assert!(token.is_cancelled());
}

/// A mutex that is released just as a waiter's token is cancelled: the wake-up must reach the other waiter.
#[test]
fn a_cancelled_waiter_does_not_keep_a_wake_up_from_others() {
    for policy in &policies() {
        two_workers(policy).run(|| {
            for _ in 0..200 {
                let shared = Arc::new((Mutex::new(0), Semaphore::new(0)));
                let token = CancellationToken::new();
                let guard = shared.0.lock();
                let (theirs, stop) = (shared.clone(), token.clone());
                let cancelled = spawn(move || {
                    let locked = stop.lock(&theirs.0).map(|mut count| *count += 1);
                    let permit = stop.acquire(&theirs.1).map(|permit| permit.forget());
                    (locked.is_ok(), permit.is_ok())
                });
                let theirs = shared.clone();
                let patient = spawn(move || {
                    *theirs.0.lock() += 1;
                    theirs.1.acquire().forget();
                });
                yield_now();
                let canceller = spawn(move || token.cancel());
                drop(guard);
                shared.1.release(1);
                let (locked, permit) = cancelled.join().unwrap();
                if permit {
                    shared.1.release(1);
                }
                patient.join().unwrap();
                canceller.join().unwrap();
                assert_eq!(*shared.0.lock(), 1 + u32::from(locked));
            }
        });
    }
}
