//! Replays a model under a change.

use heddle_core::{Class, CpuId, CpuSet, Ns, Rng};
use heddle_observe::{Protocol, Runtime};
use heddle_sim::service::{self, Background, Delays, Phase, Service, Steer};
use heddle_steer::native::{NativePolicy, Simulated};
use heddle_steer::policy::split_params;
use heddle_sys::cpu_list;
use serde::{Deserialize, Serialize};

use crate::AdviseError;
use crate::model::{ClassOfRequests, Model, Neighbour, Request, Worker, WorkerKind};
use crate::options::Change;
use crate::weights::Weights;

/// Neighbours that take less of a CPU are left out of a replay.
const NOTICEABLE: f64 = 0.005;

/// What a replay assumes of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cpus {
    /// A worker waits for CPUs as long as was observed, whatever changes.
    Ample,
    /// Workers and other threads share the host's CPUs by the kernel's fair class.
    Host,
}

/// Replays `requests` and returns the time that each took; [`Ns::MAX`] if it was not answered.
pub fn responses(
    model: &Model,
    requests: &[Request],
    change: &Change,
    cpus: Cpus,
    seed: u64,
) -> Result<Vec<Ns>, AdviseError> {
    let mut policy = policy(model, change)?;
    let mut service = describe(model, requests, change, cpus, seed);
    if let Some(policy) = &mut policy {
        // A datagram is steered by itself, a connection once.
        let per_connection = model.protocol == Protocol::Tcp;
        service.steer = Steer::Policy { policy, per_connection };
    }
    Ok(service::replay(&mut service)?.responses)
}

fn describe<'p>(
    model: &Model,
    requests: &[Request],
    change: &Change,
    cpus: Cpus,
    seed: u64,
) -> Service<'p> {
    if let Some(runtime) = &model.runtime {
        return tasks(model, runtime, requests, change, seed);
    }
    let weights = Weights::of(model, change);
    let (queues, workers) = places(model, change, &weights);
    let count = match cpus {
        Cpus::Ample => workers.len().max(1),
        Cpus::Host => model.host.cpus.max(1) as usize,
    };
    Service {
        cpus: count,
        policy: fair_class(count),
        queues,
        workers: workers
            .into_iter()
            .enumerate()
            .map(|(number, worker)| service::Worker {
                cpus: match cpus {
                    Cpus::Ample => only(number),
                    Cpus::Host => worker.cpus,
                },
                ..worker
            })
            .collect(),
        others: if cpus == Cpus::Host { others(model, &weights, count) } else { vec![] },
        requests: requests.iter().map(|request| replayed(request, cpus, change)).collect(),
        steer: match change {
            // The hash spreads connections over all workers anew.
            Change::Workers { .. } if queues > 1 => Steer::HashConnection,
            _ => Steer::Recorded,
        },
        delays: delays(model, cpus),
        closed: false,
        seed,
    }
}

/// Tasks in service at a time; further requests wait in their sockets.
const TASKS: usize = 256;

/// Describes a Heddle runtime: its tasks are what the policy schedules, and its workers are the CPUs that run them. Its
/// workers wait for CPUs as long as was observed, with the task that they run.
fn tasks<'p>(
    model: &Model,
    runtime: &Runtime,
    requests: &[Request],
    change: &Change,
    seed: u64,
) -> Service<'p> {
    let workers = runtime.workers.max(1);
    let policy = match change {
        Change::RuntimePolicy { to, .. } => to,
        Change::HeddleGo => Runtime::OF_HEDDLE_GO,
        _ => &runtime.policy,
    };
    let one = |request: &Request| {
        let run = Phase::Run((request.cpu + request.run_queue).max(Ns(1)));
        let wait = Some(Phase::Wait(request.sleep)).filter(|_| request.sleep > Ns::ZERO);
        service::Request {
            arrival: request.arrived,
            connection: request.connection,
            recorded_queue: Some(0),
            kind: request.class.into(),
            phases: std::iter::once(run).chain(wait).collect(),
            ..service::Request::default()
        }
    };
    Service {
        workers: vec![service::Worker::sync(0, workers); TASKS],
        requests: requests.iter().map(one).collect(),
        steer: Steer::Recorded,
        delays: delays(model, Cpus::Ample),
        seed,
        ..Service::new(workers, policy, 1)
    }
}

