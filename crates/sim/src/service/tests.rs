//! Replays that can be computed by hand.

use super::*;
use crate::{EventKind, Recorder};
use heddle_core::{Arrival, Choice, Class, CpuId, CpuSet, Executors, Ns, SteeringPolicy};

fn ms(n: u64) -> Ns {
    Ns::from_ms(n)
}

fn run(n: u64) -> Phase {
    Phase::Run(ms(n))
}

fn wait(n: u64) -> Phase {
    Phase::Wait(ms(n))
}

/// A request at `at` ms on a connection of its own.
fn request(at: u64, phases: &[Phase]) -> Request {
    Request {
        arrival: ms(at),
        connection: at as u32,
        phases: phases.to_vec(),
        ..Request::default()
    }
}

/// Sync workers of one queue, without delays.
fn sync(cpus: usize, workers: usize, requests: Vec<Request>) -> Service<'static> {
    let workers = vec![Worker::sync(0, cpus); workers];
    Service { workers, requests, ..Service::new(cpus, "eevdf:slice=1ms", 1) }
}

fn responses(service: &mut Service<'_>) -> Vec<u64> {
    replay(service).unwrap().responses.iter().map(|time| time.0 / 1_000_000).collect()
}

#[test]
fn a_sync_worker_holds_its_request_while_that_waits() {
    let requests = || (0..3).map(|i| request(2 * i, &[run(1), wait(5), run(1)])).collect();
    assert_eq!(responses(&mut sync(1, 1, requests())), [7, 12, 17]);
    let outcome = replay(&mut sync(1, 3, requests())).unwrap();
    // The third begins at 4; the first runs on from 6 to 7, the second from 8.
    assert_eq!(outcome.responses, [ms(7), ms(7), ms(7)]);
    assert_eq!((outcome.worker_busy, outcome.worker_ran), (vec![ms(7); 3], vec![ms(2); 3]));
    assert_eq!((outcome.cpu_busy, outcome.time, outcome.unanswered), (vec![ms(6)], ms(11), 0));
}

#[test]
fn an_event_loop_serves_others_while_a_request_waits() {
    let requests = vec![
        request(0, &[run(1), wait(5), run(1)]),
        request(2, &[run(1), wait(5), run(1)]),
        request(3, &[run(4)]),
    ];
    let mut service = sync(1, 0, requests);
    service.workers = vec![Worker::event_loop(0, 1)];
    let outcome = replay(&mut service).unwrap();
    // It runs 0 to 1, 2 to 3, 3 to 7; the first has been ready since 6, the second since 8.
    assert_eq!(outcome.responses, [ms(8), ms(7), ms(4)]);
    assert_eq!(outcome.waits, [Ns::ZERO; 3]);
    assert_eq!((outcome.worker_busy, outcome.time), (vec![ms(8)], ms(9)));
}

#[test]
fn a_burst_of_an_event_loop_waits_for_the_one_before_it() {
    // What is ready first runs first, whether it is new or not.
    let requests = vec![
        request(0, &[run(1), wait(2), run(1)]),
        request(1, &[run(4)]),
        request(2, &[run(2)]),
        request(4, &[run(1)]),
    ];
    let mut service = sync(1, 0, requests);
    service.workers = vec![Worker::event_loop(0, 1)];
    assert_eq!(responses(&mut service), [8, 4, 5, 5]);
}

#[test]
fn of_idle_workers_the_longest_idle_is_next_and_a_free_one_takes_the_oldest() {
    let mut service = sync(1, 3, (0..7).map(|i| request(2 * i, &[run(1)])).collect());
    assert_eq!(replay(&mut service).unwrap().worker_ran, [ms(3), ms(2), ms(2)]);
    let mut service =
        sync(1, 1, vec![request(0, &[run(5)]), request(1, &[run(3)]), request(2, &[run(1)])]);
    assert_eq!(responses(&mut service), [5, 7, 7]);
}

#[test]
fn phases_may_be_missing_empty_or_begin_and_end_with_a_wait() {
    let requests = vec![
        request(0, &[]),
        request(10, &[wait(3)]),
        request(20, &[run(1), wait(0), run(1), run(1)]),
        request(30, &[wait(1), wait(1), run(1), wait(1)]),
    ];
    assert_eq!(responses(&mut sync(1, 1, requests)), [0, 3, 3, 4]);
    assert_eq!(
        replay(&mut sync(1, 1, Vec::new())).unwrap(),
        Replay {
            worker_busy: vec![Ns::ZERO],
            worker_ran: vec![Ns::ZERO],
            cpu_busy: vec![Ns::ZERO],
            ..Replay::default()
        }
    );
}

#[test]
fn delays_come_before_a_request_begins() {
    let requests = vec![request(0, &[run(4)]), request(1, &[run(4)]), request(30, &[run(4)])];
    let mut service = sync(1, 1, requests);
    service.delays = Delays { wake: vec![ms(2)], turnaround: vec![ms(3)] };
    let outcome = replay(&mut service).unwrap();
    assert_eq!(outcome.waits, [ms(2), ms(8), ms(2)]);
    assert_eq!(outcome.responses, [ms(6), ms(12), ms(6)]);
    // A turnaround runs, a wake-up does not.
    assert_eq!((outcome.worker_ran, outcome.worker_busy), (vec![ms(15)], vec![ms(13 + 6)]));
}

