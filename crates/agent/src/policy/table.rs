//! What is known of a thread.

use crate::model::Seq;
use heddle_core::{CpuId, Ns};

/// Where the policy has a thread.
///
/// ```text
/// Nowhere -> Queued -> Out -> Queued, Asleep, Nowhere
///              |        ^
///              v        '-- also straight to Aside -> Guest -> Queued, Asleep, Nowhere
///            Asleep, Nowhere      (dropped when proposed)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// The policy has not heard of it, or was told that it ended.
    #[default]
    Nowhere,
    /// The policy was told that it sleeps.
    Asleep,
    /// In the policy's queue of [`Thread::home`].
    Queued,
    /// Proposed, and given the seat of [`Thread::home`].
    Out,
    /// In the list of those that may not run where the policy wanted them; the policy takes it for asleep.
    Aside,
    /// On the seat of [`Thread::home`], from that list; the policy takes it for asleep.
    Guest,
}

/// What the kernel last said of a thread, or the agent's own commit did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Is {
    /// There is no such thread.
    #[default]
    Gone,
    /// It sleeps.
    Blocked,
    /// It could run.
    Parked,
    /// It was committed to [`Thread::on`] and is latched there or runs.
    Given,
    /// Another thread was committed over it; the message that it is parked, or whatever became of it, is on its way.
    Leaving,
}

/// A thread of the enclave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Thread {
    /// The kernel's number.
    pub tid: u32,
    /// The last news.
    pub tseq: Seq,
    pub at: At,
    pub is: Is,
    /// The slot was given to another thread while the policy had the old one in its queue: that one ends when it is proposed.
    pub is_reborn: bool,
    /// The CPU in whose queue or on whose seat it is, or was last.
    pub home: CpuId,
    /// The CPU that it was committed to last.
    pub on: CpuId,
    /// Since when it waits for a CPU after a wakeup; zero once that was recorded.
    pub woken_at: Ns,
    pub class: u8,
}

impl Thread {
    /// Whether it sits on the seat of [`Thread::home`].
    pub fn is_seated(&self) -> bool {
        matches!(self.at, At::Out | At::Guest)
    }
}
