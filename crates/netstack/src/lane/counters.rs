//! What a lane counts.

use crate::wire::Losses;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Packets of a lane, since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Returns names and values, for tables and exporters.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Frames that arrived.
    frames,
    /// Frames that were no whole packet.
    malformed,
    /// Packets with a wrong checksum.
    bad_checksum,
    /// Packets to a port that no socket has (any more).
    no_socket,
    /// Datagrams dropped because their socket's queue was full.
    udp_full,
    /// Datagrams that were queued in sockets.
    udp_received,
    /// Datagrams that the lane sent.
    udp_sent,
    /// Datagrams left to the kernel's socket.
    udp_by_kernel,
    /// TCP segments that arrived.
    tcp_received,
    /// TCP segments that were sent.
    tcp_sent,
    /// Large segments, of which the kernel, or the device, made several of these.
    tcp_large,
    /// TCP segments dropped because their neighbour is not known, or the interface does not lead to them.
    tcp_unroutable,
    /// Segments of connections of this lane that came to another.
    strays_taken,
    /// Segments for another lane that were dropped, as too many waited.
    strays_lost,
    /// ICMP errors about packets of this machine.
    icmp_errors,
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
