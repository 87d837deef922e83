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

    /// Returns the bytes, TCP header included, of the largest segment that [`send_large`](Self::send_large) takes of
    /// `flow` now; 0, the default, if it takes none.
    fn largest(&mut self, flow: &Flow) -> usize {
        let _ = flow;
        0
    }

    /// As [`send`](Self::send), for a segment that is cut on its way as `cut` says: each piece has the header with its
    /// own number, only the last one PSH and FIN. The checksum field has the sum of the pseudo header for the whole
    /// length, not inverted, as Linux's offload expects it.
    fn send_large(
        &mut self,
        flow: Flow,
        length: usize,
        cut: Cut,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        let _ = (flow, length, cut, write);
        false
    }
}

/// How a large segment is cut into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of the TCP header.
    pub header: u16,
    /// Bytes of payload in each piece; the last one may have fewer.
    pub payload: u16,
}

impl Cut {
    /// Returns how many pieces a segment of `length` bytes becomes.
    pub fn pieces(&self, length: usize) -> usize {
        length.saturating_sub(usize::from(self.header)).div_ceil(usize::from(self.payload.max(1)))
    }
}
