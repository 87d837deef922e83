//! Shared by the tests of the hooks at XDP.
#![allow(dead_code, reason = "each test file uses a part")]

use std::net::IpAddr;

use heddle_bpf::Program;
use heddle_netns::{FAR_MAC, FAR4, FAR6, NEAR_MAC, NEAR4, NEAR6, Pair};
use heddle_steer::hook::xdp::{Claim, Executors, Interface, Mode, Protocol, load_policy};
use heddle_steer::policy::{Maps, Object, read, shipped};
use heddle_xsk::{FrameAction, Options, XdpSocket};

/// A pair of namespaces; `None`, with a message, if this process cannot create one.
pub fn network(queues: u32) -> Option<Pair> {
    if let Some(why) = heddle_netns::missing_privilege() {
        eprintln!("SKIPPED: {why}");
        return None;
    }
    Some(Pair::new(queues).unwrap())
}

/// The near interface of a pair.
pub fn near(net: &Pair) -> Interface {
    Interface::by_name(heddle_netns::NEAR, Some(net.near.file().unwrap())).unwrap()
}

pub fn policy(name: &str) -> Object {
    read(shipped(name).unwrap()).unwrap()
}

/// Policy `name` for `executors` of a driver, with `count` of them.
pub fn deploy(name: &str, executors: Executors, count: u32) -> (Program, Maps) {
    let mut maps = Maps::new();
    let program = load_policy(name, (executors, Mode::Native), &policy(name), &mut maps).unwrap();
    if let Some(control) = maps.get("hd_control") {
        control.update(&0_u32.to_ne_bytes(), &count.to_ne_bytes()).unwrap();
    }
    (program, maps)
}

pub fn udp(address: impl Into<IpAddr>, port: u16) -> Claim {
    Claim { protocol: Protocol::Udp, address: (address.into(), port).into() }
}

/// Selected, failed, dropped of line `index`, all CPUs together.
pub fn counts(maps: &Maps, index: u32) -> [u64; 3] {
    let bytes = maps["hd_counts"].lookup(&index.to_ne_bytes()).unwrap().unwrap();
    let mut sum = [0; 3];
    for cpu in bytes.chunks(24) {
        for (at, word) in cpu.chunks(8).enumerate() {
            sum[at] += u64::from_ne_bytes(word.try_into().unwrap());
        }
    }
    sum
}

/// Line of the counts of inputs without an executor.
pub const NO_EXECUTOR: u32 = 64;

pub use heddle_test_support::until;

/// A frame from the far end to the near one.
#[derive(Clone, Debug)]
pub struct Packet {
    pub six: bool,
    pub port: u16,
    pub from: u16,
    pub payload: Vec<u8>,
    /// VLAN tags, outermost first: type and number.
    pub tags: Vec<(u16, u16)>,
    /// IPv4: the word of flags and offset; IPv6: if not zero, a fragment header with it.
    pub fragment: u16,
    /// IPv4: words of options; IPv6: hop-by-hop and destination headers.
    pub extras: usize,
    pub protocol: u8,
    /// Of TCP.
    pub flags: u8,
    pub source: IpAddr,
    pub destination: IpAddr,
    /// What stands instead of a TCP or UDP header and the payload.
    pub raw: Option<Vec<u8>>,
}

pub const SYN: u8 = 2;
pub const ACK: u8 = 16;

impl Packet {
    pub fn new(six: bool, port: u16, payload: &[u8]) -> Self {
        let (from, payload) = (4000, payload.to_vec());
        let tags = Vec::new();
        let (source, destination) = match six {
            true => (FAR6.into(), NEAR6.into()),
            false => (FAR4.into(), NEAR4.into()),
        };
        Self {
            six,
            port,
            from,
            payload,
            tags,
            fragment: 0,
            extras: 0,
            protocol: 17,
            flags: SYN,
            source,
            destination,
            raw: None,
        }
    }

    /// A segment without data.
    pub fn tcp(six: bool, port: u16, from: u16, flags: u8) -> Self {
        Self { protocol: 6, from, flags, ..Self::new(six, port, &[]) }
    }

