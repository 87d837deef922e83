//! A segment that was sent and is not acknowledged.

use crate::seq::Seq;
use heddle_core::Ns;

/// One segment's place in the stream and its fate so far: 16 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// When it was sent last.
    pub at: Ns,
    /// Its first sequence number.
    pub seq: Seq,
    /// How many sequence numbers it takes, a FIN included.
    pub length: u16,
    bits: u8,
    /// How often it was sent again, up to 255.
    pub retransmits: u8,
}

/// The other end has it (SACK).
const SACKED: u8 = 1;
/// It is taken to be lost and was not sent again since.
const LOST: u8 = 2;
/// It ends with a FIN.
const FIN: u8 = 4;

impl Sent {
    pub fn new(seq: Seq, length: u16, has_fin: bool, at: Ns) -> Sent {
        Sent { at, seq, length, bits: if has_fin { FIN } else { 0 }, retransmits: 0 }
    }

    /// The sequence number after its last.
    pub fn end(&self) -> Seq {
        self.seq + u32::from(self.length)
    }

    pub fn is_sacked(&self) -> bool {
        self.bits & SACKED != 0
    }

    pub fn is_lost(&self) -> bool {
        self.bits & LOST != 0
    }

    pub fn has_fin(&self) -> bool {
        self.bits & FIN != 0
    }

    /// Whether it counts as being in the network.
    pub fn is_in_flight(&self) -> bool {
        self.bits & (SACKED | LOST) == 0
    }

    pub fn is_retransmitted(&self) -> bool {
        self.retransmits > 0
    }

    /// Payload bytes.
    pub fn payload(&self) -> u32 {
        u32::from(self.length) - u32::from(self.has_fin())
    }

    pub fn set_sacked(&mut self, is_sacked: bool) {
        self.bits = self.bits & !(SACKED | LOST) | if is_sacked { SACKED } else { 0 };
    }

    pub fn set_lost(&mut self, is_lost: bool) {
        self.bits = self.bits & !LOST | if is_lost { LOST } else { 0 };
    }

    /// Cuts it after `length` bytes; returns the rest.
    pub fn split(&mut self, length: u16) -> Sent {
        let mut rest = *self;
        rest.seq += u32::from(length);
        rest.length -= length;
        self.length = length;
        self.bits &= !FIN;
        rest
    }
}
