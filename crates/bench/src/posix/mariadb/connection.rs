//! A connection to MariaDB over its Unix socket, one query at a time.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::packets::{self, Outcome, Reply};

/// An answer while preparing that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of one read; an answer of the load has a few hundred.
const CHUNK: usize = 4096;

/// A connection that is logged in.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    reply: Reply,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Connection {
    /// Connects as root, without a password, to `database` or, if that is empty, to none.
    ///
    /// # Errors
    /// Network errors; the server refuses.
    pub(super) fn open(socket: &Path, database: &str) -> io::Result<Connection> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (reply, sent, received) = (Reply::default(), Vec::new(), Vec::new());
        let mut connection = Connection { stream, reply, sent, received };
        packets::check_greeting(&connection.packet()?)?;
        packets::log_in(&mut connection.sent, "root", database);
        connection.flush()?;
        connection.answer()?;
        Ok(connection)
    }

    /// Runs a query and returns the first value of its first row.
    ///
    /// # Errors
    /// Network errors; the server's error; no answer within a minute.
    pub(super) fn query(&mut self, sql: &str) -> io::Result<Option<String>> {
        self.send(sql)?;
        self.answer()
    }

    /// From now on [`Connection::receive`] does not wait.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn make_prompt(&self) -> io::Result<RawFd> {
        self.stream.set_nonblocking(true)?;
        Ok(self.stream.as_raw_fd())
    }

    /// Sends a query; the one before must have been answered.
    ///
    /// # Errors
    /// Network errors.
    pub(super) fn send(&mut self, sql: &str) -> io::Result<()> {
        packets::query(&mut self.sent, sql);
        self.flush()
    }

    /// Returns the answer to the query, `None` if it is not complete.
    ///
    /// # Errors
    /// Network errors; bytes that are no answer.
    pub(super) fn receive(&mut self) -> io::Result<Option<Outcome>> {
        let mut chunk = [0; CHUNK];
        loop {
            while let Some((payload, length)) = packets::first(&self.received)? {
                let outcome = self.reply.take(payload)?;
                self.received.drain(..length);
                if outcome.is_some() {
                    return Ok(outcome);
                }
            }
            match self.stream.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) => return Err(closed()),
                count => self.received.extend_from_slice(&chunk[..count?]),
            }
        }
    }

    fn answer(&mut self) -> io::Result<Option<String>> {
        let hangs = || io::Error::new(io::ErrorKind::TimedOut, "MariaDB did not answer for 60 s");
        self.receive()?.ok_or_else(hangs)?.map_err(io::Error::other)
    }

    /// With one query in flight the socket has room: it was empty.
    fn flush(&mut self) -> io::Result<()> {
        let written = self.stream.write_all(&self.sent);
        self.sent.clear();
        written
    }

    fn packet(&mut self) -> io::Result<Vec<u8>> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload)?;
        Ok(payload)
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "MariaDB closed a connection")
}
