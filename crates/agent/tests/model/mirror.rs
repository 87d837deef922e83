//! The knowledge of an agent that relies on messages only.

use heddle_agent::model::machine::ModelEnclave;
use heddle_agent::model::{Kind, Message, QueueId, Seq, State, ThreadWord, Transaction};
use heddle_agent::{Backend, model};
use heddle_core::TaskId;
use std::collections::BTreeMap;

/// What is known of a thread from messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownThread {
    pub thread: TaskId,
    pub state: KnownState,
    pub tseq: Seq,
}

/// As much of a state as messages and the agent's own commits reveal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownState {
    Blocked,
    Parked,
    Committed,
}

#[derive(Default)]
struct Read {
    aseq: Seq,
    lost: u64,
    /// Sequence numbers without a message.
    missing: u64,
    /// Messages up to this are older than the status words that were read.
    skip: Seq,
}

/// Threads by the kernel's number, which is never reused here.
#[derive(Default)]
pub struct Mirror {
    pub threads: BTreeMap<u32, KnownThread>,
    /// The sequence number with which a thread was committed: older messages do not undo that.
    commits: BTreeMap<u32, Seq>,
    read: BTreeMap<QueueId, Read>,
    /// Some queue has lost a message.
    pub lossy: bool,
}

impl Mirror {
    /// Reads up to `most` messages of each queue; if some were lost, reads the status words.
    pub fn drain(&mut self, enclave: &ModelEnclave, queues: &[QueueId], most: usize) {
        self.lossy |= queues.iter().any(|&queue| enclave.queue(queue).lost > 0);
        for &queue in queues {
            let read = std::iter::from_fn(|| enclave.next(queue)).take(most);
            read.for_each(|message| self.receive(queue, message));
        }
        if queues.iter().any(|&queue| self.lost(enclave, queue)) {
            self.rescan(enclave, queues);
        }
    }

    fn lost(&self, enclave: &ModelEnclave, queue: QueueId) -> bool {
        enclave.queue(queue).lost != self.read.get(&queue).map_or(0, |read| read.lost)
    }

    /// Checks queues that were read to their end: every message that was not read was counted as lost.
    pub fn check_losses(&self, enclave: &ModelEnclave, queues: &[QueueId]) {
        for queue in queues {
            let (word, read) = (enclave.queue(*queue), self.read.get(queue));
            let (last, missing) = read.map_or((Seq(0), 0), |read| (read.aseq, read.missing));
            assert_eq!(missing + word.aseq.0 - last.0, word.lost, "{queue} {word:?}");
        }
    }

    fn receive(&mut self, queue: QueueId, message: Message) {
        let read = self.read.entry(queue).or_default();
        assert!(message.aseq > read.aseq, "{message:?} after {}", read.aseq);
        read.missing += message.aseq.0 - read.aseq.0 - 1;
        read.aseq = message.aseq;
        if message.aseq > read.skip && message.kind.is_of_thread() {
            self.believe(message);
        }
    }

    fn believe(&mut self, message: Message) {
        let before = self.threads.get(&message.tid).copied();
        if let Some(before) = before {
            let next = before.tseq.next();
            assert!(message.tseq >= next, "{message:?} after {before:?}");
            assert!(message.tseq == next || self.lossy, "{message:?} after {before:?}");
        }
        let Some(state) = self.state_after(&message, before) else {
            self.threads.remove(&message.tid);
            return;
        };
        let known = KnownThread { thread: message.thread, state, tseq: message.tseq };
        self.threads.insert(message.tid, known);
    }

    fn state_after(&self, message: &Message, before: Option<KnownThread>) -> Option<KnownState> {
        if matches!(message.kind, Kind::ThreadDead | Kind::ThreadDeparted) {
            return None;
        }
        if self.commits.get(&message.tid).is_some_and(|&at| at >= message.tseq) {
            return Some(KnownState::Committed);
        }
        match message.kind {
            Kind::ThreadCreated if message.info == 1 => Some(KnownState::Parked),
            Kind::ThreadCreated | Kind::ThreadBlocked => Some(KnownState::Blocked),
            Kind::ThreadPreempted | Kind::ThreadYield | Kind::ThreadWakeup => {
                Some(KnownState::Parked)
            }
            _ => before.map(|before| before.state),
        }
    }

    /// Reads the status words, which are the truth; what is still in the queues is older.
    pub fn rescan(&mut self, enclave: &ModelEnclave, queues: &[QueueId]) {
        for &queue in queues {
            let word = enclave.queue(queue);
            let read = self.read.entry(queue).or_default();
            (read.skip, read.lost) = (word.aseq, word.lost);
        }
        self.threads = truth(enclave);
    }

    /// Records a successful commit of the agent.
    pub fn committed(&mut self, one: &Transaction, tseq: Seq) {
        self.commits.insert(one.tid, tseq);
        if let Some(known) = self.threads.get_mut(&one.tid) {
            known.state = KnownState::Committed;
        }
    }
}

/// Returns the content of the status words in the same terms.
pub fn truth(enclave: &ModelEnclave) -> BTreeMap<u32, KnownThread> {
    let word = |thread| (thread, enclave.thread(thread));
    let known = |(thread, word): (TaskId, ThreadWord)| {
        (word.tid, KnownThread { thread, state: known_state(word.state), tseq: word.tseq })
    };
    enclave.threads().into_iter().map(word).map(known).collect()
}

fn known_state(state: model::State) -> KnownState {
    match state {
        State::Blocked => KnownState::Blocked,
        State::Parked => KnownState::Parked,
        State::Latched | State::OnCpu => KnownState::Committed,
        State::Free => unreachable!("a free slot is no thread"),
    }
}
