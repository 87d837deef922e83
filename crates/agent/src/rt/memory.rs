//! The memory shared with the kernel's programs, by names instead of word numbers (`layout.h`, `rt/rt.h`).
//!
//! Every process that can map it can write it, so a word may hold anything. Words that hold a slot or a queue are
//! read only here, and one beyond the end is `None`, or the first queue.

use super::state_word::{GONE, StateWord};
use crate::identity::Identity;
use heddle_bpf::{Map, MapView, Object};
use heddle_sys::scheduling::Mask;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The maps of an enclave, each pinned by its name.
pub(super) const MAPS: [&str; 9] =
    ["enclave", "threads", "lives", "wanted", "placed", "cpus", "queues", "tids", "rings"];

/// All maps of an enclave.
pub(super) struct Memory {
    enclave: MapView,
    threads: MapView,
    lives: MapView,
    wanted: MapView,
    placed: MapView,
    cpus: MapView,
    queues: MapView,
    /// Slots by thread number.
    pub(super) tids: Map,
    /// Rings by queue.
    pub(super) rings: Map,
}

/// The words of `struct hd_enclave`.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(super) enum EnclaveField {
    Patience = 2,
    Grace = 3,
    Deadline = 4,
    Generation = 5,
    Committed = 6,
    Failed = 7,
    Threads = 8,
    Refused = 11,
    PossibleCpus = 12,
    GuardianBegan = 13,
}

impl Memory {
    /// Returns the maps of a loaded object.
    pub(super) fn of(object: &Object) -> io::Result<Memory> {
        Memory::from_maps(|name| object.map(name))
    }

    /// Returns the maps of an enclave that is pinned in `folder`.
    pub(super) fn open(folder: &Path) -> io::Result<Memory> {
        Memory::from_maps(|name| Map::open(&folder.join(name)))
    }

    fn from_maps(map: impl Fn(&str) -> io::Result<Map>) -> io::Result<Memory> {
        let view = |name| MapView::new(&map(name)?);
        Ok(Memory {
            enclave: view("enclave")?,
            threads: view("threads")?,
            lives: view("lives")?,
            wanted: view("wanted")?,
            placed: view("placed")?,
            cpus: view("cpus")?,
            queues: view("queues")?,
            tids: map("tids")?,
            rings: map("rings")?,
        })
    }

    /// Returns the number of thread slots.
    pub(super) fn slots(&self) -> usize {
        self.threads.len()
    }

    /// Returns the number of queues.
    pub(super) fn queue_room(&self) -> usize {
        self.queues.len()
    }

    pub(super) fn phase(&self) -> &AtomicU32 {
        self.enclave.half(0, 0)
    }

    /// Returns the word of the agent's process number; 0 for none.
    pub(super) fn agent(&self) -> &AtomicU32 {
        self.enclave.half(0, 1)
    }

    /// Returns the word of the guardian's process number; 0 for none.
    pub(super) fn guardian(&self) -> &AtomicU32 {
        self.enclave.half(0, 2)
    }

    /// Returns the queue of threads that were not associated with one.
    pub(super) fn default_queue(&self) -> u32 {
        let queue = self.default_queue_word().load(Relaxed);
        if (queue as usize) < self.queue_room() { queue } else { 0 }
    }

    pub(super) fn default_queue_word(&self) -> &AtomicU32 {
        self.enclave.half(0, 3)
    }

    pub(super) fn enclave(&self, field: EnclaveField) -> &AtomicU64 {
        self.enclave.word(0, field as usize)
    }

