//! Two stacks on a seeded link in virtual time: the same seed gives the same run.

use heddle_core::Ns;
use heddle_tcp::wire::Flags;
use heddle_tcp::{Config, Cut, Flow, Output, Secret, Stack, checksum};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};

/// A generator of random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Whether something happens that happens `per_million` times in a million.
    pub fn happens(&mut self, per_million: u32) -> bool {
        self.next() % 1_000_000 < u64::from(per_million)
    }
}

/// What goes wrong on the way, per million segments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: u32,
    pub duplicate: u32,
    pub corrupt: u32,
    /// Segments that are held back for up to `delay` more.
    pub reorder: u32,
    pub delay: Ns,
    /// Larger packets vanish: a black hole. 0 is none.
    pub mtu: usize,
}

/// One direction.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// How long a segment is under way.
    pub delay: Ns,
    /// Nanoseconds for a kilobyte: 800 at 10 Gbit/s.
    pub ns_per_kb: u64,
    /// Bytes that wait for the link before segments are dropped.
    pub queue: u64,
    pub faults: Faults,
}

impl Path {
    /// 10 Gbit/s with half of `rtt` each way, and nothing that goes wrong.
    pub fn fast(rtt: Ns) -> Path {
        Path { delay: rtt / 2, ns_per_kb: 800, queue: 4 << 20, faults: Faults::default() }
    }

    pub fn with(self, faults: Faults) -> Path {
        Path { faults, ..self }
    }
}

/// A segment on its way.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Frame {
    arrives: Ns,
    number: u64,
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// Segments that a stack has sent in one step. `room` limits how many it may.
#[derive(Debug)]
pub struct Sent {
    pub segments: Vec<(Flow, Vec<u8>)>,
    pub room: usize,
    /// The largest segment that is taken to be cut; 0 if none is.
    pub largest: usize,
    /// Segments that were cut, and what of them.
    pub cut: u64,
    pub pieces: u64,
}

impl Default for Sent {
    fn default() -> Sent {
        Sent { segments: Vec::new(), room: usize::MAX, largest: 0, cut: 0, pieces: 0 }
    }
}

impl Output for Sent {
    fn send(&mut self, flow: Flow, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if self.segments.len() >= self.room {
            return false;
        }
        let mut bytes = vec![0xa5; length];
        write(&mut bytes);
        self.segments.push((flow, bytes));
        true
    }

    fn largest(&mut self, _: &Flow) -> usize {
        if self.segments.len() < self.room { self.largest } else { 0 }
    }

    fn send_large(
        &mut self,
        flow: Flow,
        length: usize,
        cut: Cut,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        assert!(length <= self.largest && cut.pieces(length) > 1, "{length} bytes, {cut:?}");
        let mut bytes = vec![0xa5; length];
        write(&mut bytes);
        let pieces = pieces(&flow, &bytes, cut);
        assert_eq!(pieces.len(), cut.pieces(length));
        (self.cut, self.pieces) = (self.cut + 1, self.pieces + pieces.len() as u64);
        self.segments.extend(pieces.into_iter().map(|piece| (flow, piece)));
        true
    }
}

/// Cuts a large segment, as the kernel and cards do.
fn pieces(flow: &Flow, segment: &[u8], cut: Cut) -> Vec<Vec<u8>> {
    let (source, destination) = (flow.local.ip(), flow.remote.ip());
    let pseudo = |length| {
        checksum::Sum::pseudo_header(source, destination, checksum::TCP, length).unfinished()
    };
    let (head, payload) = segment.split_at(cut.header.into());
    assert_eq!(head[12] >> 4, (head.len() / 4) as u8, "the header's length");
    assert_eq!(head[16..18], pseudo(segment.len()).to_be_bytes(), "the sum of the pseudo header");
    let first = u32::from_be_bytes(head[4..8].try_into().unwrap());
    let count = payload.len().div_ceil(cut.payload.into());
    let piece = |(number, payload): (usize, &[u8])| {
        let mut piece = [head, payload].concat();
        let seq = first.wrapping_add(number as u32 * u32::from(cut.payload));
        piece[4..8].copy_from_slice(&seq.to_be_bytes());
        if number + 1 < count {
            piece[13] &= !(Flags::PSH.0 | Flags::FIN.0);
        }
        let sum = pseudo(piece.len());
        piece[16..18].copy_from_slice(&sum.to_be_bytes());
        let sum = checksum::checksum(&piece);
        piece[16..18].copy_from_slice(&sum.to_be_bytes());
        piece
    };
    payload.chunks(cut.payload.into()).enumerate().map(piece).collect()
}

/// A stack with its outgoing direction.
pub struct Host {
    pub stack: Stack,
    pub address: IpAddr,
    pub sent: Sent,
    pub path: Path,
    free_at: Ns,
    under_way: BinaryHeap<Reverse<Frame>>,
}

