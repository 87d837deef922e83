//! XDP_DRV and XDP_SKB: packets to AF_XDP sockets.

#[path = "common/net.rs"]
mod common;

use common::{NO_EXECUTOR, Packet, Sender, bind, counts, deploy, drain, near, network, udp, until};
use heddle_netns::{NEAR4, NEAR6, Pair};
use heddle_steer::hook::xdp::{
    Executors, Holders, Mode, Root, put_claim, put_policy, put_socket, take_policy, take_sockets,
};
use heddle_steer::policy::Maps;
use heddle_xsk::XdpSocket;
use std::net::UdpSocket;
use std::time::Duration;

const PORT: u16 = 8000;
const QUEUES: u32 = 2;

/// A root in `mode` and a policy on the port.
struct Steered {
    net: Pair,
    root: Root,
    maps: Maps,
    /// By executor and queue.
    sockets: Vec<Vec<XdpSocket>>,
    sender: Sender,
}

impl Steered {
    fn new(mode: Mode, policy: &str, executors: u32) -> Option<Self> {
        let net = network(QUEUES)?;
        let root = Root::attach(&near(&net), Some(mode)).unwrap();
        let (program, maps) = deploy(policy, Executors::Sockets, executors);
        put_policy(&root.maps, 3, &program).unwrap();
        for claim in [udp([0; 4], PORT), udp([0; 16], PORT)] {
            put_claim(&root.maps, &claim, 3, Holders::default()).unwrap();
        }
        let sender = Sender::new(&net, QUEUES);
        Some(Self { net, root, maps, sockets: Vec::new(), sender })
    }

    /// One executor with a socket on every queue.
    fn one_executor(mode: Mode) -> Option<Self> {
        let mut steered = Self::new(mode, "round-robin", 1)?;
        let sockets: Vec<XdpSocket> =
            (0..QUEUES).map(|queue| bind(&steered.net, true, queue)).collect();
        for (queue, socket) in (0..).zip(&sockets) {
            use std::os::fd::AsFd as _;
            put_socket(&steered.maps, 0, queue, socket.as_fd()).unwrap();
        }
        steered.sockets.push(sockets);
        Some(steered)
    }

    fn send(&mut self, queue: usize, packet: &Packet) {
        self.sender.send(queue, packet);
    }

    /// Waits for a frame at the socket of executor 0 on `queue`.
    fn expect(&mut self, queue: usize, packet: &Packet) {
        let mut frames = Vec::new();
        let socket = &mut self.sockets[0][queue];
        until("a frame", || {
            socket.wait(Duration::from_millis(100)).unwrap();
            frames.extend(drain(socket));
            !frames.is_empty()
        });
        assert_eq!(frames, [packet.frame()]);
    }
}

const MODES: [Mode; 2] = [Mode::Native, Mode::Generic];

#[test]
fn every_frame_arrives_whole_and_once_on_its_queues_socket() {
    for mode in MODES {
        let Some(mut steered) = Steered::one_executor(mode) else { return };
        const EACH: u32 = 3000;
        let mut seen = vec![Vec::new(); QUEUES as usize];
        for number in 0..EACH {
            for queue in 0..QUEUES as usize {
                let payload = [number.to_ne_bytes(), (queue as u32).to_ne_bytes()].concat();
                steered.send(queue, &Packet::new(number % 2 == 0, PORT, &payload));
            }
            for (socket, seen) in steered.sockets[0].iter_mut().zip(&mut seen) {
                seen.extend(drain(socket));
            }
        }
        until("all frames", || {
            for (socket, seen) in steered.sockets[0].iter_mut().zip(&mut seen) {
                seen.extend(drain(socket));
            }
            seen.iter().map(Vec::len).sum::<usize>() >= (EACH * QUEUES) as usize
        });
        // Each socket has all of one queue, in order, and nothing else. The driver decides which number the
        // receiver gives to a queue.
        let mut queues: Vec<u32> = Vec::new();
        for frames in &seen {
            let words = |frame: &Vec<u8>| {
                let at = if frame[12..14] == [8, 0] { 14 + 28 } else { 14 + 48 };
                let word = |at: usize| u32::from_ne_bytes(frame[at..at + 4].try_into().unwrap());
                (word(at), word(at + 4))
            };
            let all: Vec<(u32, u32)> = frames.iter().map(words).collect();
            queues.extend(all.first().map(|(_, queue)| queue));
            for queue in 0..QUEUES {
                let of: Vec<u32> = all.iter().filter(|w| w.1 == queue).map(|w| w.0).collect();
                assert!(of.is_empty() || of == (0..EACH).collect::<Vec<_>>(), "{mode}");
            }
        }
        if mode == Mode::Native {
            assert_eq!(queues, [0, 1], "a queue each, and that of the sender");
        }
        assert_eq!(counts(&steered.maps, 0), [u64::from(EACH * QUEUES), 0, 0], "{mode}");
        for socket in &steered.sockets[0] {
            let counters = socket.counters().unwrap();
            assert_eq!((counters.dropped, counters.receive_full, counters.invalid), (0, 0, 0));
        }
    }
}

