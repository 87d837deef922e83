//! Sockets over a stack, in virtual time: what packetdrill's calls mean.

use heddle_core::Ns;
use heddle_tcp::{
    Config, ConnectionId, Error, Flow, IcmpError, ListenerId, Output, Secret, Shutdown, Stack,
    checksum,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Bytes of an IPv4 header without options.
const IP_HEADER: usize = 20;
/// The MTU of packetdrill's link.
const MTU: u16 = 1500;
/// How long the next packet may take; scripts wait for less.
const PATIENCE: Ns = Ns::from_secs(1000);

/// What a descriptor stands for.
#[derive(Clone, Copy, Debug)]
pub enum Socket {
    New { local: Option<SocketAddr> },
    Listener(ListenerId),
    Connection(ConnectionId),
}

/// Packets that the stack has sent, each with its time.
#[derive(Default)]
struct Packets {
    now: Ns,
    queue: VecDeque<(Ns, Vec<u8>)>,
}

impl Output for Packets {
    fn send(&mut self, flow: Flow, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        let (IpAddr::V4(source), IpAddr::V4(destination)) = (flow.local.ip(), flow.remote.ip())
        else {
            return true;
        };
        let mut bytes = vec![0; IP_HEADER + length];
        bytes[0] = 0x45;
        bytes[2..4].copy_from_slice(&((IP_HEADER + length) as u16).to_be_bytes());
        // Don't fragment, 64 hops, TCP.
        bytes[6..10].copy_from_slice(&[0x40, 0, 64, checksum::TCP]);
        bytes[12..16].copy_from_slice(&source.octets());
        bytes[16..20].copy_from_slice(&destination.octets());
        let sum = checksum::checksum(&bytes[..IP_HEADER]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        write(&mut bytes[IP_HEADER..]);
        // Linux sets PSH where its own large segments end; the gate compares without it.
        let segment = &mut bytes[IP_HEADER..];
        segment[13] &= !8;
        segment[16..18].fill(0);
        let mut sum =
            checksum::Sum::pseudo_header(source.into(), destination.into(), checksum::TCP, length);
        sum.add(segment);
        segment[16..18].copy_from_slice(&sum.finish().to_be_bytes());
        self.queue.push_back((self.now, bytes));
        true
    }
}

/// A stack with descriptors.
pub struct Host {
    pub stack: Stack,
    packets: Packets,
    sockets: BTreeMap<i32, (Socket, bool)>,
    next_port: u16,
    local: Ipv4Addr,
}

impl Host {
    /// `local` is the address that outgoing connections have.
    pub fn new(local: Ipv4Addr) -> Host {
        // Linux's settings in packetdrill's scripts: a window scale of 8, no restart after silence.
        let config = Config {
            receive_buffer: 15 << 20,
            send_buffer: 1 << 20,
            restart_after_idle: false,
            ..Config::default()
        };
        let stack = Stack::new(config, Secret::new([7; 64]));
        let packets = Packets { now: Ns::from_secs(1_000_000), ..Packets::default() };
        Host { stack, packets, sockets: BTreeMap::new(), next_port: 40_000, local }
    }

    pub fn now(&self) -> Ns {
        self.packets.now
    }

    pub fn open(&mut self) -> i32 {
        self.add(Socket::New { local: None })
    }

    fn add(&mut self, socket: Socket) -> i32 {
        let fd = (3..).find(|fd| !self.sockets.contains_key(fd)).expect("descriptors do not end");
        self.sockets.insert(fd, (socket, false));
        fd
    }

    pub fn socket(&self, fd: i32) -> Option<Socket> {
        self.sockets.get(&fd).map(|entry| entry.0)
    }

    pub fn is_blocking(&self, fd: i32) -> bool {
        self.sockets.get(&fd).is_some_and(|entry| !entry.1)
    }

    pub fn set_nonblocking(&mut self, fd: i32, is_set: bool) {
        if let Some(entry) = self.sockets.get_mut(&fd) {
            entry.1 = is_set;
        }
    }

    pub fn connection(&self, fd: i32) -> Option<ConnectionId> {
        match self.socket(fd)? {
            Socket::Connection(id) => Some(id),
            _ => None,
        }
    }

    pub fn bind(&mut self, fd: i32, address: SocketAddr) {
        if let Some((Socket::New { local }, _)) = self.sockets.get_mut(&fd) {
            *local = Some(address);
        }
    }

    pub fn listen(&mut self, fd: i32, backlog: usize) -> Option<()> {
        let Some(Socket::New { local: Some(local) }) = self.socket(fd) else { return None };
        let listener = self.stack.listen(local, backlog.max(1)).ok()?;
        self.sockets.get_mut(&fd)?.0 = Socket::Listener(listener);
        Some(())
    }

    pub fn accept(&mut self, fd: i32) -> Option<(i32, SocketAddr)> {
        let Some(Socket::Listener(listener)) = self.socket(fd) else { return None };
        let id = self.stack.accept(listener, self.packets.now)?;
        let remote = self.stack.remote_addr(id).ok()?;
        Some((self.add(Socket::Connection(id)), remote))
    }

    pub fn connect(&mut self, fd: i32, remote: SocketAddr) -> Option<ConnectionId> {
        let Some(Socket::New { local }) = self.socket(fd) else { return None };
        self.next_port += 1;
        let any = SocketAddr::new(self.local.into(), self.next_port);
        let local = local.filter(|local| !local.ip().is_unspecified()).unwrap_or(any);
        let now = self.packets.now;
        let id = self.stack.connect(now, local, remote, MTU, &mut self.packets).ok()?;
        self.sockets.get_mut(&fd)?.0 = Socket::Connection(id);
        Some(id)
    }

    pub fn read(&mut self, id: ConnectionId, to: &mut [u8]) -> Result<usize, Error> {
        self.stack.read(self.packets.now, id, to, &mut self.packets)
    }

    pub fn write(&mut self, id: ConnectionId, bytes: &[u8]) -> Result<usize, Error> {
        self.stack.write(self.packets.now, id, bytes, &mut self.packets)
    }

    pub fn shutdown(&mut self, id: ConnectionId, how: Shutdown) -> Result<(), Error> {
        self.stack.shutdown(self.packets.now, id, how, &mut self.packets)
    }

    pub fn set_nodelay(&mut self, id: ConnectionId, is_set: bool) -> Result<(), Error> {
        self.stack.set_nodelay(self.packets.now, id, is_set, &mut self.packets)
    }

    pub fn close(&mut self, fd: i32) -> Option<()> {
        let now = self.packets.now;
        match self.sockets.remove(&fd)?.0 {
            Socket::New { .. } => {}
            Socket::Listener(id) => self.stack.close_listener(id, now, &mut self.packets),
            Socket::Connection(id) => self.stack.close(now, id, &mut self.packets),
        }
        Some(())
    }

    /// Lets `time` pass.
    pub fn pass(&mut self, time: Ns) {
        let end = self.packets.now + time;
        while let Some(next) = self.stack.next_deadline().filter(|&next| next <= end) {
            self.packets.now = self.packets.now.max(next);
            self.stack.advance(self.packets.now, &mut self.packets);
        }
        self.packets.now = end;
    }

    /// Takes a packet from packetdrill.
    pub fn inject(&mut self, packet: &[u8]) {
        let Some(header) = packet.get(..IP_HEADER) else { return };
        let length = usize::from(header[0] & 15) * 4;
        let address = |at: usize| {
            Ipv4Addr::from([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (source, destination) = (address(12), address(16));
        let Some(body) = packet.get(length..) else { return };
        let now = self.packets.now;
        match header[9] {
            checksum::TCP
                if checksum::verify(source.into(), destination.into(), checksum::TCP, body) =>
            {
                self.stack.receive(
                    now,
                    source.into(),
                    destination.into(),
                    body,
                    MTU,
                    &mut self.packets,
                );
            }
            1 => self.icmp(body),
            _ => {}
        }
    }

    /// ICMP "destination unreachable": the packet that it is about begins after eight bytes.
    fn icmp(&mut self, body: &[u8]) {
        let Some(quoted) = body.get(8..8 + IP_HEADER + 8).filter(|_| body[0] == 3) else { return };
        let half = |at: usize| u16::from_be_bytes([quoted[at], quoted[at + 1]]);
        let address = |at: usize| {
            Ipv4Addr::from([quoted[at], quoted[at + 1], quoted[at + 2], quoted[at + 3]])
        };
        let local = SocketAddr::new(address(12).into(), half(IP_HEADER));
        let remote = SocketAddr::new(address(16).into(), half(IP_HEADER + 2));
        let sequence = u32::from(half(IP_HEADER + 4)) << 16 | u32::from(half(IP_HEADER + 6));
        let error = match body[1] {
            4 => IcmpError::PacketTooBig { mtu: u16::from_be_bytes([body[6], body[7]]) },
            code => IcmpError::Unreachable { is_hard: matches!(code, 2 | 3 | 9 | 10 | 13) },
        };
        self.stack.icmp_error(self.packets.now, local, remote, sequence, error, &mut self.packets);
    }

    /// The next packet and its time; lets time pass until there is one.
    pub fn next_packet(&mut self) -> Option<(Ns, Vec<u8>)> {
        let end = self.packets.now + PATIENCE;
        while self.packets.queue.is_empty() {
            let next = self.stack.next_deadline().filter(|&next| next <= end)?;
            self.packets.now = self.packets.now.max(next);
            self.stack.advance(self.packets.now, &mut self.packets);
        }
        self.packets.queue.pop_front()
    }
}
