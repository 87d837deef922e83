//! One stack against a scripted other end: segments made by hand, and those that the stack sent.

use super::PORT;
use super::link::Sent;
use heddle_core::Ns;
use heddle_tcp::wire::{Flags, Header, Outgoing, OutgoingOptions, Timestamps, parse};
use heddle_tcp::{Config, ConnectionId, ListenerId, Secret, Seq, Stack, checksum};
use std::net::{IpAddr, SocketAddr};

pub const SYN: Flags = Flags::SYN;
pub const ACK: Flags = Flags::ACK;
pub const RST: Flags = Flags::RST;
pub const FIN_ACK: Flags = Flags(0x11);
pub const SYN_ACK: Flags = Flags(0x12);
pub const PSH_ACK: Flags = Flags(0x18);

/// The other end's initial sequence number.
pub const IRS: u32 = 5000;
/// Its port.
pub const REMOTE_PORT: u16 = 40_000;

/// The options of the other end's SYN.
pub fn all_options() -> OutgoingOptions {
    OutgoingOptions {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 1000, echo: 0 }),
        ..Default::default()
    }
}

/// No timestamps, no window scale: only SACK and an MSS of 1000.
pub fn few_options() -> OutgoingOptions {
    OutgoingOptions { mss: Some(1000), sack_permitted: true, ..Default::default() }
}

/// A segment that the stack sent.
#[derive(Clone, Debug)]
pub struct Segment {
    pub header: Header,
    pub payload: Vec<u8>,
}

impl Segment {
    pub fn is(&self, flags: Flags) -> bool {
        self.header.flags == flags
    }
}

/// The scripted end.
pub struct Peer {
    pub stack: Stack,
    pub now: Ns,
    pub sent: Sent,
    pub listener: ListenerId,
    /// The stack's initial sequence number.
    pub iss: u32,
    /// Timestamps of the other end, if it sends any.
    pub timestamp: Option<u32>,
    /// The last timestamp of the stack.
    pub echo: u32,
    pub window: u16,
    pub remote_port: u16,
    /// How long the other end takes to answer in the handshake.
    pub rtt: Ns,
}

pub fn local() -> SocketAddr {
    SocketAddr::new(IpAddr::from([192, 0, 2, 1]), PORT)
}

impl Peer {
    pub fn new(config: Config) -> Peer {
        let mut stack = Stack::new(config, Secret::new([9; 64]));
        let listener = stack.listen(local(), 16).expect("a listener");
        Peer {
            stack,
            now: Ns::from_secs(1000),
            sent: Sent::default(),
            listener,
            iss: 0,
            timestamp: None,
            echo: 0,
            window: 60_000,
            remote_port: REMOTE_PORT,
            rtt: Ns::ZERO,
        }
    }

    /// A peer and a connection that it opened, with `options`.
    pub fn accepted(config: Config, options: OutgoingOptions) -> (Peer, ConnectionId) {
        Peer::accepted_after(config, options, Ns::ZERO)
    }

    /// The same, with a handshake that takes `rtt`.
    pub fn accepted_after(
        config: Config,
        options: OutgoingOptions,
        rtt: Ns,
    ) -> (Peer, ConnectionId) {
        let mut peer = Peer::new(config);
        peer.rtt = rtt;
        peer.open(options);
        let id = peer.stack.accept(peer.listener, peer.now).expect("a connection");
        while peer.stack.poll_event().is_some() {}
        (peer, id)
    }

    /// The three-way handshake, begun by the other end.
    pub fn open(&mut self, options: OutgoingOptions) {
        self.send(SYN, IRS, 0, &[], options);
        let syn_ack = self.one();
        assert!(syn_ack.is(SYN_ACK), "{syn_ack:?}");
        self.iss = syn_ack.header.seq.0;
        self.pass(self.rtt);
        self.timestamp = options.timestamps.map(|timestamps| timestamps.value + 1);
        self.ack(1, 1);
        assert!(self.take().is_empty());
    }