#[test]
fn a_closed_loop_keeps_think_times_and_what_was_pipelined() {
    let at = |arrival, answered, connection| Request {
        answered: Some(ms(answered)),
        connection,
        ..request(arrival, &[run(1)])
    };
    // Answers took 10; now they take 1. The third was sent 2 after the second, before its answer.
    let requests = vec![at(0, 10, 7), at(15, 25, 7), at(17, 26, 7), at(40, 50, 9)];
    let mut service = Service { closed: true, ..sync(1, 1, requests) };
    let outcome = replay(&mut service).unwrap();
    assert_eq!((outcome.responses, outcome.time), (vec![ms(1); 4], ms(41)));
    service.requests.truncate(3);
    // At 0; 5 after the answer at 1; 2 after that.
    assert_eq!(replay(&mut service).unwrap().time, ms(9));
    service.requests[0].answered = None;
    assert_eq!(
        replay(&mut service).unwrap_err().to_string(),
        ServiceError::NoAnswer(0).to_string()
    );
}

/// Two queues of one worker each.
fn two_queues(connections: &[u32]) -> Service<'static> {
    let at = |(i, &connection)| Request {
        connection,
        recorded_queue: Some(connection % 2),
        kind: i,
        ..request(i as u64, &[run(10)])
    };
    let mut service = sync(2, 0, connections.iter().enumerate().map(at).collect());
    service.workers = vec![Worker::sync(0, 2), Worker::sync(1, 2)];
    service.queues = 2;
    service
}

#[test]
fn requests_go_where_they_were_recorded() {
    let mut service = Service { steer: Steer::Recorded, ..two_queues(&[0, 2, 1, 4]) };
    assert_eq!(responses(&mut service), [10, 19, 10, 27]);
}

#[test]
fn a_hashed_connection_stays_and_the_seed_moves_it() {
    let mut service = two_queues(&[5; 4]);
    assert_eq!(responses(&mut service), [10, 19, 28, 37]);
    let queue = |seed| {
        let mut service = Service { seed, ..two_queues(&[5]) };
        replay(&mut service).unwrap().worker_ran[0] > Ns::ZERO
    };
    let first = (0..100).filter(|&seed| queue(seed)).count();
    assert!((30..70).contains(&first), "{first} of 100");
}

/// Sends each request to a queue in turn, after looking at them; drops the fourth.
#[derive(Default)]
struct Turns {
    seen: Vec<(usize, Vec<usize>, Vec<Option<usize>>)>,
}

impl SteeringPolicy for Turns {
    fn choose(&mut self, arrival: &Arrival, executors: &dyn Executors) -> Choice {
        let all = 0..executors.count();
        let waiting = all.clone().map(|k| executors.waiting(k)).collect();
        let serves = all.map(|k| executors.serves(k)).collect();
        self.seen.push((arrival.kind, waiting, serves));
        match self.seen.len() {
            4 => Choice::Drop,
            n => Choice::Executor((n - 1) % 2),
        }
    }
}

#[test]
fn a_policy_sees_the_queues_and_decides_for_each_request_or_connection() {
    let mut turns = Turns::default();
    let steer = Steer::Policy { policy: &mut turns, per_connection: false };
    let outcome = replay(&mut Service { steer, ..two_queues(&[5; 5]) }).unwrap();
    assert_eq!((outcome.unanswered, outcome.dropped), (1, 1));
    let done: Vec<u64> = outcome.responses.iter().map(|time| time.0 / 1_000_000).collect();
    assert_eq!((&done[..3], done[4]), (&[10, 10, 18][..], 26));
    assert_eq!(
        turns.seen[..3],
        [
            (0, vec![0, 0], vec![None, None]),
            (1, vec![0, 0], vec![Some(0), None]),
            (2, vec![0, 0], vec![Some(0), Some(1)]),
        ]
    );
    assert_eq!(turns.seen[4], (4, vec![1, 0], vec![Some(0), Some(1)]));
    let mut turns = Turns::default();
    let steer = Steer::Policy { policy: &mut turns, per_connection: true };
    let outcome = replay(&mut Service { steer, ..two_queues(&[5, 6, 5, 6, 6]) }).unwrap();
    assert_eq!((turns.seen.len(), outcome.worker_ran), (2, vec![ms(20), ms(30)]));
}