    pub(super) fn thread(&self, slot: usize) -> ThreadWords<'_> {
        ThreadWords { memory: self, slot }
    }

    pub(super) fn cpu(&self, os_cpu: u32) -> CpuWords<'_> {
        CpuWords { view: &self.cpus, at: os_cpu as usize }
    }

    /// Makes a CPU the enclave's. What is known of it from an earlier time is old.
    pub(super) fn take_cpu(&self, os_cpu: u32) {
        for word in 0..CPU_WORDS {
            self.cpus.word(os_cpu as usize, word).store(0, Relaxed);
        }
        let words = self.cpu(os_cpu);
        words.queue().store(self.default_queue(), Relaxed);
        words.online().store(1, Relaxed);
        words.enclave().store(1, Release);
    }

    pub(super) fn queue(&self, queue: u32) -> Option<QueueWords<'_>> {
        let at = queue as usize;
        (at < self.queue_room()).then_some(QueueWords { view: &self.queues, at })
    }

    /// Returns the slot of the thread with this number.
    pub(super) fn slot_of(&self, tid: u32) -> Option<usize> {
        let slot = self.tids.lookup(&tid.to_ne_bytes()).ok().flatten()?;
        self.slot(u32::from_ne_bytes(slot.try_into().ok()?))
    }

    fn slot(&self, number: u32) -> Option<usize> {
        Some(number as usize).filter(|slot| *slot < self.slots())
    }

    /// Returns the slots of the last two threads that were committed to a CPU, the later one first. Their own words
    /// tell whether they still are.
    pub(super) fn committed_to(&self, os_cpu: u32) -> impl Iterator<Item = usize> + '_ {
        let last = self.cpu(os_cpu).committed().load(Acquire);
        let numbers = [last as u32, (last >> 32) as u32].into_iter();
        numbers.filter_map(|number| self.slot(number.checked_sub(1)?))
    }

    pub(super) fn remember_committed(&self, os_cpu: u32, last: usize, before: Option<usize>) {
        let number = |slot: usize| slot as u64 + 1;
        self.set_committed_word(os_cpu, before.map_or(0, number) << 32 | number(last));
    }

    pub(super) fn set_committed_word(&self, os_cpu: u32, word: u64) {
        self.cpu(os_cpu).committed().store(word, Release);
    }

    /// Returns the enclave's CPUs, by the operating system's numbers.
    pub(super) fn own_cpus(&self) -> Vec<u32> {
        (0..self.cpus.len() as u32)
            .filter(|&cpu| self.cpu(cpu).enclave().load(Relaxed) != 0)
            .collect()
    }
}

/// The words of a thread: a row of each of the threads' maps.
#[derive(Clone, Copy)]
pub(super) struct ThreadWords<'a> {
    memory: &'a Memory,
    slot: usize,
}

impl<'a> ThreadWords<'a> {
    fn of(&self, half: usize) -> &'a AtomicU32 {
        self.memory.threads.half(self.slot, half)
    }

    fn own(&self, half: usize) -> &'a AtomicU32 {
        self.memory.lives.half(self.slot, half)
    }

    pub(super) fn tid(&self) -> &'a AtomicU32 {
        self.of(0)
    }

    pub(super) fn tgid(&self) -> u32 {
        self.of(1).load(Relaxed)
    }

    pub(super) fn last_cpu(&self) -> u32 {
        self.of(3).load(Relaxed)
    }

    pub(super) fn runtime(&self) -> u64 {
        self.memory.threads.word(self.slot, 4).load(Relaxed)
    }

    pub(super) fn runnable_at(&self) -> u64 {
        self.memory.threads.word(self.slot, 5).load(Relaxed)
    }

    pub(super) fn queue(&self) -> &'a AtomicU32 {
        self.of(13)
    }

    pub(super) fn weight(&self) -> u32 {
        self.of(14).load(Relaxed)
    }

    /// The low half of the last sequence number that its agent has read.
    pub(super) fn consumed(&self) -> &'a AtomicU32 {
        self.of(15)
    }

    pub(super) fn live(&self) -> StateWord {
        StateWord(self.memory.lives.word(self.slot, 0).load(Acquire))
    }

    /// Replaces the word if it is `from`. Returns whether it was.
    pub(super) fn replace_state(&self, from: StateWord, to: StateWord) -> bool {
        self.memory.lives.word(self.slot, 0).compare_exchange(from.0, to.0, AcqRel, Relaxed).is_ok()
    }

    /// When the thread got its present CPU; 0 if it is on none.
    pub(super) fn since(&self) -> u64 {
        self.memory.lives.word(self.slot, 1).load(Relaxed)
    }

    pub(super) fn committed_at(&self) -> &'a AtomicU64 {
        self.memory.lives.word(self.slot, 2)
    }

    /// The CPU that the thread is on, by the operating system's number.
    pub(super) fn running_on(&self) -> Option<u32> {
        self.own(6).load(Acquire).checked_sub(1)
    }

    pub(super) fn changing(&self) -> &'a AtomicU32 {
        self.own(7)
    }

    /// The last policy that this backend set, plus one; 0 for none.
    pub(super) fn policy(&self) -> &'a AtomicU32 {
        self.own(8)
    }

    pub(super) fn nice(&self) -> i32 {
        self.own(9).load(Relaxed).cast_signed()
    }

    /// The original policy with its flag, and priority.
    pub(super) fn old(&self) -> (u32, u32) {
        (self.own(10).load(Relaxed), self.own(11).load(Relaxed))
    }

    /// The thread's identity, as far as it is known: the start time is 0 until it was read.
    pub(super) fn identity(&self) -> Identity {
        Identity { tgid: self.tgid(), began: self.began().load(Relaxed) }
    }

    pub(super) fn began(&self) -> &'a AtomicU64 {
        self.memory.lives.word(self.slot, 6)
    }

    /// Whether it is still the thread `tid`. The kernel side updates this before the number can be reused.
    pub(super) fn is_of(&self, tid: u32) -> bool {
        self.live().state() != GONE && self.tid().load(Acquire) == tid
    }

    /// Returns the words of another thread of the enclave.
    pub(super) fn managed(&self, tid: u32) -> Option<ThreadWords<'a>> {
        let words = self.memory.thread(self.memory.slot_of(tid)?);
        words.is_of(tid).then_some(words)
    }

    /// The CPUs that its program wants.
    pub(super) fn wanted(&self) -> Mask {
        std::array::from_fn(|word| self.memory.wanted.word(self.slot, word).load(Relaxed))
    }

    pub(super) fn set_wanted(&self, mask: &Mask) {
        store(&self.memory.wanted, self.slot, mask);
    }

    /// The CPUs that this backend has set.
    pub(super) fn placed(&self) -> Mask {
        std::array::from_fn(|word| self.memory.placed.word(self.slot, word).load(Relaxed))
    }

    pub(super) fn set_placed(&self, mask: &Mask) {
        store(&self.memory.placed, self.slot, mask);
    }

    /// Frees the slot of a thread that is gone.
    pub(super) fn free(&self) {
        self.tid().store(0, Release);
    }
}

