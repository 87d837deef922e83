//! Where segments go.

use crate::address::Tuple;
use crate::id::ConnectionId;
use core::net::SocketAddr;

/// Whose a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The source.
    pub local: SocketAddr,
    /// The destination.
    pub remote: SocketAddr,
    /// The connection; `None` for SYN-ACKs, for answers in TIME_WAIT, and for resets of what is no connection.
    pub connection: Option<ConnectionId>,
}

impl Flow {
    pub(crate) fn new(tuple: &Tuple, connection: Option<ConnectionId>) -> Flow {
        Flow { local: tuple.local_addr(), remote: tuple.remote_addr(), connection }
    }
}

/// Takes the segments that a stack sends.
pub trait Output {
    /// Makes room for a segment of `length` bytes, TCP header included, and has `write` fill all of it, checksum
    /// included. The bytes may hold anything before.
    ///
    /// Returns false if there is no room: then `write` must not have been called. What belongs to a connection is kept
    /// to be sent, and [`Stack::flush`](crate::Stack::flush) tries again.
    fn send(&mut self, flow: Flow, length: usize, write: impl FnOnce(&mut [u8])) -> bool;
}
