//! Steering as other rooms see it: which executor a request goes to when it arrives, regardless of what decides that.
//!
//! The policies themselves are C (`bpf/steer/policies`); `heddle-steer` runs them natively, and a crate that has both
//! glues that to this trait. So the simulator runs them and knows nothing of how.

use crate::Ns;

/// A request that arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Ns,
    /// Its type, from 0: what a policy that looks into requests finds there.
    pub kind: usize,
    /// The hash of its flow.
    pub flow: u32,
    /// What it is about.
    pub key: u64,
    /// The CPU that it comes in on, which the flow alone decides, as a network card does.
    pub cpu: usize,
}

/// The executors as they are when a request arrives.
pub trait Executors {
    /// How many there are, at least one.
    fn count(&self) -> usize;
    /// How many requests wait for executor `k`; the one that it is at work on does not.
    fn waiting(&self, k: usize) -> usize;
    /// The type of the request that executor `k` is at work on; `None` if it is idle.
    fn serves(&self, k: usize) -> Option<usize>;
    /// A random number.
    fn random(&self) -> u32;
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// To the executor of this index.
    Executor(usize),
    /// Where its flow's hash leads.
    Pass,
    /// Away.
    Drop,
}

/// Decides, once for each request, when it arrives.
pub trait SteeringPolicy {
    /// Where `arrival` goes.
    fn choose(&mut self, arrival: &Arrival, executors: &dyn Executors) -> Choice;
}
