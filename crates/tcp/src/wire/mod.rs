//! TCP's header and options on the wire (RFC 9293, section 3.1).

mod emit;
mod options;
mod parse;

pub use emit::{Outgoing, OutgoingOptions};
pub use options::{MAX_SACK_BLOCKS, Options, SackBlocks, Timestamps};
pub use parse::{BadSegment, Header, parse};

/// Bytes of a header without options.
pub const HEADER: usize = 20;
/// Bytes of the timestamps option with the padding before it.
pub const TIMESTAMPS: usize = 12;

/// The control bits of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x04);
    /// Push: the sender has no more data now.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgement number counts.
    pub const ACK: Flags = Flags(0x10);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits of both.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// The bits without those of `other`.
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}
