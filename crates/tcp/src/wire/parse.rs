//! From bytes to a header.

use super::{Flags, HEADER, Options};
use crate::seq::Seq;

/// Why bytes are no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadSegment {
    /// Shorter than a header, or than its data offset says.
    Truncated,
    /// The data offset is below five words.
    Offset,
    /// A port is 0.
    Port,
}

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// The number of the first byte.
    pub seq: Seq,
    /// The number that the sender expects next; counts only with [`Flags::ACK`].
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// The window, not scaled.
    pub window: u16,
    /// The options.
    pub options: Options,
}

impl Header {
    /// Whether all bits of `flags` are set.
    pub fn is(&self, flags: Flags) -> bool {
        self.flags.contains(flags)
    }

    /// How many sequence numbers a segment with `payload` bytes takes.
    pub fn length(&self, payload: &[u8]) -> u32 {
        let control = u32::from(self.is(Flags::SYN)) + u32::from(self.is(Flags::FIN));
        payload.len() as u32 + control
    }
}

fn half(bytes: &[u8; HEADER], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8; HEADER], at: usize) -> u32 {
    u32::from(half(bytes, at)) << 16 | u32::from(half(bytes, at + 2))
}

/// Splits `segment` into header and payload. Does not look at the checksum.
///
/// # Errors
/// [`BadSegment`] if the bytes are no segment. Malformed options are no error: they are skipped.
pub fn parse(segment: &[u8]) -> Result<(Header, &[u8]), BadSegment> {
    let fixed = segment.first_chunk::<HEADER>().ok_or(BadSegment::Truncated)?;
    let offset = usize::from(fixed[12] >> 4) * 4;
    if offset < HEADER {
        return Err(BadSegment::Offset);
    }
    let (head, payload) = segment.split_at_checked(offset).ok_or(BadSegment::Truncated)?;
    let (source_port, destination_port) = (half(fixed, 0), half(fixed, 2));
    if source_port == 0 || destination_port == 0 {
        return Err(BadSegment::Port);
    }
    let (seq, ack) = (Seq(word(fixed, 4)), Seq(word(fixed, 8)));
    let (flags, window) = (Flags(fixed[13]), half(fixed, 14));
    let options = Options::parse(&head[HEADER..]);
    Ok((Header { source_port, destination_port, seq, ack, flags, window, options }, payload))
}
