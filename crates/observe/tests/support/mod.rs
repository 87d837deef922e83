//! Servers that log what they do, and the comparison of their logs with spans.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use heddle_core::Ns;
use heddle_observe::{ObserveError, Options, Recording, Span, Target, Watch};
use heddle_sys::{clock, thread};

/// What a server did with a request, by its own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    /// The cookie of the connection, or of the datagram socket.
    pub socket: u64,
    /// The client's number of it.
    pub id: u64,
    /// Before and after the first read.
    pub read: (Ns, Ns),
    /// Before and after the last write.
    pub write: (Ns, Ns),
    pub reader: u32,
    pub writer: u32,
}

/// The log of a server.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<Entry>>>);

impl Log {
    pub fn add(&self, entry: Entry) {
        self.0.lock().unwrap().push(entry);
    }

    /// Returns the entries in order of their reads.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = self.0.lock().unwrap().clone();
        entries.sort_by_key(|entry| entry.read.0);
        entries
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

pub fn cookie(socket: impl AsFd) -> u64 {
    rustix::net::sockopt::socket_cookie(socket).unwrap()
}

/// Calls `action` and returns the times before and after it.
pub fn timed<T>(action: impl FnOnce() -> T) -> ((Ns, Ns), T) {
    let before = clock::now();
    let result = action();
    ((before, clock::now()), result)
}

/// Uses the CPU for a while.
pub fn burn(time: Duration) {
    let end = clock::now() + Ns(time.as_nanos() as u64);
    while clock::now() < end {
        std::hint::spin_loop();
    }
}

/// Reads a request of eight bytes: a number.
pub fn read_request(mut stream: &TcpStream, entry: &mut Entry) -> bool {
    let mut bytes = [0; 8];
    let (times, result) = timed(|| stream.read_exact(&mut bytes));
    entry.read = times;
    entry.id = u64::from_le_bytes(bytes);
    entry.reader = thread::id();
    entry.socket = cookie(stream);
    result.is_ok()
}

pub fn write_answer(mut stream: &TcpStream, entry: &mut Entry) {
    let (times, result) = timed(|| stream.write_all(&entry.id.to_le_bytes()));
    result.unwrap();
    entry.write = times;
    entry.writer = thread::id();
}

/// Sends a request and waits for its answer.
pub fn request(mut stream: &TcpStream, id: u64) {
    stream.write_all(&id.to_le_bytes()).unwrap();
    read_answer(stream, id);
}

pub fn read_answer(mut stream: &TcpStream, id: u64) {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(u64::from_le_bytes(bytes), id);
}

pub fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Watches ports of this process while `load` runs; `None` without the privileges.
pub fn watch(ports: &[u16], options: &Options, load: impl FnOnce() + Send) -> Option<Recording> {
    let target = Target { processes: vec![std::process::id()], ports: ports.to_vec() };
    let mut watch = start(&target, options)?;
    std::thread::scope(|scope| {
        let load = scope.spawn(load);
        while !load.is_finished() {
            std::thread::sleep(heddle_observe::POLL);
            watch.poll().unwrap();
        }
        load.join().unwrap();
    });
    Some(watch.finish().unwrap())
}

/// Starts watching; prints what is missing and returns `None` if this process may not.
pub fn start(target: &Target, options: &Options) -> Option<Watch> {
    match Watch::start(target, options) {
        Ok(watch) => Some(watch),
        Err(error @ (ObserveError::Denied(_) | ObserveError::Kernel { .. })) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(ObserveError::Load(error)) => panic!("{error}\n{}", error.log),
        Err(error) => panic!("{error}"),
    }
}

/// Pairs the spans of streams with the log: by connection, in order.
pub fn pair(log: &[Entry], spans: &[Span], by: impl Fn(&Span) -> u64) -> Vec<(Entry, Span)> {
    let mut entries: BTreeMap<u64, Vec<Entry>> = BTreeMap::new();
    for entry in log {
        entries.entry(entry.socket).or_default().push(*entry);
    }
    let mut found: BTreeMap<u64, Vec<Span>> = BTreeMap::new();
    for span in spans {
        found.entry(by(span)).or_default().push(*span);
    }
    let mut pairs = Vec::new();
    for (socket, mut spans) in found {
        spans.sort_by_key(|span| span.received);
        let entries = entries.remove(&socket).unwrap_or_default();
        assert_eq!(spans.len(), entries.len(), "of socket {socket}: {spans:?} {entries:?}");
        pairs.extend(entries.into_iter().zip(spans));
    }
    pairs
}

/// Asserts what holds for every request: who, the order of the times, and the sums.
pub fn check(entry: &Entry, span: &Span) {
    let show = || format!("{entry:#?}\n{span:#?}");
    assert_eq!((span.reader, span.writer), (entry.reader, entry.writer), "{}", show());
    assert_eq!(span.process, std::process::id());
    assert!(span.arrived <= span.ready && span.ready <= span.received, "{}", show());
    assert!(span.received >= entry.read.0 && span.received <= entry.read.1, "{}", show());
    assert!(span.answered >= entry.write.0 && span.answered <= entry.write.1, "{}", show());
    let sum = span.cpu + span.run_queue + span.off.total();
    assert!(sum <= span.answered - span.received, "{}", show());
}
