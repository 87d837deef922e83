//! The simulator against queueing theory: cases with a known answer, run and compared.
//!
//! ```text
//!  cases()      a scenario on which scheduling costs nothing (or exactly so much), and what theory says of it
//!     | run     several independent runs each, on all CPUs of this machine
//!  Check        measured with its 95 % confidence interval, relative error, verdict
//! ```
//!
//! # Invariants
//!
//! - **I1** An expected value comes from [`crate::theory`] or from a formula that the case states,
//!   never from a simulation.
//! - **I2** Seeds are fixed and runs do not depend on the machine: a case that agrees once always
//!   agrees.
//! - **I3** A run without a steady state agrees only with the prediction that there is none.

mod cases;
mod check;
mod measure;
mod runner;
mod tally;

pub use cases::cases;
pub use check::{Check, TOLERANCE, Verdict, WIDEST, rows};
pub use measure::Measure;
pub use runner::{run, run_cases};

use crate::Scenario;

/// A scenario with a known answer.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name: the model, its load, and the policy if that is not the model's own.
    pub name: String,
    /// The formula and its source.
    pub theory: &'static str,
    /// The scenario to simulate. Its seed is that of the first run; later runs have the next ones.
    pub scenario: Scenario,
    /// The values by theory, in the unit of the measure.
    pub expected: Vec<(Measure, f64)>,
    /// Requests per run for a quick check.
    pub quick: u64,
}

/// How much to run of each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Long enough to be within [`TOLERANCE`].
    Full,
    /// A twentieth of that, or less: short enough for a test suite.
    Quick,
}

impl Effort {
    /// Returns the number of runs of each case, each with its own seed.
    pub fn runs(self) -> u64 {
        match self {
            Effort::Full => 10,
            Effort::Quick => 5,
        }
    }
}

impl Case {
    fn new(name: impl Into<String>, theory: &'static str, scenario: Scenario) -> Case {
        Case { name: name.into(), theory, scenario, expected: Vec::new(), quick: 50_000 }
    }

    /// Adds the value by theory, which must exist: the cases are chosen so.
    fn expects(mut self, measure: Measure, value: Option<f64>) -> Case {
        let value = value.unwrap_or_else(|| panic!("{}: no steady state", self.name));
        self.expected.push((measure, value));
        self
    }

    /// Sets the requests per run, full and quick.
    fn requests(mut self, full: u64, quick: u64) -> Case {
        (self.scenario.requests, self.quick) = (full, quick);
        self
    }

    /// Returns the scenario of the run with this number.
    fn scenario_of(&self, effort: Effort, run: u64) -> Scenario {
        let requests = if effort == Effort::Quick { self.quick } else { self.scenario.requests };
        Scenario { seed: self.scenario.seed + run, requests, ..self.scenario.clone() }
    }

    /// Runs the case once; returns the measurements in the order of `expected`, or why there is no
    /// steady state.
    fn measure(&self, effort: Effort, run: u64) -> runner::Values {
        let scenario = self.scenario_of(effort, run);
        let done = crate::run_watched(&scenario, tally::Tally::default());
        let (outcome, tally) = done.unwrap_or_else(|refused| panic!("{}: {refused}", self.name));
        let seen = measure::MeasuredRun { scenario: &scenario, outcome: &outcome, tally: &tally };
        let values = self.expected.iter().map(|(measure, _)| measure.of(&seen)).collect();
        runner::Values { values, unstable: outcome.unstable }
    }
}
