//! What holds for any service under any policy.

use heddle_core::{Class, CpuId, CpuSet, Ns};
use heddle_sim::service::{
    Background, Delays, Phase, Replay, Request, Service, Steer, Worker, WorkerKind, replay,
    replay_watched,
};
use heddle_sim::{Event, EventKind, Recorder};
use proptest::prelude::*;
use std::collections::HashMap;

const POLICIES: &[&str] = &[
    "eevdf:slice=1ms,tick=4ms",
    "eevdf:slice=50us",
    "cfs",
    "fifo",
    "round-robin:quantum=100us",
    "work-stealing",
    "priority",
    "shinjuku:quantum=30us",
    "two-queue",
    "mlfq",
];

fn us(range: std::ops::Range<u64>) -> impl Strategy<Value = Ns> {
    range.prop_map(Ns::from_us)
}

fn phases() -> impl Strategy<Value = Vec<Phase>> {
    let phase = prop_oneof![us(0..300).prop_map(Phase::Run), us(0..900).prop_map(Phase::Wait)];
    prop::collection::vec(phase, 0..5)
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let request = (us(0..400), 0..6u32, 0..8u32, phases(), 0..3usize, us(0..900));
    prop::collection::vec(request, 0..60).prop_map(|all| {
        let mut at = Ns::ZERO;
        let with = |(gap, connection, queue, phases, kind, took)| {
            at += gap;
            let (recorded_queue, answered) = (Some(queue), Some(at + took));
            Request {
                arrival: at,
                answered,
                connection,
                recorded_queue,
                kind,
                class: Class::LC,
                phases,
            }
        };
        all.into_iter().map(with).collect()
    })
}

fn others() -> impl Strategy<Value = Vec<Background>> {
    let burst = (us(0..500), us(1..500));
    let thread = (prop::collection::vec(burst, 1..4), -5..20i32);
    let thread =
        thread.prop_map(|(bursts, nice)| Background { bursts, nice, ..Background::hog(0, 8) });
    prop::collection::vec(thread, 0..4)
}

/// Queues with one to three workers each.
fn services() -> impl Strategy<Value = Service<'static>> {
    let workers = prop::collection::vec((1..4usize, any::<bool>()), 1..4);
    let policy = prop::sample::select(POLICIES);
    let how = (any::<bool>(), any::<bool>(), any::<u64>());
    (1..5usize, policy, workers, others(), requests(), how).prop_map(
        |(cpus, policy, queues, others, mut requests, (closed, recorded, seed))| {
            let count = queues.len();
            let of = |(queue, (workers, is_loop)): (usize, (usize, bool))| {
                let kind = if is_loop { WorkerKind::EventLoop } else { WorkerKind::Sync };
                vec![Worker { kind, ..Worker::sync(queue, cpus) }; workers]
            };
            let workers = queues.into_iter().enumerate().flat_map(of).collect();
            requests
                .iter_mut()
                .for_each(|of| of.recorded_queue = of.recorded_queue.map(|k| k % count as u32));
            let steer = if recorded { Steer::Recorded } else { Steer::HashConnection };
            let policy = Service::new(cpus, policy, count);
            Service { workers, others, requests, steer, closed, seed, ..policy }
        },
    )
}

fn runs(request: &Request) -> Ns {
    let run = |phase: &Phase| if let Phase::Run(time) = phase { *time } else { Ns::ZERO };
    request.phases.iter().map(run).fold(Ns::ZERO, |sum, time| sum + time)
}

fn needs(request: &Request) -> Ns {
    let wait = |phase: &Phase| if let Phase::Wait(time) = phase { *time } else { Ns::ZERO };
    request.phases.iter().map(wait).fold(runs(request), |sum, time| sum + time)
}

fn sum<'a>(times: impl IntoIterator<Item = &'a Ns>) -> Ns {
    times.into_iter().fold(Ns::ZERO, |sum, &time| sum + time)
}

