//! Skyloft, Fig. 5: schbench, a closed loop of workers on 24 CPUs, under fair policies.
//!
//! One thread wakes the workers; each computes for a request and sleeps until it is woken again. With more workers than
//! CPUs, what is measured, the time from a wake-up until the worker runs, is the wait in a CPU's queue.

use super::costs;
use super::finding::Finding;
use super::published::{self, Curve};
use super::study::Study;
use crate::costs::{Costs, Preemption, PreemptionSource};
use crate::{Scenario, SimError, run};
use heddle_core::Ns;

const CPUS: usize = 24;

/// A request: the steps of the published curves of Linux under CFS, which does not preempt it (2,340 us a step).
const REQUEST: &str = "2340us";

/// How long a worker sleeps. It is not published; a tenth or twenty times as much changes only the points with 32
/// workers.
const SLEEP: &str = "exp(5us)";

/// How each system is configured (Table 5): policy, interval of its ticks, costs of a switch and of a tick.
fn systems() -> [(&'static str, &'static str, Ns, Costs, Ns); 5] {
    let (us, ms) = (Ns::from_us, |ms: u64| Ns::from_us(1000 * ms));
    let (linux, user) = (costs::LINUX, costs::USER_SWITCH);
    let user_tick = Preemption::named("uintr-timer").expect("it is in the table").receive;
    [
        ("linux-cfs", "cfs:latency=24ms,granularity=3ms", ms(4), linux, Ns::ZERO),
        ("linux-cfs-tuned", "cfs:latency=50us,granularity=12.5us", ms(1), linux, Ns::ZERO),
        ("linux-eevdf", "eevdf:slice=3ms,tick=1ms", ms(1), linux, Ns::ZERO),
        ("skyloft-cfs", "cfs:latency=50us,granularity=12.5us", us(10), user, user_tick),
        ("skyloft-eevdf", "eevdf:slice=12.5us,tick=10us", us(10), user, user_tick),
    ]
}

/// Returns the scenario of the published curve called `system`, with this many workers.
pub(super) fn scenario(study: &Study<'_>, system: &str, workers: u64) -> Scenario {
    let of = systems().into_iter().find(|&(name, ..)| name == system);
    let (_, policy, interval, costs, receive) = of.expect("the test finds each curve's system");
    let tick = Preemption { by: PreemptionSource::LocalTimer, skip: false, ..costs::NO_PREEMPTION };
    let arrivals = format!("closed(tasks={workers}, think={SLEEP})");
    Scenario {
        arrivals: arrivals.parse().expect("a closed loop"),
        costs,
        preemption: Preemption { interval, receive, ..tick },
        // 10 s, a third of the artefact's.
        requests: study.requests(100_000),
        ..Scenario::ideal(policy, CPUS, REQUEST.parse().expect("a time"), 0.5)
    }
}

/// Fig. 5: p99 of the time from wake-up to running, by workers. With no more workers than CPUs nothing waits, and what
/// is left is the cost of a wake-up.
pub(super) fn wakeups(study: &Study<'_>) -> Result<Vec<Finding>, SimError> {
    let points: Vec<(String, u64, f64)> = published::schbench().iter().flat_map(points).collect();
    let step = if study.quick { 4 } else { 1 };
    let points: Vec<_> = points.into_iter().step_by(step).collect();
    study.each(&points, |(system, workers, paper)| {
        let outcome = run(&scenario(study, system, *workers))?;
        let metric = if *workers > CPUS as u64 { "wakeup_p99" } else { "wakeup_p99_idle" };
        let (value, name) = (outcome.wait.p99().0 as f64, format!("{system}, {workers} workers"));
        Ok(vec![Finding::value("skyloft-5", &name, metric, "ns", Some(*paper), value, "")])
    })
}

fn points(curve: &Curve) -> Vec<(String, u64, f64)> {
    let point = |p: &published::Point| (curve.system.clone(), p.load as u64, p.value * 1e3);
    curve.points.iter().map(point).collect()
}
