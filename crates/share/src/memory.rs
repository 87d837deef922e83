//! The broker's side of the memory: it makes both kinds of parts, writes its own, and looks at those of members.
//!
//! The files are sealed, so that no process that has one can shrink it under the others. What a member has written is
//! returned as numbers, which the broker judges by its own clock and never uses as an index.

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use heddle_core::Ns;
use heddle_sys::futex;
use heddle_sys::memory::{SharedMemory, reopen_for_reading, sealed_file};

use crate::abi::{APPS, AppEntry, AppHeader, BrokerHeader, CPUS, CpuSlot, MAGIC, VERSION};
use crate::abi::{BROKER_SIZE, app_size};
use crate::handover::{NO_APP, State};

/// A sealed file, mapped for writing, and a descriptor that only reads it.
#[derive(Debug)]
struct Part {
    memory: SharedMemory,
    file: OwnedFd,
    reading: OwnedFd,
}

impl Part {
    /// Makes a part of `size` zeroed bytes.
    fn new(name: &CStr, size: usize) -> io::Result<Part> {
        let file = sealed_file(name, size)?;
        let reading = reopen_for_reading(&file)?;
        let part = Part { memory: SharedMemory::reserve(size)?, file, reading };
        part.memory.map(&part.file, true)?;
        Ok(part)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // SAFETY: this value alone hands out references to it, none of which outlives it; its copy is not used again.
        unsafe { self.memory.unmap() };
    }
}

/// The part that the broker writes and all members read.
#[derive(Debug)]
pub struct BrokerMemory(Part);

impl BrokerMemory {
    /// Makes the part of a share without members. Its lowest real-time priority is `priority`; 0 if the broker may
    /// grant none. Members of weight 1024 keep a CPU for `slice`.
    ///
    /// # Errors
    /// The system's.
    pub fn new(priority: u32, slice: Ns) -> io::Result<BrokerMemory> {
        let memory = BrokerMemory(Part::new(c"heddle-share", BROKER_SIZE)?);
        memory.set_priority(priority);
        memory.set_slice(slice);
        memory.header().version.store(VERSION, Ordering::Relaxed);
        memory.header().magic.store(MAGIC, Ordering::Release);
        Ok(memory)
    }

    /// Returns the descriptor that members get: it is for reading only.
    #[must_use]
    pub fn for_reading(&self) -> BorrowedFd<'_> {
        self.0.reading.as_fd()
    }

    /// Sets the lowest real-time priority; 0 for ordinary threads. Members read it when they join.
    pub fn set_priority(&self, priority: u32) {
        self.header().priority.store(priority, Ordering::SeqCst);
    }

    /// Sets how long a member of weight 1024 keeps a CPU for which others of its rank wait.
    pub fn set_slice(&self, slice: Ns) {
        self.header().slice.store(slice.0, Ordering::SeqCst);
    }

    /// Returns the set of members, a bit each.
    #[must_use]
    pub fn members(&self) -> u32 {
        self.header().members.load(Ordering::SeqCst)
    }

    /// Puts application `app` into the set of members, or takes it out.
    pub fn set_member(&self, app: usize, is_member: bool) {
        assert!(app < APPS);
        let members = &self.header().members;
        match is_member {
            true => members.fetch_or(1 << app, Ordering::SeqCst),
            false => members.fetch_and(!(1 << app), Ordering::SeqCst),
        };
    }

    /// Says what application `app` is.
    pub fn set_entry(&self, app: usize, pid: u32, rank: u32, weight: u32) {
        let entry = self.entry(app);
        entry.pid.store(pid, Ordering::SeqCst);
        entry.rank.store(rank, Ordering::SeqCst);
        entry.weight.store(weight, Ordering::SeqCst);
    }

    fn header(&self) -> &BrokerHeader {
        // SAFETY: mapped for as long as `self` lives, large enough, aligned to a page, all atomics.
        unsafe { &*self.0.memory.base().cast() }
    }

    fn entry(&self, app: usize) -> &AppEntry {
        assert!(app < APPS);
        let at = size_of::<BrokerHeader>() + app * size_of::<AppEntry>();
        // SAFETY: as above, and within `BROKER_SIZE`.
        unsafe { &*self.0.memory.base().add(at).cast() }
    }
}

/// One CPU as a member describes it. All of it is what that process wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The state in `word`.
    pub state: State,
    /// The whole word: it changes with each step of the hand-over.
    pub word: u32,
    /// When the state began, by `CLOCK_MONOTONIC`, nanoseconds.
    pub since: u64,
    /// The worker's kernel thread.
    pub tid: u32,
    /// Times that the CPU came from another application.
    pub switches: u64,
    /// Hand-overs that broke the Single Binding Rule.
    pub broken: u64,
    /// Requests to others to make way.
    pub asked: u64,
    /// Times that it made way.
    pub made_way: u64,
    /// Times that it took the CPU from one that slept in the kernel.
    pub stood_in: u64,
    /// Nanoseconds for which it was active, up to `since`.
    pub active_ns: u64,
    /// The CPU time of the worker when it became active, if a better member can preempt it; 0.
    pub cpu_time_then: u64,
    /// Nanoseconds for which it waited, up to `since`.
    pub waited_ns: u64,
    /// The longest such wait.
    pub longest_wait_ns: u64,
}

/// The part of a member, which the broker makes and the member writes.
#[derive(Debug)]
pub struct AppMemory {
    part: Part,
    cpus: usize,
}

