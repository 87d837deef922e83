//! Where a thread of the server takes its next request from.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::dilation::EXECUTORS;
use super::server::Sockets;

/// How often a thread that waits for datagrams looks whether it should end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How soon a thread notices that one more may take a long request.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// One thread's source.
pub enum Source {
    /// A socket; the thread sleeps on it, which is what the policy `jiq` sees.
    Socket(UdpSocket),
    /// The sockets of the classes.
    Classes(Arc<Classes>),
}

/// A datagram that was taken.
pub struct Taken<'a> {
    /// Its length.
    pub length: usize,
    /// Who sent it.
    pub from: SocketAddr,
    /// What to answer on.
    pub socket: &'a UdpSocket,
    _turn: Option<Turn<'a>>,
}

/// The sources of all threads.
///
/// # Errors
/// Those of the system.
pub fn sources(sockets: Vec<UdpSocket>, kind: Sockets) -> io::Result<Vec<Source>> {
    if let Sockets::Classes(most) = kind {
        let classes = Arc::new(Classes::new(sockets, most)?);
        return Ok((0..EXECUTORS).map(|_| Source::Classes(Arc::clone(&classes))).collect());
    }
    let one = |k: usize| {
        let socket = sockets[k % sockets.len()].try_clone()?;
        socket.set_read_timeout(Some(LOOK_EVERY))?;
        Ok(Source::Socket(socket))
    };
    (0..EXECUTORS).map(one).collect()
}

impl Source {
    /// The next datagram; `None` if none came for a while.
    pub fn take(&self, buffer: &mut [u8]) -> Option<Taken<'_>> {
        match self {
            Source::Socket(socket) => {
                let (length, from) = socket.recv_from(buffer).ok()?;
                Some(Taken { length, from, socket, _turn: None })
            }
            Source::Classes(classes) => classes.take(buffer),
        }
    }
}

/// Sockets in order of priority, of which the last has the long requests.
///
/// One idle thread watches for all: a datagram wakes it alone, and the next one takes its place.
pub struct Classes {
    sockets: Vec<UdpSocket>,
    most_long: usize,
    long: AtomicUsize,
    watch: Mutex<()>,
}

/// The right to serve a long request.
struct Turn<'a>(&'a AtomicUsize);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Classes {
    fn new(sockets: Vec<UdpSocket>, most_long: usize) -> io::Result<Classes> {
        sockets.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
        Ok(Classes { sockets, most_long, long: AtomicUsize::new(0), watch: Mutex::new(()) })
    }

    fn take(&self, buffer: &mut [u8]) -> Option<Taken<'_>> {
        let _alone = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = self.turn();
        let watched = if turn.is_some() { self.sockets.len() } else { self.sockets.len() - 1 };
        self.wait(watched);
        for (class, socket) in self.sockets[..watched].iter().enumerate() {
            if let Ok((length, from)) = socket.recv_from(buffer) {
                let long = class + 1 == self.sockets.len();
                return Some(Taken { length, from, socket, _turn: turn.filter(|_| long) });
            }
        }
        None
    }

    /// The right to take a long request, if not all that may are at work on one.
    fn turn(&self) -> Option<Turn<'_>> {
        // Only the one thread that watches adds.
        (self.long.load(Ordering::Acquire) < self.most_long).then(|| {
            self.long.fetch_add(1, Ordering::AcqRel);
            Turn(&self.long)
        })
    }

    fn wait(&self, watched: usize) {
        let time = if watched == self.sockets.len() { LOOK_EVERY } else { LOOK_AGAIN };
        let sockets = self.sockets[..watched].iter();
        let mut watch: Vec<PollFd<'_>> =
            sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        let time = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
        // Interrupted or not, the sockets are looked at next.
        let _ = poll(&mut watch, Some(&time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_requests_never_take_all_threads_and_short_ones_come_first() {
        // Not in one group, so that the test decides which class a datagram is of.
        let to: Vec<UdpSocket> = (0..2).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> = to.iter().map(|s| s.local_addr().unwrap()).collect();
        let classes = Classes::new(to, 1).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for (class, word) in [(1, b"long1"), (1, b"long2"), (0, b"short")] {
            client.send_to(word, addresses[class]).unwrap();
        }
        let mut buffer = [0; 8];
        let mut next = || {
            let taken = classes.take(&mut buffer).map(|taken| (taken.length, taken._turn));
            taken.map(|(length, turn)| (buffer[..length].to_vec(), turn))
        };
        assert_eq!(next().unwrap().0, b"short");
        let (first, turn) = next().unwrap();
        assert_eq!(first, b"long1");
        assert!(next().is_none(), "the second long request waits");
        drop(turn);
        assert_eq!(next().unwrap().0, b"long2");
    }
}
