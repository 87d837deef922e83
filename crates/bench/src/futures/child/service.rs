//! Requests that a thread on another CPU spawns, each as one future.

use super::executor::{Executor, Use, start};
use crate::futures::System;
use crate::futures::workload::{Arrival, Kind, Workload};
use crate::threads::child::preemption::work;
use heddle_core::Ns;
use heddle_metrics::Histogram;
use heddle_sys::clock::{now, process_cpu_time, thread_cpu_time};
use heddle_sys::thread::{make_prompt, pin};
use serde::{Deserialize, Serialize};
use std::hint::spin_loop;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// A request that is spawned this long after it was due is late.
const LATE: Ns = Ns::from_us(200);
/// Beyond this number of requests in progress the generator gives up.
const MOST_WAITING: u64 = 20_000;
/// Requests in progress where as many as possible are served.
const DEPTH: u64 = 256;
/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::futures) struct Trial {
    pub(in crate::futures) system: System,
    pub(in crate::futures) kind: Kind,
    pub(in crate::futures) short_ns: u64,
    pub(in crate::futures) long_ns: u64,
    pub(in crate::futures) quantum_ns: u64,
    /// Requests per second; 0 for as many as are served.
    pub(in crate::futures) rate: f64,
    pub(in crate::futures) time_ns: u64,
    /// How long after the last arrival answers are awaited.
    pub(in crate::futures) patience_ns: u64,
    pub(in crate::futures) seed: u64,
    /// Steps of work in a microsecond.
    pub(in crate::futures) steps_per_us: f64,
    /// The CPU of the runtime.
    pub(in crate::futures) server: u32,
    /// The CPU of the generator.
    pub(in crate::futures) load: u32,
}

impl Trial {
    fn workload(&self) -> Workload {
        Workload {
            kind: self.kind,
            short: Ns(self.short_ns),
            long: Ns(self.long_ns),
            quantum: Ns(self.quantum_ns),
        }
    }

    /// Requests that are due earlier are not counted.
    fn warm_up(&self) -> Ns {
        Ns(self.time_ns / 10)
    }

    fn steps(&self, ns: u64) -> u64 {
        (self.steps_per_us * ns as f64 / 1e3) as u64
    }
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::futures) struct Served {
    /// Response times.
    pub(in crate::futures) short: Histogram,
    /// Response times of long requests.
    pub(in crate::futures) long: Histogram,
    /// Requests that were due after the warm-up.
    pub(in crate::futures) due: u64,
    /// Those of them that were spawned late.
    pub(in crate::futures) late: u64,
    /// Those without an answer.
    pub(in crate::futures) lost: u64,
    /// Whether the generator gave up.
    pub(in crate::futures) gave_up: bool,
    /// Requests per second that were served.
    pub(in crate::futures) throughput: f64,
    /// CPU time per request without the generator's, in nanoseconds.
    pub(in crate::futures) cpu_ns: f64,
}

/// Serves the requests of `trial`.
pub(super) fn measure(trial: Trial) -> Served {
    pin(&[trial.server]).expect("the runner may use its CPUs");
    start(trial.system, Ns(trial.quantum_ns), trial)
}

/// What requests and the generator share.
struct Board {
    start: Ns,
    short: u64,
    long: u64,
    trial: Trial,
    served: AtomicU64,
    lock: Mutex<()>,
    /// When each request was served, after the start; 0 before.
    at: Vec<AtomicU64>,
}

impl Board {
    /// Serves one request.
    fn serve(&self, id: usize, is_long: bool) {
        let steps = if is_long { self.long } else { self.short };
        match self.trial.kind {
            Kind::Sleep if is_long => thread::sleep(Duration::from_nanos(self.trial.long_ns)),
            Kind::Compute | Kind::Sleep => work(steps),
            Kind::Mutex => {
                work(steps * 2 / 5);
                {
                    let _held = self.lock.lock();
                    work(steps / 5);
                }
                work(steps * 2 / 5);
            }
        }
        if let Some(at) = self.at.get(id) {
            at.store((now() - self.start).0.max(1), Relaxed);
        }
        self.served.fetch_add(1, Relaxed);
    }

    fn served(&self) -> u64 {
        self.served.load(Relaxed)
    }
}

impl Use for Trial {
    type Out = Served;

    fn with(self, executor: impl Executor) -> Served {
        let arrivals = match self.rate > 0.0 {
            true => self.workload().arrivals(self.seed, self.rate, Ns(self.time_ns)),
            false => Vec::new(),
        };
        // For the rest of the process: a request that never ends may hold it.
        let board: &'static Board = Box::leak(Box::new(Board {
            // Time for the generator to start.
            start: now() + Ns::from_ms(20),
            short: self.steps(self.short_ns),
            long: self.steps(self.long_ns),
            trial: self,
            served: AtomicU64::new(0),
            lock: Mutex::new(()),
            at: arrivals.iter().map(|_| AtomicU64::new(0)).collect(),
        }));
        let served = thread::scope(|scope| {
            let generator = || {
                pin(&[self.load]).expect("the runner may use its CPUs");
                make_prompt();
                match self.rate > 0.0 {
                    true => open_loop(&executor, board, &arrivals),
                    false => closed_loop(&executor, board),
                }
            };
            scope.spawn(generator).join().expect("the generator does not panic")
        });
        // Requests may wait forever, and the process ends.
        std::mem::forget(executor);
        served
    }
}

/// CPU time of the process but for the calling thread.
fn cpu_of_others() -> Ns {
    process_cpu_time() - thread_cpu_time()
}

