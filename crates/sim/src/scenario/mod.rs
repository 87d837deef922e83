//! Scenarios: a machine, a policy, the costs of scheduling, and the arrivals.

mod contradiction;
mod draft;
mod error;
mod file;
mod keys;
mod print;
mod setters;
mod shipped;
mod steer;
mod value;

#[cfg(test)]
mod tests;

pub use draft::{Draft, Flag};
pub use error::{ScenarioError, ValueSource};
pub use keys::{Key, keys};
pub(crate) use setters::check_policy;
pub use shipped::{SHIPPED, Shipped};
pub use steer::Steer;

use crate::costs::{Costs, Dispatcher, Preemption};
use crate::machine::Machine;
use crate::workload::{Arrivals, Mix};
use heddle_core::Ns;
use std::path::Path;

/// Everything that determines a run. Equal scenarios give equal outcomes, byte for byte.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The policy, as `heddle_policies::with_policy` reads it: `two-queue:quantum=5us`.
    pub policy: String,
    /// The CPUs.
    pub machine: Machine,
    /// The costs of scheduling.
    pub costs: Costs,
    /// How running tasks are preempted.
    pub preemption: Preemption,
    /// A core that hands out the tasks of a central policy.
    pub dispatcher: Option<Dispatcher>,
    /// Where a new task arrives.
    pub steering: Steering,
    /// Service times.
    pub mix: Mix,
    /// When requests arrive.
    pub arrivals: Arrivals,
    /// Who sends them.
    pub connections: Connections,
    /// How many; not used with closed loops and traces.
    pub load: Load,
    /// Best-effort tasks that compute forever, of another application than the requests.
    pub batch: usize,
    /// Time outside the machine that every response includes: network, load generator. It is added to
    /// response times only; the service time of a slowdown does not include it.
    pub base: Ns,
    /// Requests that are measured.
    pub requests: u64,
    /// Unmeasured requests before them, as a share of `requests`.
    pub warmup: f64,
    /// The seed of all random numbers.
    pub seed: u64,
}

/// How much arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// As a share of what the CPUs could do if scheduling cost nothing.
    Share(f64),
    /// Requests per second.
    PerSecond(f64),
}

/// The senders of the requests of open arrivals.
///
/// A connection is a task that lives as long as the run. Its requests are served one after the other:
/// while one waits for a CPU or runs, later ones wait in the connection (a socket), and each becomes an
/// event once the one before is done. Steering assigns a connection's CPU once, at the start: its
/// requests arrive there, whatever CPU serves them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// How many; 0 if each request is its own task.
    pub count: u32,
    /// Whether each connection has one part of the mix for all its requests, with as many connections
    /// of each part as its share says. Otherwise the part is drawn for each request.
    pub dealt: bool,
}

/// Where a request arrives: early binding, before the policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// How the CPU is chosen.
    pub to: Steer,
    /// Whether the request stays in that CPU's queue until the CPU, or a thief, takes it: the policy's
    /// `place` is not asked.
    pub binds: bool,
}

impl Scenario {
    /// Returns the requests per second that the CPUs could do if scheduling cost nothing.
    pub fn capacity(&self) -> f64 {
        self.machine.cpus as f64 * 1e9 / self.mix.mean()
    }

    /// Returns the requests per second that arrive in the long run.
    pub fn rate(&self) -> f64 {
        match self.load {
            Load::Share(share) => share * self.capacity(),
            Load::PerSecond(rate) => rate,
        }
    }
}

impl Scenario {
    /// Returns a machine of `cpus` CPUs on which scheduling costs nothing and `mix` arrives by a
    /// Poisson process at `load` of the CPUs' capacity: the setting of queueing theory. A million
    /// requests, after a tenth as many for warm-up.
    pub fn ideal(policy: &str, cpus: usize, mix: Mix, load: f64) -> Scenario {
        Scenario {
            policy: policy.into(),
            machine: Machine::flat(cpus),
            costs: Costs::default(),
            preemption: Preemption::named("ideal").expect("it is in the table"),
            dispatcher: None,
            steering: Steering { to: Steer::RoundRobin, binds: false },
            mix,
            arrivals: Arrivals::Poisson,
            connections: Connections::default(),
            load: Load::Share(load),
            batch: 0,
            base: Ns::ZERO,
            requests: 1_000_000,
            warmup: 0.1,
            seed: 1,
        }
    }

    /// Reads a scenario file; the names of files in it are relative to its folder.
    ///
    /// # Errors
    /// [`ScenarioError`] with file, line and column.
    pub fn read(path: impl AsRef<Path>) -> Result<Scenario, ScenarioError> {
        Draft::new().read(path)?.finish()
    }

    /// Reads the text of a scenario file, called `name` in errors; the names of files in it are
    /// relative to `folder`.
    ///
    /// ```
    /// use heddle_sim::Scenario;
    /// let text = "policy = 'fifo'\nmachine.cpus = 0";
    /// let error = Scenario::parse(text, "mine.toml", "".as_ref()).unwrap_err().to_string();
    /// assert_eq!(
    ///     error,
    ///     "mine.toml:2:16: `machine.cpus`: 0 will not do; expected a whole number from 1 to 1024, for example 20"
    /// );
    /// ```
    ///
    /// # Errors
    /// [`ScenarioError`] with name, line and column.
    pub fn parse(text: &str, name: &str, folder: &Path) -> Result<Scenario, ScenarioError> {
        Draft::new().text(text, name, folder)?.finish()
    }

    /// Refuses contradictions, with an error that names the key.
    pub(crate) fn check(&self) -> Result<(), ScenarioError> {
        Draft::of(self.clone()).finish().map(|_| ())
    }
}
