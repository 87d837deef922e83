//! SKQ's web server (section 6.7): each request reads a small file that is in no cache.
//!
//! Files differ in how long they take, although all are alike: that is what a policy can balance. The server is small,
//! because it runs on every system: it reads the head of a GET, opens the file, sends it, and drops it from the page
//! cache, so that the next request for it goes to the disk.

use super::client::tcp;
use super::connection::{Served, send};
use super::demux::{Remainder, Watched};
use super::offered::{self, Offered};
use super::system::System;
use super::worker_threads::WorkerThreads;
use heddle_core::Ns;
use heddle_load::{Arrivals, Http, Mix, Op, Shape, Streams};
use heddle_metrics::{Collector, Progress, Row, Run};
use heddle_sys::clock;
use rustix::fs::{Advice, Mode, OFlags, fadvise, openat};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// The case in results.
pub(super) const CASE: &str = "web";
/// The bytes of a page, as in the paper.
const PAGE: usize = 640;
/// Bytes per read: a few heads.
const ROOM: usize = 2_048;

/// Options of this part.
#[derive(Clone, Debug)]
pub struct WebOptions {
    /// The systems to compare.
    pub systems: Vec<System>,
    /// Threads that serve: they wait for the disk, so there may be more than CPUs.
    pub threads: usize,
    /// Persistent connections, one request at a time on each.
    pub connections: usize,
    /// Files.
    pub pages: usize,
    /// Loads, as shares of what one epoll per thread answers in a closed loop.
    pub loads: Vec<f64>,
    /// Rounds.
    pub rounds: u32,
    /// Duration of each point.
    pub duration: Ns,
    /// Seed of the arrivals, which differ between rounds.
    pub seed: u64,
}

impl WebOptions {
    /// SKQ's twelve threads, and twelve connections for each of its twelve client threads.
    #[must_use]
    pub fn new(systems: &[System], quick: bool) -> WebOptions {
        WebOptions {
            systems: systems.to_vec(),
            threads: 12,
            connections: 144,
            pages: if quick { 32 } else { 512 },
            loads: if quick { vec![0.4] } else { vec![0.4, 0.6] },
            rounds: if quick { 1 } else { 3 },
            duration: Ns::from_ms(if quick { 300 } else { 3_000 }),
            seed: 1,
        }
    }

    pub(super) fn steps(&self) -> u64 {
        1 + u64::from(self.rounds) * (self.loads.len() * self.systems.len()) as u64
    }

    fn shape(&self) -> Shape {
        Shape::new(self.pages, 1, PAGE)
    }
}

/// The files, in a temporary folder.
struct Pages {
    _folder: TempDir,
    directory: OwnedFd,
}

impl Pages {
    fn create(count: usize) -> io::Result<Pages> {
        let folder = tempfile::Builder::new().prefix("heddle-web-").tempdir()?;
        for number in 0..count {
            let mut file = File::create(folder.path().join(number.to_string()))?;
            file.write_all(&[b'p'; PAGE])?;
            // The kernel drops only pages that are on the disk.
            file.sync_data()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
        let directory = File::open(folder.path())?.into();
        Ok(Pages { _folder: folder, directory })
    }

    fn read(&self, number: u64) -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let name = number.to_string();
        let mut file = File::from(openat(&self.directory, name, flags, Mode::empty())?);
        let mut body = Vec::with_capacity(PAGE + 1);
        file.read_to_end(&mut body)?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok(body)
    }

    /// The answer to a request with this head.
    fn answer(&self, head: &[u8]) -> Vec<u8> {
        let page = number(head).and_then(|number| self.read(number).ok());
        let (status, body) = page.map_or(("404 Not Found", Vec::new()), |body| ("200 OK", body));
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.into_bytes(), body].concat()
    }
}

/// `GET /get/7 HTTP/1.1` and more lines: 7.
fn number(head: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(head).ok()?.lines().next()?;
    line.strip_prefix("GET /get/")?.split(' ').next()?.parse().ok()
}

/// The server's end of a connection. Reading takes a lock, for systems that deliver one event to two threads.
struct WebConnection {
    fd: OwnedFd,
    /// What has come of heads that are not complete.
    unread: Mutex<Vec<u8>>,
}

impl WebConnection {
    /// Handles an event: reads requests, and answers each.
    fn handle(&self, pages: &Pages, did: &mut Served) -> Remainder {
        let Ok(mut unread) = self.unread.lock() else { return Remainder::Nothing };
        let mut bytes = [0; ROOM];
        let Ok(n) = rustix::io::read(&self.fd, &mut bytes) else { return Remainder::Nothing };
        unread.extend_from_slice(&bytes[..n]);
        while let Some(end) = unread.windows(4).position(|four| four == b"\r\n\r\n") {
            let head: Vec<u8> = unread.drain(..end + 4).collect();
            let begin = clock::now();
            // The client has gone: no answer is needed.
            let _ = send(self.fd.as_fd(), &pages.answer(&head));
            did.busy += clock::now() - begin;
            did.requests += 1;
        }
        if n == ROOM { Remainder::Perhaps } else { Remainder::Nothing }
    }
}