impl AppMemory {
    /// Makes the part of a member for so many CPUs, idle on all.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Panics
    /// If there is no CPU, or more than [`CPUS`].
    pub fn new(cpus: usize) -> io::Result<AppMemory> {
        assert!((1..=CPUS).contains(&cpus), "a share has 1 to {CPUS} CPUs, not {cpus}");
        let part = Part::new(c"heddle-share-app", app_size(cpus))?;
        let memory = AppMemory { part, cpus };
        memory.reset();
        memory.header().version.store(VERSION, Ordering::Relaxed);
        memory.header().magic.store(MAGIC, Ordering::Release);
        Ok(memory)
    }

    /// Returns the descriptor that the member gets, with which it writes.
    #[must_use]
    pub fn for_writing(&self) -> BorrowedFd<'_> {
        self.part.file.as_fd()
    }

    /// Returns the descriptor that the other members get.
    #[must_use]
    pub fn for_reading(&self) -> BorrowedFd<'_> {
        self.part.reading.as_fd()
    }

    /// Returns what the member says of a CPU (an index).
    #[must_use]
    pub fn snapshot(&self, cpu: usize) -> Slot {
        let slot = self.slot(cpu);
        let word = slot.state.load(Ordering::SeqCst);
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Slot {
            state: State::of(word),
            word,
            since: count(&slot.since),
            tid: slot.tid.load(Ordering::Relaxed),
            switches: count(&slot.switches),
            broken: count(&slot.broken),
            asked: count(&slot.asked),
            made_way: count(&slot.made_way),
            stood_in: count(&slot.stood_in),
            active_ns: count(&slot.active_ns),
            cpu_time_then: count(&slot.cpu_time_then),
            waited_ns: count(&slot.waited_ns),
            longest_wait_ns: count(&slot.longest_wait_ns),
        }
    }

    /// Makes the member idle on all CPUs: it has died, or is no member any more. Waiters must be woken afterwards.
    pub fn reset(&self) {
        for slot in (0..self.cpus).map(|cpu| self.slot(cpu)) {
            slot.waits_on.store(NO_APP, Ordering::Relaxed);
            let word = slot.state.load(Ordering::Relaxed);
            slot.state.store(State::Idle.after(word), Ordering::SeqCst);
        }
    }

    /// Wakes all that sleep on the member's word for a CPU (an index): they look at everything again.
    pub fn wake_all_waiters_on(&self, cpu: usize) {
        futex::wake_shared(&self.slot(cpu).state, u32::MAX);
    }

    fn header(&self) -> &AppHeader {
        // SAFETY: mapped for as long as `self` lives, large enough, aligned to a page, all atomics.
        unsafe { &*self.part.memory.base().cast() }
    }

    fn slot(&self, cpu: usize) -> &CpuSlot {
        assert!(cpu < self.cpus);
        let at = size_of::<AppHeader>() + cpu * size_of::<CpuSlot>();
        // SAFETY: as above, and within `app_size`: the CPU is one of those for which the memory was sized.
        unsafe { &*self.part.memory.base().add(at).cast() }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_new_part_says_what_it_is() {
        let broker = BrokerMemory::new(10, Ns::from_ms(3)).unwrap();
        let header = broker.header();
        let words = [&header.version, &header.priority, &header.members];
        assert_eq!(words.map(|word| word.load(Ordering::Relaxed)), [VERSION, 10, 0]);
        assert_eq!(header.magic.load(Ordering::Relaxed), MAGIC);
        assert_eq!(header.slice.load(Ordering::Relaxed), 3_000_000);
    }

    #[test]
    fn members_come_and_go_by_their_bits() {
        let broker = BrokerMemory::new(0, Ns(1)).unwrap();
        broker.set_member(0, true);
        broker.set_member(31, true);
        assert_eq!(broker.members(), 1 | 1 << 31);
        broker.set_member(0, false);
        assert_eq!(broker.members(), 1 << 31);
        broker.set_entry(31, 7, 1, 512);
        assert_eq!(broker.entry(31).weight.load(Ordering::Relaxed), 512);
    }

    #[test]
    fn a_member_is_seen_as_it_writes_and_idle_after_a_reset() {
        let app = AppMemory::new(2).unwrap();
        let own = SharedMemory::reserve(app_size(2)).unwrap();
        own.map(app.for_writing(), true).unwrap();
        // SAFETY: the second slot, in memory of that size that stays mapped.
        let slot: &CpuSlot =
            unsafe { &*own.base().add(size_of::<AppHeader>() + size_of::<CpuSlot>()).cast() };
        slot.state.store(State::Active.after(0), Ordering::SeqCst);
        slot.switches.store(5, Ordering::Relaxed);
        let seen = app.snapshot(1);
        assert_eq!((seen.state, seen.switches), (State::Active, 5));
        assert_eq!(app.snapshot(0).state, State::Idle);
        app.reset();
        assert_eq!(app.snapshot(1).state, State::Idle);
        assert_ne!(app.snapshot(1).word, seen.word & !3, "a number that sleepers have not seen");
    }

    #[test]
    fn the_descriptor_for_reading_does_not_write() {
        let app = AppMemory::new(1).unwrap();
        let other = SharedMemory::reserve(app_size(1)).unwrap();
        let error = other.map(app.for_reading(), true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        other.map(app.for_reading(), false).unwrap();
    }
}
