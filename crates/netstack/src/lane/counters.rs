//! What a lane counts.

use crate::wire::Losses;

/// Packets of a lane, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that arrived.
    pub frames: u64,
    /// Frames that were no whole packet.
    pub malformed: u64,
    /// Packets with a wrong checksum.
    pub bad_checksum: u64,
    /// Packets to a port that no socket has (any more).
    pub no_socket: u64,
    /// Datagrams dropped because their socket's queue was full.
    pub udp_full: u64,
    /// Datagrams that were queued in sockets.
    pub udp_received: u64,
    /// Datagrams that the lane sent.
    pub udp_sent: u64,
    /// Datagrams left to the kernel's socket.
    pub udp_by_kernel: u64,
    /// TCP segments that arrived.
    pub tcp_received: u64,
    /// TCP segments that were sent.
    pub tcp_sent: u64,
    /// TCP segments dropped because their neighbour is not known, or the interface does not lead to them.
    pub tcp_unroutable: u64,
    /// Segments of connections of this lane that came to another.
    pub strays_taken: u64,
    /// Segments for another lane that were dropped, as too many waited.
    pub strays_lost: u64,
    /// ICMP errors about packets of this machine.
    pub icmp_errors: u64,
}

/// All of a lane's counts at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    /// Packets.
    pub packets: Counters,
    /// Lost frames, of all receive queues together.
    pub losses: Losses,
    /// The TCP stack.
    pub tcp: heddle_tcp::Counters,
}