#[test]
fn tags_options_and_extensions_are_skipped() {
    for mode in MODES {
        let Some(mut steered) = Steered::one_executor(mode) else { return };
        for six in [false, true] {
            let plain = Packet::new(six, PORT, b"some payload of a datagram");
            // Generic XDP sees a frame whose one tag the kernel has not yet removed.
            for tags in [vec![], vec![(0x8100, 7)], vec![(0x88a8, 7), (0x8100, 8)]] {
                let packet = Packet { tags, ..plain.clone() };
                steered.send(0, &packet);
                steered.expect(0, &packet);
            }
            for extras in 1..=2 {
                let packet = Packet { extras, ..plain.clone() };
                steered.send(0, &packet);
                steered.expect(0, &packet);
            }
        }
    }
}

#[test]
fn other_ports_protocols_and_fragments_pass_to_the_kernel() {
    for mode in MODES {
        let Some(mut steered) = Steered::one_executor(mode) else { return };
        let receiver = |address: std::net::IpAddr, port| {
            let socket = steered.net.near.run(|| UdpSocket::bind((address, port))).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            socket
        };
        let other = [receiver(NEAR4.into(), PORT + 1), receiver(NEAR6.into(), PORT + 1)];
        let own = receiver(NEAR4.into(), PORT);
        let mut bytes = [0; 4096];
        for (six, socket) in [false, true].into_iter().zip(&other) {
            steered.send(0, &Packet::new(six, PORT + 1, b"not claimed"));
            assert_eq!(socket.recv(&mut bytes).unwrap(), 11, "{mode}");
        }
        // A fragmented datagram: no fragment goes to the program, and the kernel reassembles them.
        let whole = vec![7; 3000];
        let client = steered.net.far.run(|| UdpSocket::bind((heddle_netns::FAR4, 0))).unwrap();
        client.send_to(&whole, (NEAR4, PORT)).unwrap();
        assert_eq!(own.recv(&mut bytes).unwrap(), whole.len(), "{mode}");
        steered.send(0, &Packet { fragment: 0x2000, ..Packet::new(false, PORT, &[1; 64]) });
        steered.send(0, &Packet { fragment: 0x0008, ..Packet::new(false, PORT, &[1; 64]) });
        steered.send(0, &Packet { fragment: 1, ..Packet::new(true, PORT, &[1; 64]) });
        steered.send(0, &Packet { protocol: 6, ..Packet::new(false, PORT, &[]) });
        // After all of these comes one that is claimed, and it is the only one.
        let last = Packet::new(false, PORT, b"claimed");
        steered.send(0, &last);
        steered.expect(0, &last);
        assert_eq!(counts(&steered.maps, 0), [1, 0, 0], "{mode}");
    }
}

#[test]
fn unclaimed_packets_pass_to_the_kernel_and_are_counted() {
    for mode in MODES {
        let Some(mut steered) = Steered::one_executor(mode) else { return };
        let server = steered.net.near.run(|| UdpSocket::bind((NEAR4, PORT))).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut bytes = [0; 64];
        let packet = Packet::new(false, PORT, b"hello");

        take_sockets(&steered.maps, 0).unwrap();
        steered.send(0, &packet);
        assert_eq!(server.recv(&mut bytes).unwrap(), 5, "{mode}");
        assert_eq!(counts(&steered.maps, 0), [0, 1, 0], "{mode}");

        assert!(take_policy(&steered.root.maps, 3).unwrap());
        steered.send(0, &packet);
        assert_eq!(server.recv(&mut bytes).unwrap(), 5, "{mode}");
        assert_eq!(counts(&steered.maps, 0), [0, 1, 0], "an empty slot decides nothing");
        assert_eq!(counts(&steered.maps, NO_EXECUTOR), [0; 3]);
    }
}

#[test]
fn a_socket_that_closes_leaves_its_packets_to_the_kernel() {
    let Some(mut steered) = Steered::one_executor(Mode::Native) else { return };
    let server = steered.net.near.run(|| UdpSocket::bind((NEAR4, PORT))).unwrap();
    server.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    steered.sockets.clear();
    let packet = Packet::new(false, PORT, b"hello");
    let mut bytes = [0; 64];
    // The kernel empties the entry once the socket has gone, which takes a moment.
    until("a packet at the kernel's socket", || {
        steered.send(0, &packet);
        server.recv(&mut bytes).is_ok()
    });
}