impl Host {
    fn new(config: Config, number: u8, is_v6: bool, path: Path) -> Host {
        let v4 = IpAddr::from([192, 0, 2, number]);
        let v6 = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(number)]);
        Host {
            stack: Stack::new(config, Secret::new([number; 64])),
            address: if is_v6 { v6 } else { v4 },
            sent: Sent::default(),
            path,
            free_at: Ns::ZERO,
            under_way: BinaryHeap::new(),
        }
    }

    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, port)
    }
}

/// Two hosts and the time.
pub struct Net {
    pub now: Ns,
    pub hosts: [Host; 2],
    pub random: Random,
    pub mtu: u16,
    /// What each direction did with the segments it was given.
    pub lost: u64,
    pub damaged: u64,
    number: u64,
}

impl Net {
    pub fn new(configs: [Config; 2], path: Path, seed: u64) -> Net {
        Net::with_family(configs, path, seed, false)
    }

    pub fn with_family(configs: [Config; 2], path: Path, seed: u64, is_v6: bool) -> Net {
        let [one, other] = configs;
        let hosts = [Host::new(one, 1, is_v6, path), Host::new(other, 2, is_v6, path)];
        let random = Random(seed);
        // Virtual time begins late enough for "long ago" to exist.
        let now = Ns::from_secs(1000);
        Net { now, hosts, random, mtu: 1500, lost: 0, damaged: 0, number: 0 }
    }

    /// Runs `f` with host `index`, and puts what it sends on the link.
    pub fn on<R>(&mut self, index: usize, f: impl FnOnce(&mut Stack, Ns, &mut Sent) -> R) -> R {
        let (host, now) = (&mut self.hosts[index], self.now);
        let result = f(&mut host.stack, now, &mut host.sent);
        self.carry(index);
        result
    }

    /// Puts the segments that host `index` has sent on the link.
    fn carry(&mut self, index: usize) {
        for (flow, bytes) in std::mem::take(&mut self.hosts[index].sent.segments) {
            self.put(index, flow.local, flow.remote, bytes);
        }
    }

    fn put(&mut self, index: usize, from: SocketAddr, to: SocketAddr, mut bytes: Vec<u8>) {
        let (host, random) = (&mut self.hosts[index], &mut self.random);
        let Path { delay, ns_per_kb, queue, faults } = host.path;
        let start = host.free_at.max(self.now);
        let waiting = (start - self.now).0 * 1000 / ns_per_kb.max(1);
        let length = bytes.len() + 20;
        let vanishes = faults.mtu > 0 && length > faults.mtu;
        if waiting > queue || vanishes || random.happens(faults.loss) {
            self.lost += 1;
            return;
        }
        host.free_at = start + Ns(length as u64 * ns_per_kb / 1000);
        if random.happens(faults.corrupt) {
            let bit = random.next() as usize % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let copies = 1 + usize::from(random.happens(faults.duplicate));
        for _ in 0..copies {
            let held =
                random.happens(faults.reorder).then(|| random.next() % faults.delay.0.max(1));
            let arrives = host.free_at + delay + Ns(held.unwrap_or(0));
            self.number += 1;
            let frame = Frame { arrives, number: self.number, from, to, bytes: bytes.clone() };
            host.under_way.push(Reverse(frame));
        }
    }

    /// When something happens next; `None` if nothing will.
    pub fn next(&self) -> Option<Ns> {
        let arrivals = self.hosts.iter().filter_map(|h| Some(h.under_way.peek()?.0.arrives));
        let deadlines = self.hosts.iter().filter_map(|host| host.stack.next_deadline());
        arrivals.chain(deadlines).min()
    }

    /// Moves to the next event and lets it happen. Returns false if there is none until `limit`.
    pub fn step(&mut self, limit: Ns) -> bool {
        let Some(next) = self.next().filter(|&next| next <= limit) else {
            self.now = self.now.max(limit);
            return false;
        };
        self.now = self.now.max(next);
        for index in 0..2 {
            // As a lane does with the frames that it takes at once.
            for host in &mut self.hosts {
                host.stack.set_gathering(host.sent.largest > 0);
            }
            while self.hosts[index].under_way.peek().is_some_and(|f| f.0.arrives <= self.now) {
                let Reverse(frame) = self.hosts[index].under_way.pop().expect("it was there");
                self.deliver(1 - index, &frame);
            }
            self.hosts.iter_mut().for_each(|host| host.stack.set_gathering(false));
            for host in 0..2 {
                self.on(host, |stack, now, out| stack.advance(now, out));
                self.on(host, |stack, now, out| stack.flush(now, out));
            }
        }
        true
    }

    fn deliver(&mut self, index: usize, frame: &Frame) {
        let (source, destination) = (frame.from.ip(), frame.to.ip());
        if !checksum::verify(source, destination, checksum::TCP, &frame.bytes) {
            self.damaged += 1;
            return;
        }
        let mtu = self.mtu;
        self.on(index, |stack, now, out| {
            stack.receive(now, source, destination, &frame.bytes, mtu, out)
        });
    }

    /// Lets time pass until `limit`, or until nothing happens any more.
    pub fn run(&mut self, limit: Ns) {
        while self.step(limit) {}
    }

    /// Lets `time` pass.
    pub fn pass(&mut self, time: Ns) {
        self.run(self.now + time);
    }
}
