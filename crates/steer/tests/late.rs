//! Late binding with real sockets. Tests that need BPF skip without it, and say so.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;

use heddle_steer::hook::reuseport;
use heddle_steer::late::ClassSockets;
use heddle_steer::policy::{LoadError, Maps, read, shipped};
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt::set_socket_reuseport};

const BOTH: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

fn datagrams(n: usize, at: &str) -> (Vec<OwnedFd>, Vec<SocketAddr>) {
    let sockets: Vec<UdpSocket> = (0..n).map(|_| UdpSocket::bind(at).expect("a socket")).collect();
    let at = sockets.iter().map(|s| s.local_addr().expect("bound")).collect();
    (sockets.into_iter().map(OwnedFd::from).collect(), at)
}

#[test]
fn requests_are_pulled_in_class_order() {
    for at in BOTH {
        let (sockets, to) = datagrams(3, at);
        let client = UdpSocket::bind(at).expect("a client");
        for (class, text) in [(2, "e"), (1, "c"), (0, "a"), (2, "f"), (1, "d"), (0, "b")] {
            client.send_to(text.as_bytes(), to[class]).expect("sent");
        }
        let classes = ClassSockets::new(sockets).expect("classes");
        let (mut puller, mut buffer) = (classes.puller(), [0; 16]);
        for (class, text) in [(0, b"a"), (0, b"b"), (1, b"c"), (1, b"d"), (2, b"e"), (2, b"f")] {
            let got = puller.receive(&mut buffer).expect("received").expect("not stopped");
            assert_eq!((got.class, &buffer[..got.length]), (class, &text[..]));
            assert_eq!(got.peer, client.local_addr().ok());
            assert_eq!((classes.busy(class), got.truncated), (1, false));
        }
    }
}

#[test]
fn a_datagram_that_does_not_fit_is_truncated_and_marked() {
    let (sockets, to) = datagrams(1, BOTH[0]);
    let client = UdpSocket::bind(BOTH[0]).expect("a client");
    client.send_to(b"longer", to[0]).expect("sent");
    let classes = ClassSockets::new(sockets).expect("classes");
    let got = classes.puller().receive(&mut [0; 4]).expect("received").expect("not stopped");
    assert_eq!((got.length, got.truncated), (4, true));
}

/// A few workers and classes, all requests numbered: each is served once, no class is ever held by more
/// workers than its limit, and a sleeping worker is woken for what it may take (otherwise this hangs).
#[test]
fn nothing_is_lost_and_no_limit_is_exceeded() {
    const EACH: u32 = 400;
    for limits in [[u32::MAX; 3], [u32::MAX, 2, 1], [1, 1, 1], [2, 3, 1]] {
        let (sockets, to) = datagrams(3, BOTH[1]);
        let mut classes = ClassSockets::new(sockets).expect("classes");
        for (class, limit) in limits.into_iter().enumerate() {
            classes = classes.limit(class, limit);
        }
        let served = Mutex::new(BTreeSet::new());
        let in_hand = [(); 3].map(|()| AtomicU32::new(0));
        let worker = || {
            let (mut puller, mut buffer) = (classes.puller(), [0; 8]);
            while let Some(got) = puller.receive(&mut buffer).expect("received") {
                assert!(in_hand[got.class].fetch_add(1, SeqCst) < limits[got.class]);
                thread::yield_now();
                let number = u32::from_ne_bytes(buffer[..4].try_into().expect("four bytes"));
                assert!(served.lock().expect("no panic").insert((got.class, number)));
                in_hand[got.class].fetch_sub(1, SeqCst);
            }
        };
        thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(worker)));
            let client = UdpSocket::bind(BOTH[1]).expect("a client");
            for number in 0..EACH {
                for to in &to {
                    client.send_to(&number.to_ne_bytes(), to).expect("sent");
                }
                // The sockets' buffers hold some two hundred, and now and then all workers should sleep.
                let may_wait = if number % 32 == 0 || number + 1 == EACH { 0 } else { 30 };
                while served.lock().expect("no panic").len() + may_wait < (number as usize + 1) * 3
                {
                    thread::yield_now();
                }
            }
            classes.stop().expect("stopped");
        });
        assert_eq!(served.lock().expect("no panic").len(), EACH as usize * 3);
        assert_eq!([0, 1, 2].map(|class| classes.busy(class)), [0; 3]);
    }
}

