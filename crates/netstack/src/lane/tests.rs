//! Two lanes joined in memory.

use super::*;
use crate::control::{Mac, Snapshot as KernelSnapshot, SnapshotBuilder};
use crate::wire::{MemoryWire, pair};
use heddle_tcp::{Config, Progress, Secret, Stack};
use std::net::IpAddr;
use std::sync::Mutex;

/// All that happens, happens at once.
const NOW: Ns = Ns::from_secs(1);

/// A kernel whose routes and neighbours are fixed.
struct Fixed {
    snapshot: Arc<KernelSnapshot>,
    asked: Mutex<Vec<IpAddr>>,
}

impl Routes for Fixed {
    fn generation(&self) -> u64 {
        1
    }

    fn snapshot(&self) -> Arc<KernelSnapshot> {
        Arc::clone(&self.snapshot)
    }

    fn resolve(&self, next_hop: IpAddr) {
        self.asked.lock().unwrap().push(next_hop);
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The host with number `n` of the link, which knows host 1 and host 2.
fn host(n: u8, wire: MemoryWire) -> (Lane<MemoryWire>, Arc<Fixed>) {
    let mac = |n: u8| Mac([2, 0, 0, 0, 0, n]);
    let builder = SnapshotBuilder::new(1, mac(n))
        .address(ip(&format!("10.0.0.{n}")), 24)
        .address(ip(&format!("fd00::{n}")), 64)
        .neighbour(ip("10.0.0.1"), mac(1))
        .neighbour(ip("10.0.0.2"), mac(2))
        .neighbour(ip("fd00::1"), mac(1))
        .neighbour(ip("fd00::2"), mac(2));
    let routes = Arc::new(Fixed { snapshot: builder.build(), asked: Mutex::default() });
    let stack = Stack::new(Config::default(), Secret::new([n; 64]));
    (Lane::new(0, vec![wire], routes.clone(), stack), routes)
}

fn link() -> [(Lane<MemoryWire>, Arc<Fixed>); 2] {
    let (one, two) = pair();
    [host(1, one), host(2, two)]
}

fn bind(lane: &Lane<MemoryWire>, local: &str, token: u64) -> Arc<UdpSocket> {
    let socket = Arc::new(UdpSocket::new(at(local), Token(token)));
    lane.add_udp(&socket);
    socket
}

fn send(lane: &Lane<MemoryWire>, socket: &UdpSocket, payload: &[u8], to: &str) -> Sent {
    lane.send_udp(|| NOW, socket, payload, at(to), false)
}

fn poll(lane: &Lane<MemoryWire>) -> Vec<u64> {
    let (mut woken, mut tokens) = (Woken::default(), Vec::new());
    lane.poll(NOW, &mut woken);
    woken.drain(|token, _| tokens.push(token.0));
    tokens
}

#[test]
fn a_datagram_wakes_the_socket_that_it_is_for() {
    let [(one, _), (two, _)] = link();
    let client = bind(&one, "0.0.0.0:5000", 1);
    let (all, v4, other) =
        (bind(&two, "[::]:9", 10), bind(&two, "10.0.0.2:9", 11), bind(&two, "0.0.0.0:8", 12));
    assert_eq!(send(&one, &client, b"v4", "10.0.0.2:9"), Sent::Sent);
    assert!(two.is_ready() && !one.is_ready());
    assert_eq!(poll(&two), [11], "the most specific address");
    let mut buf = [0; 16];
    assert_eq!(v4.receive(&mut buf, false), Some((2, at("10.0.0.1:5000"))));
    let client6 = bind(&one, "[fd00::1]:5001", 2);
    assert_eq!(send(&one, &client6, b"v6", "[fd00::2]:9"), Sent::Sent);
    assert_eq!(poll(&two), [10]);
    assert_eq!(all.receive(&mut buf, false), Some((2, at("[fd00::1]:5001"))));
    assert_eq!(send(&two, &all, b"back", "[fd00::1]:5001"), Sent::Sent);
    assert_eq!(poll(&one), [2]);
    assert_eq!(client6.receive(&mut buf, false), Some((4, at("[fd00::2]:9"))));
    two.remove_udp(&v4);
    two.remove_udp(&all);
    assert_eq!(send(&one, &client, b"late", "10.0.0.2:9"), Sent::Sent);
    assert!(poll(&two).is_empty() && other.receive(&mut buf, false).is_none());
    let counted = two.counters().packets;
    assert_eq!((counted.frames, counted.udp_received, counted.no_socket), (3, 2, 1));
}

#[test]
fn the_kernel_sends_what_a_lane_cannot() {
    let [(one, routes), _] = link();
    let socket = bind(&one, "0.0.0.0:5000", 1);
    let to = |to: &str, bytes: usize| send(&one, &socket, &vec![0; bytes], to);
    assert_eq!(to("10.0.0.2:9", 1472), Sent::Sent);
    assert_eq!(to("10.0.0.2:9", 1473), Sent::ByKernel, "longer than the MTU");
    assert_eq!(to("127.0.0.1:9", 1), Sent::ByKernel);
    assert_eq!(to("192.0.2.1:9", 1), Sent::ByKernel, "no route");
    assert_eq!(to("255.255.255.255:9", 1), Sent::ByKernel);
    assert!(routes.asked.lock().unwrap().is_empty());
    assert_eq!(to("10.0.0.3:9", 1), Sent::ByKernel, "an unknown neighbour");
    assert_eq!(*routes.asked.lock().unwrap(), [ip("10.0.0.3")]);
    assert_eq!(one.counters().packets.udp_by_kernel, 5);
}

#[test]
fn a_batch_is_bounded_and_a_full_wire_is_reported() {
    let [(one, _), (two, _)] = link();
    let (client, _server) = (bind(&one, "0.0.0.0:1", 1), bind(&two, "0.0.0.0:2", 2));
    let mut sent = 0;
    while send(&one, &client, b"x", "10.0.0.2:2") == Sent::Sent {
        sent += 1;
    }
    assert_eq!(one.counters().losses.send_full, 1);
    let (mut woken, mut polls) = (Woken::default(), 0);
    while two.is_ready() {
        assert!(two.poll(NOW, &mut woken) <= BATCH);
        assert!(woken.drain(|token, _| assert_eq!(token, Token(2))));
        polls += 1;
    }
    assert_eq!(polls, sent / BATCH);
}

#[test]
fn a_connection_carries_bytes_both_ways_and_ends() {
    let [(one, _), (two, _)] = link();
    let listener = Arc::new(TcpListener::new(at("0.0.0.0:80"), 1, Token(20)));
    let id = two.listen(&listener, 16).unwrap();
    let client = one.connect(NOW, at("10.0.0.1:5000"), at("10.0.0.2:80"), 1500);
    assert!(client.is_earlier, "a timer for the SYN");
    let client = client.result.unwrap();
    one.set_token(client, Some(Token(10)));
    assert!(poll(&two).is_empty() && !listener.is_pending(0), "a SYN is no connection");
    assert_eq!(poll(&one), [10]);
    assert_eq!(one.is_connected(client), Ok(true));
    assert_eq!(poll(&two), [20]);
    assert!(listener.is_pending(0));
    let server = two.accept(NOW, id).unwrap();
    assert_eq!((server.local, server.remote), (at("10.0.0.2:80"), at("10.0.0.1:5000")));
    assert!(two.accept(NOW, id).is_none() && !listener.is_pending(0));
    two.set_token(server.id, Some(Token(21)));

    let mut buf = [0; 64];
    assert_eq!(two.read(NOW, server.id, &mut buf).result, Err(Error::WouldBlock));
    let question = [&b"ques"[..], b"", b"tion"];
    assert_eq!(one.write(NOW, client, question.into_iter(), false).result, Ok(8));
    assert_eq!(poll(&two), [21]);
    assert_eq!(two.peek(server.id, &mut buf), Ok(4));
    let mut read = two.read(NOW, server.id, &mut buf).result.unwrap();
    // The second part waits for the acknowledgement of the first (Nagle).
    for _ in 0..3 {
        poll(&one);
        poll(&two);
        read += two.read(NOW, server.id, &mut buf).result.unwrap_or(0);
    }
    assert_eq!(read, 8);
    assert_eq!(two.write(NOW, server.id, [&b"answer"[..]].into_iter(), false).result, Ok(6));
    poll(&one);
    assert_eq!(one.read(NOW, client, &mut buf).result, Ok(6));
    let _ = one.close(NOW, client, false);
    assert_eq!(one.read(NOW, client, &mut buf).result, Err(Error::Stale));
    poll(&two);
    poll(&two);
    let _ = two.close(NOW, server.id, false);
    poll(&one);
    poll(&two);
    assert!(one.has_flow(at("10.0.0.1:5000"), at("10.0.0.2:80")), "in TIME_WAIT");
    assert!(!two.has_flow(at("10.0.0.2:80"), at("10.0.0.1:5000")));
    assert_eq!(one.counters().packets.tcp_unroutable, 0);
}

#[test]
fn an_unknown_neighbour_is_answered_by_way_of_its_frame() {
    let (near, far) = pair();
    let ((one, _), (two, _)) = (host(3, near), host(2, far));
    let listener = Arc::new(TcpListener::new(at("[::]:80"), 1, Token(20)));
    two.listen(&listener, 16).unwrap();
    // Host 2 does not know host 3.
    let client = one.connect(NOW, at("[fd00::3]:5000"), at("[fd00::2]:80"), 1500).result.unwrap();
    for _ in 0..3 {
        poll(&two);
        poll(&one);
    }
    assert_eq!(one.is_connected(client), Ok(true));
    assert!(listener.is_pending(0));
}

/// A stream leaves in large segments, whose pieces the other end takes as any.
#[test]
fn large_segments_are_cut_on_their_way() {
    for (family, server, client) in
        [("v4", "10.0.0.2:80", "10.0.0.1:5000"), ("v6", "[fd00::2]:80", "[fd00::1]:5000")]
    {
        let (near, mut far) = pair();
        far.cut_large_frames();
        let ((one, _), (two, _)) = (host(1, near), host(2, far));
        let listener = Arc::new(TcpListener::new(at(server), 1, Token(20)));
        let id = two.listen(&listener, 16).unwrap();
        let client = one.connect(NOW, at(client), at(server), 1500).result.unwrap();
        let turn = || [&two, &one, &two].map(poll);
        turn();
        let server = two.accept(NOW, id).unwrap();
        let text: Vec<u8> = (0..200_000_u32).map(|at| (at * 31 % 251) as u8).collect();
        let (mut sent, mut received) = (0, Vec::new());
        let mut buf = vec![0; 65_536];
        for _ in 0..1_000 {
            let rest = std::iter::once(&text[sent..]);
            sent += two.write(NOW, server.id, rest, false).result.unwrap_or(0);
            turn();
            let count = one.read(NOW, client, &mut buf).result.unwrap_or(0);
            received.extend_from_slice(&buf[..count]);
        }
        assert!(received == text, "{family}: {} of {} bytes", received.len(), text.len());
        let packets = two.counters().packets;
        assert!(packets.tcp_large > 0 && packets.tcp_sent > 2 * packets.tcp_large, "{family}");
        assert_eq!((one.counters().packets.bad_checksum, one.counters().packets.malformed), (0, 0));
        assert_eq!(one.counters().packets.tcp_large, 0, "the other end has no offload");
    }
}

/// Those that look at a lane hold its lock for a few connections at a time (I1).
#[test]
fn connections_are_listed_in_steps() {
    let [(one, _), (two, _)] = link();
    let listener = Arc::new(TcpListener::new(at("0.0.0.0:80"), 1, Token(20)));
    two.listen(&listener, 16).unwrap();
    let ports = 5000..5000 + 10 * BATCH as u16;
    for port in ports.clone() {
        let local = SocketAddr::new(ip("10.0.0.1"), port);
        one.connect(NOW, local, at("10.0.0.2:80"), 1500).result.unwrap();
        poll(&two);
    }
    for lane in [&one, &two] {
        let (mut progress, mut all, mut more) = (Progress::default(), Vec::new(), true);
        while more {
            let before = all.len();
            more = lane.next_connections(&mut progress, &mut all);
            assert!(all.len() <= before + BATCH);
        }
        assert!(!lane.next_connections(&mut progress, &mut all), "the end stays");
        let ends = |of: heddle_tcp::Info| (of.local, of.remote, of.state);
        let expected: Vec<_> = lane.connections().into_iter().map(ends).collect();
        assert_eq!(all.into_iter().map(ends).collect::<Vec<_>>(), expected);
        assert_eq!(expected.len(), ports.len());
    }
    assert_eq!(two.next_listeners(0).len(), 1);
    assert!(two.next_listeners(1).is_empty());
}
