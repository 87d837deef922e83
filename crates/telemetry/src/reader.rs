//! The reader's side. It may be given anything.

use heddle_core::{Event, Histogram, Ns};
use heddle_sys::processes::Process;
use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_get_seals, fstat};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;

use crate::clock::{Anchor, Clock, deadline};
use crate::layout::{Entry, Header, MAGIC, Shape, VERSION};
use crate::memory::Memory;
use crate::ring;

/// A named number, histogram or ring of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric<T> {
    /// The name, with control characters and other unprintable bytes escaped.
    pub name: String,
    /// Its labels, `key=value,...`, escaped in the same way.
    pub labels: String,
    /// What it is now.
    pub value: T,
}

/// What happened since the last look at a ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The events, in the order in which they were recorded. Times are `CLOCK_MONOTONIC`, and never decrease.
    pub events: Vec<Event>,
    /// How many came before these and were overwritten before they could be read.
    pub lost: u64,
    /// How many are of kinds that this version does not know.
    pub unknown: u64,
}

/// The place in a ring up to which a reader has read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    next: u64,
    last: Ns,
}

impl Cursor {
    /// Returns the end of a ring of `memory`.
    pub(crate) fn at_end(memory: &Memory, ring: usize) -> Cursor {
        Cursor { next: memory.heads()[ring].0.load(Ordering::Relaxed), last: Ns::ZERO }
    }

    /// Returns the events of a ring from here on, whose times are by `clock`, which was read at the moment `made`, and
    /// moves to their end.
    pub(crate) fn read(
        &mut self,
        memory: &Memory,
        ring: usize,
        clock: Clock,
        made: Anchor,
    ) -> Batch {
        let copied = ring::read(&memory.heads()[ring].0, memory.slots(ring), self.next);
        let (now, mut unknown) = (Anchor::now(), 0);
        let convert = |words| {
            let event = Event::try_from(words).inspect_err(|_| unknown += 1).ok()?;
            let at = match clock {
                Clock::Ticks => Ns(now.ns_of(event.at.0, made)),
                Clock::Ns => event.at,
            };
            // The rate is known a little better each time.
            self.last = self.last.max(at);
            Some(Event { at: self.last, ..event })
        };
        let events = copied.words.into_iter().filter_map(convert).collect();
        self.next = copied.next;
        Batch { events, lost: copied.lost, unknown }
    }
}

/// Another process's page, or one's own.
#[derive(Debug)]
pub struct Reader {
    memory: Memory,
    clock: Clock,
    made: Anchor,
    process: Option<Process>,
    file: OwnedFd,
    cursors: Vec<Cursor>,
}

