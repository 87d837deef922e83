//! The papers' headline results as scenarios, with the paper's values next to the simulator's.
//!
//! ```text
//!  published   the curves that a paper's artefact holds       data/*.csv
//!     |
//!  skyloft, aspen, ghost, skq   scenarios; costs from the papers' own tables, stated at each
//!     | run
//!  Finding     one value: the paper's, the simulator's        -> rows(), plots(), agreement()
//! ```
//!
//! Costs are not fitted to the curves. One constant per family of curves, [`Scenario::base`], is
//! calibrated: the time outside the CPUs that every response includes, which no table gives. Each use
//! states the published point from which it comes.
//!
//! [`Scenario::base`]: crate::Scenario::base

mod agreement;
mod aspen;
mod costs;
mod finding;
mod ghost;
pub mod published;
mod schbench;
mod skq;
mod skyloft_lcbe;
mod skyloft_rocksdb;
mod skyloft_synthetic;
mod study;

#[cfg(test)]
mod tests;

pub use agreement::{Agreement, agreement};
pub use finding::{Finding, plots, rows};

use crate::SimError;
use crate::sweep::Pool;
use study::Study;

/// A group of results that are simulated together.
#[derive(Clone, Copy)]
pub struct Paper {
    /// Its name on the command line.
    pub name: &'static str,
    /// What is compared.
    pub summary: &'static str,
    /// Paper, section and figure.
    pub source: &'static str,
    run: fn(&Study<'_>) -> Result<Vec<Finding>, SimError>,
}

/// Returns all of them, in the order of the papers' figures.
pub fn list() -> &'static [Paper] {
    const LIST: &[Paper] = &[
        Paper {
            name: "skyloft-5",
            summary: "schbench: p99 from wake-up to running, by workers on 24 CPUs, under CFS and EEVDF",
            source: "Skyloft 5.1, Fig. 5",
            run: schbench::wakeups,
        },
        Paper {
            name: "skyloft-7a",
            summary: "p99 by load under a dispatcher, by quantum and system; 20 workers",
            source: "Skyloft 5.2, Fig. 7a",
            run: skyloft_synthetic::single,
        },
        Paper {
            name: "skyloft-7bc",
            summary: "the same beside a batch application: p99, and the batch's share of the CPUs",
            source: "Skyloft 5.2, Fig. 7b and 7c",
            run: skyloft_synthetic::with_batch,
        },
        Paper {
            name: "skyloft-8b",
            summary: "p99.9 slowdown by load under work stealing with local timers; 14 workers",
            source: "Skyloft 5.3, Fig. 8b",
            run: skyloft_rocksdb::rocksdb,
        },
        Paper {
            name: "aspen-5",
            summary: "GET throughput at 50 us by mechanism, each at its best quantum; and by quantum",
            source: "Aspen 4.1.1 and 4.3, Fig. 5 and 9",
            run: aspen::mechanisms,
        },
        Paper {
            name: "aspen-10",
            summary: "two queues and skipping on and off",
            source: "Aspen 4.4, Fig. 10",
            run: aspen::policies,
        },
        Paper {
            name: "aspen-11",
            summary: "how many CPUs one timer core can serve, by quantum and mechanism",
            source: "Aspen 4.4, Fig. 11",
            run: aspen::timer_core,
        },
        Paper {
            name: "ghost-6",
            summary: "where ghOSt, Shinjuku and CFS saturate",
            source: "ghOSt 4.2, Fig. 6",
            run: ghost::saturation,
        },
        Paper {
            name: "skq-6",
            summary: "low-latency throughput of an application server by policy; the gap and the imbalance at 460 k/s",
            source: "SKQ 6.5, Fig. 6",
            run: skq::application,
        },
        Paper {
            name: "skq-7",
            summary: "the same of RocksDB under ZippyDB's mix",
            source: "SKQ 6.6, Fig. 7 and 8",
            run: skq::rocksdb,
        },
    ];
    LIST
}

/// Simulates the results called `name`. `quick` takes a tenth of the requests and a quarter of the
/// points: enough to see the order of the curves, not to quote.
///
/// Deterministic, whatever the pool's threads. All of [`list`] takes some minutes on two cores.
///
/// # Errors
/// [`SimError`] as for [`run`](crate::run()); a name that is not in [`list`] gives `None`.
pub fn run(name: &str, quick: bool, pool: &Pool<'_>) -> Result<Option<Vec<Finding>>, SimError> {
    let study = Study { quick, pool };
    list().iter().find(|paper| paper.name == name).map(|paper| (paper.run)(&study)).transpose()
}
