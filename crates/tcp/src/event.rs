//! What a stack reports about connections and listeners.

use crate::id::{ConnectionId, ListenerId};

/// There is something to read: data, the end of the stream, or an error.
pub(crate) const READABLE: u8 = 1;
/// There is room to write after [`Error::WouldBlock`](crate::Error::WouldBlock), or writing fails.
pub(crate) const WRITABLE: u8 = 2;
/// The handshake of an outgoing connection is over.
pub(crate) const CONNECTED: u8 = 4;
/// The connection failed.
pub(crate) const FAILED: u8 = 8;
/// Both directions are over.
pub(crate) const CLOSED: u8 = 16;

/// What happened to a connection since the last event about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready(pub(crate) u8);

impl Ready {
    /// A read may succeed, find the end of the stream, or fail.
    pub fn is_readable(self) -> bool {
        self.0 & READABLE != 0
    }

    /// A write may succeed, or fail.
    pub fn is_writable(self) -> bool {
        self.0 & WRITABLE != 0
    }

    /// The connection that [`connect`](crate::Stack::connect) began is established.
    pub fn is_connected(self) -> bool {
        self.0 & CONNECTED != 0
    }

    /// The connection failed: [`take_error`](crate::Stack::take_error) says why.
    pub fn is_failed(self) -> bool {
        self.0 & FAILED != 0
    }

    /// Both directions are over, in order or by failure. The id stays valid until it is closed.
    pub fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }
}

/// A change that a caller may be waiting for. Each is reported once: read, write or accept until the call would block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection can be accepted.
    Accept(ListenerId),
    /// Something happened to a connection.
    Connection(ConnectionId, Ready),
}
