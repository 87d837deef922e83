//! Packets, one after another.

use std::collections::HashMap;
use std::io::{self, Write};

use prost::Message as _;
use prost::encoding::encode_varint;

use super::Clocks;
use super::proto::{
    Clock, ClockSnapshot, Defaults, InternedData, Name, Packet, TrackEvent, clock, sequence,
};

/// How many names a sequence remembers before it begins anew.
const NAMES: usize = 1 << 14;

/// A file of packets, each after its length.
pub struct Packets<W> {
    out: W,
    buffer: Vec<u8>,
    pub bytes: u64,
}

impl<W: Write> Packets<W> {
    pub fn new(out: W) -> Packets<W> {
        Packets { out, buffer: Vec::new(), bytes: 0 }
    }

    pub fn write(&mut self, packet: &Packet) -> io::Result<()> {
        /// Field 1 of the trace, with a length.
        const TAG: u8 = 1 << 3 | 2;
        self.buffer.clear();
        self.buffer.push(TAG);
        encode_varint(packet.encoded_len() as u64, &mut self.buffer);
        packet.encode_raw(&mut self.buffer);
        self.out.write_all(&self.buffer)?;
        self.bytes += self.buffer.len() as u64;
        Ok(())
    }

    /// Flushes the file and returns it, with the number of bytes.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        self.out.flush()?;
        Ok((self.out, self.bytes))
    }
}

/// A sequence of packets with names and a clock of its own: names are written once, and times as differences.
pub struct Sequence {
    id: u32,
    clocks: Clocks,
    /// The time of the last packet by the sequence's clock; `None` before the first.
    last: Option<u64>,
    names: HashMap<String, u64>,
    /// Names that are not written yet.
    new: InternedData,
    has_lost: bool,
}

impl Sequence {
    pub fn new(id: u32, clocks: Clocks) -> Sequence {
        let (names, new) = (HashMap::new(), InternedData::default());
        Sequence { id, clocks, last: None, names, new, has_lost: false }
    }

    /// Returns the number that stands for `name`; `is_category` says in which table.
    fn number(&mut self, name: &str, is_category: bool) -> u64 {
        // The tables are numbered apart, but sharing the numbers is simpler, and so is one prefix for the key.
        let key = if is_category { format!("c{name}") } else { format!("n{name}") };
        if let Some(&number) = self.names.get(&key) {
            return number;
        }
        let number = self.names.len() as u64 + 1;
        self.names.insert(key, number);
        let entry = Name { number: Some(number), name: Some(name.into()) };
        match is_category {
            true => self.new.categories.push(entry),
            false => self.new.names.push(entry),
        }
        number
    }

    /// Says with the next event that events are missing before it.
    pub fn lost(&mut self) {
        self.has_lost = true;
    }

    /// Writes an event of a track.
    pub fn event<W: Write>(
        &mut self,
        out: &mut Packets<W>,
        at: u64,
        (category, name): (&str, Option<&str>),
        mut event: TrackEvent,
    ) -> io::Result<()> {
        if self.last.is_none() || self.names.len() >= NAMES {
            self.begin(out, at)?;
        }
        if let Some(name) = name {
            event.categories = vec![self.number(category, true)];
            event.name = Some(self.number(name, false));
        }
        let mut packet = Packet {
            sequence: Some(self.id),
            track_event: Some(event),
            sequence_flags: Some(sequence::NEEDS_STATE),
            previous_dropped: self.has_lost.then_some(true),
            ..Packet::default()
        };
        if !(self.new.names.is_empty() && self.new.categories.is_empty()) {
            packet.interned = Some(std::mem::take(&mut self.new));
        }
        match self.last.and_then(|last| at.checked_sub(last)) {
            Some(since) => {
                packet.timestamp = Some(since);
                self.last = Some(at);
            }
            // Rings are read one after another, so time may go back; such an event does not move the clock.
            None => {
                packet.timestamp = Some(at);
                packet.timestamp_clock = Some(clock::MONOTONIC);
            }
        }
        self.has_lost = false;
        out.write(&packet)
    }

    /// Begins the sequence, or begins it anew: names are forgotten, and the clock starts at `at`.
    fn begin<W: Write>(&mut self, out: &mut Packets<W>, at: u64) -> io::Result<()> {
        self.names.clear();
        self.new = InternedData::default();
        self.last = Some(at);
        let own =
            Clock { id: Some(clock::OF_SEQUENCE), timestamp: Some(at), is_incremental: Some(true) };
        out.write(&Packet {
            sequence: Some(self.id),
            sequence_flags: Some(sequence::CLEARED),
            clock_snapshot: Some(ClockSnapshot {
                clocks: self.clocks.at(at).into_iter().chain([own]).collect(),
                primary: Some(clock::MONOTONIC),
            }),
            defaults: Some(Defaults { timestamp_clock: Some(clock::OF_SEQUENCE) }),
            ..Packet::default()
        })
    }
}
