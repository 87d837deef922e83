//! The counts of one run.

use super::mix::Op;
use super::transport::Answer;
use super::validity::{Counts, Invalid};
use heddle_core::Ns;
use heddle_metrics::{Histogram, Slowdown};

/// A send this long after it was due is late.
pub const LATE: Ns = Ns::from_ms(1);

/// The counts of one operation, without the warm-up.
#[derive(Clone, Debug, Default)]
pub struct OpTally {
    /// Sent requests.
    pub sent: u64,
    /// Sends more than [`LATE`] after they were due, and requests that were never sent.
    pub late: u64,
    /// Of these, the sends for which the transport had no room: no idle connection, or a full socket.
    pub crowded: u64,
    /// Requests without an answer within the time limit.
    pub lost: u64,
    /// Requests that fell due and were never sent.
    pub unsent: u64,
    /// Answers that were errors; their latencies do not count.
    pub failed: u64,
    /// Answers received between the warm-up and the end, whenever they were requested.
    pub completed: u64,
    /// From the intended send time to the answer. A lost request counts with the time limit: it took
    /// at least that long, and leaving it out would flatter the tail.
    pub latency: Histogram,
    /// Service time reported by the server.
    pub service: Histogram,
    /// Latency divided by the service time of an unloaded server, if known.
    pub slowdown: Slowdown,
}

/// The counts of one run.
#[derive(Clone, Debug)]
pub struct Tally {
    ops: [OpTally; Op::ALL.len()],
    unloaded: [Option<Ns>; Op::ALL.len()],
    timeout: Ns,
    /// Answers without a request: duplicates, and those after the time limit.
    pub stray: u64,
    /// When the run was stopped, if it was.
    pub interrupted_at: Option<Ns>,
}

impl Tally {
    /// An empty tally. `unloaded` are the service times that slowdowns divide by.
    pub fn new(timeout: Ns, unloaded: [Option<Ns>; Op::ALL.len()]) -> Tally {
        let ops = std::array::from_fn(|_| OpTally::default());
        Tally { ops, unloaded, timeout, stray: 0, interrupted_at: None }
    }

    /// The counts of one operation.
    pub fn op(&self, op: Op) -> &OpTally {
        &self.ops[op.index()]
    }

    /// The counts of all operations together.
    pub fn counts(&self) -> Counts {
        let sum = |count: fn(&OpTally) -> u64| self.ops.iter().map(count).sum();
        Counts {
            due: sum(|op| op.sent + op.unsent),
            late: sum(|op| op.late),
            crowded: sum(|op| op.crowded),
            lost: sum(|op| op.lost),
            failed: sum(|op| op.failed),
        }
    }

    /// Every reason not to quote the run.
    pub fn problems(&self) -> Vec<Invalid> {
        let mut problems = self.counts().problems();
        problems.extend(self.interrupted_at.map(|_| Invalid::Interrupted));
        problems
    }

    /// Counts a request that was sent `lateness` after it was due; for `crowded` of that the transport had no room.
    pub fn sent(&mut self, op: Op, lateness: Ns, crowded: Ns) {
        let of = &mut self.ops[op.index()];
        of.sent += 1;
        of.late += u64::from(lateness > LATE);
        of.crowded += u64::from(crowded > LATE);
    }

    pub(super) fn unsent(&mut self, op: Op, crowded: Ns) {
        let of = &mut self.ops[op.index()];
        of.unsent += 1;
        of.late += 1;
        of.crowded += u64::from(crowded > LATE);
    }

    /// Counts a request whose time limit has passed.
    pub fn completed(&mut self, op: Op) {
        self.ops[op.index()].completed += 1;
    }

    /// Counts an answer received `latency` after its request was due.
    pub fn answered(&mut self, op: Op, latency: Ns, answer: Answer) {
        let unloaded = self.unloaded[op.index()];
        let of = &mut self.ops[op.index()];
        if !answer.ok {
            of.failed += 1;
            return;
        }
        of.latency.record(latency);
        answer.service.into_iter().for_each(|service| of.service.record(service));
        unloaded.into_iter().for_each(|service| of.slowdown.record(latency, service));
    }

    pub(super) fn lost(&mut self, op: Op) {
        let timeout = self.timeout;
        let of = &mut self.ops[op.index()];
        of.lost += 1;
        of.latency.record(timeout);
    }
}
