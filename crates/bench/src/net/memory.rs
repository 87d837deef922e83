//! The TCP stack alone: two of them joined in memory, 64 bytes there and back in batches.
//!
//! What is timed is the server's part: checksum, segment in, event, read, write, segment out.

use super::child::SIZE;
use heddle_core::Ns;
use heddle_tcp::{Config, ConnectionId, Event, Flow, Output, Secret, Stack, checksum};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Segments that are handed over together.
const BATCH: usize = 32;
/// Bytes of a segment at most: headers with options, and a request.
const FRAME: usize = 128;
const MTU: u16 = 1500;
/// Virtual time between two batches.
const STEP: Ns = Ns::from_us(10);

/// Segments on their way, in memory that stays, as in a ring.
struct Frames {
    frames: Vec<([u8; FRAME], usize, Flow)>,
    used: usize,
}

impl Frames {
    fn new() -> Frames {
        let none = SocketAddr::from(([0; 4], 0));
        let flow = Flow { local: none, remote: none, connection: None };
        Frames { frames: vec![([0; FRAME], 0, flow); 4 * BATCH], used: 0 }
    }
}

impl Output for Frames {
    fn send(&mut self, flow: Flow, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        let Some((bytes, size, of)) = self.frames.get_mut(self.used) else { return false };
        write(&mut bytes[..length]);
        (*size, *of) = (length, flow);
        self.used += 1;
        true
    }
}

/// Gives `stack` what is in `from`.
fn deliver(stack: &mut Stack, now: Ns, from: &mut Frames, out: &mut Frames) {
    for (bytes, length, flow) in &from.frames[..from.used] {
        let (source, destination) = (flow.local.ip(), flow.remote.ip());
        let segment = &bytes[..*length];
        if checksum::verify(source, destination, checksum::TCP, segment) {
            stack.receive(now, source, destination, segment, MTU, out);
        }
    }
    from.used = 0;
}

/// A client, a server, and the connections between them.
pub(super) struct Ends {
    client: Stack,
    server: Stack,
    to_client: Frames,
    to_server: Frames,
    connections: Vec<ConnectionId>,
    now: Ns,
    answers: u64,
}

impl Ends {
    /// Opens `connections`.
    ///
    /// # Errors
    /// A stack refused one.
    pub(super) fn connect(connections: u16) -> io::Result<Ends> {
        let stack = |key| Stack::new(Config::default(), Secret::new([key; 64]));
        let mut ends = Ends {
            client: stack(1),
            server: stack(2),
            to_client: Frames::new(),
            to_server: Frames::new(),
            connections: Vec::new(),
            now: Ns::from_secs(1),
            answers: 0,
        };
        let server = SocketAddr::from(([192, 0, 2, 1], 80));
        let listener = ends.server.listen(server, 16).map_err(io::Error::other)?;
        for number in 0..connections {
            let local = SocketAddr::from(([192, 0, 2, 2], 10_000 + number));
            let out = &mut ends.to_server;
            let opened = ends.client.connect(ends.now, local, server, MTU, out);
            ends.connections.push(opened.map_err(io::Error::other)?);
            for _ in 0..2 {
                deliver(&mut ends.server, ends.now, &mut ends.to_server, &mut ends.to_client);
                deliver(&mut ends.client, ends.now, &mut ends.to_client, &mut ends.to_server);
            }
            if ends.server.accept(listener, ends.now).is_none() {
                return Err(io::Error::other(format!("connection {number} was not accepted")));
            }
        }
        Ok(ends)
    }

    /// Serves requests for `time`, connection after connection. Returns nanoseconds of the server for each.
    ///
    /// # Errors
    /// Requests without an answer.
    pub(super) fn cost(&mut self, time: Duration) -> io::Result<f64> {
        let (begin, before) = (Instant::now(), self.answers);
        let (mut first, mut asked, mut served) = (0, 0, Duration::ZERO);
        while begin.elapsed() < time {
            let count = BATCH.min(self.connections.len());
            served += self.batch(first, count);
            first = (first + count) % self.connections.len();
            asked += count as u64;
        }
        let answers = self.answers - before;
        if answers != asked {
            return Err(io::Error::other(format!("{answers} answers to {asked} requests")));
        }
        Ok(served.as_secs_f64() * 1e9 / answers as f64)
    }

    /// Serves a request on each of `count` connections from `first` on. Returns the server's time.
    fn batch(&mut self, first: usize, count: usize) -> Duration {
        let now = self.now;
        for place in first..first + count {
            let id = self.connections[place % self.connections.len()];
            // What is refused has no answer, which is noticed.
            let _ = self.client.write(now, id, &[7; SIZE], &mut self.to_server);
        }
        let begin = Instant::now();
        deliver(&mut self.server, now, &mut self.to_server, &mut self.to_client);
        answer(&mut self.server, now, &mut self.to_client);
        let served = begin.elapsed();
        deliver(&mut self.client, now, &mut self.to_client, &mut self.to_server);
        self.answers += read(&mut self.client, now, &mut self.to_server);
        self.now += STEP;
        self.server.advance(self.now, &mut self.to_client);
        self.client.advance(self.now, &mut self.to_server);
        served
    }
}

/// Returns what has arrived to where it came from.
fn answer(server: &mut Stack, now: Ns, out: &mut Frames) {
    let mut bytes = [0; SIZE];
    while let Some(event) = server.poll_event() {
        let Event::Connection(id, _) = event else { continue };
        if let Ok(length) = server.read(now, id, &mut bytes, out) {
            let _ = server.write(now, id, &bytes[..length], out);
        }
    }
}

/// Reads answers. Returns how many are whole.
fn read(client: &mut Stack, now: Ns, out: &mut Frames) -> u64 {
    let (mut bytes, mut answers) = ([0; SIZE], 0);
    while let Some(event) = client.poll_event() {
        let Event::Connection(id, _) = event else { continue };
        answers += u64::from(client.read(now, id, &mut bytes, out) == Ok(SIZE));
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_answered_on_any_number_of_connections() {
        for connections in [1, 40, 1_000] {
            let mut ends = Ends::connect(connections).unwrap();
            assert!(ends.cost(Duration::from_millis(20)).unwrap() > 0.0);
        }
    }
}
