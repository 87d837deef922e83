//! TCP and UDP sockets: waits leave the worker to other tasks, nothing is lost, and an error reaches its caller alone.

mod common;

use common::{alone, assert_success, runtime, two_workers};
use heddle_rt::net::{TcpListener, TcpStream, UdpSocket};
use heddle_rt::{Elapsed, scope, spawn, timeout};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Starts an echo server with a task for each connection; returns its address.
fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    spawn(move || {
        loop {
            match listener.accept() {
                Ok((stream, _)) => drop(spawn(move || echo(stream))),
                Err(_) => heddle_rt::sleep(Duration::from_millis(1)),
            }
        }
    });
    addr
}

fn echo(mut stream: TcpStream) {
    let mut buf = [0; 512];
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        if stream.write_all(&buf[..n]).is_err() {
            break;
        }
    }
}

fn talk(addr: SocketAddr, rounds: u32) {
    let mut stream = TcpStream::connect(addr).unwrap();
    for i in 0..rounds {
        let mut back = [0; 4];
        stream.write_all(&i.to_le_bytes()).unwrap();
        stream.read_exact(&mut back).unwrap();
        assert_eq!(u32::from_le_bytes(back), i);
    }
}

#[test]
fn tcp_echo_between_many_tasks() {
    for policy in ["fifo", "work-stealing:quantum=100us", "two-queue:quantum=100us"] {
        for rt in [runtime(policy), two_workers(policy)] {
            rt.run(|| {
                let addr = echo_server();
                scope(|s| (0..50).for_each(|_| drop(s.spawn(move || talk(addr, 50)))));
            });
        }
    }
}

#[test]
fn large_transfers_go_both_ways() {
    two_workers("work-stealing").run(|| {
        let mut stream = TcpStream::connect(echo_server()).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let sent: Vec<u8> = (0..4_000_000u32).map(|i| (i * 7) as u8).collect();
        let len = sent.len();
        let received = spawn(move || {
            let mut buf = vec![0; len];
            reader.read_exact(&mut buf).unwrap();
            buf
        });
        stream.write_all(&sent).unwrap();
        assert!(received.join().unwrap() == sent);
    });
}

#[test]
fn many_tasks_receive_on_one_udp_socket() {
    const TASKS: usize = 20;
    for rt in [runtime("fifo"), two_workers("work-stealing:quantum=100us")] {
        let counts: Arc<Vec<AtomicUsize>> = Arc::new((0..TASKS).map(|_| 0.into()).collect());
        let seen = counts.clone();
        rt.run(move || {
            let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
            let addr = socket.local_addr().unwrap();
            let serve = |i: usize| {
                let (socket, counts) = (socket.clone(), seen.clone());
                move || {
                    let mut buf = [0; 64];
                    loop {
                        let (n, peer) = socket.recv_from(&mut buf).unwrap();
                        if n == 0 {
                            return;
                        }
                        counts[i].fetch_add(1, Ordering::Relaxed);
                        socket.send_to(&buf[..n], peer).unwrap();
                    }
                }
            };
            let tasks: Vec<_> = (0..TASKS).map(|i| spawn(serve(i))).collect();
            scope(|s| (0..10).for_each(|_| drop(s.spawn(|| ask_and_answer(addr, 100)))));
            // An empty datagram ends one task. All end unless one is stuck.
            let end = UdpSocket::bind("127.0.0.1:0").unwrap();
            for _ in &tasks {
                end.send_to(&[], addr).unwrap();
            }
            tasks.into_iter().for_each(|t| t.join().unwrap());
        });
        let counts: Vec<_> = counts.iter().map(|c| c.load(Ordering::Relaxed)).collect();
        assert!(counts.iter().sum::<usize>() >= 1000, "{counts:?}");
        // How many each task gets is chance, but one does not get all.
        assert!(counts.iter().filter(|&&c| c > 0).count() > 1, "{counts:?}");
    }
}

