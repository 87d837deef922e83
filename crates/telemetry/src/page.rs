//! The writer's side.

use heddle_core::{AtomicHistogram, Event, Ns};
use heddle_sys::memory::sealed_file;
use rustix::fs::{FallocateFlags, fallocate, fstat};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};
use std::ffi::CString;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::clock::{Anchor, Clock, deadline};
use crate::counter::Counter;
use crate::layout::{
    Entry, Head, Header, LABELS, Layout, MAGIC, Offsets, Shape, Strings, VERSION, place,
};
use crate::memory::Memory;
use crate::reader::{Batch, Cursor};
use crate::ring::{self, Slot};

/// The file of a page. The program may have closed its descriptor and use the number for something else.
#[derive(Debug)]
struct File {
    fd: ManuallyDrop<OwnedFd>,
    /// Device and inode.
    identity: (u64, u64),
}

impl File {
    fn identity_of(fd: &OwnedFd) -> io::Result<(u64, u64)> {
        let stat = fstat(fd)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Makes the file, with its fixed part allocated. Its descriptor gets a high number, out of the way of programs
    /// that count on low ones, and of those that use `select`.
    fn new(at: &Offsets) -> io::Result<File> {
        let name = CString::new(format!("heddle:{}", std::process::id()))?;
        let file = sealed_file(&name, at.end)?;
        // Where memory is short, creating the page fails, and not a store into it. Rings are allocated by readers.
        fallocate(&file, FallocateFlags::empty(), 0, at.slots as u64)?;
        let file = fcntl_dupfd_cloexec(&file, high_number()).unwrap_or(file);
        Ok(File { identity: File::identity_of(&file)?, fd: ManuallyDrop::new(file) })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if File::identity_of(&self.fd).is_ok_and(|now| now == self.identity) {
            // SAFETY: it is the page's own, and this is its last use.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

/// Returns the lowest number for descriptors that programs should not meet: below 1024, where `select` ends, so that
/// the kernel's table stays small.
fn high_number() -> i32 {
    const HIGH: u64 = 960;
    getrlimit(Resource::Nofile).current.map_or(HIGH, |limit| HIGH.min(limit / 4 * 3)) as i32
}

/// Returns whether this process is to show pages: unless `HEDDLE_TELEMETRY` is `off`.
#[must_use]
pub fn is_wanted() -> bool {
    std::env::var_os("HEDDLE_TELEMETRY").is_none_or(|value| value != "off")
}

/// A page of this process. Other processes find it until it is dropped; see the crate.
#[derive(Debug)]
pub struct Page {
    memory: Memory,
    clock: Clock,
    file: Option<File>,
    /// Where in the strings there is room for labels that change, and how often they have.
    room: usize,
    changes: AtomicUsize,
}

impl Page {
    /// Makes a page that other processes of the user find if they shall see it (`seen`); if not, or if the system has
    /// no descriptor or memory for that, a private one, and returns why.
    ///
    /// # Errors
    /// Those of [`Page::private`].
    pub fn open(layout: &Layout<'_>, seen: bool) -> io::Result<(Page, Option<String>)> {
        let public = match seen {
            true => Page::create(layout).map_err(|error| format!("no page could be made: {error}")),
            false => Err("HEDDLE_TELEMETRY=off, or the builder's `telemetry(false)`".to_owned()),
        };
        match public {
            Ok(page) => Ok((page, None)),
            Err(why) => Ok((Page::private(layout)?, Some(why))),
        }
    }

    /// Makes a page that other processes of the user find.
    ///
    /// # Errors
    /// `InvalidInput` for a layout that is too large; the system's: no descriptor or memory left, or too many pages.
    pub fn create(layout: &Layout<'_>) -> io::Result<Page> {
        Page::new(layout, |shape, at| {
            let file = File::new(&at)?;
            Ok((Memory::shared(&*file.fd, shape, at, true)?, Some(file)))
        })
    }

    /// Makes a page that no other process finds: what counts there need not know.
    ///
    /// # Errors
    /// `InvalidInput` for a layout that is too large; the system's if no address space is left.
    pub fn private(layout: &Layout<'_>) -> io::Result<Page> {
        Page::new(layout, |shape, at| Ok((Memory::private(shape, at)?, None)))
    }

    fn new(
        layout: &Layout<'_>,
        make: impl FnOnce(Shape, Offsets) -> io::Result<(Memory, Option<File>)>,
    ) -> io::Result<Page> {
        let mut strings = Strings::default();
        let labels = strings.add(layout.labels);
        let names: Vec<_> =
            layout.names().map(|name| (strings.add(name.0), strings.add(name.1))).collect();
        let room = strings.bytes.len();
        let (shape, at) = layout.shape(room + 2 * LABELS)?;
        let (memory, file) = make(shape, at)?;
        let (clock, changes) = (Clock::of_machine(), AtomicUsize::new(0));
        let page = Page { memory, clock, file, room, changes };
        let bytes = page.memory.strings().iter().zip(strings.bytes);
        bytes.for_each(|(to, byte)| to.store(byte, Ordering::Relaxed));
        page.memory.entries().iter().zip(names).for_each(|(entry, names)| entry.write(names));
        page.memory.header().write(shape, labels, page.clock);
        Ok(page)
    }

    /// Returns whether other processes find it.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.file.is_some()
    }

    /// Replaces the labels of everything here: for what seldom changes, such as a policy. Of more than 256 bytes the
    /// rest is left out. One thread at a time calls it. A reader sees the old labels or the new ones, unless they
    /// change twice while it reads.
    pub fn set_labels(&self, labels: &str) {
        let fits = (0..=LABELS.min(labels.len())).rev().find(|&len| labels.is_char_boundary(len));
        let labels = &labels[..fits.unwrap_or(0)];
        let at = self.room + self.changes.fetch_add(1, Ordering::Relaxed) % 2 * LABELS;
        let bytes = self.memory.strings()[at..].iter().zip(labels.bytes());
        bytes.for_each(|(to, byte)| to.store(byte, Ordering::Relaxed));
        let place = place((at as u32, labels.len() as u32));
        self.memory.header().labels.store(place, Ordering::Release);
    }

    /// Returns a counter by its index in the layout. From then on readers see it.
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn counter(&self, index: usize) -> &Counter {
        &self.counters(index..index + 1)[0]
    }

    /// Returns counters by their indices in the layout. From then on readers see them.
    ///
    /// # Panics
    /// If there are no such counters.
    pub fn counters(&self, indices: Range<usize>) -> &[Counter] {
        let counters = &self.memory.counters()[indices.clone()];
        self.memory.entries()[indices].iter().for_each(Entry::show);
        counters
    }

    /// Returns a histogram by its index in the layout. From then on readers see it.
    ///
    /// # Panics
    /// If there is no such histogram.
    pub fn histogram(&self, index: usize) -> &AtomicHistogram {
        let histogram = &self.memory.histograms()[index];
        self.memory.entries()[self.memory.shape().counters as usize + index].show();
        histogram
    }

    /// Returns a ring by its index in the layout.
    ///
    /// # Panics
    /// If there is no such ring.
    pub fn ring(&self, index: usize) -> RingWriter<'_> {
        let shape = self.memory.shape();
        let (head, slots) = (&self.memory.heads()[index], self.memory.slots(index));
        self.memory.entries()[(shape.counters + shape.histograms) as usize + index].show();
        RingWriter { until: &self.memory.header().until, head, slots, clock: self.clock }
    }

    /// Gives the marks with this number in [`Event::by`] a name for readers, before the first is recorded; a number has
    /// one name for good. Names longer than 124 bytes are cut. A number that the layout has no room for stays without.
    ///
    /// Where only this process has recording turned on, this may take memory from the system.
    pub fn name_mark(&self, number: u32, name: &str) {
        if let Some(mark) = self.memory.marks().get(number as usize) {
            mark.write(name);
        }
    }

    /// Has events recorded for at least `time` from now on, as a reader in another process would.
    pub fn record(&self, time: Ns) {
        self.memory.header().until.fetch_max(deadline(self.clock, time), Ordering::Relaxed);
    }

    /// Returns the end of a ring, from which [`Page::events`] can read.
    ///
    /// # Panics
    /// If there is no such ring.
    #[must_use]
    pub fn cursor(&self, ring: usize) -> Cursor {
        Cursor::at_end(&self.memory, ring)
    }

    /// Returns the events of a ring from `cursor` on, and moves that to their end.
    ///
    /// # Panics
    /// If there is no such ring.
    pub fn events(&self, ring: usize, cursor: &mut Cursor) -> Batch {
        cursor.read(&self.memory, ring, self.clock, self.memory.made())
    }

    /// Returns a copy of a public page: seeds for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.memory.size()];
        let file = self.file.as_ref().map(|file| rustix::io::pread(&*file.fd, &mut bytes, 0));
        assert_eq!(file, Some(Ok(bytes.len())), "a page that others find");
        bytes
    }
}

impl Header {
    fn write(&self, shape: Shape, labels: (u32, u32), clock: Clock) {
        let anchor = Anchor::now();
        let numbers = [
            (&self.version, VERSION),
            (&self.pid, std::process::id()),
            (&self.clock, clock as u32),
            (&self.counters, shape.counters),
            (&self.histograms, shape.histograms),
            (&self.rings, shape.rings),
            (&self.ring_events, shape.ring_events),
            (&self.strings, shape.strings),
            (&self.marks, shape.marks),
        ];
        numbers.into_iter().for_each(|(to, number)| to.store(number, Ordering::Relaxed));
        self.labels.store(place(labels), Ordering::Relaxed);
        self.ns.store(anchor.ns, Ordering::Relaxed);
        self.ticks.store(anchor.ticks, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }
}

impl Entry {
    fn write(&self, ((name, name_len), (labels, labels_len)): ((u32, u32), (u32, u32))) {
        let pairs = [
            (&self.name, name),
            (&self.name_len, name_len),
            (&self.labels, labels),
            (&self.labels_len, labels_len),
        ];
        pairs.into_iter().for_each(|(to, number)| to.store(number, Ordering::Relaxed));
    }

