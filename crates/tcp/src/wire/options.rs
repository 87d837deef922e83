//! The options that are understood; all others are skipped.

use crate::seq::Seq;

/// As many SACK blocks as fit into a header.
pub const MAX_SACK_BLOCKS: usize = 4;

/// The kinds of options.
pub mod kind {
    pub const END: u8 = 0;
    pub const NOP: u8 = 1;
    /// RFC 9293, section 3.7.1.
    pub const MSS: u8 = 2;
    /// RFC 7323, section 2.
    pub const WINDOW_SCALE: u8 = 3;
    /// RFC 2018, section 2.
    pub const SACK_PERMITTED: u8 = 4;
    /// RFC 2018, section 3.
    pub const SACK: u8 = 5;
    /// RFC 7323, section 3.
    pub const TIMESTAMPS: u8 = 8;
}

/// The two values of the timestamps option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// The sender's clock.
    pub value: u32,
    /// The value that the sender echoes.
    pub echo: u32,
}

/// Ranges of sequence numbers that arrived beyond the acknowledgement number, as `[first, end)`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct SackBlocks {
    count: u8,
    blocks: [(Seq, Seq); MAX_SACK_BLOCKS],
}

impl SackBlocks {
    /// Adds a block; drops it if there is no room.
    pub fn push(&mut self, block: (Seq, Seq)) {
        if let Some(slot) = self.blocks.get_mut(usize::from(self.count)) {
            *slot = block;
            self.count += 1;
        }
    }

    /// The blocks, in the order of the option.
    pub fn as_slice(&self) -> &[(Seq, Seq)] {
        &self.blocks[..usize::from(self.count)]
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl core::fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// The options of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The largest segment that the sender takes, without IP and TCP headers; SYN only.
    pub mss: Option<u16>,
    /// By how many bits the sender's windows are shifted, at most 14; SYN only.
    pub window_scale: Option<u8>,
    /// Whether the sender understands SACK; SYN only.
    pub sack_permitted: bool,
    /// The timestamps.
    pub timestamps: Option<Timestamps>,
    /// The SACK blocks.
    pub sack: SackBlocks,
}

/// Padding and head of the timestamps option, as almost every segment has it (RFC 7323, appendix A).
const ALIGNED_TIMESTAMPS: [u8; 4] = [kind::NOP, kind::NOP, kind::TIMESTAMPS, 10];

/// The largest shift (RFC 7323, section 2.3).
const MAX_SHIFT: u8 = 14;

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

impl Options {
    /// Reads the options `bytes`. What is malformed ends them, as if there was nothing after it.
    pub fn parse(bytes: &[u8]) -> Options {
        let mut options = Options::default();
        if bytes.len() == 12 && bytes[..4] == ALIGNED_TIMESTAMPS {
            let (value, echo) = (word(&bytes[4..8]), word(&bytes[8..12]));
            options.timestamps = Some(Timestamps { value, echo });
            return options;
        }
        let mut rest = bytes;
        while let Some((kind, data, tail)) = next(rest) {
            options.read(kind, data);
            rest = tail;
        }
        options
    }

    fn read(&mut self, kind: u8, data: &[u8]) {
        match (kind, data) {
            (kind::MSS, &[high, low]) => self.mss = Some(u16::from_be_bytes([high, low])),
            (kind::WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(MAX_SHIFT)),
            (kind::SACK_PERMITTED, []) => self.sack_permitted = true,
            (kind::TIMESTAMPS, data) if data.len() == 8 => {
                let (value, echo) = (word(data), word(&data[4..]));
                self.timestamps = Some(Timestamps { value, echo });
            }
            (kind::SACK, data) if data.len().is_multiple_of(8) => {
                let blocks = data.as_chunks::<8>().0.iter();
                blocks.for_each(|b| self.sack.push((Seq(word(b)), Seq(word(&b[4..])))));
            }
            _ => {}
        }
    }
}

/// The first option of `bytes`: kind, data, and what comes after it.
fn next(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    match *bytes {
        [] | [kind::END, ..] => None,
        [kind::NOP, ref tail @ ..] => Some((kind::NOP, &[], tail)),
        [kind, length, ref tail @ ..] => {
            let (data, tail) = tail.split_at_checked(usize::from(length).checked_sub(2)?)?;
            Some((kind, data, tail))
        }
        [_] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_a_syn() {
        let bytes = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7];
        let options = Options::parse(&bytes);
        assert_eq!((options.mss, options.window_scale), (Some(1460), Some(7)));
        assert!(options.sack_permitted);
        assert_eq!(options.timestamps, Some(Timestamps { value: 1, echo: 2 }));
    }

    #[test]
    fn aligned_timestamps_are_read_as_others() {
        let aligned = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        let others = [8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1];
        assert_eq!(Options::parse(&aligned), Options::parse(&others));
    }

    #[test]
    fn malformed_options_end_the_list() {
        for bytes in [
            &[2u8, 0, 5, 180][..],
            &[2, 1],
            &[2],
            &[8, 10, 0],
            &[5, 9, 0, 0, 0, 0, 0, 0, 0],
            &[0, 2, 4, 1, 1],
        ] {
            assert_eq!(Options::parse(bytes), Options::default(), "{bytes:?}");
        }
        assert_eq!(Options::parse(&[3, 3, 200]).window_scale, Some(14), "RFC 7323, section 2.3");
    }

    #[test]
    fn sack_blocks_beyond_four_do_not_exist() {
        let mut blocks = SackBlocks::default();
        (0..6).for_each(|i| blocks.push((Seq(i), Seq(i + 1))));
        assert_eq!(blocks.as_slice().len(), MAX_SACK_BLOCKS);
    }
}