    pub fn remote(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::from([192, 0, 2, 2]), self.remote_port)
    }

    /// Gives the stack a segment with all fields.
    pub fn send(
        &mut self,
        flags: Flags,
        seq: u32,
        ack: u32,
        payload: &[u8],
        options: OutgoingOptions,
    ) {
        let header = Outgoing {
            source_port: self.remote_port,
            destination_port: PORT,
            seq: Seq(seq),
            ack: Seq(ack),
            flags,
            window: self.window,
            options,
        };
        let mut bytes = vec![0; header.length()];
        header.write(&mut bytes);
        bytes.extend_from_slice(payload);
        let (source, destination, now) = (self.remote().ip(), local().ip(), self.now);
        self.stack.receive(now, source, destination, &bytes, 1500, &mut self.sent);
    }

    /// Sends a segment with numbers that are relative to the initial ones.
    pub fn segment(&mut self, flags: Flags, seq: u32, ack: u32, payload: &[u8]) {
        let options = self.options();
        let (seq, ack) = (IRS.wrapping_add(seq), self.iss.wrapping_add(ack));
        self.send(flags, seq, ack, payload, options);
    }

    pub fn options(&self) -> OutgoingOptions {
        let echo = self.echo;
        let timestamps = self.timestamp.map(|value| Timestamps { value, echo });
        OutgoingOptions { timestamps, ..Default::default() }
    }

    /// Acknowledges.
    pub fn ack(&mut self, seq: u32, ack: u32) {
        self.segment(ACK, seq, ack, &[]);
    }

    /// Acknowledges with SACK blocks relative to the stack's initial number.
    pub fn sack(&mut self, seq: u32, ack: u32, blocks: &[(u32, u32)]) {
        let (mut options, iss) = (self.options(), self.iss);
        let at = |number: u32| Seq(iss.wrapping_add(number));
        blocks.iter().for_each(|&(first, end)| options.sack.push((at(first), at(end))));
        self.send(ACK, IRS.wrapping_add(seq), iss.wrapping_add(ack), &[], options);
    }

    /// Sends data.
    pub fn data(&mut self, seq: u32, ack: u32, payload: &[u8]) {
        self.segment(PSH_ACK, seq, ack, payload);
    }

    /// What the stack has sent since the last call.
    pub fn take(&mut self) -> Vec<Segment> {
        let (local, remote) = (local().ip(), self.remote().ip());
        let segments = std::mem::take(&mut self.sent.segments).into_iter().map(|(_, bytes)| {
            assert!(checksum::verify(local, remote, checksum::TCP, &bytes), "a wrong checksum");
            let (header, payload) = parse(&bytes).expect("a segment");
            Segment { header, payload: payload.to_vec() }
        });
        let segments: Vec<Segment> = segments.collect();
        let last =
            segments.iter().filter_map(|segment| segment.header.options.timestamps).next_back();
        self.echo = last.map_or(self.echo, |timestamps| timestamps.value);
        segments
    }

    /// The one segment that the stack has sent since the last call.
    pub fn one(&mut self) -> Segment {
        let mut segments = self.take();
        assert_eq!(segments.len(), 1, "{segments:?}");
        segments.remove(0)
    }

    /// Numbers and lengths of what the stack has sent, relative to its initial number.
    pub fn numbers(&mut self) -> Vec<(u32, usize)> {
        let iss = self.iss;
        let number =
            |segment: Segment| (segment.header.seq.0.wrapping_sub(iss), segment.payload.len());
        self.take().into_iter().map(number).collect()
    }

    /// Lets time pass, with all timers that expire.
    pub fn pass(&mut self, time: Ns) {
        let end = self.now + time;
        while let Some(next) = self.stack.next_deadline().filter(|&next| next <= end) {
            self.now = self.now.max(next);
            self.stack.advance(self.now, &mut self.sent);
        }
        self.now = end;
        self.stack.advance(end, &mut self.sent);
    }

    pub fn write(&mut self, id: ConnectionId, count: usize) -> usize {
        self.stack.write(self.now, id, &vec![7; count], &mut self.sent).expect("room")
    }

    pub fn read(&mut self, id: ConnectionId) -> Result<Vec<u8>, heddle_tcp::Error> {
        let mut bytes = vec![0; 1 << 20];
        let count = self.stack.read(self.now, id, &mut bytes, &mut self.sent)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// What the stack has sent, relative, with the acknowledgement number relative to the other end's.
    pub fn acks(&mut self) -> Vec<u32> {
        self.take().into_iter().map(|segment| segment.header.ack.0.wrapping_sub(IRS)).collect()
    }
}
