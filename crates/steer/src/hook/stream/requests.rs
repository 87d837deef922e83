//! A worker's side: whole requests from its socket.

use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::Framing;

/// Reads the requests that were moved to a worker's socket.
///
/// An ordinary reader will not do: the kernel sometimes wakes a thread in `recv` on such a socket for
/// nothing, and then returns `EAGAIN` even if the socket blocks. This takes one request at a time, so that
/// waiting requests stay where policies see them (`hd_qlen`).
#[derive(Debug)]
pub struct Requests<S> {
    socket: S,
    framing: Framing,
    message: Vec<u8>,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The cookie of its connection, for [`super::Connections::answer`]; 0 if the framing has no tag.
    pub tag: u64,
    /// Everything before the payload, including length and tag.
    pub header: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
}

impl<S: AsFd> Requests<S> {
    /// Reads requests framed by `framing` from the worker's socket `socket`.
    #[must_use]
    pub fn new(socket: S, framing: Framing) -> Self {
        Self { socket, framing, message: Vec::new() }
    }

    /// Waits for the next request. `None` once the socket's other end is closed and everything has been read.
    ///
    /// # Errors
    /// The system's; `InvalidData` if the data is not a request, because something else reads from or writes
    /// to the socket.
    pub fn receive(&mut self) -> io::Result<Option<Request<'_>>> {
        let header = self.framing.header as usize;
        self.message.clear();
        if !self.read_to(header)? {
            return Ok(None);
        }
        let number = self.framing.number(&self.message);
        let total = number.and_then(|number| self.framing.total(number));
        let total = total.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        if !self.read_to(total as usize)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (header, payload) = self.message.split_at(header);
        let tag = self.framing.tag.and_then(|at| header.get(at as usize..)?.first_chunk());
        let tag = tag.map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        Ok(Some(Request { tag, header, payload }))
    }

    /// Reads until the message has `length` bytes; returns false if the stream ends before.
    fn read_to(&mut self, length: usize) -> io::Result<bool> {
        let mut at = self.message.len();
        self.message.resize(length, 0);
        while at < length {
            match recv(&self.socket, &mut self.message[at..], RecvFlags::empty()) {
                Ok((_, 0)) => return Ok(false),
                Ok((_, n)) => at += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn wait(&self) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
