//! Events on threads: the simulator's predictions for the cases that the event bench measures.
//!
//! A *case* is a mix of requests on connections; a *system* decides which thread serves a connection: a
//! policy, or what servers do without one. After SKQ (USENIX ATC 2021), sections 6.5 and 6.6.
//!
//! ```
//! use heddle_sim::events::{Case, predict};
//! let gis = Case::find("gis").unwrap();
//! let alone = predict(gis, "epoll-per-thread", 6, 0.4, 1).unwrap();
//! let shared = predict(gis, "hybrid", 6, 0.4, 1).unwrap();
//! let light = |p: &heddle_sim::events::Prediction| p.classes[0].p99;
//! assert!(light(&alone) > light(&shared));
//! ```

use crate::costs::{Costs, Preemption};
use crate::workload::Mix;
use crate::{Connections, Outcome, PartOutcome, Scenario, SimError, Unstable, run};
use heddle_core::Ns;
use heddle_metrics::Histogram;

/// A mix of requests on connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// Its name: `gis`.
    pub name: &'static str,
    /// The mix, as [`Mix`] reads it. The first part is the light one.
    pub mix: &'static str,
    /// Whether each connection sends requests of one part only.
    pub dealt: bool,
    /// One line on what it is.
    pub summary: &'static str,
}

/// The cases.
pub const CASES: &[Case] = &[
    Case {
        name: "gis",
        mix: "light: 95% 10us, medium: 4% 50us, heavy: 1% 200us",
        dealt: true,
        summary: "each connection has one weight: SKQ's application server, section 6.5",
    },
    Case {
        name: "zippydb",
        mix: "light: 97% 16.3us, seek: 3% 2650us",
        dealt: false,
        summary: "rare long requests on any connection: RocksDB under ZippyDB's mix, section 6.6",
    },
    Case {
        name: "uniform",
        mix: "light: 10us",
        dealt: false,
        summary: "all requests alike: a policy cannot improve it and should not harm it",
    },
];

/// Connections per server thread: as many as in SKQ's evaluation, 12 clients of 12 threads for each of
/// 12.
pub const CONNECTIONS_PER_WORKER: u32 = 144;

/// What an event costs its thread apart from the request, and what it takes to wake a waiting thread.
/// In the middle of what was seen on virtual machines (2 to 5 us for a wake-up; 0.6 us for an event on
/// a pipe, more on a socket).
pub const COSTS: Costs = Costs {
    switch: Ns(2_000),
    app_switch: Ns(0),
    wake: Ns(3_000),
    steal: Ns(0),
    central_lock: Ns(0),
    migration: [Ns(0); 5],
};

/// The cost of taking an event from one shared epoll and re-arming it, under locks that all threads
/// contend for: 1,150 cycles of 2.3 GHz, measured with one thread. Between cores the lock's cache lines
/// travel too, so this is a lower bound.
pub const SHARED_LOCK: Ns = Ns(500);

impl Case {
    /// Returns the case called `name`.
    pub fn find(name: &str) -> Option<&'static Case> {
        CASES.iter().find(|case| case.name == name)
    }
}

/// Returns the policy and the costs of `system`: `epoll-per-thread` (connections dealt round robin, and
/// they stay), `epoll-shared` (one queue behind a lock), `ideal` (one queue for free), or the text of a
/// policy.
fn system(name: &str) -> (&str, Costs) {
    match name {
        "epoll-per-thread" => ("queue-affinity", COSTS),
        "epoll-shared" => ("fifo", Costs { central_lock: SHARED_LOCK, ..COSTS }),
        "ideal" => ("fifo", COSTS),
        policy => (policy, COSTS),
    }
}

/// Returns the scenario of `case` under `system` (see [`predict`]), to be changed or run.
///
/// # Panics
/// If the case's mix does not parse; those of [`CASES`] do.
pub fn scenario(case: &Case, system_name: &str, workers: usize, load: f64, seed: u64) -> Scenario {
    let mix: Mix = case.mix.parse().expect("the mix of a case can be read");
    let (policy, costs) = system(system_name);
    let count = CONNECTIONS_PER_WORKER * workers as u32;
    Scenario {
        costs,
        connections: Connections { count, dealt: case.dealt },
        requests: 400_000,
        seed,
        preemption: Preemption::named("none").expect("it is in the table"),
        ..Scenario::ideal(policy, workers, mix, load)
    }
}

