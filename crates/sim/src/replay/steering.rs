//! Which queue a request arrives in.

use super::requests::Progress;
use super::state::{Socket, WorkerState};
use super::{Request, Service, Steer};
use crate::Random;
use heddle_core::{Arrival, Choice, Executors, Ns, Rng, SteeringPolicy};

const KEYS: u64 = 8;
/// Keeps the hashes of connections apart from the streams of the seed.
const FLOWS: u64 = 0x9E6C_63D0_876A_9A35;

/// Who decides, and what was decided for connections.
pub struct Steering<'s> {
    by: By<'s>,
    /// The queue of each connection that has one for good.
    fixed: Vec<Option<usize>>,
    seed: u64,
    cpus: usize,
    keys: Random,
    rng: Rng,
}

enum By<'s> {
    Recorded,
    Hash,
    Policy { policy: &'s mut dyn SteeringPolicy, per_connection: bool },
}

/// The queues as a policy sees them.
pub struct Queues<'e> {
    pub sockets: &'e [Socket],
    pub workers: &'e [WorkerState],
    pub requests: &'e [Request],
    pub rng: &'e Rng,
}

impl Executors for Queues<'_> {
    fn count(&self) -> usize {
        self.sockets.len()
    }

    fn waiting(&self, k: usize) -> usize {
        self.sockets[k].waiting.len()
    }

    /// Idle if a worker of it is; else the kind of what its first worker has.
    fn serves(&self, k: usize) -> Option<usize> {
        let socket = &self.sockets[k];
        let request = self.workers[socket.first].request.filter(|_| socket.idle.is_empty())?;
        Some(self.requests[request as usize].kind)
    }

    fn random(&self) -> u32 {
        (self.rng.next_u64() >> 32) as u32
    }
}

impl<'s> Steering<'s> {
    pub fn new<'p: 's>(
        steer: &'s mut Steer<'p>,
        connections: usize,
        seed: u64,
        cpus: usize,
    ) -> Steering<'s> {
        let by = match steer {
            Steer::Recorded => By::Recorded,
            Steer::HashConnection => By::Hash,
            Steer::Policy { policy, per_connection } => {
                By::Policy { policy: &mut **policy, per_connection: *per_connection }
            }
        };
        let (fixed, keys, rng) = (vec![None; connections], Random::new(seed, KEYS), Rng::new(seed));
        Steering { by, fixed, seed, cpus, keys, rng }
    }

    /// Returns the queue of `request`, which arrives now; `None` if it is dropped.
    pub fn choose(
        &mut self,
        now: Ns,
        request: &Request,
        progress: &Progress,
        (sockets, workers, requests): (&[Socket], &[WorkerState], &[Request]),
    ) -> Option<usize> {
        let flow = (Random::new(self.seed ^ FLOWS, request.connection.into()).bits() >> 32) as u32;
        // As the kernel does in a reuseport group.
        let hash = ((u64::from(flow) * sockets.len() as u64) >> 32) as usize;
        let connection = progress.connection as usize;
        let (policy, per_connection) = match &mut self.by {
            By::Recorded => return request.recorded_queue.map(|queue| queue as usize),
            By::Hash => return Some(hash),
            By::Policy { policy, per_connection } => (policy, *per_connection),
        };
        if let Some(queue) = self.fixed[connection] {
            return Some(queue);
        }
        let (key, cpu) = (self.keys.bits(), flow as usize % self.cpus);
        let arrival = Arrival { at: now, kind: request.kind, flow, key, cpu };
        let queue =
            match policy.choose(&arrival, &Queues { sockets, workers, requests, rng: &self.rng }) {
                Choice::Drop => return None,
                Choice::Executor(k) if k < sockets.len() => k,
                Choice::Executor(_) | Choice::Pass => hash,
            };
        if per_connection {
            self.fixed[connection] = Some(queue);
        }
        Some(queue)
    }
}

/// Returns whether requests go where they were recorded.
pub fn is_recorded(service: &Service<'_>) -> bool {
    matches!(service.steer, Steer::Recorded)
}
