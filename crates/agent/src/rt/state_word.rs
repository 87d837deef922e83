//! The word of a thread that holds its state, its commitment and its sequence number (`bpf/sched/rt/rt.h`).

use crate::model::Seq;

/// The value of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateWord(pub u64);

const STATE: u64 = 0xf;
const COMMITTED: u64 = 0xffff0;
const SEQ_SHIFT: u32 = 20;

/// The states of the word.
pub(super) const GONE: u32 = 0;
pub(super) const BLOCKED: u32 = 1;
pub(super) const RUNNABLE: u32 = 2;

impl StateWord {
    pub(super) fn state(self) -> u32 {
        (self.0 & STATE) as u32
    }

    pub(super) fn is_runnable(self) -> bool {
        self.state() == RUNNABLE
    }

    /// Returns the CPU that the thread is committed to, by the operating system's number.
    pub(super) fn committed(self) -> Option<u32> {
        (((self.0 & COMMITTED) >> 4) as u32).checked_sub(1)
    }

    pub(super) fn seq(self) -> Seq {
        Seq(self.0 >> SEQ_SHIFT)
    }

    /// Returns the word, committed to `os_cpu`. The sequence number stays: a commit is not news to the agent that
    /// makes it.
    pub(super) fn commit_to(self, os_cpu: u32) -> StateWord {
        StateWord(self.0 & !COMMITTED | u64::from(os_cpu + 1) << 4)
    }

    /// Returns the word without the commitment.
    pub(super) fn uncommitted(self) -> StateWord {
        StateWord(self.0 & !COMMITTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_the_word_do_not_touch() {
        let live = StateWord(7 << SEQ_SHIFT | u64::from(RUNNABLE));
        assert_eq!((live.seq(), live.committed(), live.is_runnable()), (Seq(7), None, true));
        for cpu in [0, 1, 1023] {
            let there = live.commit_to(cpu);
            assert_eq!(
                (there.seq(), there.committed(), there.is_runnable()),
                (Seq(7), Some(cpu), true)
            );
            assert_eq!(there.commit_to(5).committed(), Some(5));
            assert_eq!(there.uncommitted(), live);
        }
    }
}