/// Follows the steps: a thread is on one CPU, a CPU has one thread, and if the policy conserves work, no CPU is idle at
/// the end of an instant in which a thread waits.
fn follow(steps: &[Event], cpus: usize, conserves: bool) {
    let (mut running, mut waiting): (HashMap<CpuId, u32>, HashMap<u32, ()>) = Default::default();
    for (i, step) in steps.iter().enumerate() {
        match step.kind {
            EventKind::Start => {
                assert!(waiting.remove(&step.who).is_some(), "{step:?} did not wait");
                assert!(running.insert(step.cpu, step.who).is_none(), "{step:?}: the CPU is taken");
                assert!(running.len() <= cpus);
            }
            EventKind::New | EventKind::Wakeup => {
                assert!(!running.values().any(|&task| task == step.who), "{step:?} runs");
                assert!(waiting.insert(step.who, ()).is_none(), "{step:?} waits already");
            }
            EventKind::Preempted | EventKind::Yield => {
                assert_eq!(running.remove(&step.cpu), Some(step.who));
                waiting.insert(step.who, ());
            }
            EventKind::Block | EventKind::Exit => {
                assert_eq!(running.remove(&step.cpu), Some(step.who))
            }
            kind => panic!("the simulator records no {kind}"),
        }
        let ends = steps.get(i + 1).is_none_or(|next| next.at > step.at);
        assert!(
            !ends || !conserves || waiting.is_empty() || running.len() == cpus,
            "idle after {step:?}"
        );
    }
}

/// Sync workers of a queue of their own serve its requests one after the other.
fn do_not_overlap(service: &Service<'_>, outcome: &Replay) {
    let (Steer::Recorded, false) = (&service.steer, service.closed) else { return };
    for queue in 0..service.queues {
        let workers: Vec<_> = service.workers.iter().filter(|of| of.queue == queue).collect();
        if workers.len() > 1 || workers[0].kind == WorkerKind::EventLoop {
            continue;
        }
        let mut free = Ns::ZERO;
        for (i, request) in service.requests.iter().enumerate() {
            if request.recorded_queue == Some(queue as u32) {
                assert!(request.arrival + outcome.waits[i] >= free, "request {i} begins too early");
                free = request.arrival + outcome.responses[i];
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_request_is_answered_once_and_no_time_is_lost(mut service in services()) {
        let mut recorder = Recorder::new(usize::MAX);
        let outcome = replay_watched(&mut service, &mut recorder).unwrap();
        prop_assert_eq!((outcome.unanswered, outcome.dropped), (0, 0));
        let work = service.requests.iter().map(runs).fold(Ns::ZERO, |sum, time| sum + time);
        prop_assert_eq!(sum(&outcome.worker_ran), work);
        prop_assert_eq!(sum(&outcome.cpu_busy), work + sum(&outcome.others_ran));
        prop_assert!(outcome.cpu_busy.iter().all(|&busy| busy <= outcome.time));
        for (i, request) in service.requests.iter().enumerate() {
            prop_assert!(outcome.responses[i] >= outcome.waits[i] + needs(request), "request {}", i);
        }
        for (busy, ran) in outcome.worker_busy.iter().zip(&outcome.worker_ran) {
            prop_assert!(ran <= busy && *busy <= outcome.time);
        }
        do_not_overlap(&service, &outcome);
        follow(&recorder.steps, service.cpus, true);
    }

    #[test]
    fn equal_services_give_equal_outcomes(mut service in services()) {
        service.delays = Delays { wake: vec![Ns(5_000), Ns(9_000)], turnaround: vec![Ns(2_000), Ns(70_000)] };
        prop_assert_eq!(replay(&mut service).unwrap(), replay(&mut service).unwrap());
    }

    #[test]
    fn threads_keep_to_their_cpus(mut service in services(), sets in prop::collection::vec(1..16u16, 20)) {
        let cpus = service.cpus as u16;
        service.policy = "eevdf:slice=100us,tick=250us".into();
        let of = |bits: u16| {
            let mut set = CpuSet::EMPTY;
            (0..cpus).filter(|cpu| bits >> cpu & 1 == 1).for_each(|cpu| set.insert(CpuId(cpu)));
            if set.is_empty() { CpuSet::first(usize::from(cpus)) } else { set }
        };
        let sets: Vec<CpuSet> = sets.into_iter().map(of).collect();
        let workers = service.workers.len();
        service.workers.iter_mut().zip(&sets).for_each(|(of, set)| of.cpus = *set);
        service.others.iter_mut().zip(&sets[workers..]).for_each(|(of, set)| of.cpus = *set);
        let mut recorder = Recorder::new(usize::MAX);
        let outcome = replay_watched(&mut service, &mut recorder).unwrap();
        prop_assert_eq!(outcome.unanswered, 0);
        for step in recorder.steps.iter().filter(|step| step.kind == EventKind::Start) {
            prop_assert!(sets[step.who as usize].contains(step.cpu), "{:?}", step);
        }
        follow(&recorder.steps, service.cpus, false);
    }
}
