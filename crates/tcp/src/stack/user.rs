//! Calls on connections.

use super::Stack;
use crate::config::KeepAlive;
use crate::connection::{Connection, Context};
use crate::error::Error;
use crate::id::ConnectionId;
use crate::output::Output;
use core::net::SocketAddr;
use heddle_core::Ns;

/// Which direction is shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Reads do not wait any more: they find what has arrived, then the end of the stream.
    Read,
    /// The application writes no more: the other end finds the end of the stream after what was written.
    Write,
    /// Both.
    Both,
}

impl Stack {
    fn connection(&self, id: ConnectionId) -> Result<&Connection, Error> {
        let connection = self.connections.get(id.index);
        connection
            .filter(|connection| connection.id == id && connection.is_attached)
            .ok_or(Error::Stale)
    }

    /// Runs `f` on the connection `id`.
    #[inline]
    fn call<R>(
        &mut self,
        id: ConnectionId,
        now: Ns,
        f: impl FnOnce(&mut Connection, &mut Context<'_>) -> R,
    ) -> Result<R, Error> {
        self.connection(id)?;
        self.with(id.index, now, f).ok_or(Error::Stale)
    }

    /// Copies received bytes into `to`; returns how many, 0 at the end of the stream. May send a window update.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if there is nothing now; what ended the connection, after all that had arrived is read.
    pub fn read(
        &mut self,
        now: Ns,
        id: ConnectionId,
        to: &mut [u8],
        out: &mut impl Output,
    ) -> Result<usize, Error> {
        self.call(id, now, |connection, cx| connection.read(to, cx, out))?
    }

    /// Copies received bytes into `to` and keeps them; returns how many, 0 at the end of the stream.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn peek(&mut self, id: ConnectionId, to: &mut [u8]) -> Result<usize, Error> {
        self.call(id, Ns::ZERO, |connection, cx| connection.peek(to, cx))?
    }

    /// Bytes that can be read.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn readable(&self, id: ConnectionId) -> Result<usize, Error> {
        self.connection(id).map(|connection| connection.receive.buffer.len() as usize)
    }

    /// Whether a read would not block: there are bytes, the end of the stream, or an error.
    pub fn is_readable(&self, id: ConnectionId) -> bool {
        self.connection(id).is_ok_and(Connection::is_readable)
    }

    /// Bytes that can be written now; 0 too if writing would fail.
    pub fn writable(&self, id: ConnectionId) -> usize {
        self.connection(id).map_or(0, |connection| connection.room(&self.config))
    }

    /// Takes as much of `bytes` as there is room for, and sends what may be sent; returns how much was taken.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if there is no room now; what ended the connection.
    pub fn write(
        &mut self,
        now: Ns,
        id: ConnectionId,
        bytes: &[u8],
        out: &mut impl Output,
    ) -> Result<usize, Error> {
        self.call(id, now, |connection, cx| connection.write(bytes, cx, out))?
    }

    /// Shuts directions down. The id stays valid.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn shutdown(
        &mut self,
        now: Ns,
        id: ConnectionId,
        how: Shutdown,
        out: &mut impl Output,
    ) -> Result<(), Error> {
        self.call(id, now, |connection, cx| {
            if how != Shutdown::Write {
                connection.shutdown_read();
            }
            if how != Shutdown::Read {
                connection.shutdown_write(cx, out);
            }
        })
    }

    /// Gives the connection up: what was written is still delivered, then the stream ends. If received bytes were not
    /// read, the other end is reset instead (RFC 2525, section 2.17). The id is stale from here on; a stale id is
    /// ignored.
    pub fn close(&mut self, now: Ns, id: ConnectionId, out: &mut impl Output) {
        let _ = self.call(id, now, |connection, cx| connection.close(cx, out));
    }

    /// Gives the connection up and resets the other end. The id is stale from here on; a stale id is ignored.
    pub fn abort(&mut self, now: Ns, id: ConnectionId, out: &mut impl Output) {
        let _ = self.call(id, now, |connection, cx| {
            connection.is_attached = false;
            connection.abort(cx, out);
        });
    }

    /// Switches Nagle's algorithm off or on (TCP_NODELAY).
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn set_nodelay(
        &mut self,
        now: Ns,
        id: ConnectionId,
        is_set: bool,
        out: &mut impl Output,
    ) -> Result<(), Error> {
        self.call(id, now, |connection, cx| connection.set_nodelay(is_set, cx, out))
    }

    /// Whether Nagle's algorithm is off.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn nodelay(&self, id: ConnectionId) -> Result<bool, Error> {
        self.connection(id).map(|connection| connection.send.nodelay)
    }

    /// Sets when the connection is probed while it is idle; `None` is never (SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL,
    /// TCP_KEEPCNT).
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn set_keep_alive(
        &mut self,
        now: Ns,
        id: ConnectionId,
        settings: Option<KeepAlive>,
    ) -> Result<(), Error> {
        self.call(id, now, |connection, _| connection.set_keep_alive(settings))
    }

    /// When the connection is probed while it is idle.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn keep_alive(&self, id: ConnectionId) -> Result<Option<KeepAlive>, Error> {
        self.connection(id).map(|connection| connection.rare.keep_alive)
    }

    /// Makes [`close`](Self::close) reset the connection (SO_LINGER with a time of 0). Waiting in `close` for the
    /// delivery is the caller's: [`is_delivered`](Self::is_delivered).
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn set_close_reset(&mut self, id: ConnectionId, is_set: bool) -> Result<(), Error> {
        self.call(id, Ns::ZERO, |connection, _| connection.set_close_reset(is_set))
    }

    /// Whether all that was written, and the end of the stream if it was shut down, is acknowledged.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn is_delivered(&self, id: ConnectionId) -> Result<bool, Error> {
        self.connection(id).map(Connection::is_delivered)
    }

    /// Whether the handshake is over and the connection is not.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn is_connected(&self, id: ConnectionId) -> Result<bool, Error> {
        self.connection(id).map(|connection| connection.state.is_synchronised())
    }

    /// This end's address.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn local_addr(&self, id: ConnectionId) -> Result<SocketAddr, Error> {
        self.connection(id).map(|connection| connection.tuple.local_addr())
    }

    /// The other end's address.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn remote_addr(&self, id: ConnectionId) -> Result<SocketAddr, Error> {
        self.connection(id).map(|connection| connection.tuple.remote_addr())
    }

    /// Returns what ended the connection, if it failed, and forgets it (SO_ERROR): reads then find the end of the
    /// stream.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn take_error(&mut self, id: ConnectionId) -> Result<Option<Error>, Error> {
        self.call(id, Ns::ZERO, |connection, _| connection.error.take())
    }
}
