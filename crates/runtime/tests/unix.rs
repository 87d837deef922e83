//! Unix sockets, the halves of streams and the settings that all sockets share.

mod common;

use common::{alone, assert_success, runtime, two_workers};
use heddle_rt::net::unix::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use heddle_rt::net::{TcpListener, TcpStream};
use heddle_rt::{Elapsed, scope, spawn, timeout};
use rustix::fs::{OFlags, fcntl_getfl};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(5);

/// A path for a socket, removed when dropped.
struct SocketPath(PathBuf);

impl SocketPath {
    fn new() -> SocketPath {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (pid, nth) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        SocketPath(std::env::temp_dir().join(format!("heddle-unix-{pid}-{nth}.socket")))
    }
}

impl AsRef<Path> for SocketPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// An abstract name that no other test uses.
fn abstract_name(test: &str) -> SocketAddr {
    SocketAddr::from_abstract_name(format!("heddle-{test}-{}", std::process::id())).unwrap()
}

fn echo(stream: UnixStream) {
    let mut buf = [0; 512];
    while let Ok(n @ 1..) = (&stream).read(&mut buf) {
        (&stream).write_all(&buf[..n]).unwrap();
    }
}

fn talk(mut stream: UnixStream, rounds: u32) {
    for i in 0..rounds {
        let mut back = [0; 4];
        stream.write_all(&i.to_le_bytes()).unwrap();
        stream.read_exact(&mut back).unwrap();
        assert_eq!(u32::from_le_bytes(back), i);
    }
}

#[test]
fn streams_echo_between_tasks_by_path_and_by_abstract_name() {
    for policy in ["fifo", "work-stealing:quantum=100us"] {
        two_workers(policy).run(|| {
            let path = SocketPath::new();
            let name = abstract_name("echo");
            let by_path = UnixListener::bind(&path).unwrap();
            let by_name = UnixListener::bind_addr(&name).unwrap();
            assert_eq!(by_path.local_addr().unwrap().as_pathname(), Some(path.as_ref()));
            scope(|s| {
                for listener in [&by_path, &by_name] {
                    s.spawn(move || {
                        let all = listener.incoming().take(20);
                        scope(|s| all.for_each(|stream| drop(s.spawn(|| echo(stream.unwrap())))));
                    });
                }
                for _ in 0..20 {
                    s.spawn(|| talk(UnixStream::connect(&path).unwrap(), 20));
                    s.spawn(|| talk(UnixStream::connect_addr(&name).unwrap(), 20));
                }
            });
            let taken = UnixListener::bind(&path).unwrap_err();
            assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        });
    }
}

#[test]
fn ordinary_threads_use_unix_sockets_too() {
    let (here, there) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || echo(there));
    talk(here, 50);
    thread.join().unwrap();
}