    fn show(&self) {
        self.shown.store(1, Ordering::Relaxed);
    }
}

/// A ring of events. One thread at a time writes it: each has seen what the one before did, for instance because both
/// hold the same lock.
#[derive(Clone, Copy)]
pub struct RingWriter<'a> {
    until: &'a AtomicU64,
    head: &'a Head,
    slots: &'a [Slot],
    clock: Clock,
}

impl RingWriter<'_> {
    /// Returns whether a reader wants events: a load.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.until.load(Ordering::Relaxed) != 0
    }

    /// Adds an event if a reader wants events. Its time is now, whatever [`Event::at`] says.
    #[inline(always)]
    pub fn record(&self, event: impl FnOnce() -> Event) {
        if self.is_on() {
            let [_, who, request, what] = event().into();
            self.write(who, request, what);
        }
    }

    /// Kept out of line, and so out of the way of a program that is not recorded. Takes the words of an event in
    /// registers, so that the caller needs no memory for it.
    #[inline(never)]
    fn write(&self, who: u64, request: u64, what: u64) {
        let (now, until) = (self.clock.now(), self.until.load(Ordering::Relaxed));
        if now > until {
            // No reader has renewed it. If a reader does so now, its number stays.
            let _ = self.until.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
            return;
        }
        ring::write(&self.head.0, self.slots, [now, who, request, what]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::Reader;
    use heddle_core::{CpuId, EventKind};
    use std::os::fd::{AsRawFd as _, FromRawFd as _};

    const LAYOUT: Layout<'_> = Layout {
        labels: "",
        counters: &[("a_total", ""), ("b_total", "")],
        histograms: &[("c_seconds", "")],
        rings: &[("d", "")],
        ring_events: 8,
        marks: 2,
    };

    fn event() -> Event {
        Event::task(Ns::ZERO, CpuId(0), 1, EventKind::Start)
    }

    #[test]
    fn nothing_is_recorded_unless_a_reader_wants_it_and_for_no_longer() {
        let page = Page::private(&LAYOUT).unwrap();
        assert!(!page.is_public());
        let ring = page.ring(0);
        ring.record(|| panic!("no reader wants events"));
        page.record(Ns::from_secs(3600));
        ring.record(event);
        assert_eq!(ring.head.0.load(Ordering::Relaxed), 1);
        // An hour has passed, and no reader has renewed it.
        page.memory.header().until.store(1, Ordering::Relaxed);
        ring.record(event);
        assert!(!ring.is_on());
        assert_eq!(ring.head.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn names_of_marks_are_read_by_their_numbers() {
        let page = Page::create(&Layout { labels: "layer=names", ..LAYOUT }).unwrap();
        page.name_mark(1, "parse\x1b");
        page.name_mark(9, "no room");
        let found = crate::find(std::process::id()).unwrap();
        let reader = found.iter().find(|reader| reader.labels() == "layer=names").unwrap();
        let names = [0, 1, 9].map(|number| reader.mark_name(number));
        assert_eq!(names, [None, Some("parse\\u{1b}".to_owned()), None]);
    }

    #[test]
    fn labels_change_and_the_rest_of_long_ones_is_left_out() {
        let page = Page::create(&Layout { labels: "policy=first", ..LAYOUT }).unwrap();
        let file = page.file.as_ref().unwrap().fd.try_clone().unwrap();
        let reader = Reader::open(file, None).unwrap();
        assert_eq!(reader.labels(), "policy=first");
        for labels in ["policy=second", "", "policy=third"] {
            page.set_labels(labels);
            assert_eq!(reader.labels(), labels);
        }
        page.set_labels(&format!("{}é", "x".repeat(LABELS - 1)));
        assert_eq!(reader.labels(), "x".repeat(LABELS - 1), "no half of a letter");
        page.counter(0).add(1);
        assert_eq!(reader.counters()[0].name, "a_total", "names are where they were");
    }

    #[test]
    fn a_descriptor_that_the_program_has_closed_is_not_closed_again() {
        let page = Page::create(&LAYOUT).unwrap();
        let fd = page.file.as_ref().unwrap().fd.as_raw_fd();
        assert!(fd >= high_number(), "{fd}");
        let other = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: for the rest of the test the number is that of `other`'s copy, which is owned below.
        let copy = unsafe {
            heddle_sys::memory::replace_descriptor(fd, &other).unwrap();
            OwnedFd::from_raw_fd(fd)
        };
        page.counter(0).add(1);
        assert_eq!(page.counter(0).get(), 1);
        drop(page);
        assert!(fstat(&copy).is_ok());
    }

    #[test]
    fn a_child_of_a_fork_counts_for_itself() {
        let page = Page::create(&LAYOUT).unwrap();
        let (counter, ring) = (page.counter(0), page.ring(0));
        counter.add(2);
        page.record(Ns::from_secs(3600));
        let child = || {
            counter.add(1);
            ring.record(event);
            counter.get() == 1 && !ring.is_on()
        };
        assert!(heddle_sys::fork::in_child(child).unwrap());
        assert_eq!((counter.get(), ring.head.0.load(Ordering::Relaxed)), (2, 0));
    }
}