/// Returns the kernel's fair class on so many CPUs: the slice grows with them (`kernel/sched/fair.c`), and most
/// distributions have 250 ticks a second.
fn fair_class(cpus: usize) -> String {
    let slice = 700 * (1 + u64::from(cpus.clamp(1, 8).ilog2()));
    format!("eevdf:slice={slice}us,tick=4ms")
}

fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::EMPTY;
    set.insert(CpuId(cpu as u16));
    set
}

/// Returns the number of queues, and the workers on them.
fn places(model: &Model, change: &Change, weights: &Weights<'_>) -> (usize, Vec<service::Worker>) {
    let count = model.host.cpus.max(1) as usize;
    let worker = |queue, kind, like: &Worker| service::Worker {
        queue,
        kind: match kind {
            WorkerKind::Sync => service::WorkerKind::Sync,
            WorkerKind::EventLoop => service::WorkerKind::EventLoop,
        },
        cpus: allowed(&like.cpus, count),
        nice: weights.of_thread(&model.group, like.nice),
        class: Class::LC,
    };
    let as_they_are = model.workers.iter().map(|one| worker(one.queue, one.kind, one));
    match change {
        Change::SharedSocket => {
            (1, as_they_are.map(|one| service::Worker { queue: 0, ..one }).collect())
        }
        // A thread takes what is ready, of whichever connection, and is free after the answer.
        Change::EventQueue => {
            (1, model.workers.iter().map(|one| worker(0, WorkerKind::Sync, one)).collect())
        }
        // New workers have queues of their own if the present ones have.
        Change::Workers { from, to } => {
            let own = model.queues.len() > 1;
            let like = model.workers.first().cloned().unwrap_or_default();
            let queue = |number| if own { model.queues.len() + number - from } else { 0 };
            let more = (*from..*to).map(|number| worker(queue(number), WorkerKind::Sync, &like));
            let queues = if own { model.queues.len() + to - from } else { model.queues.len() };
            (queues, as_they_are.chain(more).collect())
        }
        _ => (model.queues.len(), as_they_are.collect()),
    }
}

/// Returns the CPUs of a list that a host of `count` CPUs has; all of them if it names none.
fn allowed(list: &str, count: usize) -> CpuSet {
    let mut set = CpuSet::EMPTY;
    let named = cpu_list::parse(list).unwrap_or_default();
    let named = named.into_iter().filter_map(|cpu| u16::try_from(cpu).ok());
    named.filter(|cpu| usize::from(*cpu) < count).for_each(|cpu| set.insert(CpuId(cpu)));
    if set.is_empty() { CpuSet::first(count) } else { set }
}

fn replayed(request: &Request, cpus: Cpus, change: &Change) -> service::Request {
    // With CPUs of their own, workers still wait as long for CPUs as was observed.
    let sleep = match cpus {
        Cpus::Ample => request.sleep + request.run_queue,
        Cpus::Host => request.sleep,
    };
    let half = Ns(request.cpu.0 / 2);
    let phases = match sleep {
        Ns::ZERO => vec![Phase::Run(request.cpu.max(Ns(1)))],
        _ => vec![
            Phase::Run(half.max(Ns(1))),
            Phase::Wait(sleep),
            Phase::Run((request.cpu - half).max(Ns(1))),
        ],
    };
    service::Request {
        arrival: request.arrived,
        connection: request.connection,
        recorded_queue: match change {
            Change::SharedSocket | Change::EventQueue => Some(0),
            _ => Some(request.queue),
        },
        kind: request.class.into(),
        class: Class::LC,
        phases,
        ..service::Request::default()
    }
}

fn policy(model: &Model, change: &Change) -> Result<Option<Simulated>, AdviseError> {
    let Change::Steer { policy, .. } = change else { return Ok(None) };
    let (name, params) = split_params(policy);
    let native = NativePolicy::shipped(name, params).map_err(AdviseError::Policy)?;
    // The operations of Heddle's own datagrams: get, and scan for the longest class.
    let longest = model.classes.iter().map(|class| class.demand).max();
    let scans = model.classes.len() > 1;
    let operation =
        |class: &ClassOfRequests| if scans && Some(class.demand) == longest { 3 } else { 1 };
    let types = model.classes.iter().map(operation).collect();
    Ok(Some(Simulated::new(native, types)))
}

/// Returns the delays of workers. A replay with the host's CPUs adds waits for a CPU itself. What a worker does between
/// an answer and its next request is hardly ever longer than its median, so the rest of those times is such waits.
fn delays(model: &Model, cpus: Cpus) -> Delays {
    match cpus {
        Cpus::Ample => Delays { wake: model.wake.clone(), turnaround: model.turnaround.clone() },
        Cpus::Host => {
            Delays { wake: model.wake_on_cpu.clone(), turnaround: lower_half(&model.turnaround) }
        }
    }
}