/// Measures in interleaved rounds.
pub(super) fn run(
    options: &WebOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    progress.step("web: how much it can do");
    let pages = Pages::create(options.pages)?;
    let all = |streams| {
        let streams = Streams::<Http>::over(streams, options.shape())?;
        let depth = (options.pages, options.connections);
        offered::saturate(streams, depth, options.duration, stop)
    };
    let (capacity, _) = serve(options, &pages, &System::PerThread, all)?;
    progress.line(&format!("  one epoll per thread answers {capacity:.0}/s"));
    let mut collect = Collector::new();
    collect.add("calibration", CASE, "saturation", "1/s", Run::ok(capacity));
    'all: for round in 0..options.rounds {
        for &load in &options.loads {
            let mut samples = Vec::new();
            for system in &options.systems {
                let percent = load * 100.0;
                progress.step(&format!("web, round {}, load {percent:.0} %: {system}", round + 1));
                let (rate, seed) = (capacity * load, options.seed + u64::from(round));
                let some = |streams| {
                    let streams = Streams::<Http>::over(streams, options.shape())?;
                    let arrivals = Arrivals::new(seed, rate, Mix::only(Op::Get), options.pages);
                    offered::offer(streams, arrivals, (rate, options.duration), stop)
                };
                match serve(options, &pages, system, some) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                    done => samples.push(done.map(|(run, did)| Offered { system, run, did })?),
                }
            }
            offered::add(&mut collect, CASE, &samples);
        }
    }
    Ok(collect.into_rows().into_iter().map(offered::directed).collect())
}

/// Serves on a system while `load` sends over the clients' ends. Returns its result, and what each thread did.
fn serve<T: Send>(
    options: &WebOptions,
    pages: &Pages,
    system: &System,
    load: impl FnOnce(Vec<TcpStream>) -> io::Result<T> + Send,
) -> io::Result<(T, Vec<Served>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let pairs = (0..options.connections).map(|_| tcp(&listener)).collect::<io::Result<Vec<_>>>()?;
    let near = |(near, fd)| (TcpStream::from(near), WebConnection { fd, unread: Mutex::default() });
    let (ends, connections): (Vec<_>, Vec<_>) = pairs.into_iter().map(near).unzip();
    let watched: Vec<_> =
        connections.iter().map(|c| Watched { fd: c.fd.as_fd(), high: false }).collect();
    let handle = |did: &mut Served, number: usize| connections[number].handle(pages, did);
    let generate = || offered::generate(|| load(ends));
    WorkerThreads { system, threads: options.threads }.run(&watched, &handle, generate)
}

/// The condition that a reader must know.
pub(super) fn condition(options: &WebOptions) -> String {
    format!(
        "web: {} threads, {} connections, {} files of {PAGE} bytes below {}, each read from there for each request \
         (in memory file systems none waits); loads are shares of what one epoll per thread answers in a closed loop.",
        options.threads,
        options.connections,
        options.pages,
        std::env::temp_dir().display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_by_their_number_and_others_are_not() {
        let pages = Pages::create(2).unwrap();
        let answer = |request: &str| {
            String::from_utf8(pages.answer(format!("{request}\r\nHost: a\r\n\r\n").as_bytes()))
                .unwrap()
        };
        let page = answer("GET /get/1 HTTP/1.1");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 640\r\n\r\np"), "{page}");
        for wrong in ["GET /get/2 HTTP/1.1", "GET /get/../1 HTTP/1.1", "POST /get/1 HTTP/1.1"] {
            assert!(answer(wrong).starts_with("HTTP/1.1 404 "), "{wrong}");
        }
    }

    /// Every request is answered, however its bytes are cut.
    #[test]
    fn heads_may_come_in_parts_and_several_at_once() {
        let pages = Pages::create(2).unwrap();
        let (near, far) = tcp(&TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
        let connection = WebConnection { fd: far, unread: Mutex::default() };
        let request = b"GET /get/0 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2);
        let (first, second) = request.split_at(request.len() / 2 + 5);
        let mut did = Served::default();
        for part in [first, second] {
            send(near.as_fd(), part).unwrap();
            let now = did.requests;
            // Loopback delivers at once; the loop is for a kernel that does not.
            while did.requests == now {
                assert_eq!(connection.handle(&pages, &mut did), Remainder::Nothing);
            }
        }
        assert_eq!(did.requests, 2);
    }
}
