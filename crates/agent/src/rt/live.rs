//! The one word of a thread that holds its state, its commitment and its sequence number (`bpf/sched/rt/rt.h`).

use crate::model::Seq;

/// What the word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Live(pub u64);

const STATE: u64 = 0xf;
const COMMITTED: u64 = 0xffff0;
const SEQ_SHIFT: u32 = 20;

/// The states of the word, which has no others.
pub(super) const GONE: u32 = 0;
pub(super) const BLOCKED: u32 = 1;
pub(super) const RUNNABLE: u32 = 2;

impl Live {
    pub(super) fn state(self) -> u32 {
        (self.0 & STATE) as u32
    }

    pub(super) fn is_runnable(self) -> bool {
        self.state() == RUNNABLE
    }

    /// The operating system's number of the CPU that the thread is committed to.
    pub(super) fn committed(self) -> Option<u32> {
        (((self.0 & COMMITTED) >> 4) as u32).checked_sub(1)
    }

    pub(super) fn seq(self) -> Seq {
        Seq(self.0 >> SEQ_SHIFT)
    }

    /// The same, committed to `os_cpu`. The sequence number stays: a commit is no news to the one who makes it.
    pub(super) fn commit_to(self, os_cpu: u32) -> Live {
        Live(self.0 & !COMMITTED | u64::from(os_cpu + 1) << 4)
    }

    /// The same, committed to none.
    pub(super) fn uncommitted(self) -> Live {
        Live(self.0 & !COMMITTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_the_word_do_not_touch() {
        let live = Live(7 << SEQ_SHIFT | u64::from(RUNNABLE));
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
