//! The memory shared with the kernel's programs, by names instead of word numbers (`layout.h`).

use heddle_bpf::{Map, MapView};
use heddle_core::Class;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The shared maps, by their names in the object.
pub(super) const MAPS: [&str; 12] = [
    "hd_threads",
    "hd_affinities",
    "hd_cpus",
    "hd_enclaves",
    "hd_queues",
    "hd_txns",
    "hd_machine",
    "hd_names",
    "hd_last_words",
    "hd_rings",
    "hd_joining",
    "hd_hints",
];

/// The number of transaction slots of an enclave (`HD_TXNS`).
pub(super) const TRANSACTIONS: usize = 1024;

/// All shared maps.
#[derive(Debug)]
pub(super) struct Memory {
    threads: MapView,
    affinities: MapView,
    cpus: MapView,
    enclaves: MapView,
    queues: MapView,
    txns: MapView,
    machine: MapView,
    names: MapView,
    last_words: MapView,
    hints: MapView,
    /// Rings by queue.
    pub(super) rings: Map,
    /// Enclaves by the number of a thread that may join.
    pub(super) joining: Map,
}

/// The words of `struct hd_enclave`.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(super) enum EnclaveField {
    /// The phase and, in the upper half, the agent.
    StateAndAgent,
    /// The guardian and, in the upper half, the default queue.
    GuardianAndQueue,
    Patience,
    Grace,
    Deadline,
    Generation,
    Flags = 9,
}

impl Memory {
    pub(super) fn open(map: impl Fn(&str) -> io::Result<Map>) -> io::Result<Memory> {
        let view = |at: usize| MapView::new(&map(MAPS[at])?);
        Ok(Memory {
            threads: view(0)?,
            affinities: view(1)?,
            cpus: view(2)?,
            enclaves: view(3)?,
            queues: view(4)?,
            txns: view(5)?,
            machine: view(6)?,
            names: view(7)?,
            last_words: view(8)?,
            rings: map(MAPS[9])?,
            joining: map(MAPS[10])?,
            hints: view(11)?,
        })
    }

    pub(super) fn layout(&self) -> u64 {
        self.machine.word(0, 0).load(Acquire)
    }

    /// Returns the number of slots that were ever used.
    pub(super) fn slots(&self) -> usize {
        (self.machine.word(0, 1).load(Acquire) as usize).min(self.threads.len())
    }

    /// Returns the number of threads that opted in and found no slot.
    pub(super) fn without_slot(&self) -> u64 {
        self.machine.word(0, 2).load(Relaxed)
    }

    /// Returns the number of threads that opted in without an enclave.
    pub(super) fn unmanaged(&self) -> u64 {
        self.machine.word(0, 3).load(Relaxed)
    }

    /// Returns the kernel's exit kind; 0 while the scheduler runs.
    pub(super) fn exit_code(&self) -> u64 {
        self.machine.word(0, 5).load(Acquire)
    }

    pub(super) fn cpu_room(&self) -> usize {
        self.cpus.len()
    }

    pub(super) fn queue_room(&self) -> usize {
        self.queues.len()
    }

    pub(super) fn enclave_room(&self) -> usize {
        self.enclaves.len()
    }

    /// `struct hd_thread`.
    pub(super) fn thread(&self, slot: usize) -> [u64; 8] {
        words(&self.threads, slot)
    }

    pub(super) fn has_slot(&self, slot: usize) -> bool {
        slot < self.threads.len()
    }

    pub(super) fn thread_enclave(&self, slot: usize) -> u32 {
        self.threads.half(slot, 12).load(Acquire)
    }

    pub(super) fn thread_tid(&self, slot: usize) -> u32 {
        self.threads.half(slot, 0).load(Acquire)
    }

    pub(super) fn thread_tgid(&self, slot: usize) -> u32 {
        self.threads.half(slot, 1).load(Acquire)
    }

    pub(super) fn thread_tseq(&self, slot: usize) -> u64 {
        self.threads.word(slot, 2).load(Acquire)
    }

    pub(super) fn thread_queue(&self, slot: usize) -> u32 {
        self.threads.half(slot, 13).load(Acquire)
    }

    /// Returns the low half of the sequence number that the thread's agent has read last.
    pub(super) fn consumed(&self, slot: usize) -> &AtomicU32 {
        self.threads.half(slot, 15)
    }