#[test]
fn a_forwarded_frame_comes_back_as_modified() {
    let Some(net) = network(1) else { return };
    let root = Root::attach(&near(&net), None).unwrap();
    assert_eq!(root.mode(&near(&net)).unwrap(), Some(Mode::Native));
    let (program, maps) = deploy("round-robin", Executors::Sockets, 1);
    put_policy(&root.maps, 0, &program).unwrap();
    put_claim(&root.maps, &udp(NEAR4, PORT), 0, Holders::default()).unwrap();
    let mut socket = bind(&net, true, 0);
    {
        use std::os::fd::AsFd as _;
        put_socket(&maps, 0, 0, socket.as_fd()).unwrap();
    }
    let client = net.far.run(|| UdpSocket::bind((heddle_netns::FAR4, 0))).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut bytes = [0; 64];
    // More than there are frames, so that they are reused.
    for number in 0..2000_u32 {
        client.send_to(&number.to_ne_bytes(), (NEAR4, PORT)).unwrap();
        let mut count = 0;
        until("a request", || {
            socket.wait(Duration::from_millis(100)).unwrap();
            count += socket.receive(8, echo).unwrap();
            count > 0
        });
        let length = client.recv(&mut bytes).unwrap();
        assert_eq!(bytes[..length], number.to_ne_bytes());
    }
    assert_eq!(socket.counters().unwrap(), heddle_xsk::Counters::default());
}

/// Ethernet addresses, IPv4 addresses and ports are swapped; that leaves the checksums unchanged.
fn echo(frame: &mut heddle_xsk::Frame<'_>) -> heddle_xsk::FrameAction {
    let bytes = frame.bytes_mut();
    for (a, b, length) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
        for at in 0..length {
            bytes.swap(a + at, b + at);
        }
    }
    heddle_xsk::FrameAction::Send
}

#[test]
fn a_policy_chooses_among_the_sockets_of_a_queue() {
    const EXECUTORS: u32 = 3;
    const EACH: u32 = 2000;
    for mode in MODES {
        let Some(mut steered) = Steered::new(mode, "key-hash", EXECUTORS) else { return };
        let index = near(&steered.net).index();
        let options = heddle_xsk::Options { frames: 256, ..Default::default() };
        let many = |queue| XdpSocket::bind_many(index, queue, EXECUTORS, &options);
        let mut queues: Vec<Vec<XdpSocket>> =
            (0..QUEUES).map(|queue| steered.net.near.run(|| many(queue)).unwrap()).collect();
        for (queue, sockets) in (0..).zip(&queues) {
            for (executor, socket) in (0..).zip(sockets) {
                use std::os::fd::AsFd as _;
                put_socket(&steered.maps, executor, queue, socket.as_fd()).unwrap();
            }
        }
        // The key of the policy is eight bytes at offset 24 of the payload, and determines the executor.
        let key = |frame: &[u8]| <[u8; 8]>::try_from(&frame[42 + 24..42 + 32]).unwrap();
        let mut seen = vec![0; EXECUTORS as usize];
        let mut take = |queues: &mut Vec<Vec<XdpSocket>>| {
            for (executor, socket) in queues.iter_mut().flat_map(|of| of.iter_mut().enumerate()) {
                for frame in drain(socket) {
                    let home = heddle_steer::key_hash(&key(&frame)) % EXECUTORS;
                    assert_eq!(home as usize, executor, "{mode}");
                    seen[executor] += 1;
                }
            }
            seen.iter().sum::<u32>()
        };
        for number in 0..EACH {
            let mut payload = [0; 32];
            payload[24..].copy_from_slice(&u64::from(number).to_le_bytes());
            for queue in 0..QUEUES as usize {
                steered.send(queue, &Packet::new(false, PORT, &payload));
            }
            take(&mut queues);
        }
        until("all frames", || take(&mut queues) == EACH * QUEUES);
        assert!(seen.iter().all(|count| *count > 0), "{mode}: {seen:?}");
    }
}

#[test]
fn a_queue_has_one_socket_and_options_are_checked() {
    let Some(net) = network(1) else { return };
    let interface = near(&net);
    let bind = |queue, options: &heddle_xsk::Options| {
        net.near.run(|| XdpSocket::bind(interface.index(), queue, options))
    };
    let options = heddle_xsk::Options { frames: 64, ..Default::default() };
    let first = bind(0, &options).unwrap();
    assert_eq!(bind(0, &options).unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    assert_eq!(bind(1, &options).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    for (frames, frame_size) in [(63, 2048), (64, 1000), (0, 2048), (1 << 30, 4096)] {
        let wrong = heddle_xsk::Options { frames, frame_size, ..options };
        assert_eq!(bind(0, &wrong).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    }
    let mut first = first;
    assert!(first.send(&[0; 2049]).is_err(), "longer than a frame");
    assert!(first.send(&[0; 2048]).is_ok());
}
