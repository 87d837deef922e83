//! Another TCP at the other end: smoltcp, as client and as server, on links that lose, repeat, reorder and damage.

mod common;

use common::PORT;
use common::apps::byte;
use common::link::{Random, Sent};
use heddle_core::Ns;
use heddle_tcp::{Config, ConnectionId, Error, Secret, Shutdown, Stack, checksum};
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{
    HardwareAddress, IpAddress, IpCidr, IpProtocol, Ipv4Address, Ipv4Packet, Ipv4Repr,
};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

const OURS: [u8; 4] = [192, 0, 2, 1];
const THEIRS: [u8; 4] = [192, 0, 2, 2];
const DELAY: Ns = Ns::from_us(500);

/// smoltcp's device: packets that arrived, and that it sent.
#[derive(Default)]
struct Packets {
    arrived: Vec<Vec<u8>>,
    sent: Vec<Vec<u8>>,
}

struct Arrived(Vec<u8>);
struct Outgoing<'a>(&'a mut Vec<Vec<u8>>);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let mut bytes = vec![0; length];
        let result = f(&mut bytes);
        self.0.push(bytes);
        result
    }
}

impl Device for Packets {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Outgoing<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Arrived, Outgoing<'_>)> {
        let packet = (!self.arrived.is_empty()).then(|| self.arrived.remove(0))?;
        Some((Arrived(packet), Outgoing(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outgoing<'_>> {
        Some(Outgoing(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        (capabilities.medium, capabilities.max_transmission_unit) = (Medium::Ip, 1500);
        capabilities
    }
}

/// Both ends, and what is under way: by time and number, whether it goes to us, and the packet.
struct Match {
    now: Ns,
    ours: Stack,
    sent: Sent,
    theirs: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    packets: Packets,
    under_way: BTreeMap<(Ns, u64), (bool, Vec<u8>)>,
    random: Random,
    faults: u32,
    number: u64,
}

fn instant(now: Ns) -> Instant {
    Instant::from_micros((now.0 / 1_000) as i64)
}

/// An IPv4 packet around one of our segments.
fn packet(segment: &[u8]) -> Vec<u8> {
    let header = Ipv4Repr {
        src_addr: Ipv4Address::from(OURS),
        dst_addr: Ipv4Address::from(THEIRS),
        next_header: IpProtocol::Tcp,
        payload_len: segment.len(),
        hop_limit: 64,
    };
    let mut bytes = vec![0; 20 + segment.len()];
    header.emit(&mut Ipv4Packet::new_unchecked(&mut bytes), &ChecksumCapabilities::default());
    bytes[20..].copy_from_slice(segment);
    bytes
}

impl Match {
    fn new(seed: u64, faults: u32) -> Match {
        let mut packets = Packets::default();
        let (now, config) = (Ns::from_secs(10), smoltcp::iface::Config::new(HardwareAddress::Ip));
        let mut theirs = Interface::new(config, &mut packets, instant(now));
        let address = IpAddress::Ipv4(Ipv4Address::from(THEIRS));
        theirs.update_ip_addrs(|addresses| addresses.push(IpCidr::new(address, 24)).expect("room"));
        let buffer = || tcp::SocketBuffer::new(vec![0; 64 << 10]);
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(tcp::Socket::new(buffer(), buffer()));
        let config = Config { rto_min: Ns::from_ms(20), ..Config::default() };
        Match {
            now,
            ours: Stack::new(config, Secret::new([5; 64])),
            sent: Sent::default(),
            theirs,
            sockets,
            handle,
            packets,
            under_way: BTreeMap::new(),
            random: Random(seed),
            faults,
            number: 0,
        }
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Puts a packet on the link.
    fn put(&mut self, to_us: bool, mut bytes: Vec<u8>) {
        if self.random.happens(self.faults) {
            return;
        }
        if self.random.happens(self.faults) {
            let bit = self.random.next() as usize % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let copies = 1 + usize::from(self.random.happens(self.faults));
        for _ in 0..copies {
            let held =
                if self.random.happens(self.faults) { self.random.next() % 2_000_000 } else { 0 };
            self.number += 1;
            let key = (self.now + DELAY + Ns(held), self.number);
            self.under_way.insert(key, (to_us, bytes.clone()));
        }
    }

    fn deliver(&mut self, to_us: bool, bytes: Vec<u8>) {
        if !to_us {
            return self.packets.arrived.push(bytes);
        }
        let (source, destination) = (IpAddr::from(THEIRS), IpAddr::from(OURS));
        let is_intact =
            Ipv4Packet::new_checked(&bytes[..]).is_ok_and(|packet| packet.verify_checksum());
        if is_intact && checksum::verify(source, destination, checksum::TCP, &bytes[20..]) {
            self.ours.receive(self.now, source, destination, &bytes[20..], 1500, &mut self.sent);
        }
    }

    /// Moves to the next event. Panics if none is left, or if it takes an hour.
    fn step(&mut self) {
        let poll = self.theirs.poll_at(instant(self.now), &self.sockets);
        let theirs = poll.map(|at| Ns(at.total_micros().max(0) as u64 * 1_000));
        let arrival = self.under_way.keys().next().map(|key| key.0);
        let next = [self.ours.next_deadline(), theirs, arrival].into_iter().flatten().min();
        self.now = self.now.max(next.expect("something happens")).max(self.now + Ns(1));
        assert!(self.now < Ns::from_secs(3600), "no progress");
        while self.under_way.first_key_value().is_some_and(|(key, _)| key.0 <= self.now) {
            let (_, (to_us, bytes)) = self.under_way.pop_first().expect("it was there");
            self.deliver(to_us, bytes);
        }
        self.ours.advance(self.now, &mut self.sent);
        self.theirs.poll(instant(self.now), &mut self.packets, &mut self.sockets);
    }

    /// Puts on the link what both ends have sent.
    fn exchange(&mut self) {
        self.theirs.poll(instant(self.now), &mut self.packets, &mut self.sockets);
        for (_, segment) in std::mem::take(&mut self.sent.segments) {
            self.put(false, packet(&segment));
        }
        for bytes in std::mem::take(&mut self.packets.sent) {
            self.put(true, bytes);
        }
    }
}

/// How far the streams both ways are: sent and received by each end.
#[derive(Default)]
struct Progress {
    our_sent: usize,
    our_received: usize,
    their_sent: usize,
    their_received: usize,
}

const TOTAL: usize = 300_000;

fn bytes(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(|at| byte(at as u64)).collect()
}

fn pump_ours(game: &mut Match, id: ConnectionId, progress: &mut Progress) {
    let (now, mut buffer) = (game.now, [0; 8192]);
    while let Ok(count @ 1..) = game.ours.read(now, id, &mut buffer, &mut game.sent) {
        assert_eq!(buffer[..count], bytes(progress.our_received, count));
        progress.our_received += count;
    }
    while progress.our_sent < TOTAL {
        let next = bytes(progress.our_sent, 8192.min(TOTAL - progress.our_sent));
        match game.ours.write(now, id, &next, &mut game.sent) {
            Ok(count) => progress.our_sent += count,
            Err(Error::WouldBlock | Error::NotConnected) => return,
            Err(error) => panic!("{error}"),
        }
        if progress.our_sent == TOTAL {
            game.ours.shutdown(now, id, Shutdown::Write, &mut game.sent).expect("it is open");
        }
    }
}

fn pump_theirs(game: &mut Match, progress: &mut Progress) {
    let socket = game.socket();
    while socket.can_recv() {
        let mut buffer = [0; 8192];
        let count = socket.recv_slice(&mut buffer).expect("it can receive");
        assert_eq!(buffer[..count], bytes(progress.their_received, count));
        progress.their_received += count;
    }
    while socket.can_send() && progress.their_sent < TOTAL {
        let next = bytes(progress.their_sent, 8192.min(TOTAL - progress.their_sent));
        progress.their_sent += socket.send_slice(&next).expect("it can send");
        if progress.their_sent == TOTAL {
            socket.close();
        }
    }
}

/// Sends streams both ways at once, and closes.
fn play(mut game: Match, id: Option<ConnectionId>) {
    let (mut id, mut progress) = (id, Progress::default());
    let listener = game.ours.listeners().next().map(|listener| listener.id);
    while progress.our_received < TOTAL || progress.their_received < TOTAL {
        id = id.or_else(|| game.ours.accept(listener?, game.now));
        if let Some(id) = id {
            pump_ours(&mut game, id, &mut progress);
        }
        pump_theirs(&mut game, &mut progress);
        game.exchange();
        game.step();
    }
    game.faults = 0;
    game.ours.close(game.now, id.expect("a connection"), &mut game.sent);
    while game.ours.connection_count() > 0 || game.socket().is_active() {
        game.exchange();
        game.step();
    }
}

fn client(seed: u64, faults: u32) {
    let mut game = Match::new(seed, faults);
    game.socket().listen(PORT).expect("a listener");
    let (local, remote) = (SocketAddr::from((OURS, 5000)), SocketAddr::from((THEIRS, PORT)));
    let id =
        game.ours.connect(game.now, local, remote, 1500, &mut game.sent).expect("a connection");
    play(game, Some(id));
}

fn server(seed: u64, faults: u32) {
    let mut game = Match::new(seed, faults);
    game.ours.listen(SocketAddr::from((OURS, PORT)), 4).expect("a listener");
    let remote = (IpAddress::Ipv4(Ipv4Address::from(OURS)), PORT);
    let Match { theirs, sockets, handle, .. } = &mut game;
    sockets
        .get_mut::<tcp::Socket<'_>>(*handle)
        .connect(theirs.context(), remote, 5000)
        .expect("a connection");
    play(game, None);
}

#[test]
fn our_client_and_its_server() {
    client(1, 0);
    (0..10).for_each(|seed| client(seed, 20_000));
}

#[test]
fn our_server_and_its_client() {
    server(1, 0);
    (0..10).for_each(|seed| server(seed, 20_000));
}
