//! The structures of `agent.h`, which are those of `bpf/sched/include/layout.h`; a test compares the texts.

use heddle_agent::model::{Message, Outcome, QueueId, Seq, Transaction};
use heddle_core::{Class, CpuId, Ns, TaskId};

/// `struct hd_message`.
#[repr(C)]
pub struct RawMessage {
    kind: u32,
    slot: u32,
    tid: u32,
    cpu: u32,
    tseq: u64,
    aseq: u64,
    at: u64,
    info: u64,
}

impl From<&Message> for RawMessage {
    fn from(message: &Message) -> RawMessage {
        RawMessage {
            kind: message.kind as u32,
            slot: message.thread.0,
            tid: message.tid,
            cpu: message.os_cpu,
            tseq: message.tseq.0,
            aseq: message.aseq.0,
            at: message.at.0,
            info: message.info,
        }
    }
}

/// `struct hd_txn`.
#[repr(C)]
pub struct RawTransaction {
    slot: u32,
    tid: u32,
    pub cpu: u32,
    flags: u32,
    tseq: u64,
    aseq: u64,
    slice: u64,
    pub result: u32,
    queue: u32,
}

impl RawTransaction {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// The same, with the enclave's own number of its CPU.
    pub fn on(&self, cpu: CpuId) -> Transaction {
        Transaction {
            thread: TaskId(self.slot),
            tid: self.tid,
            cpu,
            tseq: self.has(2).then_some(Seq(self.tseq)),
            aseq: self.has(4).then_some((QueueId(self.queue), Seq(self.aseq))),
            preempt: self.has(1),
            direct: self.has(8),
            only_free: self.has(16),
            slice: Some(Ns(self.slice)).filter(|&slice| slice != Ns::ZERO),
            class: if self.has(32) { Class::BE } else { Class::LC },
            outcome: Outcome::Open,
        }
    }
}