#[test]
fn connecting_to_nothing_is_refused_as_in_std() {
    runtime("fifo").run(|| {
        let path = SocketPath::new();
        assert_eq!(UnixStream::connect(&path).unwrap_err().kind(), ErrorKind::NotFound);
        drop(UnixListener::bind(&path).unwrap());
        assert_eq!(UnixStream::connect(&path).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let long = "x".repeat(200);
        assert_eq!(UnixStream::connect(long).unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn connecting_to_a_full_backlog_waits_for_room_or_a_limit() {
    runtime("fifo").run(|| {
        let name = abstract_name("backlog");
        let listener = UnixListener::bind_addr(&name).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let first = UnixStream::connect_addr(&name).unwrap();
        let limited = timeout(SHORT, || UnixStream::connect_addr(&name));
        assert_eq!(limited.err(), Some(Elapsed));
        let second = spawn(move || UnixStream::connect_addr(&name));
        drop((listener.accept().unwrap(), first));
        listener.accept().unwrap();
        second.join().unwrap().unwrap();
    });
}

type Send = Box<dyn Fn(&[u8]) + std::marker::Send>;

#[test]
fn datagrams_arrive_whole_and_in_order_and_a_full_receiver_makes_senders_wait() {
    const COUNT: u32 = 2_000;
    two_workers("work-stealing").run(|| {
        let path = SocketPath::new();
        let receiver = UnixDatagram::bind(&path).unwrap();
        let connected = UnixDatagram::unbound().unwrap();
        connected.connect(&path).unwrap();
        let sends: [Send; 2] = {
            let (unconnected, path) = (UnixDatagram::unbound().unwrap(), path.0.clone());
            [
                Box::new(move |data| assert_eq!(connected.send(data).unwrap(), 4)),
                Box::new(move |data| assert_eq!(unconnected.send_to(data, &path).unwrap(), 4)),
            ]
        };
        for send in sends {
            let sender = spawn(move || (0..COUNT).for_each(|i| send(&i.to_le_bytes())));
            for i in 0..COUNT {
                let mut buf = [0; 8];
                let (len, from) = receiver.recv_from(&mut buf).unwrap();
                assert_eq!((len, &buf[..4]), (4, &i.to_le_bytes()[..]));
                assert!(from.is_unnamed());
            }
            sender.join().unwrap();
        }
    });
}

#[test]
fn sending_to_a_full_receiver_ends_at_its_timeout_and_at_a_limit() {
    runtime("fifo").run(|| {
        let name = abstract_name("full");
        let _receiver = UnixDatagram::bind_addr(&name).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        sender.set_write_timeout(Some(SHORT)).unwrap();
        let full =
            std::iter::repeat_with(|| sender.send_to_addr(b"x", &name)).find_map(Result::err);
        assert_eq!(full.unwrap().kind(), ErrorKind::WouldBlock, "as in std");
        sender.set_write_timeout(None).unwrap();
        assert_eq!(timeout(SHORT, || sender.send_to_addr(b"x", &name).is_err()), Err(Elapsed));
        sender.set_nonblocking(true).unwrap();
        let full = sender.send_to_addr(b"x", &name).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn a_dropped_write_half_ends_its_direction_and_halves_reunite() {
    two_workers("work-stealing").run(|| {
        let (stream, mut peer) = UnixStream::pair().unwrap();
        let (mut reader, mut writer) = stream.into_split();
        let writing = spawn(move || writer.write_all(b"all"));
        let mut text = String::new();
        peer.read_to_string(&mut text).unwrap();
        assert_eq!(text, "all", "the end follows");
        writing.join().unwrap().unwrap();
        peer.write_all(b"back").unwrap();
        let mut back = [0; 4];
        reader.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"back", "the other direction is open");
        drop(reader);
        assert_eq!(peer.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe, "now closed");
    });
}

#[test]
fn halves_reunite_with_their_own_stream_only() {
    runtime("fifo").run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (first, second) = (connect(), connect());
        let mut peer = listener.accept().unwrap().0;
        let ((read, write), (other_read, other_write)) = (first.into_split(), second.into_split());
        let wrong = read.reunite(other_write).unwrap_err();
        assert_eq!(wrong.to_string(), "cannot reunite halves of different streams");
        let (read, other_write) = (wrong.0, wrong.1);
        other_read.reunite(other_write).unwrap();
        let mut first = write.reunite(read).unwrap();
        first.write_all(b"still open").unwrap();
        let (_read, write) = first.into_split();
        write.forget();
        peer.set_read_timeout(Some(SHORT)).unwrap();
        let mut buf = [0; 10];
        peer.read_exact(&mut buf).unwrap();
        let open = peer.read(&mut buf).unwrap_err();
        assert_eq!(open.kind(), ErrorKind::WouldBlock, "a forgotten half ends nothing");
    });
}

fn is_nonblocking(fd: impl AsFd) -> bool {
    fcntl_getfl(fd).unwrap().contains(OFlags::NONBLOCK)
}

#[test]
fn sockets_go_to_std_and_come_back_with_mode_and_time_limits() {
    runtime("fifo").run(|| {
        let (stream, peer) = std::os::unix::net::UnixStream::pair().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(7))).unwrap();
        let stream = UnixStream::from_std(stream).unwrap();
        assert_eq!(stream.read_timeout().unwrap(), Some(Duration::from_secs(7)));
        assert_eq!(stream.write_timeout().unwrap(), None);
        assert!(is_nonblocking(&stream));
        stream.set_write_timeout(Some(Duration::from_secs(9))).unwrap();
        let clone = stream.try_clone().unwrap();
        assert_eq!(clone.write_timeout().unwrap(), Some(Duration::from_secs(9)));
        clone.set_write_timeout(None).unwrap();
        assert_eq!(stream.write_timeout().unwrap(), Some(Duration::from_secs(9)), "each its own");
        drop(clone);

        let fd = stream.as_raw_fd();
        let stream = stream.into_std().unwrap();
        assert_eq!(stream.as_raw_fd(), fd);
        assert!(!is_nonblocking(&stream));
        assert_eq!(stream.read_timeout().unwrap(), Some(Duration::from_secs(7)));
        assert_eq!(stream.write_timeout().unwrap(), Some(Duration::from_secs(9)));

        // The same descriptor can be registered again, also by way of `OwnedFd`.
        let stream = UnixStream::try_from(stream).unwrap();
        let owned = OwnedFd::from(stream);
        assert!(owned.as_raw_fd() == fd && !is_nonblocking(&owned));
        let mut stream = UnixStream::try_from(owned).unwrap();
        let mut peer = UnixStream::from_std(peer).unwrap();
        spawn(move || stream.write_all(b"well").unwrap());
        let mut text = String::new();
        peer.read_to_string(&mut text).unwrap();
        assert_eq!(text, "well");
    });
}

#[test]
fn a_non_blocking_handle_does_not_wait_and_others_do() {
    two_workers("work-stealing").run(|| {
        let (stream, mut peer) = UnixStream::pair().unwrap();
        let handle = stream.try_clone().unwrap();
        handle.set_nonblocking(true).unwrap();
        assert_eq!((&handle).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        let waits = spawn(move || (&stream).read(&mut [0; 8]));
        heddle_rt::sleep(SHORT);
        peer.write_all(b"some").unwrap();
        assert_eq!(waits.join().unwrap().unwrap(), 4);
        peer.write_all(b"more").unwrap();
        assert_eq!((&handle).read(&mut [0; 8]).unwrap(), 4);
        let std = handle.into_std().unwrap();
        assert!(is_nonblocking(&std), "the handle's mode goes along");
    });
}

#[test]
fn shutting_down_wakes_a_waiting_read() {
    two_workers("work-stealing").run(|| {
        let (stream, _peer) = UnixStream::pair().unwrap();
        scope(|s| {
            let read = s.spawn(|| (&stream).read(&mut [0; 8]));
            heddle_rt::sleep(SHORT);
            stream.shutdown(Shutdown::Read).unwrap();
            assert_eq!(read.join().unwrap().unwrap(), 0);
        });
        assert!(stream.take_error().unwrap().is_none());
        assert!(stream.peer_addr().unwrap().is_unnamed());
        assert!(stream.local_addr().unwrap().is_unnamed());
    });
}

#[test]
fn hundreds_of_waiting_unix_sockets_take_no_kernel_threads() {
    let test = "hundreds_of_waiting_unix_sockets_take_no_kernel_threads";
    let body = || {
        let rt = two_workers("work-stealing");
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let before = threads();
        rt.run(|| {
            let pairs: Vec<_> = (0..400).map(|_| UnixStream::pair().unwrap()).collect();
            scope(|s| {
                let reads = pairs.iter().map(|(here, _)| s.spawn(|| (&*here).read(&mut [0; 8])));
                let reads: Vec<_> = reads.collect();
                heddle_rt::sleep(Duration::from_millis(20));
                assert!(threads() <= before + 2, "{} threads, {before} before", threads());
                pairs.iter().for_each(|(_, there)| (&*there).write_all(b"wake").unwrap());
                reads.into_iter().for_each(|read| assert_eq!(read.join().unwrap().unwrap(), 4));
            });
        });
    };
    alone(test, body, assert_success);
}

#[test]
fn peeking_leaves_what_it_saw() {
    runtime("fifo").run(|| {
        let (here, mut there) = UnixStream::pair().unwrap();
        let peeking = spawn(move || {
            let mut buf = [0; 8];
            let seen = there.peek(&mut buf).unwrap();
            assert_eq!(&buf[..seen], b"hello");
            there.read_exact(&mut buf[..5]).unwrap();
            assert_eq!(there.peek(&mut buf).unwrap(), 0, "the end");
        });
        (&here).write_all(b"hello").unwrap();
        drop(here);
        peeking.join().unwrap();

        let (here, there) = UnixDatagram::pair().unwrap();
        here.send(b"whole").unwrap();
        let mut buf = [0; 3];
        assert_eq!((there.peek(&mut buf).unwrap(), &buf), (3, b"who"));
        assert_eq!((there.recv(&mut buf).unwrap(), &buf), (3, b"who"));
        there.set_read_timeout(Some(SHORT)).unwrap();
        assert_eq!(there.peek(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock, "it is gone");
    });
}

#[test]
fn a_stream_knows_the_process_of_its_peer() {
    let (here, _there) = UnixStream::pair().unwrap();
    let peer = here.peer_cred().unwrap();
    assert_eq!(peer.pid, Some(std::process::id()));
    assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
    assert_eq!(peer.gid, rustix::process::getegid().as_raw());
}
