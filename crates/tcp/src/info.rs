//! What can be shown of connections and listeners.

use crate::id::{ConnectionId, ListenerId};
use crate::state::State;
use core::net::SocketAddr;
use heddle_core::Ns;

/// A connection from outside, like `ss -i` shows it. Bytes are payload.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Info {
    /// The id; `None` for records of half-open connections and of TIME_WAIT.
    pub id: Option<ConnectionId>,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// The state.
    pub state: State,
    /// Bytes received and not read.
    pub receive_queue: u32,
    /// Bytes beyond a gap.
    pub out_of_order: u32,
    /// Bytes written and not acknowledged.
    pub send_queue: u32,
    /// Of these not sent yet.
    pub unsent: u32,
    /// Segments that are not acknowledged.
    pub unacked: usize,
    /// Segments sent again.
    pub retransmits: u32,
    /// Times that the retransmission timer has expired in a row.
    pub backoff: u8,
    /// The smoothed round-trip time, zero before the first measurement.
    pub srtt: Ns,
    /// Its mean deviation.
    pub rttvar: Ns,
    /// The smallest round-trip time, zero before the first measurement.
    pub min_rtt: Ns,
    /// The retransmission timeout.
    pub rto: Ns,
    /// The congestion window in bytes.
    pub cwnd: u32,
    /// The slow start threshold in bytes.
    pub ssthresh: u32,
    /// The largest payload of a segment.
    pub mss: u16,
    /// The other end's window in bytes.
    pub send_window: u32,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Whether both ends use SACK.
    pub sack: bool,
    /// Whether both ends use timestamps.
    pub timestamps: bool,
}

/// A listener from outside.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ListenerInfo {
    /// The id.
    pub id: ListenerId,
    /// Its address.
    pub local: SocketAddr,
    /// Connections that wait to be accepted.
    pub ready: usize,
    /// How many may.
    pub backlog: usize,
}

impl Info {
    /// What is known of a record: ends and state.
    pub(crate) fn of_record(local: SocketAddr, remote: SocketAddr, state: State) -> Info {
        Info {
            id: None,
            local,
            remote,
            state,
            receive_queue: 0,
            out_of_order: 0,
            send_queue: 0,
            unsent: 0,
            unacked: 0,
            retransmits: 0,
            backoff: 0,
            srtt: Ns::ZERO,
            rttvar: Ns::ZERO,
            min_rtt: Ns::ZERO,
            rto: Ns::ZERO,
            cwnd: 0,
            ssthresh: 0,
            mss: 0,
            send_window: 0,
            bytes_received: 0,
            bytes_sent: 0,
            sack: false,
            timestamps: false,
        }
    }
}
