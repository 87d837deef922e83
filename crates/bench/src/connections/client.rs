//! The client: blocking standard-library sockets, with a few requests in flight.

use super::limits;
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Bytes of a request and of its answer.
pub(super) const WORD: usize = 8;

/// Requests in flight.
const AHEAD: usize = 64;

/// A server without an answer for this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Connections to one server.
pub(super) struct Client<'a> {
    port: u16,
    ports: usize,
    streams: Vec<TcpStream>,
    stop: &'a AtomicBool,
}

impl<'a> Client<'a> {
    pub(super) fn new(port: u16, stop: &'a AtomicBool) -> io::Result<Client<'a>> {
        Ok(Client { port, ports: limits::ports()?, streams: Vec::new(), stop })
    }

    /// How many connections there are.
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Opens connections until there are `count`; each has had its first answer.
    pub(super) fn grow(&mut self, count: usize) -> io::Result<()> {
        let first = self.len();
        for number in first..count {
            let stream = self.connect(number)?;
            ask(&stream)?;
            self.streams.push(stream);
            if number >= first + AHEAD {
                self.answer(number - AHEAD)?;
            }
        }
        (first.max(count.saturating_sub(AHEAD))..count).try_for_each(|number| self.answer(number))
    }

    fn connect(&self, number: usize) -> io::Result<TcpStream> {
        let addr = SocketAddr::from((limits::address(number, self.ports), self.port));
        let stream = TcpStream::connect(addr).map_err(|error| {
            let text = format!("connection {} to {addr}: {error}", number + 1);
            io::Error::new(error.kind(), text)
        })?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Sends `count` requests to every `step`th connection in turn, and reads the answers.
    pub(super) fn echo(&self, count: usize, step: usize) -> io::Result<()> {
        let at = |request: usize| request * step % self.len();
        for request in 0..count {
            ask(&self.streams[at(request)])?;
            if request >= AHEAD {
                self.answer(at(request - AHEAD))?;
            }
        }
        (count.saturating_sub(AHEAD)..count).try_for_each(|request| self.answer(at(request)))
    }

    fn answer(&self, number: usize) -> io::Result<()> {
        if self.stop.load(Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        (&self.streams[number]).read_exact(&mut [0; WORD]).map_err(|error| {
            let text = format!("connection {} got no answer: {error}", number + 1);
            io::Error::other(text)
        })
    }
}

impl Drop for Client<'_> {
    /// Makes ports reusable at once instead of after a minute.
    fn drop(&mut self) {
        for stream in &self.streams {
            // If it fails, the port is only free later.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }
}

fn ask(mut stream: &TcpStream) -> io::Result<()> {
    stream.write_all(&[7; WORD])
}