fn ask_and_answer(server: SocketAddr, rounds: u32) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    for i in 0..rounds {
        let mut back = [0; 4];
        // Datagrams may be lost when buffers overflow, even here: ask again.
        loop {
            socket.send(&i.to_le_bytes()).unwrap();
            match socket.recv(&mut back) {
                Ok(_) if u32::from_le_bytes(back) == i => break,
                Ok(_) => {}
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
    }
}

#[test]
fn reads_end_at_their_timeout_and_at_a_limit() {
    two_workers("work-stealing").run(|| {
        let (mut stream, mut peer) = connected();
        let mut buf = [0; 8];
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        assert_eq!(stream.read(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock, "as in std");
        stream.set_read_timeout(None).unwrap();
        let mut seen = None;
        let limited = timeout(Duration::from_millis(5), || seen = stream.read(&mut buf).err());
        assert_eq!((limited, seen.unwrap().kind()), (Err(Elapsed), ErrorKind::TimedOut));
        let nested = timeout(Duration::from_secs(3600), || {
            timeout(Duration::from_millis(5), || stream.read(&mut buf)).is_err()
        });
        assert_eq!(nested, Ok(true), "the shorter one counts");
        let nested = timeout(Duration::from_millis(5), || {
            timeout(Duration::from_secs(3600), || stream.read(&mut buf)).is_err()
        });
        assert_eq!(nested, Err(Elapsed), "also if it is the outer one");
        assert_eq!(timeout(Duration::from_secs(3600), || 3), Ok(3));
        // The connection is unharmed.
        peer.write_all(b"still on").unwrap();
        stream.read_exact(&mut buf).unwrap();
        assert_eq!(&buf, b"still on");
        let zero = stream.set_read_timeout(Some(Duration::ZERO)).unwrap_err();
        assert_eq!(zero.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn writes_end_at_their_timeout_as_in_std() {
    runtime("fifo").run(|| {
        let (mut stream, _peer) = connected();
        stream.set_write_timeout(Some(Duration::from_millis(5))).unwrap();
        let error = stream.write_all(&vec![0; 64 << 20]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn a_connection_that_is_accepted_late_is_not_lost() {
    runtime("fifo").run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let _early = TcpStream::connect(addr).unwrap();
        let late = timeout(Duration::from_millis(1), || {
            let accepted = listener.accept();
            common::spin_for(Duration::from_millis(3));
            accepted
        });
        let (mut late, _) = late.expect("no operation was cut off").unwrap();
        // A waiting connection is accepted even if the limit has passed.
        let _second = TcpStream::connect(addr).unwrap();
        let second = timeout(Duration::from_millis(1), || {
            common::spin_for(Duration::from_millis(3));
            listener.accept()
        });
        assert!(second.unwrap().is_ok());
        // Once an operation was cut off, none succeeds whose result would be dropped.
        let third = timeout(Duration::from_millis(1), || {
            assert!(late.read(&mut [0]).is_err());
            let _third = std::net::TcpStream::connect(addr).unwrap();
            listener.accept().is_err()
        });
        assert_eq!(third, Err(Elapsed));
        assert!(listener.accept().is_ok(), "the connection still waits");
    });
}

#[test]
fn connecting_takes_no_kernel_threads_and_ends_at_a_limit() {
    const TASKS: usize = 2_000;
    let test = "connecting_takes_no_kernel_threads_and_ends_at_a_limit";
    let body = || {
        let rt = two_workers("work-stealing");
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let before = threads();
        rt.run(|| {
            let (_full, addr) = full_listener();
            let connect = move || timeout(Duration::from_millis(300), || TcpStream::connect(addr));
            scope(|s| {
                let tasks: Vec<_> = (0..TASKS).map(|_| s.spawn(connect)).collect();
                let cut = tasks.into_iter().map(|t| t.join().unwrap().is_err());
                assert!(cut.filter(|&cut| cut).count() >= TASKS - 8, "the backlog takes a few");
            });
            assert!(threads() <= before + 2, "{} threads, {before} before", threads());
            let error = TcpStream::connect_timeout(&addr, Duration::from_millis(5)).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "as in std");
        });
        let addr = SocketAddr::from(([127, 0, 0, 1], 1));
        let zero = TcpStream::connect_timeout(&addr, Duration::ZERO).err().unwrap();
        assert_eq!(zero.kind(), ErrorKind::InvalidInput);
    };
    alone(test, body, assert_success);
}

/// Returns a listener whose backlog is full, so that connections to it wait, and its address.
fn full_listener() -> (Vec<std::os::fd::OwnedFd>, SocketAddr) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let addr = listener.local_addr().unwrap();
    let mut held = vec![listener.into()];
    let short = Duration::from_millis(100);
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&addr, short) {
        held.push(stream.into());
    }
    (held, addr)
}

#[test]
fn name_lookups_do_not_hold_up_the_worker() {
    runtime("fifo").run(|| {
        let listener = TcpListener::bind("localhost:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        scope(|s| {
            for _ in 0..50 {
                s.spawn(|| TcpStream::connect(("localhost", port)).unwrap());
                s.spawn(|| listener.accept().unwrap());
            }
        });
        let unknown = TcpStream::connect("no.such.name.invalid:1").err().unwrap();
        assert_ne!(unknown.kind(), ErrorKind::InvalidInput);
        let limited = timeout(Duration::ZERO, || TcpStream::connect("no.such.name.invalid:1"));
        assert!(limited.is_err(), "a limit holds for lookups");
    });
}

#[test]
fn a_burst_of_connections_waits_to_be_accepted() {
    let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let burst = allowed.trim().parse::<usize>().unwrap().min(500);
    runtime("fifo").run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        // Nothing accepts: the handshake of a connection that does not fit is not answered.
        let limit = Duration::from_secs(60);
        let connect = |_| std::net::TcpStream::connect_timeout(&addr, limit).unwrap();
        let all: Vec<_> = (0..burst).map(connect).collect();
        all.iter().for_each(|_| drop(listener.accept().unwrap()));
    });
}

/// Returns both ends of a connection.
fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (stream, listener.accept().unwrap().0)
}

#[test]
fn a_vanished_peer_ends_reads_and_writes() {
    two_workers("work-stealing").run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let peer = spawn(move || TcpStream::connect(addr).unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = stream.try_clone().unwrap();
        let reading = spawn(move || reader.read(&mut [0; 8]));
        drop(peer.join().unwrap());
        assert_eq!(reading.join().unwrap().unwrap(), 0, "the end");
        let error = loop {
            if let Err(e) = stream.write_all(&[0; 65536]) {
                break e.kind();
            }
        };
        assert!(matches!(error, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error:?}");
    });
}

#[test]
fn a_closed_port_refuses_connections() {
    runtime("fifo").run(|| {
        let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = TcpStream::connect(addr).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let again = TcpListener::bind(taken.local_addr().unwrap()).err().unwrap();
        assert_eq!(again.kind(), ErrorKind::AddrInUse);
    });
}

#[test]
fn ordinary_threads_use_sockets_too() {
    let addr = spawn(echo_server).join().unwrap();
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(move || talk(addr, 50))).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn a_server_survives_running_out_of_descriptors() {
    let test = "a_server_survives_running_out_of_descriptors";
    let body = || {
        two_workers("work-stealing").run(|| {
            let addr = echo_server();
            talk(addr, 1);
            let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
            // SAFETY: a valid limit.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
            // Both ends are in this process: some clients leave no descriptor for the server's end.
            let crowd: Vec<_> = (0..100).map_while(|_| TcpStream::connect(addr).ok()).collect();
            assert!(crowd.len() < 64);
            drop(crowd);
            heddle_rt::sleep(Duration::from_millis(20));
            talk(addr, 10);
        });
    };
    alone(test, body, assert_success);
}

#[test]
fn peeked_data_stays_and_vectored_operations_use_all_buffers() {
    runtime("fifo").run(|| {
        let (mut stream, mut peer) = connected();
        let late = timeout(Duration::from_millis(5), || peer.peek(&mut [0; 4]).is_err());
        assert_eq!(late, Err(Elapsed), "a limit ends a peek");
        let bufs = [IoSlice::new(b"12"), IoSlice::new(b""), IoSlice::new(b"3456")];
        assert_eq!(stream.write_vectored(&bufs).unwrap(), 6);
        let mut buf = [0; 8];
        for _ in 0..2 {
            assert_eq!((peer.peek(&mut buf).unwrap(), &buf[..6]), (6, &b"123456"[..]));
        }
        let (mut a, mut b) = ([0; 1], [0; 8]);
        let bufs = &mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        assert_eq!(peer.read_vectored(bufs).unwrap(), 6);
        assert_eq!((&a, &b[..5]), (b"1", &b"23456"[..]));
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(peer.peek(&mut buf).unwrap(), 0, "the end");
    });
}

#[test]
fn peeked_datagrams_stay() {
    runtime("fifo").run(|| {
        let [a, b] = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        a.send(b"first").unwrap();
        a.send(b"second").unwrap();
        let mut buf = [0; 8];
        let from = a.local_addr().unwrap();
        assert_eq!(b.peek_from(&mut buf).unwrap(), (5, from));
        assert_eq!(b.recv_from(&mut buf).unwrap(), (5, from));
        b.connect(from).unwrap();
        assert_eq!(b.peek(&mut buf).unwrap(), 6);
        assert_eq!((b.recv(&mut buf).unwrap(), &buf[..6]), (6, &b"second"[..]));
    });
}

#[test]
fn options_of_sockets_are_set_and_returned() {
    runtime("fifo").run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        stream.set_nodelay(true).unwrap();
        assert!(stream.nodelay().unwrap());
        stream.set_ttl(41).unwrap();
        listener.set_ttl(42).unwrap();
        udp.set_ttl(43).unwrap();
        let ttls = (stream.ttl(), listener.ttl(), udp.ttl());
        assert_eq!((ttls.0.unwrap(), ttls.1.unwrap(), ttls.2.unwrap()), (41, 42, 43));
        udp.set_broadcast(true).unwrap();
        assert!(udp.broadcast().unwrap());
        udp.set_multicast_loop_v4(false).unwrap();
        udp.set_multicast_ttl_v4(5).unwrap();
        assert!(!udp.multicast_loop_v4().unwrap());
        assert_eq!(udp.multicast_ttl_v4().unwrap(), 5);
        assert!(udp.take_error().unwrap().is_none() && listener.take_error().unwrap().is_none());
        let limit = Some(Duration::from_secs(3));
        udp.set_write_timeout(limit).unwrap();
        udp.set_read_timeout(limit).unwrap();
        assert_eq!((udp.read_timeout().unwrap(), udp.write_timeout().unwrap()), (limit, limit));
        let std = udp.into_std().unwrap();
        assert_eq!((std.read_timeout().unwrap(), std.ttl().unwrap()), (limit, 43));
    });
}

