//! Events on threads: the simulator against another one, and against theory.
//!
//! The other model has a few hundred lines and was written in the trials before `heddle-events`,
//! without this crate: twelve threads, 1728 connections, 2 us an event, 3 us a wake-up. Its results are
//! below, in microseconds. Its load includes the 2 us, and it drew a request's connection from all, so
//! that heavy requests are 0.984 % of GIS and not 1 %: its p99 lies just below them and ours on them,
//! which means nothing, so p99.9 is compared. All runs here are fixed by their seeds.

use heddle_sim::events::{COSTS, Case, Prediction, scenario};
use heddle_sim::{Load, Outcome, Scenario, run};

const THREADS: usize = 12;

/// Returns `case` at `load`, with an event's cost as part of the load.
fn at(case: &str, system: &str, load: f64, seed: u64) -> Scenario {
    let scenario = scenario(Case::find(case).unwrap(), system, THREADS, 0.5, seed);
    let mean = scenario.mix.mean();
    let load = Load::Share(load * mean / (mean + COSTS.switch.0 as f64));
    Scenario { load, ..scenario }
}

fn outcome(case: &str, system: &str, load: f64, seed: u64) -> Outcome {
    let outcome = run(&at(case, system, load, seed)).unwrap();
    assert_eq!(outcome.unstable, None, "{case} {system} {load}");
    outcome
}

fn p999(case: &str, system: &str, load: f64, seed: u64) -> f64 {
    outcome(case, system, load, seed).p999.value / 1e3
}

/// Asserts that `value` is within `share` of `model`.
fn close(value: f64, model: f64, share: f64) {
    assert!((value / model - 1.0).abs() <= share, "{value:.0} us, the model has {model:.0} us");
}

/// One queue: nothing is dealt, so seeds differ by a few per cent. The other model's own error is of
/// that size too; at 0.9 it has one long run.
#[test]
fn one_queue_is_as_in_the_other_model() {
    for (load, model, within) in [(0.5, 206.0, 0.02), (0.8, 223.0, 0.05), (0.9, 293.0, 0.2)] {
        close(p999("gis", "ideal", load, 1), model, within);
    }
    for (load, model, within) in [(0.5, 2656.0, 0.01), (0.7, 3245.0, 0.07)] {
        close(p999("zippydb", "ideal", load, 1), model, within);
    }
}

/// An epoll per thread, connections alike: each thread is a queue of its own, and its p99.9 varies by a
/// fifth from run to run.
#[test]
fn threads_of_their_own_are_as_in_the_other_model() {
    for (load, model) in [(0.5, 12_737.0), (0.7, 28_135.0)] {
        let runs = [1, 2, 3].map(|seed| p999("zippydb", "epoll-per-thread", load, seed));
        close(runs.iter().sum::<f64>() / 3.0, model, 0.15);
    }
}

/// If connections differ, the deal decides: some thread has three or four heavy ones of 17 and not 1.4.
/// The model dealt once, better than most of ours; what must hold for every deal is that the tail is at
/// least as long as the model's minus a tenth, and far from one queue's.
#[test]
fn a_deal_of_unlike_connections_is_at_best_as_in_the_other_model() {
    for (load, model, longer) in [(0.5, 450.0, 2.0), (0.8, 1_523.0, 6.0)] {
        let ideal = p999("gis", "ideal", load, 1);
        for seed in [1, 2, 3, 4] {
            let run = run(&at("gis", "epoll-per-thread", load, seed)).unwrap();
            let tail = run.p999.value / 1e3;
            assert!(tail > 0.9 * model && tail > longer * ideal, "{load} {seed}: {tail:.0} us");
        }
    }
}

/// The model's *k2 + WS*, two candidates and stealing: 212, 233, 279 us for GIS and 2839, 3460 us for
/// ZippyDB. `hybrid` gives an event to any idle thread, not one of two: so it may be better, down to
/// one queue, and is not worse than the noise at 0.9.
#[test]
fn hybrid_is_between_one_queue_and_two_candidates() {
    let cases = [("gis", 0.5, 212.0), ("gis", 0.8, 233.0), ("gis", 0.9, 279.0)];
    for (case, load, model) in
        cases.into_iter().chain([("zippydb", 0.5, 2839.0), ("zippydb", 0.7, 3460.0)])
    {
        let (hybrid, ideal) = (p999(case, "hybrid", load, 1), p999(case, "ideal", load, 1));
        assert!(hybrid >= 0.99 * ideal, "{case} {load}: {hybrid:.0} us, one queue {ideal:.0} us");
        assert!(
            hybrid <= 1.2 * model,
            "{case} {load}: {hybrid:.0} us, two candidates {model:.0} us"
        );
    }
}

/// Connections alike on threads of their own are M/G/1 queues: Pollaczek and Khinchine give the mean.
/// Each has 144 connections, whose requests keep their order; that changes who waits but not how long
/// the line is, except when two requests of one connection swap (there are few).
#[test]
fn the_mean_is_pollaczeks_and_khinchines() {
    let mut scenario = scenario(Case::find("zippydb").unwrap(), "epoll-per-thread", 12, 0.3, 1);
    scenario.costs = heddle_sim::costs::Costs::default();
    scenario.requests = 2_000_000;
    let (mean, square, rate) =
        (scenario.mix.mean(), scenario.mix.moment(2), scenario.rate() / 12.0 / 1e9);
    let expected = mean + rate * square / (2.0 * (1.0 - rate * mean));
    let outcome = run(&scenario).unwrap();
    let off = (outcome.mean.value / expected - 1.0).abs();
    assert!(off < 0.05, "{} for {expected}", outcome.mean.value);
}

/// A shared epoll: with two threads its lock is negligible, with thirty-two it is the bottleneck, and
/// the policy has none.
#[test]
fn a_shared_queue_loses_by_its_lock_as_threads_grow() {
    let uniform = Case::find("uniform").unwrap();
    let outcome = |system: &str, threads: usize| {
        let scenario =
            Scenario { requests: 200_000, ..scenario(uniform, system, threads, 0.75, 1) };
        run(&scenario).unwrap()
    };
    for threads in [2, 12] {
        let (shared, ideal) = (outcome("epoll-shared", threads), outcome("ideal", threads));
        assert_eq!(shared.unstable, None, "{threads}");
        assert!(shared.p99.value < 2.0 * ideal.p99.value, "{threads}");
    }
    assert_eq!(outcome("hybrid", 32).unstable, None);
    assert!(outcome("epoll-shared", 32).unstable.is_some());
}

/// Critical sections never overlap: 2 million times 500 ns fill a second.
#[test]
fn the_lock_is_one_after_the_other() {
    let mut scenario = scenario(Case::find("uniform").unwrap(), "epoll-shared", 64, 0.5, 1);
    scenario.load = Load::PerSecond(2.5e6);
    let throughput = run(&scenario).unwrap().throughput;
    assert!((1.9e6..2.01e6).contains(&throughput), "{throughput}");
}

/// The busiest and the least busy thread (SKQ, section 6.5: 46.1 % for fixed connections, 1.4 % for the
/// hybrid policy).
#[test]
fn hybrid_balances_what_a_deal_does_not() {
    let imbalance = |system| Prediction::of(&outcome("gis", system, 0.8, 2)).imbalance;
    let (stay, hybrid) = (imbalance("epoll-per-thread"), imbalance("hybrid"));
    assert!(stay > 0.2, "{stay}");
    // Not zero: of equally near idle CPUs, the simulator's first takes an event, so that the last ones
    // have less to do.
    assert!(hybrid < stay / 2.0, "{hybrid} {stay}");
}
