//! The bytes that the kernel's programs and this crate share (`bpf/sched/include/layout.h`), as words of eight bytes.
//!
//! `tests/layout.rs` has a C compiler fill each structure of that file by field name, and compares what is read
//! here.

use super::{
    CpuOccupant, CpuWord, EnclaveWord, Outcome, Phase, QueueId, QueueWord, Seq, State, ThreadWord,
    Transaction,
};
use heddle_core::{Class, Ns, TaskId};

/// A value that can be read from `N` words.
pub trait FromWords<const N: usize>: Sized {
    /// The error for words that do not fit.
    type Error;
    /// Reads the value.
    ///
    /// # Errors
    /// If the words hold something that this version does not know.
    fn from_words(words: [u64; N]) -> Result<Self, Self::Error>;
}

/// A value that can be written as `N` words. The rest of the structure is zero.
pub trait ToWords<const N: usize> {
    /// Returns the words.
    fn to_words(&self) -> [u64; N];
}

/// Returns the lower half of a word, the first of two four-byte fields.
const fn low(word: u64) -> u32 {
    word as u32
}

/// Returns the upper half.
const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Decodes "a slot or none": the slot plus one, or 0.
fn slot(plus_one: u32) -> Option<TaskId> {
    plus_one.checked_sub(1).map(TaskId)
}

fn plus_one(slot: Option<TaskId>) -> u32 {
    slot.map_or(0, |slot| slot.0 + 1)
}

/// Returns the member of `all` with this number, or the number as the error.
fn numbered<T: Copy>(all: &[T], number: u32) -> Result<T, u32> {
    all.get(number as usize).copied().ok_or(number)
}

/// `HD_STAGED`: held by a group that is being committed. To agents it is parked until the group is decided.
const STAGED: u32 = 5;

/// `enum hd_state` as agents see it.
fn state(number: u32) -> Result<State, u32> {
    if number == STAGED { Ok(State::Parked) } else { numbered(&State::ALL, number) }
}

impl FromWords<8> for ThreadWord {
    type Error = u32;

    /// From `struct hd_thread`; an unknown state is the error.
    fn from_words(words: [u64; 8]) -> Result<ThreadWord, u32> {
        Ok(ThreadWord {
            tid: low(words[0]),
            tgid: high(words[0]),
            state: state(low(words[1]))?,
            os_cpu: high(words[1]),
            tseq: Seq(words[2]),
            on_at: Ns(words[3]),
            runtime: Ns(words[4]),
            runnable_at: Ns(words[5]),
            enclave: low(words[6]),
            queue: QueueId(high(words[6])),
            weight: low(words[7]),
        })
    }
}

impl ToWords<8> for ThreadWord {
    fn to_words(&self) -> [u64; 8] {
        [
            pair(self.tid, self.tgid),
            pair(self.state as u32, self.os_cpu),
            self.tseq.0,
            self.on_at.0,
            self.runtime.0,
            self.runnable_at.0,
            pair(self.enclave, self.queue.0),
            pair(self.weight, 0),
        ]
    }
}

impl FromWords<8> for CpuWord {
    type Error = u32;

    /// From `struct hd_cpu`; an unknown occupant is the error.
    fn from_words(words: [u64; 8]) -> Result<CpuWord, u32> {
        Ok(CpuWord {
            occupant: numbered(&CpuOccupant::ALL, high(words[0]))?,
            current: slot(low(words[1])),
            latched: slot(high(words[1])),
            since: Ns(words[2]),
            online: high(words[3]) != 0,
            handoff: high(words[4]),
        })
    }
}

impl ToWords<8> for CpuWord {
    fn to_words(&self) -> [u64; 8] {
        [
            pair(0, self.occupant as u32),
            pair(plus_one(self.current), plus_one(self.latched)),
            self.since.0,
            pair(0, u32::from(self.online)),
            pair(0, self.handoff),
            0,
            0,
            0,
        ]
    }
}

impl FromWords<16> for EnclaveWord {
    type Error = u32;

    /// From `struct hd_enclave`; an unknown phase is the error.
    fn from_words(words: [u64; 16]) -> Result<EnclaveWord, u32> {
        Ok(EnclaveWord {
            phase: numbered(&Phase::ALL, low(words[0]))?,
            agent: Some(high(words[0])).filter(|&agent| agent != 0),
            generation: words[5],
            committed: words[6],
            failed: words[7],
            threads: words[8],
            picked: words[11],
            declined: words[12],
            misjudged: words[13],
        })
    }
}

impl ToWords<16> for EnclaveWord {
    fn to_words(&self) -> [u64; 16] {
        let mut words = [0; 16];
        words[0] = pair(self.phase as u32, self.agent.unwrap_or(0));
        words[5..9].copy_from_slice(&[self.generation, self.committed, self.failed, self.threads]);
        words[11..14].copy_from_slice(&[self.picked, self.declined, self.misjudged]);
        words
    }
}

impl FromWords<8> for QueueWord {
    type Error = std::convert::Infallible;

    /// From `struct hd_queue`.
    fn from_words(words: [u64; 8]) -> Result<QueueWord, Self::Error> {
        Ok(QueueWord { aseq: Seq(words[1]), lost: words[2], associated: words[3] })
    }
}

impl ToWords<8> for QueueWord {
    fn to_words(&self) -> [u64; 8] {
        [0, self.aseq.0, self.lost, self.associated, 0, 0, 0, 0]
    }
}

impl Transaction {
    /// Returns `struct hd_txn`, for the CPU that the operating system calls `os_cpu`; this crate's number is the
    /// enclave's own.
    #[must_use]
    pub fn to_words(&self, os_cpu: u32) -> [u64; 6] {
        let (queue, aseq) = self.aseq.unwrap_or_default();
        [
            pair(self.thread.0, self.tid),
            pair(os_cpu, self.flags()),
            self.tseq.unwrap_or_default().0,
            aseq.0,
            self.slice.unwrap_or_default().0,
            pair(self.outcome as u32, queue.0),
        ]
    }

    /// `HD_TXN_*`.
    fn flags(&self) -> u32 {
        let asked = [
            self.preempt,
            self.tseq.is_some(),
            self.aseq.is_some(),
            self.direct,
            self.only_free,
            self.class != Class::LC,
        ];
        asked.iter().enumerate().map(|(bit, &asked)| u32::from(asked) << bit).sum()
    }
}

impl FromWords<6> for Outcome {
    type Error = u32;

    /// Reads the outcome of a `struct hd_txn`; an unknown number is the error.
    fn from_words(words: [u64; 6]) -> Result<Outcome, u32> {
        numbered(&Outcome::ALL, low(words[5]))
    }
}
