//! A stack whose other end sends any segments at any time, while its application calls. It never panics, its invariants
//! hold (they are assertions), what it sends is well formed, and its memory stays within the limits.
#![no_main]

use heddle_core::Ns;
use heddle_tcp::checksum::Sum;
use heddle_tcp::wire::{Flags, Outgoing, OutgoingOptions, SackBlocks, Timestamps, parse};
use heddle_tcp::{
    Config, Congestion, ConnectionId, Cut, Event, Flow, IcmpError, KeepAlive, Output, Secret, Seq,
    Shutdown, Stack, checksum,
};
use libfuzzer_sys::fuzz_target;
use std::net::{IpAddr, SocketAddr};

/// The input as a source of decisions.
struct Source<'a>(&'a [u8]);

impl Source<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn number(&mut self) -> u32 {
        u32::from_be_bytes([0; 4].map(|_: u8| self.byte()))
    }

    /// A number near one of `known`, mostly.
    fn near(&mut self, known: &[u32]) -> u32 {
        let (pick, offset) = (self.byte(), self.byte() as i8);
        if pick == 255 {
            return self.number();
        }
        let scale = if pick & 0x40 == 0 { 1 } else { 500 };
        known[usize::from(pick) % known.len()].wrapping_add_signed(i32::from(offset) * scale)
    }
}

/// Checks what the stack sends, and remembers its numbers.
struct Wire {
    seq: u32,
    ack: u32,
    echo: u32,
    has_room: bool,
    /// The largest segment that is taken to be cut; 0 if none is.
    largest: usize,
}

impl Output for Wire {
    fn send(&mut self, flow: Flow, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if !self.has_room {
            return false;
        }
        let mut bytes = vec![0xa5; length];
        write(&mut bytes);
        assert!(checksum::verify(flow.local.ip(), flow.remote.ip(), checksum::TCP, &bytes));
        let (header, payload) = parse(&bytes).expect("what is sent is well formed");
        assert!(payload.len() <= 1460 && bytes.len() <= 1480);
        self.seq = header.seq.0.wrapping_add(header.length(payload));
        self.ack = header.ack.0;
        self.echo = header.options.timestamps.map_or(self.echo, |timestamps| timestamps.value);
        true
    }

    fn largest(&mut self, _: &Flow) -> usize {
        if self.has_room { self.largest } else { 0 }
    }

    fn send_large(
        &mut self,
        flow: Flow,
        length: usize,
        cut: Cut,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        let mut bytes = vec![0xa5; length];
        write(&mut bytes);
        let (source, destination) = (flow.local.ip(), flow.remote.ip());
        let sum = Sum::pseudo_header(source, destination, checksum::TCP, length).unfinished();
        assert_eq!(bytes[16..18], sum.to_be_bytes());
        let (header, payload) = parse(&bytes).expect("what is sent is well formed");
        assert!(length <= self.largest && length - payload.len() == usize::from(cut.header));
        assert!(payload.len() > usize::from(cut.payload) && cut.payload <= 1460);
        self.seq = header.seq.0.wrapping_add(header.length(payload));
        self.ack = header.ack.0;
        self.echo = header.options.timestamps.map_or(self.echo, |timestamps| timestamps.value);
        true
    }
}

const OURS: [u8; 4] = [192, 0, 2, 1];
const THEIRS: [u8; 4] = [192, 0, 2, 2];

struct Game<'a> {
    source: Source<'a>,
    stack: Stack,
    wire: Wire,
    now: Ns,
    ids: Vec<ConnectionId>,
}

