//! Requests and the threads that serve them, without CPUs: says when each thread wakes, and for how long it then runs.
//!
//! # Invariants
//!
//! - **S1** A request is in one place: not arrived, in a queue, with one worker, or gone (answered or dropped). It is
//!   answered at most once.
//! - **S2** A sync worker has at most one request until its answer. An event loop runs one at a time; its others wait
//!   (a timer each) or are ready (`resumed`).
//! - **S3** A worker is in the `idle` list of its queue exactly while it has no request to run.
//! - **S4** A request is in a queue only while no worker of that queue is idle.
//! - **S5** A thread that was woken runs until [`ServiceState::burst_ends`] answers `None`; it is not woken meanwhile.

use super::background::{Loop, Turn};
use super::check::Thread;
use super::requests::Progress;
use super::steering::Steering;
use super::timers::{Timer, Timers};
use super::{Delays, Replay, Request, WorkerKind};
use crate::Random;
use heddle_core::{CpuSet, Ns, TaskAttrs};
use std::collections::VecDeque;

/// A queue of requests.
pub struct Socket {
    /// Requests, the oldest first.
    pub waiting: VecDeque<u32>,
    /// Workers without a request, the longest idle first.
    pub idle: VecDeque<u32>,
    /// The first of its workers.
    pub first: usize,
}

/// A worker's state.
pub struct WorkerState {
    pub(super) queue: usize,
    pub(super) kind: WorkerKind,
    /// What it runs, or has and waits for if it is a sync worker.
    pub request: Option<u32>,
    /// Requests of an event loop whose waits are over, and since when.
    pub(super) resumed: VecDeque<(Ns, u32)>,
    /// When it last ceased to be idle.
    pub(super) since: Ns,
}

/// A blocked thread becomes runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The thread: workers first, then the others.
    pub thread: usize,
    /// How long it runs.
    pub burst: Ns,
    /// If a request begins with it: when that arrived.
    pub arrived: Option<Ns>,
}

/// A thread as the engine creates it.
pub struct ThreadAttrs {
    pub attrs: TaskAttrs,
    pub cpus: CpuSet,
}

/// The state of a replay.
pub struct ServiceState<'s> {
    pub(super) requests: &'s [Request],
    pub(super) delays: &'s Delays,
    pub(super) closed: bool,
    pub(super) threads: Vec<ThreadAttrs>,
    pub(super) sockets: Vec<Socket>,
    pub(super) workers: Vec<WorkerState>,
    pub(super) others: Vec<(Loop<'s>, Ns)>,
    pub(super) progress: Vec<Progress>,
    /// Requests that arrive at their recorded times, and how many of them have.
    pub(super) recorded: Vec<u32>,
    pub(super) arrived: usize,
    pub(super) timers: Timers,
    pub(super) steering: Steering<'s>,
    pub(super) random: Random,
    /// Requests that are not gone yet.
    pub(super) left: usize,
    pub(super) replay: Replay,
    pub(super) limit: Ns,
}

impl<'s> ServiceState<'s> {
    /// Returns the threads, in the order in which they are numbered.
    pub fn threads(&self) -> &[ThreadAttrs] {
        &self.threads
    }

    /// Returns a thread's name in errors.
    pub fn thread(&self, index: usize) -> Thread {
        Thread::at(index, self.workers.len())
    }

    /// Returns whether every request is gone.
    pub fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Returns when the replay ends even if it is not complete.
    pub fn limit(&self) -> Ns {
        self.limit
    }

    /// Returns when something happens that is not the end of a burst; [`Ns::MAX`] for never.
    pub fn next(&self) -> Ns {
        let recorded = self.recorded.get(self.arrived);
        let arrival = recorded.map_or(Ns::MAX, |&i| self.requests[i as usize].arrival);
        arrival.min(self.timers.next())
    }

