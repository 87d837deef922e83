//! The state in which a replay begins.

use super::background::Loop;
use super::check::{ServiceError, check};
use super::requests::{self, Progress};
use super::state::{ServiceState, Socket, ThreadAttrs, WorkerState};
use super::steering::Steering;
use super::timers::Timers;
use super::{Phase, Replay, Request, Service, Worker};
use crate::Random;
use heddle_core::{CpuSet, Ns, TaskAttrs, nice_weight};
use std::collections::VecDeque;

/// The streams of the seed; the engine's end at 5, steering's is 8.
const DELAYS: u64 = 6;
const OFFSETS: u64 = 7;

impl<'s> ServiceState<'s> {
    /// # Errors
    /// [`ServiceError`] for the first contradiction.
    pub fn new<'p: 's>(service: &'s mut Service<'p>) -> Result<ServiceState<'s>, ServiceError> {
        check(service)?;
        let limit = limit(service);
        let threads = threads(service);
        let Service { requests, others, steer, delays, .. } = service;
        let (requests, closed) = (&requests[..], service.closed);
        let (progress, connections) = requests::begin(requests);
        let unknown = |(i, (of, at)): (usize, (&Request, &Progress))| {
            (of.answered.is_none() && at.next().is_some()).then_some(i)
        };
        if let Some(i) =
            requests.iter().zip(&progress).enumerate().find_map(unknown).filter(|_| closed)
        {
            return Err(ServiceError::NoAnswer(i));
        }
        let follows = followers(&progress);
        let mut offsets = Random::new(service.seed, OFFSETS);
        let (sockets, workers) = sockets(service.queues, &service.workers);
        let count = (requests.len(), workers.len());
        let mut state = ServiceState {
            requests,
            delays,
            closed,
            threads,
            sockets,
            workers,
            others: others
                .iter()
                .map(|thread| (Loop::begin(thread, &mut offsets), Ns::ZERO))
                .collect(),
            recorded: (0..requests.len() as u32)
                .filter(|&i| !(closed && follows[i as usize]))
                .collect(),
            arrived: 0,
            timers: Timers::default(),
            steering: Steering::new(steer, connections, service.seed, service.cpus),
            random: Random::new(service.seed, DELAYS),
            left: count.0,
            progress,
            replay: Replay {
                responses: vec![Ns::MAX; count.0],
                waits: vec![Ns::MAX; count.0],
                worker_busy: vec![Ns::ZERO; count.1],
                ..Replay::default()
            },
            limit,
        };
        (0..state.others.len()).for_each(|i| _ = state.background_sleeps(i, Ns::ZERO));
        Ok(state)
    }
}

fn sockets(queues: usize, workers: &[Worker]) -> (Vec<Socket>, Vec<WorkerState>) {
    let socket = |queue| Socket {
        waiting: VecDeque::new(),
        idle: (0..).zip(workers).filter(|(_, of)| of.queue == queue).map(|(i, _)| i).collect(),
        first: workers.iter().position(|of| of.queue == queue).unwrap_or_default(),
    };
    let worker = |of: &Worker| WorkerState {
        queue: of.queue,
        kind: of.kind,
        request: None,
        resumed: VecDeque::new(),
        since: Ns::ZERO,
    };
    ((0..queues).map(socket).collect(), workers.iter().map(worker).collect())
}

fn threads(service: &Service<'_>) -> Vec<ThreadAttrs> {
    let workers = service.workers.iter().map(|of| (of.class, of.nice, of.cpus));
    let others = service.others.iter().map(|of| (of.class, of.nice, of.cpus));
    let thread = |(class, nice, cpus): (_, _, CpuSet)| ThreadAttrs {
        attrs: TaskAttrs { class, weight: Some(nice_weight(nice)), ..TaskAttrs::default() },
        cpus: cpus.and(&CpuSet::first(service.cpus)),
    };
    workers.chain(others).map(thread).collect()
}

/// Returns which requests come after another of their connection.
fn followers(progress: &[Progress]) -> Vec<bool> {
    let mut follows = vec![false; progress.len()];
    progress.iter().filter_map(Progress::next).for_each(|next| follows[next as usize] = true);
    follows
}

fn limit(service: &Service<'_>) -> Ns {
    let (Some(first), Some(last)) = (service.requests.first(), service.requests.last()) else {
        return Ns::ZERO;
    };
    let time = |phase: &Phase| match *phase {
        Phase::Run(time) | Phase::Wait(time) => time,
    };
    let needs = service.requests.iter().flat_map(|of| &of.phases).map(time);
    let needs = needs.fold(Ns::ZERO, |sum, time| sum + time);
    last.arrival + (last.arrival - first.arrival) * 4 + needs + Ns::from_secs(1)
}