impl Game<'_> {
    fn segment(&mut self) {
        let known = [self.wire.ack, self.wire.seq, 0];
        let kind = self.source.byte();
        let seq = Seq(self.source.near(&known));
        let ack = Seq(self.source.near(&[self.wire.seq, self.wire.ack]));
        let flags = match kind % 8 {
            0 => Flags::SYN,
            1 => Flags(0x12),
            2 => Flags(0x11),
            3 => Flags::RST,
            4 => Flags(self.source.byte()),
            _ => Flags::ACK,
        };
        let options = self.options(flags, kind);
        let window = u16::from(self.source.byte()) << (kind % 9);
        let (source_port, destination_port) =
            (5000 + u16::from(kind >> 6), 80 + u16::from(kind & 16 != 0));
        let header = Outgoing { source_port, destination_port, seq, ack, flags, window, options };
        if header.length() > 60 {
            return;
        }
        let payload = usize::from(self.source.byte()) * if kind & 32 == 0 { 1 } else { 5 };
        let mut bytes = vec![7; header.length() + payload];
        let head = header.length();
        header.write(&mut bytes[..head]);
        let (now, theirs, ours) = (self.now, IpAddr::from(THEIRS), IpAddr::from(OURS));
        self.stack.receive(now, theirs, ours, &bytes, 1500, &mut self.wire);
    }

    fn options(&mut self, flags: Flags, kind: u8) -> OutgoingOptions {
        let bits = self.source.byte();
        let echo = self.wire.echo;
        let value = self.source.near(&[1000, 2000]);
        let timestamps = (bits & 1 != 0).then_some(Timestamps { value, echo });
        let mut options = OutgoingOptions { timestamps, ..OutgoingOptions::default() };
        if flags.contains(Flags::SYN) {
            options.mss = (bits & 2 != 0).then(|| u16::from(self.source.byte()) * 37);
            options.window_scale = (bits & 4 != 0).then_some(kind % 15);
            options.sack_permitted = bits & 8 != 0;
        } else {
            options.sack = self.sack(bits >> 6);
        }
        options
    }

    fn sack(&mut self, count: u8) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        for _ in 0..count {
            let known = [self.wire.seq, self.wire.seq.wrapping_sub(3000)];
            blocks.push((Seq(self.source.near(&known)), Seq(self.source.near(&known))));
        }
        blocks
    }

    fn call(&mut self, kind: u8) {
        let Some(&id) = self.ids.get(usize::from(self.source.byte()) % self.ids.len().max(1))
        else {
            return;
        };
        let (now, stack, out) = (self.now, &mut self.stack, &mut self.wire);
        let mut bytes = vec![3; usize::from(self.source.byte()) * 20];
        match kind % 12 {
            0..=2 => drop(stack.write(now, id, &bytes, out)),
            3..=5 => drop(stack.read(now, id, &mut bytes, out)),
            6 => drop(stack.shutdown(now, id, Shutdown::Write, out)),
            7 => drop(stack.shutdown(now, id, Shutdown::Read, out)),
            8 => stack.close(now, id, out),
            9 => drop(stack.set_nodelay(now, id, bytes.len() > 1000, out)),
            10 => drop(stack.set_keep_alive(now, id, Some(KeepAlive::default()))),
            _ => stack.abort(now, id, out),
        }
    }

    fn connect(&mut self) {
        let (local, remote) = (SocketAddr::from((OURS, 81)), SocketAddr::from((THEIRS, 5000)));
        self.ids.extend(self.stack.connect(self.now, local, remote, 1500, &mut self.wire).ok());
    }

    fn icmp(&mut self) {
        let (port, mtu) =
            (80 + u16::from(self.source.byte() & 1), u16::from(self.source.byte()) * 6);
        let sequence = self.source.near(&[self.wire.seq]);
        let error = match mtu % 4 {
            0 => IcmpError::Unreachable { is_hard: mtu % 8 == 0 },
            _ => IcmpError::PacketTooBig { mtu },
        };
        let (local, remote) = (SocketAddr::from((OURS, port)), SocketAddr::from((THEIRS, 5000)));
        self.stack.icmp_error(self.now, local, remote, sequence, error, &mut self.wire);
    }

    fn step(&mut self) {
        match self.source.byte() {
            kind @ 0..=139 => (0..=kind % 2).for_each(|_| self.segment()),
            kind @ 140..=189 => self.call(kind),
            190..=199 => self.connect(),
            200..=204 => self.icmp(),
            205..=207 => self.wire.has_room = !self.wire.has_room,
            208..=209 => self.wire.largest = usize::from(self.source.byte()) * 257,
            kind => {
                self.now += Ns(u64::from(self.source.byte()) << (kind % 32));
                self.stack.advance(self.now, &mut self.wire);
                self.stack.flush(self.now, &mut self.wire);
            }
        }
        while let Some(event) = self.stack.poll_event() {
            if let Event::Accept(listener) = event {
                self.ids.extend(self.stack.accept(listener, self.now));
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let config = Config {
        max_connections: 4,
        max_half_open: 2,
        max_time_wait: 2,
        max_buffered: 64 << 10,
        receive_buffer: 16 << 10,
        send_buffer: 16 << 10,
        max_out_of_order: 8 << 10,
        max_ranges: 4,
        // By the length: no byte of an input changes its meaning.
        congestion: Congestion::ALL[input.len() % 3],
        initial_window: (input.len() / 3 % 10) as u8,
        ..Config::default()
    };
    let mut game = Game {
        source: Source(input),
        stack: Stack::new(config, Secret::new([1; 64])),
        wire: Wire { seq: 0, ack: 0, echo: 0, has_room: true, largest: 0 },
        now: Ns::from_secs(100),
        ids: Vec::new(),
    };
    game.stack.listen(SocketAddr::from((OURS, 80)), 2).expect("a listener");
    while !game.source.0.is_empty() {
        game.step();
        assert!(game.stack.buffered_bytes() <= 64 << 10);
        assert!(game.stack.connection_count() <= 4 && game.stack.time_wait_count() <= 2);
    }
    for id in std::mem::take(&mut game.ids) {
        game.stack.abort(game.now, id, &mut game.wire);
    }
    assert_eq!(
        game.stack.connections().filter(|info| info.id.is_some()).count(),
        game.stack.connection_count()
    );
});