    /// Handles what is due at `now`, one thing at a time: timers come before recorded arrivals.
    pub fn event(&mut self, now: Ns) -> Option<Wake> {
        if self.timers.next() > now {
            let request = self.recorded[self.arrived];
            self.arrived += 1;
            return self.arrive(request, now);
        }
        match self.timers.pop()? {
            Timer::Begin(worker) => Some(self.begin(worker)),
            Timer::Continue(worker) => {
                let request =
                    self.workers[worker as usize].request.expect("it waits with a request");
                Some(self.wake(worker, request))
            }
            Timer::Resume { worker, request } => self.resume(worker, request, now),
            Timer::Background(thread) => {
                let (_, run) = self.others[thread as usize];
                Some(Wake {
                    thread: self.workers.len() + thread as usize,
                    burst: run,
                    arrived: None,
                })
            }
            Timer::Arrival(request) => self.arrive(request, now),
        }
    }

    /// The burst of `thread` ends; `waited` is from the arrival of the request that began with it until it ran. Returns
    /// how long the thread runs on; `None` if it blocks.
    pub fn burst_ends(&mut self, thread: usize, now: Ns, waited: Ns) -> Option<Ns> {
        if let Some(other) = thread.checked_sub(self.workers.len()) {
            return self.background_sleeps(other, now);
        }
        let worker = thread as u32;
        let request = self.workers[thread].request.expect("a worker that runs has a request");
        let (i, kind) = (request as usize, self.workers[thread].kind);
        if !std::mem::replace(&mut self.progress[i].began, true) {
            self.replay.waits[i] = waited;
        }
        let wait = self.progress[i].next_wait(&self.requests[i]);
        if wait > Ns::ZERO {
            return match kind {
                WorkerKind::Sync => {
                    self.timers.set(now + wait, Timer::Continue(worker));
                    None
                }
                WorkerKind::EventLoop => {
                    self.timers.set(now + wait, Timer::Resume { worker, request });
                    self.take(worker, now, false)
                }
            };
        }
        if !self.progress[i].is_done(&self.requests[i]) {
            return Some(self.progress[i].next_run(&self.requests[i]));
        }
        self.replay.responses[i] = now - self.progress[i].arrived;
        self.gone(request, now);
        self.take(worker, now, true)
    }

    /// Returns what came of it; `ran` are the times of all threads.
    pub fn finish(mut self, now: Ns, ran: &[Ns], cpu_busy: Vec<Ns>) -> Replay {
        for (worker, busy) in self.workers.iter().zip(&mut self.replay.worker_busy) {
            if worker.request.is_some() {
                *busy += now - worker.since;
            }
        }
        let (workers, others) = ran.split_at(self.workers.len());
        let unanswered =
            self.replay.responses.iter().filter(|&&time| time == Ns::MAX).count() as u64;
        Replay {
            worker_ran: workers.to_vec(),
            others_ran: others.to_vec(),
            cpu_busy,
            unanswered,
            time: now,
            ..self.replay
        }
    }

    fn arrive(&mut self, request: u32, now: Ns) -> Option<Wake> {
        let (i, of) = (request as usize, &self.requests[request as usize]);
        self.progress[i].arrived = now;
        self.pipeline(request, now);
        let view = (&self.sockets[..], &self.workers[..], self.requests);
        let Some(queue) = self.steering.choose(now, of, &self.progress[i], view) else {
            self.replay.dropped += 1;
            self.gone(request, now);
            return None;
        };
        let socket = &mut self.sockets[queue];
        let Some(worker) = socket.idle.pop_front() else {
            socket.waiting.push_back(request);
            return None;
        };
        self.engage(worker, request, now);
        match draw(&self.delays.wake, &mut self.random) {
            Ns::ZERO => Some(self.begin(worker)),
            delay => {
                self.timers.set(now + delay, Timer::Begin(worker));
                None
            }
        }
    }

