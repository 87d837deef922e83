//! From a header to bytes.

use super::options::kind;
use super::{Flags, HEADER, SackBlocks, Timestamps};
use crate::seq::Seq;

/// The options of a segment that is sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutgoingOptions {
    /// The largest segment taken; SYN only.
    pub mss: Option<u16>,
    /// By how many bits windows are shifted; SYN only.
    pub window_scale: Option<u8>,
    /// SACK is understood; SYN only.
    pub sack_permitted: bool,
    /// The timestamps.
    pub timestamps: Option<Timestamps>,
    /// The SACK blocks: at most three with timestamps.
    pub sack: SackBlocks,
}

impl OutgoingOptions {
    /// Bytes on the wire, a multiple of four.
    pub fn length(&self) -> usize {
        let fixed = [
            (self.mss.is_some(), 4),
            (self.timestamps.is_some(), 12),
            // Within a SYN that has timestamps, this option takes the place of their padding.
            (self.sack_permitted && self.timestamps.is_none(), 4),
            (self.window_scale.is_some(), 4),
            (!self.sack.is_empty(), 4 + self.sack.as_slice().len() * 8),
        ];
        fixed.iter().filter(|(has, _)| *has).map(|(_, bytes)| bytes).sum()
    }

    fn write(&self, out: &mut Writer<'_>) {
        if let Some(mss) = self.mss {
            out.put(&[kind::MSS, 4]);
            out.put(&mss.to_be_bytes());
        }
        match (self.sack_permitted, self.timestamps.is_some()) {
            (true, true) => out.put(&[kind::SACK_PERMITTED, 2]),
            (true, false) => out.put(&[kind::NOP, kind::NOP, kind::SACK_PERMITTED, 2]),
            (false, true) => out.put(&[kind::NOP, kind::NOP]),
            (false, false) => {}
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            out.put(&[kind::TIMESTAMPS, 10]);
            out.put(&value.to_be_bytes());
            out.put(&echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            out.put(&[kind::NOP, kind::WINDOW_SCALE, 3, shift]);
        }
        if !self.sack.is_empty() {
            self.write_sack(out);
        }
    }

    fn write_sack(&self, out: &mut Writer<'_>) {
        let blocks = self.sack.as_slice();
        out.put(&[kind::NOP, kind::NOP, kind::SACK, 2 + blocks.len() as u8 * 8]);
        for (first, end) in blocks {
            out.put(&first.0.to_be_bytes());
            out.put(&end.0.to_be_bytes());
        }
    }
}

/// A header that is sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// Our port.
    pub source_port: u16,
    /// The other end's port.
    pub destination_port: u16,
    /// The number of the first byte.
    pub seq: Seq,
    /// The number expected next.
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// The window, scaled.
    pub window: u16,
    /// The options.
    pub options: OutgoingOptions,
}

impl Outgoing {
    /// Bytes on the wire.
    pub fn length(&self) -> usize {
        HEADER + self.options.length()
    }

    /// Writes the header, with a checksum of 0, into `to`, which has its length.
    pub fn write(&self, to: &mut [u8]) {
        let offset = (to.len() / 4) as u8;
        let mut fixed = [0; HEADER];
        fixed[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        fixed[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        fixed[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        fixed[12..14].copy_from_slice(&[offset << 4, self.flags.0]);
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        let (head, options) = to.split_at_mut(HEADER);
        head.copy_from_slice(&fixed);
        self.options.write(&mut Writer { to: options, at: 0 });
    }
}

/// Bytes one after the other.
struct Writer<'a> {
    to: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.to[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Header, Options, parse};
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn sack(blocks: &[(u32, u32)]) -> SackBlocks {
        let mut sack = SackBlocks::default();
        blocks.iter().for_each(|&(first, end)| sack.push((Seq(first), Seq(end))));
        sack
    }

    fn options() -> impl Strategy<Value = OutgoingOptions> {
        let blocks = proptest::collection::vec(any::<(u32, u32)>(), 0..3);
        let syn = (any::<Option<u16>>(), proptest::option::of(0u8..15), any::<bool>());
        let timestamps = any::<Option<(u32, u32)>>();
        (syn, timestamps, blocks).prop_map(
            |((mss, window_scale, sack_permitted), timestamps, blocks)| {
                let timestamps = timestamps.map(|(value, echo)| Timestamps { value, echo });
                let is_syn = mss.is_some();
                OutgoingOptions {
                    mss,
                    window_scale: window_scale.filter(|_| is_syn),
                    sack_permitted: sack_permitted && is_syn,
                    timestamps,
                    sack: if is_syn { SackBlocks::default() } else { sack(&blocks) },
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            ports in (1u16.., 1u16..),
            numbers: (u32, u32),
            flags: u8,
            window: u16,
            options in options(),
        ) {
            let (seq, ack, flags) = (Seq(numbers.0), Seq(numbers.1), Flags(flags));
            let (source_port, destination_port) = ports;
            let out = Outgoing { source_port, destination_port, seq, ack, flags, window, options };
            let mut bytes = vec![0; out.length()];
            out.write(&mut bytes);
            bytes.push(7);
            let OutgoingOptions { mss, window_scale, sack_permitted, timestamps, sack } = options;
            let options = Options { mss, window_scale, sack_permitted, timestamps, sack };
            let header = Header { source_port, destination_port, seq, ack, flags, window, options };
            prop_assert_eq!(parse(&bytes), Ok((header, &[7][..])));
        }

        #[test]
        fn no_bytes_make_the_parser_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
