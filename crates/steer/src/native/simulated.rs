//! Policies in simulation: the executors are simulated, the policy is the one that is deployed.

use std::sync::atomic::Ordering::Relaxed;

use heddle_core::{Arrival, Choice, Executors, SteeringPolicy};
use heddle_steer_abi::{Input, MAX_EXECUTORS, View};

use super::{Decision, NativePolicy, input};

/// A policy that decides about simulated requests.
///
/// It sees each request as a datagram of Heddle's own protocol (`crates/proto/src/udp.rs`), whose operation
/// is the request's type, and whose user, in the highest byte of its id, is the type's number; each
/// executor's line is marked with the type it is working on, and its CPU is its index.
#[derive(Debug)]
pub struct Simulated {
    policy: NativePolicy,
    types: Vec<u8>,
}

impl Simulated {
    /// Creates one. `types` are the operations under which request types are seen, from 0 on; further types
    /// map to the last.
    #[must_use]
    pub fn new(policy: NativePolicy, types: Vec<u8>) -> Self {
        Self { policy, types }
    }

    fn type_of(&self, kind: usize) -> u8 {
        self.types.get(kind).or(self.types.last()).copied().unwrap_or(0)
    }

    fn datagram(&self, arrival: &Arrival) -> Input {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&[b'H', 1, self.type_of(arrival.kind), 0]);
        bytes[15] = u8::try_from(arrival.kind).unwrap_or(u8::MAX);
        bytes[16..24].copy_from_slice(&arrival.at.0.to_le_bytes());
        bytes[24..].copy_from_slice(&arrival.key.to_le_bytes());
        Input { hash: arrival.flow, ..input(&bytes) }
    }

    fn mark(&self, executors: &dyn Executors) {
        for (k, line) in self.policy.lines().iter().enumerate().take(executors.count()) {
            let class = executors.serves(k).map_or(0, |kind| self.type_of(kind));
            line.class.store(class.into(), Relaxed);
            line.cpu.store(k as u32 + 1, Relaxed);
        }
    }
}

impl SteeringPolicy for Simulated {
    fn choose(&mut self, arrival: &Arrival, executors: &dyn Executors) -> Choice {
        self.mark(executors);
        let mut view = Moment { executors, arrival };
        match self.policy.decide(&mut self.datagram(arrival), &mut view) {
            Decision::Executor(k) => Choice::Executor(k),
            Decision::Pass | Decision::Wrong(_) => Choice::Pass,
            Decision::Drop => Choice::Drop,
        }
    }
}

struct Moment<'a> {
    executors: &'a dyn Executors,
    arrival: &'a Arrival,
}

impl View for Moment<'_> {
    fn executors(&self) -> u32 {
        self.executors.count().min(MAX_EXECUTORS) as u32
    }

    fn idle(&mut self, k: u32) -> bool {
        self.executors.serves(k as usize).is_none() && self.executors.waiting(k as usize) == 0
    }

    fn queue_length(&mut self, k: u32) -> u32 {
        self.executors.waiting(k as usize) as u32
    }

    fn now(&mut self) -> u64 {
        self.arrival.at.0
    }

    fn random(&mut self) -> u32 {
        self.executors.random()
    }

    fn cpu(&mut self) -> u32 {
        self.arrival.cpu as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The type each of three executors works on, and its queue length.
    struct Three([(Option<usize>, usize); 3]);

    impl Executors for Three {
        fn count(&self) -> usize {
            3
        }
        fn waiting(&self, k: usize) -> usize {
            self.0[k].1
        }
        fn serves(&self, k: usize) -> Option<usize> {
            self.0[k].0
        }
        fn random(&self) -> u32 {
            5
        }
    }

    fn choose(policy: &str, kind: usize, three: [(Option<usize>, usize); 3]) -> Choice {
        let policy = NativePolicy::shipped(policy, "").expect("shipped");
        let arrival = Arrival { kind, flow: 9, cpu: 2, ..Arrival::default() };
        Simulated::new(policy, vec![1, 3]).choose(&arrival, &Three(three))
    }

    #[test]
    fn policies_see_the_simulated_executors() {
        let (get, scan) = (Some(0), Some(1));
        assert_eq!(choose("jiq", 0, [(get, 0), (None, 0), (None, 1)]), Choice::Executor(1));
        assert_eq!(choose("jsq", 0, [(get, 0), (get, 1), (None, 0)]), Choice::Executor(2));
        let busy = [(scan, 0), (get, 9), (scan, 0)];
        assert_eq!(choose("scan-avoid", 0, busy), Choice::Executor(1));
        assert_eq!(choose("locality", 0, busy), Choice::Executor(2));
    }

    #[test]
    fn policies_see_the_type_of_a_simulated_request() {
        let free = [(None, 0); 3];
        assert_eq!(choose("sita", 1, free), Choice::Executor(0));
        assert_eq!(choose("sita", 0, free), Choice::Executor(1));
        assert_eq!(choose("token", 0, free), Choice::Drop, "no tokens were distributed");
    }
}
