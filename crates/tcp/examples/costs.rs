//! What a request costs, and what loss does to streams and requests.
//!
//! `cargo run --release -p heddle-tcp --example costs`. The first table is time on this machine: two stacks joined in
//! memory, 64 bytes there and back, batches of 32; only the server's part is measured (checksum, segment in, event,
//! read, write, segment out). The second is virtual time and the same everywhere.

#[path = "../tests/common/mod.rs"]
mod common;

use common::apps::{Requests, Stream};
use common::link::{Faults, Path};
use common::pair;
use heddle_core::Ns;
use heddle_tcp::{Config, ConnectionId, Event, Flow, Output, Secret, Stack, checksum};
use std::net::SocketAddr;
use std::time::Instant;

const SIZE: usize = 64;
const BATCH: usize = 32;
const FRAME: usize = 128;

/// Frames in memory, like those of a ring.
struct Frames {
    frames: Vec<([u8; FRAME], usize, Flow)>,
    used: usize,
}

impl Frames {
    fn new() -> Frames {
        let none = "0.0.0.0:0".parse().expect("an address");
        let flow = Flow { local: none, remote: none, connection: None };
        Frames { frames: vec![([0; FRAME], 0, flow); 4 * BATCH], used: 0 }
    }

    fn as_slice(&self) -> &[([u8; FRAME], usize, Flow)] {
        &self.frames[..self.used]
    }
}

impl Output for Frames {
    fn send(&mut self, flow: Flow, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        let Some(frame) = self.frames.get_mut(self.used) else { return false };
        write(&mut frame.0[..length]);
        (frame.1, frame.2) = (length, flow);
        self.used += 1;
        true
    }
}

/// Gives `stack` what is in `from`.
fn receive(stack: &mut Stack, now: Ns, from: &mut Frames, out: &mut Frames) {
    for (bytes, length, flow) in from.as_slice() {
        let (source, destination, segment) = (flow.local.ip(), flow.remote.ip(), &bytes[..*length]);
        assert!(checksum::verify(source, destination, checksum::TCP, segment), "a wrong checksum");
        stack.receive(now, source, destination, segment, 1500, out);
    }
    from.used = 0;
}

struct Ends {
    client: Stack,
    server: Stack,
    to_client: Frames,
    to_server: Frames,
    ids: Vec<ConnectionId>,
    now: Ns,
}

impl Ends {
    fn new(connections: usize) -> Ends {
        let stack = |key| Stack::new(Config::default(), Secret::new([key; 64]));
        let mut ends = Ends {
            client: stack(1),
            server: stack(2),
            to_client: Frames::new(),
            to_server: Frames::new(),
            ids: Vec::new(),
            now: Ns::from_secs(1),
        };
        let server: SocketAddr = "192.0.2.1:80".parse().expect("an address");
        let listener = ends.server.listen(server, 1 << 16).expect("a listener");
        for number in 0..connections {
            let local = SocketAddr::new([192, 0, 2, 2].into(), 10_000 + number as u16);
            let (client, out) = (&mut ends.client, &mut ends.to_server);
            ends.ids
                .push(client.connect(ends.now, local, server, 1500, out).expect("a connection"));
            for _ in 0..2 {
                receive(&mut ends.server, ends.now, &mut ends.to_server, &mut ends.to_client);
                receive(&mut ends.client, ends.now, &mut ends.to_client, &mut ends.to_server);
            }
            assert!(ends.server.accept(listener, ends.now).is_some(), "a connection");
        }
        ends
    }

    /// A batch of requests on connections from `first` on; returns the server's nanoseconds.
    fn round(&mut self, first: usize) -> u64 {
        let (now, count) = (self.now, BATCH.min(self.ids.len()));
        let mut bytes = [7; SIZE];
        for index in first..first + count {
            let id = self.ids[index % self.ids.len()];
            self.client.write(now, id, &bytes, &mut self.to_server).expect("room");
        }
        let start = Instant::now();
        receive(&mut self.server, now, &mut self.to_server, &mut self.to_client);
        while let Some(event) = self.server.poll_event() {
            let Event::Connection(id, _) = event else { continue };
            let Ok(count) = self.server.read(now, id, &mut bytes, &mut self.to_client) else {
                continue;
            };
            self.server.write(now, id, &bytes[..count], &mut self.to_client).expect("room");
        }
        let took = start.elapsed().as_nanos() as u64;
        receive(&mut self.client, now, &mut self.to_client, &mut self.to_server);
        while let Some(event) = self.client.poll_event() {
            let Event::Connection(id, _) = event else { continue };
            let _ = self.client.read(now, id, &mut bytes, &mut self.to_server);
        }
        self.now += Ns::from_us(10);
        self.server.advance(self.now, &mut self.to_client);
        self.client.advance(self.now, &mut self.to_server);
        took
    }
}

/// The lower quartile, the median and the upper quartile of the batches, ns per request. A batch takes microseconds, so
/// few of them are interrupted.
fn request_cost(connections: usize) -> [u64; 3] {
    let mut ends = Ends::new(connections);
    let batch = BATCH.min(connections);
    let rounds = 1_000_000 / batch.max(8);
    let mut costs: Vec<u64> =
        (0..rounds).map(|round| ends.round(round * BATCH) / batch as u64).collect();
    costs.sort();
    [1, 2, 3].map(|quarter| costs[rounds * quarter / 4])
}

const RTT: Ns = Ns::from_us(100);

/// Gbit/s of a stream at a loss of `per_million`.
fn stream_rate(per_million: u32, rtt: Ns) -> f64 {
    let config = Config { rto_min: Ns::from_ms(5), ..Config::default() };
    let path = Path::fast(rtt).with(Faults { loss: per_million, ..Faults::default() });
    let total = 64 << 20;
    let mut pair = pair(config, path, 1);
    let mut stream = Stream::new((0, pair.client), (1, pair.server), total);
    let took = stream.run(&mut pair.net, Ns::from_secs(600));
    stream.received as f64 * 8.0 / took.0 as f64
}

/// Times of requests on 50 connections: median, 99 %, 99.9 %.
fn request_times(per_million: u32, rto_min: Ns) -> [Ns; 3] {
    let config = Config { rto_min, ..Config::default() };
    let mut net = common::link::Net::new([config.clone(), config], Path::fast(RTT), 1);
    let mut requests = Requests::on_connections(&mut net, 50, per_million, SIZE);
    requests.run(&mut net, 100_000, Ns::from_secs(600));
    [0.5, 0.99, 0.999].map(|share| requests.quantile(share))
}

fn main() {
    println!("connections  ns a request: lower quartile, median, upper quartile");
    for connections in [1, 32, 100, 1_000, 10_000] {
        let [low, median, high] = request_cost(connections);
        println!("{connections:11}  {low:4} {median:4} {high:4}");
    }
    println!("\nloss %  Gbit/s  p50, p99, p99.9 at rto-min 5 ms  p99.9 at 200 ms");
    for per_million in [0, 100, 1_000, 10_000, 50_000] {
        let [p50, p99, p999] = request_times(per_million, Ns::from_ms(5));
        let [.., slow] = request_times(per_million, Ns::from_ms(200));
        let rate = stream_rate(per_million, RTT);
        println!("{:6}  {rate:6.3}  {p50} {p99} {p999}  {slow}", f64::from(per_million) / 1e4);
    }
}
