//! Where each request is in its phases, and which comes after which.

use super::{Phase, Request};
use heddle_core::Ns;
use std::collections::HashMap;

/// No request.
const NONE: u32 = u32::MAX;

/// One request's progress.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Its connection, by first appearance.
    pub connection: u32,
    /// The next request of its connection.
    next: u32,
    /// The phases that it has begun.
    phase: u32,
    /// When it arrived in the replay.
    pub arrived: Ns,
    /// Whether a worker has run it.
    pub began: bool,
}

impl Progress {
    /// Returns the next request of the connection.
    pub fn next(&self) -> Option<u32> {
        Some(self.next).filter(|&next| next != NONE)
    }

    /// Returns how long it runs from here until it waits or is done.
    pub fn next_run(&mut self, request: &Request) -> Ns {
        self.sum(request, |phase| if let Phase::Run(time) = phase { Some(time) } else { None })
    }

    /// Returns how long it waits from here until it runs or is done.
    pub fn next_wait(&mut self, request: &Request) -> Ns {
        self.sum(request, |phase| if let Phase::Wait(time) = phase { Some(time) } else { None })
    }

    pub fn is_done(&self, request: &Request) -> bool {
        self.phase as usize == request.phases.len()
    }

    fn sum(&mut self, request: &Request, of: impl Fn(Phase) -> Option<Ns>) -> Ns {
        let mut sum = Ns::ZERO;
        while let Some(time) = request.phases.get(self.phase as usize).and_then(|&phase| of(phase))
        {
            sum += time;
            self.phase += 1;
        }
        sum
    }
}

/// Returns the initial progress of all requests, and how many connections there are.
pub fn begin(requests: &[Request]) -> (Vec<Progress>, usize) {
    let mut last: HashMap<u32, (u32, u32)> = HashMap::new();
    let mut all: Vec<Progress> = Vec::with_capacity(requests.len());
    for (i, request) in (0..).zip(requests) {
        let connections = last.len() as u32;
        let (connection, before) = *last.entry(request.connection).or_insert((connections, NONE));
        last.insert(request.connection, (connection, i));
        if let Some(before) = all.get_mut(before as usize) {
            before.next = i;
        }
        all.push(Progress {
            connection,
            next: NONE,
            phase: 0,
            arrived: request.arrival,
            began: false,
        });
    }
    (all, last.len())
}
