//! Steering as other crates see it: which executor an arriving request goes to, regardless of what decides it.
//!
//! The policies themselves are C (`bpf/steer/policies`); `heddle-steer` runs them natively, and a crate that has both
//! adapts that to this trait. So the simulator runs them without knowing how.

use crate::Ns;

/// An arriving request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Time of arrival.
    pub at: Ns,
    /// Its type, from 0, as found by a policy that looks into requests.
    pub kind: usize,
    /// The hash of its flow.
    pub flow: u32,
    /// The key that it concerns.
    pub key: u64,
    /// The CPU on which it arrives, determined by the flow alone, as a network card does.
    pub cpu: usize,
}

/// The executors at the time a request arrives.
pub trait Executors {
    /// Returns the number of executors, at least one.
    fn count(&self) -> usize;
    /// Returns how many requests wait for executor `k`, not counting the one in progress.
    fn waiting(&self, k: usize) -> usize;
    /// Returns the type of the request that executor `k` is working on; `None` if it is idle.
    fn serves(&self, k: usize) -> Option<usize>;
    /// Returns a random number.
    fn random(&self) -> u32;
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// To the executor with this index.
    Executor(usize),
    /// To wherever its flow's hash leads.
    Pass,
    /// Nowhere: the request is dropped.
    Drop,
}

/// Decides once for each request, when it arrives.
pub trait SteeringPolicy {
    /// Returns where `arrival` goes.
    fn choose(&mut self, arrival: &Arrival, executors: &dyn Executors) -> Choice;
}