/// Response times of a class of requests, from arrival to the end of service.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantiles {
    /// The part of the mix; `all` for all of them.
    pub class: String,
    /// How many requests.
    pub count: u64,
    /// The time that 50 % do not exceed.
    pub p50: Ns,
    /// The time that 99 % do not exceed.
    pub p99: Ns,
    /// The time that 99.9 % do not exceed.
    pub p999: Ns,
    /// The mean.
    pub mean: Ns,
}

/// The expected results.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The classes, in the order of the case's mix.
    pub classes: Vec<Quantiles>,
    /// All requests together.
    pub all: Quantiles,
    /// Requests done per second.
    pub throughput: f64,
    /// How much less the least busy thread had to do than the busiest, as a share of the busiest
    /// thread's work.
    pub imbalance: f64,
    /// Why none of this may be quoted; `None` if it may.
    pub unstable: Option<Unstable>,
}

/// Predicts the results of `case` on `workers` threads under `system`: `epoll-per-thread` (connections
/// dealt round robin, and they stay there), `epoll-shared` (one queue behind a lock), `ideal` (one
/// queue without), or the text of a policy such as `hybrid:affinity=queue`.
///
/// `load` is a share of what the threads could do if events cost nothing, above 0 and below 1, as
/// elsewhere in the simulator. Deterministic by `seed`, which also deals the connections. Takes less
/// than a second in a release build.
///
/// # Errors
/// [`SimError`] for a policy that does not exist, or an impossible load or number of workers.
pub fn predict(
    case: &Case,
    system: &str,
    workers: usize,
    load: f64,
    seed: u64,
) -> Result<Prediction, SimError> {
    Ok(Prediction::of(&run(&scenario(case, system, workers, load, seed))?))
}

impl Prediction {
    /// Returns the prediction of a run, for scenarios that were changed.
    pub fn of(outcome: &Outcome) -> Prediction {
        Prediction {
            classes: outcome.parts.iter().map(quantiles).collect(),
            all: quantiles(&outcome.all),
            throughput: outcome.throughput,
            imbalance: outcome.imbalance,
            unstable: outcome.unstable,
        }
    }
}

fn quantiles(part: &PartOutcome) -> Quantiles {
    let times: &Histogram = &part.response;
    Quantiles {
        class: part.name.clone(),
        count: times.count(),
        p50: times.percentile(50.0),
        p99: times.percentile(99.0),
        p999: times.percentile(99.9),
        mean: times.mean(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draft, Shipped};

    #[test]
    fn every_case_can_be_had_and_predicted() {
        for case in CASES {
            assert_eq!(Case::find(case.name), Some(case));
            for system in ["epoll-per-thread", "epoll-shared", "ideal", "hybrid", "best-of-two"] {
                let mut scenario = scenario(case, system, 2, 0.3, 7);
                scenario.requests = 2_000;
                let prediction = Prediction::of(&run(&scenario).unwrap());
                let sum: u64 = prediction.classes.iter().map(|class| class.count).sum();
                assert_eq!((sum, prediction.all.count), (2_000, 2_000), "{} {system}", case.name);
                assert_eq!(prediction.classes[0].class, "light");
            }
        }
    }

    /// Readers of the file and callers of the function get the same numbers.
    #[test]
    fn the_cases_are_the_shipped_scenarios() {
        for case in CASES {
            let shipped = Shipped::find(&format!("events-{}", case.name)).unwrap();
            let shipped = shipped.draft().and_then(Draft::finish).unwrap();
            assert_eq!(shipped, scenario(case, "hybrid", 12, 0.6, 1));
        }
    }

    #[test]
    fn impossible_parameters_are_refused() {
        let gis = Case::find("gis").unwrap();
        assert!(predict(gis, "hybird", 2, 0.3, 1).is_err());
        assert!(predict(gis, "hybrid", 0, 0.3, 1).is_err());
        assert!(predict(gis, "hybrid", 2, 1.5, 1).is_err());
    }
}
