//! One conversation with heddled.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::wire::{Call, MAX_FDS, Reply, receive, send};
use crate::engine::Served;
use crate::request::{Answer, Error, ErrorKind, Request};

/// How long heddled may take: it waits for other requests, the verifier, and the kernel's release of sockets.
const ANSWER: Duration = Duration::from_secs(60);
const SEND: Duration = Duration::from_secs(10);

/// A connection to heddled.
#[derive(Debug)]
pub struct Connection {
    socket: UnixStream,
}

impl Connection {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// The kernel's: `NotFound` and `ConnectionRefused` if no daemon listens there, `PermissionDenied` if the
    /// caller is not allowed to connect.
    pub fn open(path: &Path) -> io::Result<Self> {
        UnixStream::connect(path).map(|socket| Self { socket })
    }

    /// Sends `request` and returns the answer.
    ///
    /// # Errors
    /// What heddled refused, or that it does not answer. If this returns an error, nothing stays attached.
    pub fn call(&self, request: Request, fds: &[OwnedFd]) -> Served {
        let (answer, fds) = self.say(&Call::Ask(request), fds)?;
        if matches!(answer, Answer::Attached(_)) {
            self.say(&Call::Keep, &[])?;
        }
        Ok((answer, fds))
    }

    /// Sends the descriptors that do not fit into the message ahead of it.
    fn send(&self, call: &Call, fds: &[OwnedFd]) -> Result<(), Error> {
        let (ahead, last) = fds.split_at(fds.len().saturating_sub(MAX_FDS));
        for part in ahead.chunks(MAX_FDS) {
            send(&self.socket, &Call::More, part, SEND)?;
        }
        send(&self.socket, call, last, SEND)
    }

    fn say(&self, call: &Call, fds: &[OwnedFd]) -> Served {
        let sent = self.send(call, fds);
        // A server that refuses the connection, or our descriptors, sends the reason without reading our request.
        match receive::<Reply>(&self.socket, ANSWER) {
            Ok(Some((reply, fds))) => Ok((reply?, fds)),
            Ok(None) => sent.and(Err(gone())),
            Err(error) => Err(sent.err().unwrap_or(error)),
        }
    }
}

fn gone() -> Error {
    Error::new(
        ErrorKind::System,
        "heddled closed the connection without an answer (its log says why)",
    )
}
