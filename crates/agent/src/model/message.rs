//! Messages from a backend to an agent.

use super::{FromWords, Seq};
use heddle_core::{CpuId, Ns, TaskId};

/// What a message reports (ghOSt, Table 1, and what its code adds).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Kind {
    /// A thread joined the enclave; [`Message::info`] is 1 if it can run.
    ThreadCreated = 1,
    /// It went to sleep.
    ThreadBlocked,
    /// It lost its CPU or, if [`Message::info`] is 1, the CPU that it was committed to.
    ThreadPreempted,
    /// It gave up its CPU and can run.
    ThreadYield,
    /// It ended.
    ThreadDead,
    /// It can run again.
    ThreadWakeup,
    /// Its affinity changed.
    ThreadAffinity,
    /// Its weight is now [`Message::info`].
    ThreadPriority,
    /// It left the enclave alive.
    ThreadDeparted,
    /// It was offered ([`Backend::offer`](crate::Backend::offer)), and runs on a CPU that took it without its agent.
    ThreadTaken,
    /// A tick of a CPU's timer.
    TimerTick,
    /// Nothing above managed threads has the CPU any more.
    CpuAvailable,
    /// Something above managed threads has taken the CPU.
    CpuBusy,
}

impl Kind {
    /// All kinds, in the order of their numbers, from 1.
    pub const ALL: [Kind; 13] = [
        Kind::ThreadCreated,
        Kind::ThreadBlocked,
        Kind::ThreadPreempted,
        Kind::ThreadYield,
        Kind::ThreadDead,
        Kind::ThreadWakeup,
        Kind::ThreadAffinity,
        Kind::ThreadPriority,
        Kind::ThreadDeparted,
        Kind::ThreadTaken,
        Kind::TimerTick,
        Kind::CpuAvailable,
        Kind::CpuBusy,
    ];

    /// Whether it is about a thread.
    #[must_use]
    pub fn is_of_thread(self) -> bool {
        (self as u32) < Kind::TimerTick as u32
    }
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// What happened.
    pub kind: Kind,
    /// The thread; meaningless if the message is about a CPU.
    pub thread: TaskId,
    /// The kernel's number of the thread, which tells a reused slot from the old one.
    pub tid: u32,
    /// The CPU, by the operating system's number; see [`Message::cpu`].
    pub os_cpu: u32,
    /// The thread's sequence number after the event.
    pub tseq: Seq,
    /// The queue's sequence number after the event.
    pub aseq: Seq,
    /// When it happened.
    pub at: Ns,
    /// See [`Kind`].
    pub info: u64,
}

impl Message {
    /// Returns the CPU's position in `cpus`, the enclave's CPUs.
    #[must_use]
    pub fn cpu(&self, cpus: &[heddle_core::CpuInfo]) -> Option<CpuId> {
        let at = cpus.iter().position(|cpu| cpu.os_id == self.os_cpu)?;
        Some(CpuId(at as u16))
    }
}

impl FromWords<6> for Message {
    type Error = u32;

    /// Reads the 48 bytes of `struct hd_message`; an unknown kind is the error.
    fn from_words(words: [u64; 6]) -> Result<Message, u32> {
        let kind = words[0] as u32;
        let known = Kind::ALL.get((kind as usize).wrapping_sub(1)).copied().ok_or(kind)?;
        Ok(Message {
            kind: known,
            thread: TaskId((words[0] >> 32) as u32),
            tid: words[1] as u32,
            os_cpu: (words[1] >> 32) as u32,
            tseq: Seq(words[2]),
            aseq: Seq(words[3]),
            at: Ns(words[4]),
            info: words[5],
        })
    }
}
