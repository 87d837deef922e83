//! Services whose response times are known in closed form.

use super::{exponential, poisson};
use heddle_core::{Class, Ns};
use heddle_sim::Random;
use heddle_sim::service::{Background, Phase, Request, Service, Worker, replay};
use heddle_sim::theory::{deterministic, many, single, student};

const RUNS: u64 = 8;
const REQUESTS: u32 = 40_000;
/// Not measured, at the beginning of each run.
const WARMUP: usize = 4_000;

/// A quantity of the response times of a run, in ms.
fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

fn percentile(times: &[f64], q: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(q * (sorted.len() - 1) as f64).round() as usize]
}

/// Replays a service under several seeds and compares a quantity of the response times with its value by theory: it is
/// within 2 %, or within an interval (99 %, Student) that is not wider than 15 %.
fn agrees(expected: f64, of: impl Fn(&[f64]) -> f64, service: impl Fn(u64) -> Service<'static>) {
    let value = |seed| {
        let outcome = replay(&mut service(seed)).unwrap();
        assert_eq!(outcome.unanswered, 0);
        let times: Vec<f64> =
            outcome.responses[WARMUP..].iter().map(|time| time.0 as f64 / 1e6).collect();
        of(&times)
    };
    let values: Vec<f64> = (1..=RUNS).map(value).collect();
    let n = RUNS as f64;
    let measured = mean(&values);
    let variance = values.iter().map(|value| (value - measured).powi(2)).sum::<f64>() / (n - 1.0);
    let width = student::two_sided(RUNS as u32 - 1, 0.99).unwrap() * (variance / n).sqrt();
    let off = (measured - expected).abs();
    let inside = off <= width && width <= 0.15 * expected;
    assert!(off <= 0.02 * expected || inside, "{measured} +- {width} for {expected}: {values:?}");
}

fn run(random: &mut Random) -> Vec<Phase> {
    vec![Phase::Run(exponential(random))]
}

fn wait(random: &mut Random) -> Vec<Phase> {
    vec![Phase::Wait(exponential(random))]
}

/// `workers` on one queue.
fn shared(cpus: usize, policy: &str, workers: usize, requests: Vec<Request>) -> Service<'static> {
    Service {
        workers: vec![Worker::sync(0, cpus); workers],
        requests,
        ..Service::new(cpus, policy, 1)
    }
}

#[test]
fn workers_on_a_shared_queue_are_mmk() {
    let expected = many::mmk_mean_sojourn(4, 0.8, 1.0).unwrap();
    for policy in ["fifo", "eevdf:slice=3ms,tick=4ms"] {
        agrees(expected, mean, |seed| shared(4, policy, 4, poisson(seed, REQUESTS, 3.2, run)));
    }
}

#[test]
fn workers_that_sleep_are_servers_however_few_the_cpus() {
    let expected = many::mmk_mean_sojourn(4, 0.8, 1.0).unwrap();
    agrees(expected, mean, |seed| shared(1, "eevdf", 4, poisson(seed, REQUESTS, 3.2, wait)));
    // The waits of an event loop hold nothing.
    let event_loop = |seed| {
        let requests = poisson(seed, REQUESTS, 3.2, wait);
        Service { workers: vec![Worker::event_loop(0, 1)], requests, ..Service::new(1, "eevdf", 1) }
    };
    agrees(1.0, mean, event_loop);
}

#[test]
fn a_queue_for_each_worker_and_random_connections_are_mm1() {
    let service = |seed| {
        let workers = (0..4).map(|queue| Worker::sync(queue, 4)).collect();
        let requests = poisson(seed, REQUESTS, 2.8, run);
        Service { workers, requests, seed, ..Service::new(4, "eevdf:slice=3ms,tick=4ms", 4) }
    };
    agrees(single::mm1_mean_sojourn(0.7, 1.0).unwrap(), mean, service);
    let p99 = single::mm1_sojourn_quantile(0.7, 1.0, 0.99).unwrap();
    agrees(p99, |times| percentile(times, 0.99), service);
}

#[test]
fn one_worker_with_fixed_work_is_md1() {
    let fixed = |_: &mut Random| vec![Phase::Run(Ns::from_us(400)), Phase::Wait(Ns::from_us(600))];
    let service = |seed| shared(2, "cfs", 1, poisson(seed, REQUESTS, 0.7, fixed));
    agrees(deterministic::md1_mean_sojourn(0.7, 1.0).unwrap(), mean, service);
    let p99 = deterministic::md1_sojourn_quantile(0.7, 1.0, 0.99).unwrap();
    agrees(p99, |times| percentile(times, 0.99), service);
}

/// With many more workers than CPUs, they share it: the mean is that of PS whatever the sizes, which M/D/1's is not.
#[test]
fn more_workers_than_cpus_share_the_processor() {
    let fixed = |_: &mut Random| vec![Phase::Run(Ns::from_ms(1))];
    let sharing = single::ps_sojourn(0.7, 1.0).unwrap();
    for policy in ["eevdf:slice=20us", "round-robin:quantum=20us"] {
        agrees(sharing, mean, |seed| shared(1, policy, 200, poisson(seed, REQUESTS, 0.7, fixed)));
        agrees(sharing, mean, |seed| shared(1, policy, 200, poisson(seed, REQUESTS, 0.7, run)));
    }
    let ordered = deterministic::md1_mean_sojourn(0.7, 1.0).unwrap();
    agrees(ordered, mean, |seed| shared(1, "fifo", 200, poisson(seed, REQUESTS, 0.7, fixed)));
}

/// A worker beside a hog of equal weight has half the CPU while it is busy; one beside a hog of nice 19 nearly all.
#[test]
fn a_worker_beside_a_hog_has_a_server_of_its_share() {
    let with = |nice, seed| {
        let requests = poisson(seed, REQUESTS, 0.35, run);
        let others = vec![Background::hog(nice, 1)];
        Service { others, ..shared(1, "eevdf:slice=50us", 1, requests) }
    };
    agrees(single::mm1_mean_sojourn(0.7, 2.0).unwrap(), mean, |seed| with(0, seed));
    let slower = 1.0 + 15.0 / 1024.0;
    agrees(single::mm1_mean_sojourn(0.35 * slower, slower).unwrap(), mean, |seed| with(19, seed));
    // Strict priority leaves nothing to the hog.
    let first = |seed| Service { policy: "priority".into(), ..with(0, seed) };
    agrees(single::mm1_mean_sojourn(0.35, 1.0).unwrap(), mean, first);
    assert_eq!(first(1).others[0].class, Class::BE);
}

/// D/D/k: request i waits until worker i mod k has served what came before.
#[test]
fn constant_gaps_and_times_are_computed_by_hand() {
    let (gap, time, workers) = (300, 1000, 3);
    let phases = vec![Phase::Run(Ns::from_us(time / 2)), Phase::Wait(Ns::from_us(time / 2))];
    let request =
        |i| Request { arrival: Ns::from_us(gap * i), phases: phases.clone(), ..Request::default() };
    let requests: Vec<Request> = (0..3000).map(request).collect();
    let mut service = shared(3, "eevdf:slice=3ms,tick=4ms", workers as usize, requests);
    let outcome = replay(&mut service).unwrap();
    for (i, response) in (0..).zip(&outcome.responses) {
        let (turn, of) = (i / workers, i % workers);
        assert_eq!(
            *response,
            Ns::from_us(time + turn * (time - workers * gap)),
            "request {i}, worker {of}"
        );
    }
}
