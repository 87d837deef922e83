//! Connections: the senders of requests. One request of each connection is served at a time.

use super::Engine;
use super::arrivals::CONNECTIONS;
use super::jobs::{Job, Kind};
use crate::Random;
use crate::workload::Mix;
use heddle_core::{CpuId, Enqueue, Policy, TaskAttrs, TaskId};
use std::collections::VecDeque;

/// One connection: a task, once it has sent something, and the requests queued behind the one being
/// served.
#[derive(Default)]
struct Connection {
    /// Where its requests arrive.
    cpu: CpuId,
    /// The part of all its requests, if parts are dealt.
    part: usize,
    task: Option<TaskId>,
    /// Whether one of its requests waits for a CPU or runs.
    busy: bool,
    socket: VecDeque<(TaskAttrs, Job)>,
}

/// All connections of a run; none if each request is its own task.
pub(super) struct Senders {
    all: Vec<Connection>,
    /// If parts are dealt, the connections of each part.
    of_part: Vec<Vec<u32>>,
    random: Random,
    /// How many requests are in the system.
    pub requests: usize,
}

/// Returns how many of `count` connections each part of the mix gets: proportional to its share, the
/// largest remainders rounded up, but at least one.
fn numbers(mix: &Mix, count: usize) -> Vec<usize> {
    let exact = |part: &crate::workload::Part| part.share * count as f64;
    let mut numbers: Vec<usize> =
        mix.parts().iter().map(|part| (exact(part) as usize).max(1)).collect();
    let lacks = |numbers: &[usize], i: usize| exact(&mix.parts()[i]) - numbers[i] as f64;
    let by =
        |numbers: &[usize], a: usize, b: usize| lacks(numbers, a).total_cmp(&lacks(numbers, b));
    let all = 0..numbers.len();
    while numbers.iter().sum::<usize>() < count {
        let most = all.clone().max_by(|&a, &b| by(&numbers, a, b)).unwrap_or(0);
        numbers[most] += 1;
    }
    while numbers.iter().sum::<usize>() > count {
        let least = all.clone().filter(|&i| numbers[i] > 1).min_by(|&a, &b| by(&numbers, a, b));
        numbers[least.expect("there are as many connections as parts")] -= 1;
    }
    numbers
}

/// Returns the numbers below `count` in random order.
fn shuffled(count: u32, random: &mut Random) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    order
}

impl Senders {
    /// Creates `count` connections; if `dealt`, each of one part of `mix`.
    pub fn new(count: u32, dealt: bool, mix: &Mix, seed: u64) -> Senders {
        let all = (0..count).map(|_| Connection::default()).collect();
        let random = Random::new(seed, CONNECTIONS);
        let mut senders = Senders { all, of_part: Vec::new(), random, requests: 0 };
        if dealt && count > 0 {
            senders.deal(mix);
        }
        senders
    }

    fn deal(&mut self, mix: &Mix) {
        let mut order = shuffled(self.all.len() as u32, &mut self.random).into_iter();
        for (part, number) in numbers(mix, self.all.len()).into_iter().enumerate() {
            let of: Vec<u32> = order.by_ref().take(number).collect();
            of.iter().for_each(|&connection| self.all[connection as usize].part = part);
            self.of_part.push(of);
        }
    }

    /// Returns the sender of a request of `part` and where it arrives; `None` if there are no
    /// connections.
    pub fn any(&mut self, part: usize) -> Option<(u32, CpuId)> {
        let connection = match self.of_part.get(part) {
            Some(of) => of[self.random.below(of.len() as u64) as usize],
            None if self.all.is_empty() => return None,
            None => self.random.below(self.all.len() as u64) as u32,
        };
        Some((connection, self.all[connection as usize].cpu))
    }

    /// Returns where the requests of a connection arrive.
    #[inline]
    pub fn cpu(&self, connection: u32) -> CpuId {
        self.all[connection as usize].cpu
    }
}

impl<P: Policy> Engine<'_, P> {
    /// Steering gives each connection its CPU.
    pub(super) fn connect(&mut self) {
        for connection in 0..self.senders.all.len() as u32 {
            let part = self.senders.all[connection as usize].part;
            // A connection cannot be dropped, and neither can a client.
            let cpu = self.steer(Kind::Client, part, None).unwrap_or_default();
            self.senders.all[connection as usize].cpu = cpu;
        }
    }

    /// Returns how many requests are waiting or running.
    pub(super) fn in_system(&self) -> usize {
        if self.senders.all.is_empty() { self.jobs.len() } else { self.senders.requests }
    }

    /// Returns where a task arrives: a connection always at the same CPU, others where they arrived or
    /// last ran.
    #[inline]
    pub(super) fn arrival_cpu(&self, task: TaskId) -> CpuId {
        let job = self.jobs.get(task);
        if job.kind == Kind::Connection { self.senders.cpu(job.connection) } else { job.home }
    }

    /// A request arrives on its connection.
    pub(super) fn receive(&mut self, attrs: TaskAttrs, job: Job) {
        self.counts.arrivals += 1;
        self.senders.requests += 1;
        let connection = &mut self.senders.all[job.connection as usize];
        match connection.busy {
            true => connection.socket.push_back((attrs, job)),
            false => self.activate(attrs, job),
        }
    }

    /// The connection's event fires. The first event makes it a task.
    fn activate(&mut self, attrs: TaskAttrs, job: Job) {
        let connection = &mut self.senders.all[job.connection as usize];
        connection.busy = true;
        let Some(task) = connection.task else {
            let task = self.add(attrs, job);
            self.senders.all[job.connection as usize].task = Some(task);
            return self.deliver(task, Enqueue::New);
        };
        let before = *self.jobs.get(task);
        self.jobs.set_attrs(task, attrs);
        *self.jobs.get_mut(task) = Job { home: before.home, warm: true, born: before.born, ..job };
        self.deliver(task, Enqueue::Wakeup);
    }

    /// A request of a connection is done: its event is released, and fires again at once if there is
    /// more.
    pub(super) fn release(&mut self, task: TaskId) {
        self.senders.requests -= 1;
        let connection = &mut self.senders.all[self.jobs.get(task).connection as usize];
        match connection.socket.pop_front() {
            Some((attrs, job)) => self.activate(attrs, job),
            None => connection.busy = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_get_connections_by_their_shares_and_one_at_least() {
        let numbers = |mix: &str, count| numbers(&mix.parse().unwrap(), count);
        let gis = "95% 10us, 4% 50us, 1% 200us";
        assert_eq!(numbers(gis, 1728), [1642, 69, 17]);
        assert_eq!(numbers(gis, 200), [190, 8, 2]);
        assert_eq!(numbers(gis, 10), [8, 1, 1]);
        assert_eq!(numbers(gis, 3), [1, 1, 1]);
        assert_eq!(numbers("10us", 7), [7]);
    }

    #[test]
    fn connections_have_the_part_of_their_sender() {
        let mix: Mix = "95% 10us, 4% 50us, 1% 200us".parse().unwrap();
        let mut senders = Senders::new(200, true, &mix, 1);
        let mut seen = std::collections::HashSet::new();
        for part in [0, 1, 2, 2, 2, 1, 0] {
            let (connection, _) = senders.any(part).unwrap();
            assert_eq!(senders.all[connection as usize].part, part);
            seen.insert(connection);
        }
        assert!(seen.len() > 3);
        assert_eq!(Senders::new(0, false, &mix, 1).any(0), None);
    }
}
