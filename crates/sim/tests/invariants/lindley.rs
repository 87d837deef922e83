//! One CPU in order of arrival, by Lindley's recursion over the same random numbers: exact to the
//! nanosecond.

use crate::log::Log;
use heddle_core::Ns;
use heddle_sim::workload::{Arrivals, Gaps};
use heddle_sim::{Random, Scenario, run_watched};

/// The streams of a seed for gaps and sizes. Published results are reproducible only while these stay.
const GAPS: u64 = 1;
const SIZES: u64 = 2;

/// Returns (arrival, start, end) of each request: it starts when it arrives or when the previous one
/// ends.
fn recursion(scenario: &Scenario, requests: usize) -> Vec<(Ns, Ns, Ns)> {
    let mut gaps = Gaps::new(&scenario.arrivals, scenario.rate()).unwrap();
    let (mut when, mut what) =
        (Random::new(scenario.seed, GAPS), Random::new(scenario.seed, SIZES));
    let (mut arrival, mut end) = (Ns::ZERO, Ns::ZERO);
    let mut next = || {
        arrival += gaps.next(&mut when);
        let begin = arrival.max(end);
        end = begin + scenario.mix.sample(&mut what).1;
        (arrival, begin, end)
    };
    (0..requests).map(|_| next()).collect()
}

fn compare(policy: &str, mix: &str, arrivals: &str) {
    let arrivals: Arrivals = arrivals.parse().unwrap();
    let ideal = Scenario::ideal(policy, 1, mix.parse().unwrap(), 0.9);
    let scenario = Scenario { arrivals, requests: 20_000, warmup: 0.0, seed: 3, ..ideal };
    let (outcome, log) = run_watched(&scenario, Log::default()).unwrap();
    let expected = recursion(&scenario, 20_000);
    for (task, &(arrival, begin, end)) in log.tasks.iter().zip(&expected) {
        assert_eq!((task.arrived, task.first_start, task.left), (arrival, Some(begin), Some(end)));
    }
    let mean =
        expected.iter().map(|&(arrival, _, end)| (end - arrival).0 as f64).sum::<f64>() / 2e4;
    assert!((outcome.mean.value - mean).abs() < 1e-6 * mean, "{} for {mean}", outcome.mean.value);
}

#[test]
fn first_come_first_served_is_lindleys_recursion() {
    for policy in ["fifo", "work-stealing", "best-of-two", "jbsq"] {
        compare(policy, "exp(1ms)", "poisson");
    }
    compare("fifo", "pareto(10us, shape=1.5)", "mmpp(factor=5, share=10%, length=1ms)");
    compare("fifo", "short: 99.5% 4us, long: 0.5% 10ms", "periodic");
}