    /// An idle worker gets something to run; it is out of the idle list.
    fn engage(&mut self, worker: u32, request: u32, now: Ns) {
        let state = &mut self.workers[worker as usize];
        (state.request, state.since) = (Some(request), now);
    }

    fn begin(&mut self, worker: u32) -> Wake {
        let request = self.workers[worker as usize].request.expect("it was given one");
        let arrived = Some(self.progress[request as usize].arrived);
        Wake { arrived, ..self.wake(worker, request) }
    }

    fn wake(&mut self, worker: u32, request: u32) -> Wake {
        let i = request as usize;
        let burst = self.progress[i].next_run(&self.requests[i]);
        Wake { thread: worker as usize, burst, arrived: None }
    }

    fn resume(&mut self, worker: u32, request: u32, now: Ns) -> Option<Wake> {
        let state = &mut self.workers[worker as usize];
        if state.request.is_some() {
            state.resumed.push_back((now, request));
            return None;
        }
        self.sockets[state.queue].idle.retain(|&idle| idle != worker);
        self.engage(worker, request, now);
        Some(self.wake(worker, request))
    }

    /// `worker`, which runs, goes on with what has been ready longest. Returns how long that runs, or `None` if there
    /// is nothing.
    fn take(&mut self, worker: u32, now: Ns, answered: bool) -> Option<Ns> {
        let state = &mut self.workers[worker as usize];
        let socket = &mut self.sockets[state.queue];
        let arrived = socket.waiting.front().map(|&i| self.progress[i as usize].arrived);
        let resumed = state.resumed.front().map(|&(since, _)| since);
        if resumed.is_some_and(|since| arrived.is_none_or(|arrived| since <= arrived)) {
            let (_, request) = state.resumed.pop_front()?;
            state.request = Some(request);
            return Some(self.wake(worker, request).burst);
        }
        state.request = socket.waiting.pop_front();
        let Some(request) = state.request else {
            self.replay.worker_busy[worker as usize] += now - state.since;
            socket.idle.push_back(worker);
            return None;
        };
        let turnaround =
            if answered { draw(&self.delays.turnaround, &mut self.random) } else { Ns::ZERO };
        let progress = &mut self.progress[request as usize];
        progress.began = true;
        self.replay.waits[request as usize] = now + turnaround - progress.arrived;
        Some(turnaround + self.wake(worker, request).burst)
    }

    /// `request` is answered or dropped.
    fn gone(&mut self, request: u32, now: Ns) {
        self.left -= 1;
        let of = &self.requests[request as usize];
        let Some(next) = self.progress[request as usize].next().filter(|_| self.closed) else {
            return;
        };
        let arrival = self.requests[next as usize].arrival;
        if let Some(answered) = of.answered.filter(|&answered| answered <= arrival) {
            self.timers.set(now + (arrival - answered), Timer::Arrival(next));
        }
    }

    /// The next request of a connection was sent before this one's answer: it does not wait for it.
    fn pipeline(&mut self, request: u32, now: Ns) {
        let of = &self.requests[request as usize];
        let Some(next) = self.progress[request as usize].next().filter(|_| self.closed) else {
            return;
        };
        let arrival = self.requests[next as usize].arrival;
        if of.answered.is_some_and(|answered| answered > arrival) {
            self.timers.set(now + (arrival - of.arrival), Timer::Arrival(next));
        }
    }

    /// Returns how long the other thread runs on; if it sleeps first, sets its timer and returns `None`.
    pub(super) fn background_sleeps(&mut self, thread: usize, now: Ns) -> Option<Ns> {
        let (state, next) = &mut self.others[thread];
        let Turn { sleep, run } = state.next();
        *next = run;
        self.timers.set(now + sleep, Timer::Background(thread as u32));
        None
    }
}

fn draw(delays: &[Ns], random: &mut Random) -> Ns {
    match delays {
        [] => Ns::ZERO,
        all => all[random.below(all.len() as u64) as usize],
    }
}