/// The messages of two workers in the test below.
struct Worker {
    go: mpsc::Sender<()>,
    got: mpsc::Receiver<usize>,
}

#[test]
fn a_limit_keeps_a_worker_free_and_finishing_wakes_a_sleeper() {
    let (sockets, to) = datagrams(2, BOTH[0]);
    let classes = ClassSockets::new(sockets).expect("classes").limit(1, 1);
    let client = UdpSocket::bind(BOTH[0]).expect("a client");
    let send = |class: usize| client.send_to(b"x", to[class]).expect("sent");
    thread::scope(|scope| {
        let worker = || {
            let ((go, start), (say, got)) = (mpsc::channel(), mpsc::channel());
            let classes = &classes;
            scope.spawn(move || {
                let mut puller = classes.puller();
                while let (Ok(()), Some(got)) =
                    (start.recv(), puller.receive(&mut [0; 8]).expect("received"))
                {
                    say.send(got.class).expect("the test listens");
                    // Held until the next message.
                    if start.recv().is_err() {
                        return;
                    }
                    puller.done();
                    say.send(usize::MAX).expect("the test listens");
                }
            });
            Worker { go, got }
        };
        let (a, b) = (worker(), worker());
        let go = |worker: &Worker| worker.go.send(()).expect("it listens");
        let got = |worker: &Worker| worker.got.recv().expect("it goes on");
        send(1);
        go(&a);
        assert_eq!(got(&a), 1);
        // Another of class 1 waits; `b` may not take it, and takes what comes in class 0.
        send(1);
        go(&b);
        send(0);
        assert_eq!(got(&b), 0);
        go(&b);
        assert_eq!(got(&b), usize::MAX);
        // `b` pulls again and finds class 1 full; `a` finishes and does not pull: `b` must be woken.
        go(&b);
        go(&a);
        assert_eq!(got(&a), usize::MAX);
        assert_eq!(got(&b), 1);
        classes.stop().expect("stopped");
        // Dropping their senders ends them.
    });
}

#[test]
fn stop_ends_all_workers() {
    let (sockets, to) = datagrams(2, BOTH[1]);
    let classes = ClassSockets::new(sockets).expect("classes").limit(1, 1);
    thread::scope(|scope| {
        let worker = || classes.puller().receive(&mut [0; 8]).expect("received");
        let workers: Vec<_> = (0..8).map(|_| scope.spawn(worker)).collect();
        classes.stop().expect("stopped");
        for worker in workers {
            assert_eq!(worker.join().expect("no panic"), None);
        }
    });
    // It stays in force, whatever waits.
    UdpSocket::bind(BOTH[1]).expect("a client").send_to(b"x", to[0]).expect("sent");
    assert_eq!(classes.puller().receive(&mut [0; 8]).expect("received"), None);
}

#[test]
fn a_worker_that_panics_or_fails_releases_its_slot() {
    let (sockets, to) = datagrams(1, BOTH[0]);
    let classes = ClassSockets::new(sockets).expect("classes").limit(0, 1);
    UdpSocket::bind(BOTH[0]).expect("a client").send_to(b"x", to[0]).expect("sent");
    let panics = || classes.puller().pull(|_| -> io::Result<()> { panic!("as it shall") });
    thread::scope(|scope| assert!(scope.spawn(panics).join().is_err()));
    assert_eq!(classes.busy(0), 0);
    let fails = |_: std::os::fd::BorrowedFd<'_>| Err::<(), _>(io::Error::other("as it shall"));
    let mut puller = classes.puller();
    assert!(puller.pull(fails).is_err());
    assert_eq!(classes.busy(0), 0);
    assert_eq!(puller.receive(&mut [0; 8]).expect("received").expect("not stopped").length, 1);
}

