//! Frames as a capture file that Wireshark and tcpdump read: the format pcapng, with times in nanoseconds.
//!
//! Frames of lanes pass no packet socket, so tcpdump on the interface does not see them. This formats; where the bytes
//! go, and on which thread, is up to the caller.

use std::io::{self, Write};

/// The types of blocks (draft-ietf-opsawg-pcapng, section 4).
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

/// The link type of Ethernet.
const ETHERNET: u16 = 1;
/// Options; each kind of block numbers its own.
const END: u16 = 0;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;
const STATISTICS_DROPPED: u16 = 5;
/// Times are powers of ten of a second: nanoseconds.
const NANOSECONDS: u8 = 9;

/// Which way a frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It was received.
    Received,
    /// It was sent.
    Sent,
}

/// One of a capture's interfaces, a lane for example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceId(u32);

/// Writes a capture.
///
/// ```
/// use heddle_netstack::pcap::{Direction, PcapWriter};
///
/// let mut capture = PcapWriter::new(Vec::new(), 262_144)?;
/// let lane = capture.add_interface("eth0, lane 0")?;
/// capture.frame(lane, 1_700_000_000_000_000_000, Direction::Sent, &[0; 60])?;
/// assert!(capture.into_inner()?.len() > 60);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PcapWriter<W: Write> {
    to: W,
    interfaces: u32,
    snap_length: u32,
    block: Vec<u8>,
}

impl<W: Write> PcapWriter<W> {
    /// Begins a capture that keeps up to `snap_length` bytes of each frame; 0 keeps all.
    ///
    /// # Errors
    /// Those of writing.
    pub fn new(to: W, snap_length: u32) -> io::Result<Self> {
        let mut writer = Self { to, interfaces: 0, snap_length, block: Vec::new() };
        // The byte order, version 1.0, and an unknown length of the section.
        writer.begin(SECTION);
        writer.put(&0x1a2b_3c4d_u32.to_le_bytes());
        writer.put(&1_u16.to_le_bytes());
        writer.put(&0_u16.to_le_bytes());
        writer.put(&u64::MAX.to_le_bytes());
        writer.end()?;
        Ok(writer)
    }

    /// Adds an interface of this name.
    ///
    /// # Errors
    /// Those of writing.
    pub fn add_interface(&mut self, name: &str) -> io::Result<InterfaceId> {
        self.begin(INTERFACE);
        self.put(&ETHERNET.to_le_bytes());
        self.put(&[0; 2]);
        self.put(&self.snap_length.to_le_bytes());
        self.option(INTERFACE_NAME, name.as_bytes());
        self.option(INTERFACE_RESOLUTION, &[NANOSECONDS]);
        self.option(END, &[]);
        self.end()?;
        self.interfaces += 1;
        Ok(InterfaceId(self.interfaces - 1))
    }

    /// Writes a frame, from its Ethernet header on. `time` is in nanoseconds since 1970.
    ///
    /// # Errors
    /// Those of writing.
    pub fn frame(
        &mut self,
        interface: InterfaceId,
        time: u64,
        direction: Direction,
        frame: &[u8],
    ) -> io::Result<()> {
        let limit = if self.snap_length == 0 { usize::MAX } else { self.snap_length as usize };
        let kept = &frame[..frame.len().min(limit)];
        self.begin(PACKET);
        self.interface_and_time(interface, time);
        self.put(&length(kept)?.to_le_bytes());
        self.put(&length(frame)?.to_le_bytes());
        self.put(kept);
        self.pad();
        let flags: u32 = match direction {
            Direction::Received => 1,
            Direction::Sent => 2,
        };
        self.option(PACKET_FLAGS, &flags.to_le_bytes());
        self.option(END, &[]);
        self.end()
    }

    /// Writes how many frames of an interface are missing so far, because the capture was too slow.
    ///
    /// # Errors
    /// Those of writing.
    pub fn dropped(&mut self, interface: InterfaceId, time: u64, frames: u64) -> io::Result<()> {
        self.begin(STATISTICS);
        self.interface_and_time(interface, time);
        self.option(STATISTICS_DROPPED, &frames.to_le_bytes());
        self.option(END, &[]);
        self.end()
    }