fn open_loop(executor: &impl Executor, board: &'static Board, arrivals: &[Arrival]) -> Served {
    let Trial { server, load, .. } = board.trial;
    let is_shared = server == load;
    let (mut late, mut sent) = (Vec::with_capacity(arrivals.len()), 0);
    wait_until(board.start, is_shared);
    let cpu = cpu_of_others();
    for (id, &Arrival { at, is_long }) in arrivals.iter().enumerate() {
        wait_until(board.start + at, is_shared);
        if sent - board.served() > MOST_WAITING {
            break;
        }
        executor.spawn(async move { board.serve(id, is_long) });
        late.push(now() - (board.start + at) > LATE);
        sent += 1;
    }
    let gave_up = sent < arrivals.len() as u64;
    // Who waits for a system that fell behind only lets it take more memory.
    let patience = if gave_up { Ns::ZERO } else { Ns(board.trial.patience_ns) };
    let limit = now() + patience;
    while board.served() < sent && now() < limit {
        thread::sleep(Duration::from_millis(1));
    }
    let (cpu, time) = (cpu_of_others() - cpu, now() - board.start);
    let count = board.served();
    let mut served = responses(board, arrivals, &late);
    served.gave_up = gave_up;
    served.throughput = count as f64 / time.as_secs_f64();
    served.cpu_ns = cpu.0 as f64 / count.max(1) as f64;
    served
}

/// Counts the requests that were due after the warm-up. `late` has an entry for each that was sent.
fn responses(board: &Board, arrivals: &[Arrival], late: &[bool]) -> Served {
    let mut served = Served::default();
    for (id, arrival) in arrivals.iter().enumerate() {
        if arrival.at < board.trial.warm_up() {
            continue;
        }
        served.due += 1;
        served.late += u64::from(late.get(id).copied().unwrap_or(false));
        match board.at[id].load(Relaxed) {
            0 => served.lost += 1,
            at if arrival.is_long => served.long.record(Ns(at) - arrival.at),
            at => served.short.record(Ns(at) - arrival.at),
        }
    }
    served
}

/// Keeps some requests in progress until the time is over.
fn closed_loop(executor: &impl Executor, board: &'static Board) -> Served {
    let trial = board.trial;
    let is_shared = trial.server == trial.load;
    let (from, end) = (board.start + trial.warm_up(), board.start + Ns(trial.time_ns));
    wait_until(board.start, is_shared);
    let (mut sent, mut first) = (0, None);
    loop {
        let time = now();
        if time >= from && first.is_none() {
            first = Some((time, board.served(), cpu_of_others()));
        }
        if time >= end {
            break;
        }
        match sent - board.served() < DEPTH {
            true => {
                executor.spawn(async move { board.serve(usize::MAX, false) });
                sent += 1;
            }
            false if is_shared => thread::yield_now(),
            false => spin_loop(),
        }
    }
    let (last, at, cpu) = (board.served(), now(), cpu_of_others());
    let (from, before, cpu_before) = first.unwrap_or((board.start, 0, Ns::ZERO));
    let count = last - before;
    Served {
        due: count,
        throughput: count as f64 / (at - from).as_secs_f64().max(1e-9),
        cpu_ns: (cpu - cpu_before).0 as f64 / count.max(1) as f64,
        ..Served::default()
    }
}

/// Waits until `due`. A CPU of its own is polled for that: a sleeper that shares it with other processes wakes late.
fn wait_until(due: Ns, is_shared: bool) {
    loop {
        let left = due - now();
        match (left, is_shared) {
            (Ns::ZERO, _) => return,
            (_, true) => thread::sleep(left.into()),
            (_, false) => spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial() -> Trial {
        let cpu = heddle_sys::thread::affinity().unwrap()[0];
        Trial {
            system: System::TwoQueue,
            kind: Kind::Compute,
            short_ns: 1_000,
            long_ns: 10_000,
            quantum_ns: 100_000,
            rate: 1_000.0,
            time_ns: 50_000_000,
            // Detects hangs.
            patience_ns: 60_000_000_000,
            seed: 1,
            steps_per_us: 100.0,
            server: cpu,
            load: cpu,
        }
    }

    /// In threads of their own: a measurement pins its thread.
    fn measured(trial: Trial) -> Served {
        thread::spawn(move || measure(trial)).join().unwrap()
    }

    #[test]
    fn every_system_serves_each_request_once() {
        for system in [System::TwoQueue, System::Fifo, System::Tokio, System::TokioEight] {
            let served = measured(Trial { system, ..trial() });
            let counted = served.short.count() + served.long.count();
            assert_eq!((counted, served.lost, served.gave_up), (served.due, 0, false), "{system}");
            assert!(served.due > 0 && served.throughput > 0.0, "{system}");
        }
    }

    #[test]
    fn a_closed_loop_serves_as_many_as_it_can() {
        let served = measured(Trial { rate: 0.0, long_ns: 0, ..trial() });
        assert!(served.due > 0 && served.throughput > 0.0 && served.short.is_empty());
    }

    #[test]
    fn what_was_not_served_is_lost_and_what_came_before_is_not_counted() {
        let board = Board {
            start: Ns::ZERO,
            short: 0,
            long: 0,
            trial: Trial { time_ns: 1_000, ..trial() },
            served: AtomicU64::new(0),
            lock: Mutex::new(()),
            at: [150, 900, 0, 950].map(AtomicU64::new).into(),
        };
        let arrivals = [(50, false), (200, false), (300, true), (400, true)];
        let arrivals = arrivals.map(|(at, is_long)| Arrival { at: Ns(at), is_long });
        let served = responses(&board, &arrivals, &[true, true, false]);
        assert_eq!((served.due, served.late, served.lost), (3, 1, 1));
        assert_eq!((served.short.max(), served.long.max()), (Ns(700), Ns(550)));
    }
}
