//! The client: one thread and one kernel socket on the far end.

use std::collections::HashMap;
use std::io;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use heddle_core::Ns;
use heddle_metrics::Histogram;
use heddle_netns::{FAR4, NEAR4};

use super::network::{Network, PORT};
use super::partition::{KEYS, REQUEST, answer, request};

/// The pace of requests.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// Open loop at this many requests per second: latencies count from the due time.
    Rate(u32),
    /// Closed loop: a fixed number of requests in flight.
    Closed,
}

/// Requests in flight in the closed loop.
const WINDOW: usize = 64;
/// Time limit, after which a request is lost.
const LOST: Duration = Duration::from_millis(200);

/// The counts of answers.
#[derive(Debug)]
pub struct Loaded {
    pub requests: u64,
    pub answers: u64,
    /// Answers with a wrong value.
    pub wrong: u64,
    pub latency: Histogram,
    pub elapsed: Duration,
}

struct Client {
    socket: UdpSocket,
    begin: Instant,
    next: u64,
    random: u64,
    /// Due time of each request in flight.
    waiting: HashMap<u64, Duration>,
    loaded: Loaded,
}

/// Loads the server for `duration`, then waits for requests in flight.
pub fn run(network: &Network, load: Load, duration: Duration) -> io::Result<Loaded> {
    let socket = network.pair.far.run(|| UdpSocket::bind((FAR4, 0)))?;
    socket.connect((NEAR4, PORT))?;
    socket.set_nonblocking(true)?;
    let latency = Histogram::new();
    let elapsed = Duration::ZERO;
    let loaded = Loaded { requests: 0, answers: 0, wrong: 0, latency, elapsed };
    let waiting = HashMap::new();
    let mut client = Client { socket, begin: Instant::now(), next: 0, random: 1, waiting, loaded };
    while client.begin.elapsed() < duration {
        client.send_due(load)?;
        client.take()?;
    }
    client.loaded.elapsed = client.begin.elapsed();
    let end = Instant::now();
    while !client.waiting.is_empty() && end.elapsed() < LOST {
        client.take()?;
    }
    Ok(client.loaded)
}

impl Client {
    fn send_due(&mut self, load: Load) -> io::Result<()> {
        match load {
            Load::Rate(rate) => {
                let each = Duration::from_secs(1) / rate.max(1);
                let mut due = each * u32::try_from(self.next).unwrap_or(u32::MAX);
                while due <= self.begin.elapsed() {
                    self.send(due)?;
                    due += each;
                }
            }
            Load::Closed => {
                let now = self.begin.elapsed();
                self.waiting.retain(|_, due| now.saturating_sub(*due) < LOST);
                while self.waiting.len() < WINDOW {
                    self.send(now)?;
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, due: Duration) -> io::Result<()> {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = (self.random >> 33) % KEYS;
        let number = self.next;
        self.next += 1;
        match self.socket.send(&request(number, key)) {
            Ok(_) => {}
            // The send queue is full: the request is lost, and counted as such.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        self.loaded.requests += 1;
        self.waiting.insert(number, due);
        Ok(())
    }

    /// Receives pending answers; yields the CPU if there are none.
    fn take(&mut self) -> io::Result<()> {
        let mut bytes = [0; REQUEST + 1];
        let mut came = false;
        loop {
            match self.socket.recv(&mut bytes) {
                Ok(length) => {
                    came = true;
                    self.note(&bytes[..length]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if !came {
            thread::sleep(Duration::from_micros(20));
        }
        Ok(())
    }

    fn note(&mut self, payload: &[u8]) {
        let Some((number, right)) = answer(payload) else { return };
        let Some(due) = self.waiting.remove(&number) else { return };
        let latency = self.begin.elapsed().saturating_sub(due);
        self.loaded.latency.record(Ns(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX)));
        self.loaded.answers += 1;
        self.loaded.wrong += u64::from(!right);
    }
}
