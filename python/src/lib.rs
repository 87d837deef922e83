//! The native half of the Python package: scenarios, runs and outcomes.
//!
//! ```text
//!  Scenario(source, **overrides)     TOML text, a path, a shipped name, or a dict, and what is laid over it
//!     | run()                        without the GIL: threads run scenarios side by side
//!  Outcome                           numbers, and histograms as NumPy arrays
//! ```
//!
//! Sweeps, clients and tables are the Python half, in `package/`; its `_native.pyi` has the types of
//! this one. This module decides nothing differently from the command `heddle sim`: both hand layers to
//! the same [`Draft`](heddle_sim::Draft).
#![forbid(unsafe_code)]

mod error;
mod estimate;
mod layers;
mod outcome;
mod part;
mod scenario;

use pyo3::prelude::*;

/// The native half of `heddle_sim`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::error::ScenarioError;
    #[pymodule_export]
    use super::estimate::Estimate;
    #[pymodule_export]
    use super::outcome::Outcome;
    #[pymodule_export]
    use super::scenario::{Scenario, shipped};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
