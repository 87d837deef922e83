//! Invariants of every policy on every machine. Nothing here depends on a clock or on chance: the seeds
//! are fixed.

mod arrivals;
mod busy;
mod lindley;
mod log;
mod messages;
mod reference;
mod scenarios;

use heddle_policies::list;

/// Returns every policy of the registry, with its defaults and with every parameter given.
fn policies() -> Vec<String> {
    list().iter().flat_map(|info| [info.name.to_string(), info.example()]).collect()
}