#[test]
fn connections_are_pulled_in_class_order() {
    for at in BOTH {
        let listeners = [(); 2].map(|()| TcpListener::bind(at).expect("a listener"));
        let to = listeners.each_ref().map(|l| l.local_addr().expect("bound"));
        let mut clients = [1, 0, 1].map(|class| TcpStream::connect(to[class]).expect("connected"));
        let classes = ClassSockets::new(listeners.map(OwnedFd::from)).expect("classes").limit(1, 1);
        let mut puller = classes.puller();
        for (class, client) in [(0, 1), (1, 0), (1, 2)] {
            let got = puller.accept().expect("accepted").expect("not stopped");
            assert_eq!((got.class, got.peer), (class, clients[client].local_addr().ok()));
            clients[client].write_all(b"x").expect("sent");
            let mut byte = [0];
            io::Read::read_exact(&mut TcpStream::from(got.socket), &mut byte).expect("it blocks");
        }
    }
}

#[test]
fn invalid_classes_are_refused() {
    assert!(ClassSockets::new([]).is_err());
    let file = tempfile::tempfile().expect("a file");
    assert!(ClassSockets::new([file.into()]).is_err(), "no socket");
}

/// A reuseport group of `n` sockets of datagrams.
fn group(n: usize, at: &str) -> (Vec<OwnedFd>, SocketAddr) {
    let mut at: SocketAddr = at.parse().expect("an address");
    let member = |_| {
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket(family, SocketType::DGRAM, None).expect("a socket");
        set_socket_reuseport(&socket, true).expect("reuseport");
        bind(&socket, &at).expect("a free port");
        at = UdpSocket::from(socket.try_clone().expect("a copy")).local_addr().expect("bound");
        socket
    };
    let sockets = (0..n).map(member).collect();
    (sockets, at)
}

/// The policy `class` chooses the queue, workers pull: GETs overtake the SCANs that came before them.
#[test]
fn a_policy_chooses_the_class() {
    for at in BOTH {
        let (sockets, to) = group(2, at);
        let policy = read(shipped("class").expect("it is shipped")).expect("readable");
        let mut maps = Maps::new();
        let root = match reuseport::load_root(&mut maps) {
            Err(LoadError::Map { error, .. })
                if error.kind() == io::ErrorKind::PermissionDenied =>
            {
                eprintln!("skipped: loading BPF programs takes privileges ({error})");
                return;
            }
            root => root.expect("loaded"),
        };
        let program = reuseport::load_policy("class", &policy, &mut maps).expect("loaded");
        maps["hd_control"].update(&0_u32.to_ne_bytes(), &2_u32.to_ne_bytes()).expect("set");
        for (index, socket) in (0..).zip(&sockets) {
            reuseport::put_executor(&maps, index, socket.as_fd()).expect("put");
        }
        reuseport::put_policy(&maps, &program).expect("put");
        root.attach_reuseport(sockets[0].as_fd()).expect("attached");
        let client = UdpSocket::bind((to.ip(), 0)).expect("a client");
        // The third byte is the type; 3 is a SCAN.
        for request in [[0, 0, 3, 1], [0, 0, 1, 2], [0, 0, 3, 3], [0, 0, 2, 4]] {
            client.send_to(&request, to).expect("sent");
        }
        let classes = ClassSockets::new(sockets).expect("classes").limit(1, 1);
        let mut puller = classes.puller();
        for (class, number) in [(0, 2), (0, 4), (1, 1), (1, 3)] {
            let mut buffer = [0; 8];
            let got = puller.receive(&mut buffer).expect("received").expect("not stopped");
            assert_eq!((got.class, buffer[3]), (class, number));
        }
    }
}
