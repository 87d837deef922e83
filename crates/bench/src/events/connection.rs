//! The server's end of a connection, and the wire format: sixteen bytes each way.

use super::demux::Remainder;
use super::service::Service;
use heddle_core::Ns;
use heddle_sys::clock;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

/// Bytes of a request and of an answer.
pub(super) const LEN: usize = 16;
/// Bytes per read: a few requests, as in servers.
const ROOM: usize = 16 * LEN;

/// Two numbers on the wire. A request: its id and service time. An answer: its id and completion time, by the
/// system's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) id: u64,
    pub(super) time: Ns,
}

impl Word {
    pub(super) fn encode(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..].copy_from_slice(&self.time.0.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Word {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte));
        Word { id: number(&bytes[..8]), time: Ns(number(&bytes[8..LEN])) }
    }
}

/// Assembles words from a stream of bytes that can arrive in parts.
#[derive(Debug, Default)]
pub(super) struct Words(Vec<u8>);

impl Words {
    /// Reads what is available, up to a limit, and adds the whole words to `out`.
    pub(super) fn read(&mut self, fd: BorrowedFd<'_>, out: &mut Vec<Word>) -> Remainder {
        let mut bytes = [0; ROOM];
        // Nothing there: another thread was faster, or the peer has gone.
        let Ok(n) = rustix::io::read(fd, &mut bytes) else { return Remainder::Nothing };
        self.0.extend(&bytes[..n]);
        let whole = self.0.len() / LEN * LEN;
        out.extend(self.0[..whole].chunks_exact(LEN).map(Word::decode));
        self.0.drain(..whole);
        if n < ROOM { Remainder::Nothing } else { Remainder::Perhaps }
    }
}

/// The server's end. Reading takes a lock, for systems that deliver one event to two threads: the faster one
/// gets the request.
#[derive(Debug)]
pub(super) struct Connection {
    fd: OwnedFd,
    words: Mutex<Words>,
}

/// Work done by a server thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Served {
    /// Sum of its service times.
    pub(super) busy: Ns,
    /// Requests answered.
    pub(super) requests: u64,
}

/// Difference between the busiest and the least busy thread, in per cent.
pub(super) fn imbalance(did: &[Served]) -> f64 {
    let busy = || did.iter().map(|did| did.busy.0 as f64);
    let (most, least) = (busy().fold(0.0, f64::max), busy().fold(f64::INFINITY, f64::min));
    if most > 0.0 { (most - least) / most * 100.0 } else { 0.0 }
}

impl Connection {
    pub(super) fn new(fd: OwnedFd) -> Connection {
        Connection { fd, words: Mutex::default() }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Handles an event: reads requests, serves and answers each.
    pub(super) fn handle(&self, service: Service, did: &mut Served) -> Remainder {
        let mut requests = Vec::new();
        let left = match self.words.lock() {
            Ok(mut words) => words.read(self.fd.as_fd(), &mut requests),
            Err(_) => return Remainder::Nothing,
        };
        for request in requests {
            service.work(request.time);
            did.busy += request.time;
            did.requests += 1;
            // The client has gone: no answer is needed.
            let _ = send(self.fd(), &Word { id: request.id, time: clock::now() }.encode());
        }
        left
    }
}

/// Sends all bytes; waits while there is no room.
pub(super) fn send(fd: BorrowedFd<'_>, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        match rustix::io::write(fd, rest) {
            Ok(n) => rest = &rest[n..],
            Err(Errno::AGAIN) => std::thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn words_come_whole_however_they_are_cut() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let (mut words, mut out) = (Words::default(), Vec::new());
        let sent = [Word { id: 7, time: Ns(1_000) }, Word { id: u64::MAX, time: Ns(1 << 40) }];
        let bytes: Vec<u8> = sent.iter().flat_map(|word| word.encode()).collect();
        for piece in bytes.chunks(5) {
            near.write_all(piece).unwrap();
            assert_eq!(words.read(far.as_fd(), &mut out), Remainder::Nothing);
        }
        assert_eq!(out, sent);
    }

    #[test]
    fn a_full_read_says_that_there_may_be_more() {
        let (mut near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        near.write_all(&[0; ROOM]).unwrap();
        let (mut words, mut out) = (Words::default(), Vec::new());
        assert_eq!(words.read(far.as_fd(), &mut out), Remainder::Perhaps);
        assert_eq!(words.read(far.as_fd(), &mut out), Remainder::Nothing);
        assert_eq!(out.len(), ROOM / LEN);
    }
}
