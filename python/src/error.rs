//! Converts the simulator's errors to exceptions.

use heddle_sim::SimError;
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::{PyErr, create_exception};

create_exception!(
    heddle_sim,
    ScenarioError,
    PyValueError,
    "A scenario that cannot be run. The message is that of the command: where, what is wrong, what was expected."
);

/// The exception of a refused scenario.
pub fn refused(error: impl ToString) -> PyErr {
    ScenarioError::new_err(error.to_string())
}

/// The exception of a run that did not finish.
pub fn not_run(error: SimError) -> PyErr {
    match error {
        SimError::Interrupted => PyKeyboardInterrupt::new_err(()),
        other => refused(other),
    }
}