    /// Writes what `W` has buffered.
    ///
    /// # Errors
    /// Those of writing.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// Those of writing what `W` has buffered.
    pub fn into_inner(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }

    /// Begins a block; its length is not known yet.
    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.put(&kind.to_le_bytes());
        self.put(&[0; 4]);
    }

    /// Ends a block with its length, which is also at its beginning, and writes it at once: a capture that is cut off
    /// lacks whole blocks.
    fn end(&mut self) -> io::Result<()> {
        let total = u32::try_from(self.block.len() + 4).map_err(io::Error::other)?.to_le_bytes();
        self.block[4..8].copy_from_slice(&total);
        self.put(&total);
        self.to.write_all(&self.block)
    }

    fn interface_and_time(&mut self, interface: InterfaceId, time: u64) {
        self.put(&interface.0.to_le_bytes());
        self.put(&((time >> 32) as u32).to_le_bytes());
        self.put(&(time as u32).to_le_bytes());
    }

    fn option(&mut self, kind: u16, value: &[u8]) {
        // Longer texts are cut: an option has at most 65,535 bytes.
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        self.put(&kind.to_le_bytes());
        self.put(&(value.len() as u16).to_le_bytes());
        self.put(value);
        self.pad();
    }

    fn put(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }
}

fn length(frame: &[u8]) -> io::Result<u32> {
    u32::try_from(frame.len()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits a capture into the types and contents of its blocks.
    fn blocks(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap());
        let mut blocks = Vec::new();
        while !bytes.is_empty() {
            let length = number(&bytes[4..]) as usize;
            let (block, rest) = bytes.split_at(length);
            assert_eq!((length % 4, number(&block[length - 4..]) as usize), (0, length));
            blocks.push((number(block), block[8..length - 4].to_vec()));
            bytes = rest;
        }
        blocks
    }

    fn capture(snap_length: u32, frame: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut capture = PcapWriter::new(Vec::new(), snap_length).unwrap();
        let _first = capture.add_interface("lane 0").unwrap();
        let second = capture.add_interface("lane 1").unwrap();
        capture.frame(second, 0x1122_3344_5566_7788, Direction::Sent, frame).unwrap();
        capture.dropped(second, 5, 9).unwrap();
        blocks(&capture.into_inner().unwrap())
    }

    #[test]
    fn a_capture_has_a_section_its_interfaces_and_its_frames() {
        let blocks = capture(0, &[7; 61]);
        let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [SECTION, INTERFACE, INTERFACE, PACKET, STATISTICS]);
        assert_eq!(blocks[0].1[..4], [0x4d, 0x3c, 0x2b, 0x1a]);
        assert_eq!(blocks[1].1[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(blocks[1].1[8..20], *b"\x02\0\x06\0lane 0\0\0");
        assert_eq!(blocks[1].1[20..], [9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_frame_has_its_interface_time_lengths_and_direction() {
        let blocks = capture(0, &[7; 61]);
        let packet = &blocks[3].1;
        assert_eq!(packet[..4], 1_u32.to_le_bytes());
        assert_eq!(packet[4..12], [0x44, 0x33, 0x22, 0x11, 0x88, 0x77, 0x66, 0x55]);
        assert_eq!(packet[12..20], [61, 0, 0, 0, 61, 0, 0, 0]);
        assert_eq!(packet[20..84], [[7; 61].as_slice(), &[0; 3]].concat());
        assert_eq!(packet[84..], [2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn long_frames_are_cut_and_their_length_is_kept() {
        let blocks = capture(16, &[7; 61]);
        assert_eq!(blocks[3].1[12..20], [16, 0, 0, 0, 61, 0, 0, 0]);
        assert_eq!(blocks[3].1[20..36], [7; 16]);
    }

    #[test]
    fn what_is_missing_is_written() {
        let blocks = capture(0, &[]);
        let statistics = &blocks[4].1;
        assert_eq!(statistics[12..], [5, 0, 8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
