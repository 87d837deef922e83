//! Many runs: curves over the load, the highest load that keeps an objective, the best quantum.
//!
//! ```text
//!  curve()      one scenario at several loads                  what the plots show
//!  capacity()   bisection over the load for an [`Slo`]         how much a machine can take
//!  sweep()      capacity for each policy and each quantum      which quantum to choose
//! ```
//!
//! Runs are spread over threads by a [`Pool`]. The result does not depend on their number: each run is
//! deterministic, and results are taken in the order of the runs. Threads for which no run is left make those that a
//! bisection may need next.

mod capacity;
mod curve;
mod pool;
mod quantum;
mod search;
mod slo;

pub use capacity::{Capacity, TOLERANCE, capacity};
pub(crate) use capacity::{Simulate, capacity_by};
pub use curve::{curve, curves, with_load};
pub use pool::Pool;
pub use quantum::{QUANTA, quantum_of, with_quantum};
pub use search::{COARSE, PolicySweep, steps, sweep};
pub use slo::{Slo, SloError};
