//! Scenarios: what to run, read and checked.

use crate::error::{not_run, refused};
use crate::layers;
use crate::outcome::Outcome;
use heddle_sim::{Draft, SHIPPED, Shipped};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use std::path::{Path, PathBuf};

/// Everything that determines a run, read and checked.
///
/// Parameters
/// ----------
/// source : str, os.PathLike, dict or Scenario
///     The text of a scenario file in TOML; its path; the name of a shipped one (see :func:`shipped`);
///     a dict of its keys; or another scenario. A str that contains ``=`` is taken for text.
/// **overrides
///     Values laid over it, by the names of their keys: ``policy="fifo"``, ``machine={"cpus": 8}`` or
///     ``**{"machine.cpus": 8}``.
///
/// Raises
/// ------
/// ScenarioError
///     If the command would refuse it, in the same words.
///
/// Notes
/// -----
/// Names of files (traces, measured distributions) are relative to the folder of the scenario file;
/// in dicts, texts and overrides, to the working directory.
#[pyclass(frozen, eq, module = "heddle_sim")]
#[derive(Clone, PartialEq)]
pub struct Scenario(heddle_sim::Scenario);

#[pymethods]
impl Scenario {
    #[new]
    #[pyo3(signature = (source, /, **overrides))]
    fn new(source: &Bound<'_, PyAny>, overrides: Option<&Bound<'_, PyDict>>) -> PyResult<Scenario> {
        let flags = overrides.map_or(Ok(Vec::new()), layers::flags)?;
        let scenario = draft(source)?.flags(&flags).and_then(Draft::finish).map_err(refused)?;
        Ok(Scenario(scenario))
    }

    /// Returns the scenario as the text of a file that gives an equal one.
    pub fn to_toml(&self) -> String {
        self.0.to_toml()
    }

    /// Runs it; see :func:`run`.
    fn run(&self, py: Python<'_>) -> PyResult<Outcome> {
        let outcome = py.detach(|| heddle_sim::run(&self.0)).map_err(not_run)?;
        Ok(Outcome::new(outcome, self.clone()))
    }

    fn __repr__(&self) -> String {
        format!("Scenario('''\n{}''')", self.0.to_toml())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (String,)) {
        (py.get_type::<Scenario>(), (self.0.to_toml(),))
    }
}

fn draft(source: &Bound<'_, PyAny>) -> PyResult<Draft> {
    if let Ok(scenario) = source.cast::<Scenario>() {
        return Ok(Draft::of(scenario.get().0.clone()));
    }
    if let Ok(dict) = source.cast::<PyDict>() {
        return Draft::new().flags(&layers::flags(dict)?).map_err(refused);
    }
    match source.extract::<String>() {
        Ok(text) if text.contains('=') => Draft::new().text(&text, "scenario", Path::new("")),
        Ok(name) => match Shipped::find(&name) {
            Some(shipped) => shipped.draft(),
            None => Draft::new().read(name),
        },
        Err(_) => Draft::new().read(source.extract::<PathBuf>()?),
    }
    .map_err(refused)
}

impl Scenario {
    /// The policy and its parameters.
    pub fn policy(&self) -> &str {
        &self.0.policy
    }
}

/// The scenarios that come with the package.
///
/// Returns
/// -------
/// dict of str to str
///     One line on each, by its name.
#[pyfunction]
pub fn shipped(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let scenarios = PyDict::new(py);
    SHIPPED.iter().try_for_each(|s| scenarios.set_item(s.name, s.summary()))?;
    Ok(scenarios)
}