    pub(super) fn may_run_on(&self, slot: usize, os_cpu: u32) -> bool {
        let (word, bit) = (os_cpu as usize / 64, os_cpu % 64);
        self.affinities.word(slot, word).load(Relaxed) >> bit & 1 != 0
    }

    /// Sets `struct hd_hint` of a thread.
    pub(super) fn set_hint(&self, slot: usize, class: Class, hint: u64) {
        self.hints.word(slot, 0).store(hint, Relaxed);
        self.hints.word(slot, 1).store(u64::from(class.0), Relaxed);
    }

    /// `struct hd_cpu`.
    pub(super) fn cpu(&self, os_cpu: u32) -> [u64; 8] {
        words(&self.cpus, os_cpu as usize)
    }

    pub(super) fn cpu_enclave(&self, os_cpu: u32) -> &AtomicU32 {
        self.cpus.half(os_cpu as usize, 0)
    }

    pub(super) fn cpu_queue(&self, os_cpu: u32) -> &AtomicU32 {
        self.cpus.half(os_cpu as usize, 6)
    }

    pub(super) fn cpu_node(&self, os_cpu: u32) -> &AtomicU32 {
        self.cpus.half(os_cpu as usize, 14)
    }

    /// `struct hd_queue`.
    pub(super) fn queue(&self, queue: u32) -> [u64; 8] {
        words(&self.queues, queue as usize)
    }

    pub(super) fn queue_enclave(&self, queue: u32) -> &AtomicU32 {
        self.queues.half(queue as usize, 0)
    }

    pub(super) fn queue_wakeup(&self, queue: u32) -> &AtomicU32 {
        self.queues.half(queue as usize, 1)
    }

    pub(super) fn queue_word(&self, queue: u32, word: usize) -> &AtomicU64 {
        self.queues.word(queue as usize, word)
    }

    /// `struct hd_enclave`.
    pub(super) fn enclave_words(&self, id: u32) -> [u64; 16] {
        words(&self.enclaves, id as usize)
    }

    pub(super) fn clear_enclave(&self, id: u32) {
        for word in (0..16).rev() {
            self.enclaves.word(id as usize, word).store(0, Release);
        }
    }

    pub(super) fn enclave(&self, id: u32, field: EnclaveField) -> &AtomicU64 {
        self.enclaves.word(id as usize, field as usize)
    }

    /// Returns a word of a transaction of the enclave.
    pub(super) fn transaction(&self, id: u32, at: usize, word: usize) -> &AtomicU64 {
        self.txns.word(id as usize * TRANSACTIONS + at, word)
    }

    /// Returns the phase of an enclave (`enum hd_enclave_state`).
    pub(super) fn state(&self, id: u32) -> u32 {
        self.enclave(id, EnclaveField::StateAndAgent).load(Acquire) as u32
    }

    /// Returns the numbers of all enclaves.
    pub(super) fn enclaves(&self) -> impl Iterator<Item = u32> + '_ {
        (1..self.enclaves.len() as u32).filter(|&id| self.state(id) != 0)
    }

    pub(super) fn name(&self, id: u32) -> String {
        text((0..8).map(|word| self.names.word(id as usize, word).load(Relaxed)))
    }

    /// Returns `struct hd_last_words`: the kernel's reason and details.
    pub(super) fn last_words(&self) -> (String, String) {
        let said =
            |words: Range<usize>| text(words.map(|at| self.last_words.word(0, at).load(Acquire)));
        (said(0..8), said(8..32))
    }

    pub(super) fn set_name(&self, id: u32, name: &str) {
        let mut bytes = name.bytes().chain(std::iter::repeat(0));
        for word in 0..8 {
            let eight: [u8; 8] = std::array::from_fn(|_| bytes.next().unwrap_or(0));
            self.names.word(id as usize, word).store(u64::from_ne_bytes(eight), Relaxed);
        }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.enclaves().map(|id| self.name(id)).collect()
    }
}

/// Returns the text up to the first zero.
fn text(words: impl Iterator<Item = u64>) -> String {
    let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn words<const N: usize>(view: &MapView, index: usize) -> [u64; N] {
    std::array::from_fn(|word| view.word(index, word).load(Acquire))
}
