//! An open-loop client: sends at its own pace and times the answers.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::{GET, SCAN};

const REQUESTS: u32 = 1000;
/// One request in this many is a SCAN.
const SCAN_EVERY: u32 = 100;
const PACE: Duration = Duration::from_millis(4);

/// Latencies from the intended send time to reading the answer.
#[derive(Default)]
pub struct Latencies {
    gets: Vec<Duration>,
    scans: Vec<Duration>,
}

impl Latencies {
    pub fn add(&mut self, other: Self) {
        self.gets.extend(other.gets);
        self.scans.extend(other.scans);
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |all: &[Duration], part: f64| {
            let mut all = all.to_vec();
            all.sort_unstable();
            let index = (all.len() as f64 * part) as usize;
            all.get(index.min(all.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        let (gets, scans) = (&self.gets, &self.scans);
        let n = gets.len() + scans.len();
        let (p50, p99) = (at(gets, 0.5), at(gets, 0.99));
        write!(f, "{n} answers; GET p50 {p50:.1?} p99 {p99:.1?}; SCAN p50 {:.1?}", at(scans, 0.5))
    }
}

fn kind(number: u32, seed: u32) -> u8 {
    if (number + seed * 13).is_multiple_of(SCAN_EVERY) { SCAN } else { GET }
}

pub fn run(to: SocketAddr, seed: u32) -> io::Result<Latencies> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut writer = stream.try_clone()?;
    let begin = Instant::now() + PACE;
    let sender = thread::spawn(move || send_all(&mut writer, begin, seed));
    let mut latencies = Latencies::default();
    for _ in 0..REQUESTS {
        let number = answer(&mut stream)?;
        let latency = begin.elapsed().saturating_sub(PACE * number);
        let all =
            if kind(number, seed) == SCAN { &mut latencies.scans } else { &mut latencies.gets };
        all.push(latency);
    }
    sender.join().expect("the sender does not panic")?;
    Ok(latencies)
}

fn send_all(writer: &mut TcpStream, begin: Instant, seed: u32) -> io::Result<()> {
    for number in 0..REQUESTS {
        thread::sleep((begin + PACE * number).saturating_duration_since(Instant::now()));
        let payload = [&[kind(number, seed)], &number.to_be_bytes()[..], b"key"].concat();
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        // The eight-byte tag, which Heddle fills in.
        writer.write_all(&[&length[..], &[0; 8], &payload].concat())?;
    }
    Ok(())
}

/// Reads an answer and returns the number of its request.
fn answer(stream: &mut TcpStream) -> io::Result<u32> {
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    let [length, number] =
        [0, 4].map(|at| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes")));
    stream.read_exact(&mut vec![0; length as usize - 4])?;
    Ok(number)
}