fn lower_half(times: &[Ns]) -> Vec<Ns> {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.truncate(times.len().div_ceil(2));
    times
}

fn others(model: &Model, weights: &Weights<'_>, cpus: usize) -> Vec<Background> {
    let loud = model.neighbours.iter().filter(|one| one.share >= NOTICEABLE);
    let background = |one: &Neighbour| Background {
        bursts: bursts(one),
        nice: weights.of_neighbour(one),
        cpus: allowed(&one.cpus, cpus),
        class: Class::LC,
    };
    loud.map(background).collect()
}

/// A thread that was runnable for this share of the time never sleeps.
const HOG: f64 = 0.8;

/// Returns the turns of a neighbour, such that it takes as much CPU time in the long run as was observed: a thread that
/// ended after some turns, as a compiler does, does not go on forever.
fn bursts(one: &Neighbour) -> Vec<(Ns, Ns)> {
    if one.share + one.waiting >= HOG {
        return vec![(Ns::ZERO, Ns::from_secs(1))];
    }
    let mut bursts: Vec<(Ns, Ns)> =
        one.bursts.iter().map(|turn| (turn.slept, turn.ran.max(Ns(1)))).collect();
    if bursts.is_empty() {
        bursts.push((Ns::ZERO, UNSEEN));
    }
    let sum =
        |of: fn(&(Ns, Ns)) -> Ns| bursts.iter().map(of).fold(Ns::ZERO, |sum, time| sum + time);
    let (slept, ran) = (sum(|turn| turn.0), sum(|turn| turn.1));
    let cycle = Ns((ran.0 as f64 / one.share.max(1e-6)) as u64);
    bursts[0].0 += cycle - ran - slept;
    bursts
}

/// How long a thread runs at a time of which no turn was seen.
const UNSEEN: Ns = Ns::from_ms(10);

/// Resamples a trace: blocks of it, drawn with replacement, one after the other. What follows from the order within a
/// block stays (Künsch 1989, the block bootstrap).
pub fn resample(requests: &[Request], blocks: usize, rng: &Rng) -> Vec<Request> {
    let (Some(first), Some(last)) = (requests.first(), requests.last()) else { return vec![] };
    let length = Ns((last.arrived - first.arrived).0 / blocks.max(1) as u64 + 1);
    let mut drawn = Vec::with_capacity(requests.len());
    for number in 0..blocks as u64 {
        let from = first.arrived + length * (rng.next_u64() % blocks.max(1) as u64);
        let begin = requests.partition_point(|request| request.arrived < from);
        let end = requests.partition_point(|request| request.arrived < from + length);
        let moved = |request: &Request| Request {
            arrived: request.arrived - from + length * number,
            ..*request
        };
        drawn.extend(requests[begin..end].iter().map(moved));
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_keep_to_their_cpus() {
        assert_eq!(allowed("1,3", 4).len(), 2);
        assert_eq!(allowed("1-7", 2), only(1));
        for all in ["", "5", "70000"] {
            assert_eq!(allowed(all, 2), CpuSet::first(2), "{all}");
        }
        let workers = vec![Worker { cpus: "1".into(), ..Worker::default() }];
        let host = heddle_observe::Host { cpus: 2, ..Default::default() };
        let model = Model { workers, host, ..Model::default() };
        let service = describe(&model, &[], &Change::Nothing, Cpus::Host, 1);
        assert_eq!(service.workers[0].cpus, only(1));
    }

    #[test]
    fn a_resampled_trace_is_in_order_and_as_long() {
        let requests: Vec<Request> = (0..1000)
            .map(|n| Request { arrived: Ns(1000 + n * 10), cpu: Ns(n), ..Request::default() })
            .collect();
        let drawn = resample(&requests, 10, &Rng::new(3));
        assert!(drawn.is_sorted_by_key(|request| request.arrived));
        assert!(drawn.len().abs_diff(1000) <= 10, "{}", drawn.len());
        assert!(drawn.last().unwrap().arrived <= Ns(10_010));
        assert_ne!(
            drawn.iter().map(|r| r.cpu).collect::<Vec<_>>(),
            requests.iter().map(|r| r.cpu).collect::<Vec<_>>()
        );
        assert!(resample(&[], 10, &Rng::new(3)).is_empty());
    }
}