fn store(view: &MapView, slot: usize, mask: &Mask) {
    for (word, bits) in mask.iter().enumerate() {
        view.word(slot, word).store(*bits, Relaxed);
    }
}

/// The length of `struct hd_cpu`.
const CPU_WORDS: usize = 8;

/// `struct hd_cpu`.
#[derive(Clone, Copy)]
pub(super) struct CpuWords<'a> {
    view: &'a MapView,
    at: usize,
}

impl<'a> CpuWords<'a> {
    pub(super) fn enclave(&self) -> &'a AtomicU32 {
        self.view.half(self.at, 0)
    }

    pub(super) fn occupant(&self) -> u32 {
        self.view.half(self.at, 1).load(Relaxed)
    }

    pub(super) fn since(&self) -> u64 {
        self.view.word(self.at, 2).load(Relaxed)
    }

    pub(super) fn queue(&self) -> &'a AtomicU32 {
        self.view.half(self.at, 6)
    }

    pub(super) fn online(&self) -> &'a AtomicU32 {
        self.view.half(self.at, 7)
    }

    /// The slots plus one, the later one in the lower half.
    fn committed(&self) -> &'a AtomicU64 {
        self.view.word(self.at, 5)
    }
}

/// `struct hd_queue`.
#[derive(Clone, Copy)]
pub(super) struct QueueWords<'a> {
    view: &'a MapView,
    at: usize,
}

impl<'a> QueueWords<'a> {
    pub(super) fn enclave(&self) -> &'a AtomicU32 {
        self.view.half(self.at, 0)
    }

    pub(super) fn wakeup(&self) -> &'a AtomicU32 {
        self.view.half(self.at, 1)
    }

    pub(super) fn aseq(&self) -> u64 {
        self.view.word(self.at, 1).load(Acquire)
    }

    pub(super) fn lost(&self) -> &'a AtomicU64 {
        self.view.word(self.at, 2)
    }

    pub(super) fn associated(&self) -> &'a AtomicU64 {
        self.view.word(self.at, 3)
    }

    /// Counts one thread less.
    pub(super) fn dissociate(&self) {
        let _ = self.associated().fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
    }
}