#[test]
fn multicast_groups_are_joined_and_left_as_by_std() {
    runtime("fifo").run(|| {
        let group = Ipv4Addr::new(224, 0, 0, 251);
        let (ours, std) = (UdpSocket::bind("0.0.0.0:0"), std::net::UdpSocket::bind("0.0.0.0:0"));
        let (ours, std) = (ours.unwrap(), std.unwrap());
        let kind = |result: std::io::Result<()>| result.map_err(|error| error.kind());
        for interface in [Ipv4Addr::LOCALHOST, Ipv4Addr::new(192, 0, 2, 1)] {
            let joined = kind(std.join_multicast_v4(&group, &interface));
            assert_eq!(kind(ours.join_multicast_v4(&group, &interface)), joined);
            let left = kind(std.leave_multicast_v4(&group, &interface));
            assert_eq!(kind(ours.leave_multicast_v4(&group, &interface)), left);
        }
    });
}

#[test]
fn a_non_blocking_listener_does_not_wait_and_incoming_accepts() {
    runtime("fifo").run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        let same = listener.try_clone().unwrap();
        same.set_nonblocking(false).unwrap();
        let addr = listener.local_addr().unwrap();
        let client = spawn(move || (0..3).map(|_| TcpStream::connect(addr).unwrap()).collect());
        let accepted: Vec<_> = same.incoming().take(3).map(Result::unwrap).collect();
        let clients: Vec<TcpStream> = client.join().unwrap();
        for (client, accepted) in clients.iter().zip(&accepted) {
            assert_eq!(client.local_addr().unwrap(), accepted.peer_addr().unwrap());
        }
    });
}