/// Why something is no page.
fn refused(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

impl Reader {
    /// Opens the page that `file` is, found in `process`. Events that are in its rings already are not read.
    ///
    /// # Errors
    /// `InvalidData`, with a sentence, if it is no page or one of another version; the system's, for instance if it may
    /// not be written, which is how recording is turned on.
    #[doc(hidden)]
    pub fn open(file: OwnedFd, process: Option<Process>) -> io::Result<Reader> {
        // No process can shorten it: an access beyond its end would end this process.
        let seals = fcntl_get_seals(&file).map_err(|_| refused("a page is a file in memory"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(refused("a page is sealed against shrinking"));
        }
        let size = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
        let shape = shape_of(&file, size)?;
        let at = shape.offsets().ok_or_else(|| refused("the page's numbers are out of bounds"))?;
        if size < at.end as u64 {
            return Err(refused("the page is shorter than its contents"));
        }
        let memory = Memory::shared(file.as_fd(), shape, at, false)?;
        let header = memory.header();
        let clock = Clock::of(header.clock.load(Ordering::Relaxed));
        let clock = clock.ok_or_else(|| refused("the page has an unknown clock"))?;
        let made = memory.made();
        let rings = 0..shape.rings as usize;
        let cursors = rings.map(|ring| Cursor::at_end(&memory, ring)).collect();
        Ok(Reader { clock, made, process, file, cursors, memory })
    }

    /// Returns the process in which it was found.
    #[must_use]
    pub fn process(&self) -> Option<Process> {
        self.process
    }

    /// Returns the id that the process has in its own namespace, as it says.
    #[must_use]
    pub fn own_pid(&self) -> u32 {
        self.memory.header().pid.load(Ordering::Relaxed)
    }

    /// Returns what tells its page from all others, of this process too, while either is open.
    ///
    /// # Errors
    /// The system's.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let stat = fstat(&self.file)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Returns whether the process that made it has not ended. What it counted can still be read afterwards.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.process.is_some_and(Process::lives)
    }

    /// Returns the labels of everything here, escaped as those of a [`Metric`].
    #[must_use]
    pub fn labels(&self) -> String {
        // Their bytes were written before.
        let place = self.memory.header().labels.load(Ordering::Acquire);
        self.text(place as u32, (place >> 32) as u32)
    }

    /// Returns whether the page has rings of events, in use or not.
    #[must_use]
    pub fn has_rings(&self) -> bool {
        self.memory.shape().rings > 0
    }

    /// Returns the value of one of the labels of everything here; `None` if there is none of that name.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<String> {
        let labels = self.labels();
        let mut pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
        pairs.find(|(name, _)| *name == key).map(|(_, value)| value.into())
    }

    /// Returns the counters that the process uses.
    #[must_use]
    pub fn counters(&self) -> Vec<Metric<u64>> {
        self.shown(0, self.memory.counters().iter().map(|counter| || counter.get()))
    }

    /// Returns the histograms that the process uses.
    #[must_use]
    pub fn histograms(&self) -> Vec<Metric<Histogram>> {
        let first = self.memory.shape().counters as usize;
        self.shown(first, self.memory.histograms().iter().map(|histogram| || histogram.load()))
    }

    /// Returns the rings that the process uses, by the numbers that [`Reader::events`] takes.
    #[must_use]
    pub fn rings(&self) -> Vec<Metric<usize>> {
        let shape = self.memory.shape();
        let first = (shape.counters + shape.histograms) as usize;
        self.shown(first, (0..shape.rings as usize).map(|ring| move || ring))
    }

    /// Returns the name of the marks with this number in [`Event::by`], escaped as those of a [`Metric`]; `None` if
    /// they have none.
    #[must_use]
    pub fn mark_name(&self, number: u32) -> Option<String> {
        let name = escape(&self.memory.marks().get(number as usize)?.read());
        (!name.is_empty()).then_some(name)
    }

    /// Has the process record events for at least `time` from now on; to go on, ask again before it is over. Others may
    /// want them for longer.
    ///
    /// # Errors
    /// The system's, if there is no memory for the rings.
    pub fn record(&self, time: Ns) -> io::Result<()> {
        fallocate(&self.file, FallocateFlags::empty(), 0, self.memory.size() as u64)?;
        self.memory.header().until.fetch_max(deadline(self.clock, time), Ordering::Relaxed);
        Ok(())
    }

    /// Returns the events that were recorded in a ring since the last call, or since this was opened.
    ///
    /// # Panics
    /// If there is no such ring.
    pub fn events(&mut self, ring: usize) -> Batch {
        self.cursors[ring].read(&self.memory, ring, self.clock, self.made)
    }

    /// Returns the values whose entries, from number `first` on, are shown.
    fn shown<T, F: FnOnce() -> T>(
        &self,
        first: usize,
        values: impl Iterator<Item = F>,
    ) -> Vec<Metric<T>> {
        let entries = self.memory.entries()[first..].iter();
        let shown =
            entries.zip(values).filter(|(entry, _)| entry.shown.load(Ordering::Relaxed) != 0);
        let metric = |(entry, value): (&Entry, F)| {
            let [name, name_len, labels, labels_len] =
                [&entry.name, &entry.name_len, &entry.labels, &entry.labels_len]
                    .map(|number| number.load(Ordering::Relaxed));
            let (name, labels) = (self.text(name, name_len), self.text(labels, labels_len));
            Metric { name, labels, value: value() }
        };
        shown.map(metric).collect()
    }

    /// Returns a text of the page, escaped; empty if it does not lie within the strings. Longer ones than any name are
    /// cut.
    fn text(&self, at: u32, len: u32) -> String {
        const LONGEST: usize = 1024;
        let (at, len) = (at as usize, len as usize);
        let bytes = self.memory.strings().get(at..).and_then(|rest| rest.get(..len.min(LONGEST)));
        let bytes = bytes.unwrap_or_default().iter().map(|byte| byte.load(Ordering::Relaxed));
        escape(&bytes.collect::<Vec<u8>>())
    }
}

/// Reads the shape of a page from a file of `size` bytes.
fn shape_of(file: &OwnedFd, size: u64) -> io::Result<Shape> {
    let mut bytes = [0; size_of::<Header>()];
    let file = std::fs::File::from(file.try_clone()?);
    if size < bytes.len() as u64 {
        return Err(refused("the page has no header"));
    }
    file.read_exact_at(&mut bytes, 0)?;
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let magic = u64::from(word(0)) | u64::from(word(4)) << 32;
    let version = word(std::mem::offset_of!(Header, version));
    if magic != MAGIC {
        return Err(refused("this is no page of Heddle, or it is not finished"));
    }
    if version != VERSION {
        return Err(refused(format!(
            "the page is of version {version}, and this Heddle reads {VERSION}"
        )));
    }
    Ok(Shape {
        counters: word(std::mem::offset_of!(Header, counters)),
        histograms: word(std::mem::offset_of!(Header, histograms)),
        rings: word(std::mem::offset_of!(Header, rings)),
        ring_events: word(std::mem::offset_of!(Header, ring_events)),
        strings: word(std::mem::offset_of!(Header, strings)),
        marks: word(std::mem::offset_of!(Header, marks)),
    })
}

/// Returns bytes as text without anything that a terminal would act on.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c.is_control() || is_invisible(c) {
                true => text.extend(c.escape_unicode()),
                false => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// Returns whether `c` changes how the text around it is shown: the direction, or nothing that can be seen.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_without_anything_that_a_terminal_acts_on() {
        assert_eq!(escape("größe µs".as_bytes()), "größe µs");
        assert_eq!(escape(b"a\x1b[2Jb\n\xff\x00"), "a\\u{1b}[2Jb\\u{a}\\xff\\u{0}");
        assert_eq!(escape("a\u{202e}b\u{9b}".as_bytes()), "a\\u{202e}b\\u{9b}");
    }
}