    pub fn frame(&self) -> Vec<u8> {
        let mut frame = [NEAR_MAC, FAR_MAC].concat();
        for (kind, number) in &self.tags {
            frame.extend(kind.to_be_bytes());
            frame.extend(number.to_be_bytes());
        }
        frame.extend(if self.six { self.internet6() } else { self.internet4() });
        // Shorter frames are padded by the sending card.
        frame.resize(frame.len().max(60), 0xee);
        frame
    }

    fn transport(&self) -> Vec<u8> {
        if let Some(raw) = &self.raw {
            return raw.clone();
        }
        let mut bytes = Vec::new();
        bytes.extend(self.from.to_be_bytes());
        bytes.extend(self.port.to_be_bytes());
        if self.protocol == 6 {
            // Sequence numbers, a header of five words, flags, a window.
            bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, self.flags, 0x10, 0, 0, 0, 0, 0]);
        } else {
            bytes.extend((8 + self.payload.len() as u16).to_be_bytes());
            bytes.extend([0, 0]);
        }
        bytes.extend(&self.payload);
        let (near, far) = (octets(self.destination), octets(self.source));
        let pseudo = [&near[..], &far, &[0, self.protocol], &(bytes.len() as u16).to_be_bytes()];
        let sum = checksum(&[pseudo.concat(), bytes.clone()].concat());
        let at = if self.protocol == 6 { 16 } else { 6 };
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn internet4(&self) -> Vec<u8> {
        let transport = self.transport();
        let words = 5 + self.extras;
        let total = (words * 4 + transport.len()) as u16;
        let mut header = vec![0x40 | words as u8, 0];
        header.extend(total.to_be_bytes());
        header.extend(7_u16.to_be_bytes());
        header.extend(self.fragment.to_be_bytes());
        header.extend([64, self.protocol, 0, 0]);
        header.extend(octets(self.source));
        header.extend(octets(self.destination));
        // No operation.
        header.resize(words * 4, 1);
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        [vec![8, 0], header, transport].concat()
    }

    fn internet6(&self) -> Vec<u8> {
        let mut next = self.protocol;
        let mut behind = self.transport();
        if self.fragment != 0 {
            let [high, low] = self.fragment.to_be_bytes();
            behind = [vec![next, 0, high, low, 0, 0, 0, 7], behind].concat();
            next = 44;
        }
        for extra in 0..self.extras {
            // Six bytes of padding are all that such a header says here.
            behind = [vec![next, 0, 1, 4, 0, 0, 0, 0], behind].concat();
            next = if extra + 1 == self.extras { 0 } else { 60 };
        }
        let mut header = vec![0x60, 0, 0, 0];
        header.extend((behind.len() as u16).to_be_bytes());
        header.extend([next, 64]);
        header.extend(octets(self.source));
        header.extend(octets(self.destination));
        [vec![0x86, 0xdd], header, behind].concat()
    }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// AF_XDP sockets at the far end, one per queue: what one sends arrives on the near queue of the same number.
pub struct Sender(Vec<XdpSocket>);

impl Sender {
    pub fn new(net: &Pair, queues: u32) -> Self {
        let socket = |queue| bind(net, false, queue);
        Self((0..queues).map(socket).collect())
    }

    pub fn send(&mut self, queue: usize, packet: &Packet) {
        let frame = packet.frame();
        until("a free frame to send", || self.0[queue].send(&frame).is_ok());
        self.0[queue].flush().unwrap();
    }
}

/// An AF_XDP socket at the near or the far end.
pub fn bind(net: &Pair, near: bool, queue: u32) -> XdpSocket {
    let (namespace, name) = match near {
        true => (&net.near, heddle_netns::NEAR),
        false => (&net.far, heddle_netns::FAR),
    };
    let interface = Interface::by_name(name, Some(namespace.file().unwrap())).unwrap();
    let options = Options { frames: 256, ..Options::default() };
    namespace.run(|| XdpSocket::bind(interface.index(), queue, &options)).unwrap()
}

/// Returns the frames waiting at `socket`.
pub fn drain(socket: &mut XdpSocket) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let keep = |frame: &mut heddle_xsk::Frame<'_>| {
        frames.push(frame.bytes().to_vec());
        FrameAction::Recycle
    };
    socket.receive(usize::MAX, keep).unwrap();
    frames
}