#[test]
fn threads_keep_to_their_cpus() {
    for policy in ["eevdf:slice=1ms", "cfs", "round-robin:quantum=1ms", "eevdf:slice=1ms,tick=4ms"]
    {
        let mut service = sync(3, 4, (0..40).map(|i| request(i, &[run(2)])).collect());
        service.policy = policy.into();
        let only = |cpus: &[u16]| {
            let mut set = CpuSet::EMPTY;
            cpus.iter().for_each(|&cpu| set.insert(CpuId(cpu)));
            set
        };
        service.workers[0].cpus = only(&[1]);
        service.workers[1].cpus = only(&[1]);
        service.workers[2].cpus = only(&[0, 1]);
        service.workers[3].cpus = only(&[0, 1, 900]);
        service.others = vec![Background { cpus: only(&[1]), ..Background::hog(0, 3) }];
        let mut recorder = Recorder::new(usize::MAX);
        let outcome = replay_watched(&mut service, &mut recorder).unwrap();
        assert_eq!((outcome.unanswered, outcome.cpu_busy[2]), (0, Ns::ZERO), "{policy}");
        assert_eq!(outcome.cpu_busy[1], outcome.time, "{policy}: the hog never waits for nothing");
        let starts = recorder.steps.iter().filter(|step| step.kind == EventKind::Start);
        for step in starts {
            let cpus = match step.who {
                2 | 3 => only(&[0, 1]),
                _ => only(&[1]),
            };
            assert!(cpus.contains(step.cpu), "{policy}: {step:?}");
        }
        assert!(
            outcome.worker_ran[2] + outcome.worker_ran[3] > ms(40),
            "{policy}: they use the free CPU"
        );
    }
}

#[test]
fn time_is_shared_by_nice_values() {
    for policy in ["eevdf:slice=3ms,tick=4ms", "eevdf:slice=3ms", "cfs:latency=6ms,granularity=1ms"]
    {
        let mut service = sync(1, 1, vec![request(0, &[run(1)]), request(10_000, &[run(1)])]);
        service.policy = policy.into();
        service.others = [0, 0, 19].map(|nice| Background::hog(nice, 1)).to_vec();
        let outcome = replay(&mut service).unwrap();
        let share = |i: usize| outcome.others_ran[i].0 as f64 / outcome.time.0 as f64;
        let total = f64::from(2 * 1024 + 15);
        assert!((share(0) - 1024.0 / total).abs() < 0.01, "{policy}: {}", share(0));
        assert!((share(2) - 15.0 / total).abs() < 0.002, "{policy}: {}", share(2));
        assert_eq!(outcome.cpu_busy[0], outcome.time);
    }
}

#[test]
fn other_threads_repeat_their_bursts() {
    let mut service = sync(2, 1, vec![request(100_000, &[run(1)])]);
    let bursts = vec![(ms(5), ms(2)), (Ns::ZERO, ms(1)), (ms(12), Ns::ZERO)];
    service.others = vec![Background { bursts, ..Background::hog(0, 2) }];
    let ran = replay(&mut service).unwrap().others_ran[0].0 as f64;
    assert!((ran / 1e11 - 3.0 / 20.0).abs() < 1e-3, "{ran}");
}

#[test]
fn requests_that_starve_have_no_answer_and_the_replay_ends() {
    let mut service = sync(1, 1, vec![request(0, &[run(1)]), request(5, &[run(1)])]);
    service.policy = "priority".into();
    service.workers[0].class = Class::BE;
    service.others = vec![Background { class: Class::LC, ..Background::hog(0, 1) }];
    let outcome = replay(&mut service).unwrap();
    assert_eq!((outcome.unanswered, outcome.responses), (2, vec![Ns::MAX; 2]));
    assert_eq!(outcome.time, ms(5 + 4 * 5 + 2 + 1000));
}

#[test]
fn contradictions_are_named() {
    let base = || sync(2, 1, vec![request(3, &[run(1)])]);
    let said = |change: &dyn Fn(&mut Service<'_>)| {
        let mut service = base();
        change(&mut service);
        replay(&mut service).unwrap_err().to_string()
    };
    assert!(said(&|service| service.cpus = 0).contains("a host of 0 CPUs"));
    assert!(said(&|service| service.cpus = 2000).contains("1 to 1024"));
    assert!(said(&|service| service.queues = 2).contains("queue 1 has no worker"));
    assert!(said(&|service| service.queues = 0).contains("no queues"));
    assert!(said(&|service| service.workers[0].queue = 4).contains("worker 0 serves queue 4"));
    assert!(
        said(&|service| service.workers[0].cpus = CpuSet::EMPTY)
            .contains("worker 0 may run on no CPU")
    );
    assert!(said(&|service| service.workers[0].nice = 20).contains("nice 20"));
    assert!(
        said(&|service| service.requests.push(request(1, &[])))
            .contains("request 1 arrives at 1ms")
    );
    assert!(said(&|service| service.steer = Steer::Recorded).contains("recorded in no queue"));
    assert!(said(&|service| service.policy = "lottery".into()).contains("no policy `lottery`"));
    let still = Background { bursts: Vec::new(), ..Background::hog(0, 2) };
    assert!(
        said(&|service| service.others = vec![still.clone()])
            .contains("other thread 0 takes no time")
    );
    let restricted = said(&|service| {
        service.policy = "priority".into();
        service.others = vec![Background::hog(0, 1)];
    });
    let (policy, thread) = ("priority", Thread::Other(0));
    assert_eq!(restricted, ServiceError::Restricted { policy, thread }.to_string());
}
