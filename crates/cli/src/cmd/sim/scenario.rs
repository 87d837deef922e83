//! Scenarios on the command line: a name or a file, and flags that override it.

use std::path::Path;

use heddle_sim::{Draft, Flag, SHIPPED, Scenario, Shipped};

use crate::exit::Usage;

/// The options of `heddle sim` that describe a scenario.
#[derive(clap::Args)]
pub struct ScenarioArgs {
    /// A scenario by name (heddle sim list), or a TOML file; without one, flags describe it.
    scenario: Option<String>,
    /// The number of CPUs that run tasks.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    cpus: Option<String>,
    /// Service times: a paper's mix by name, or 'get: 95% 1us, scan: 5% 260us'.
    #[arg(long)]
    mix: Option<String>,
    /// The arrival process: poisson, periodic, 'mmpp(factor=5, share=10%, length=1ms)',
    /// 'closed(tasks=64, think=exp(1ms))', 'trace(FILE)'.
    #[arg(long)]
    arrivals: Option<String>,
    /// The preemption mechanism (heddle sim list), with its costs.
    #[arg(long)]
    mechanism: Option<String>,
    /// The number of measured requests.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    requests: Option<String>,
    /// The seed of all random numbers.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    seed: Option<String>,
    /// Any other key of a scenario file, such as costs.switch=200ns (repeatable; heddle sim list keys).
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Returns the scenario called `name`, or in the file of that name; at half of the machine's capacity if it does not
/// say.
///
/// # Errors
/// [`Usage`], with file and line.
pub fn named(name: &str) -> Result<Scenario, Usage> {
    let (scenario, set) = (Some(name.to_string()), Vec::new());
    let none = || None;
    let args = ScenarioArgs {
        scenario,
        cpus: none(),
        mix: none(),
        arrivals: none(),
        mechanism: none(),
        requests: none(),
        seed: none(),
        set,
    };
    let half: Vec<Flag> =
        flag("--load", "workload.load", &Some("50%".into())).into_iter().collect();
    args.scenario(&half, &[])
}

impl ScenarioArgs {
    /// Returns the scenario's name for output.
    pub fn name(&self) -> String {
        let name = self.scenario.as_deref().map(Path::new).and_then(Path::file_stem);
        name.map_or_else(|| "scenario".into(), |name| name.to_string_lossy().into_owned())
    }

    /// Returns the scenario. `before` are defaults that it overrides, `more` override it.
    ///
    /// # Errors
    /// [`Usage`], with file and line, or the flag.
    pub fn scenario(&self, before: &[Flag], more: &[Flag]) -> Result<Scenario, Usage> {
        let flags = self.flags()?;
        let draft = self.begin(before).map_err(usage)?;
        let draft = draft.flags(&flags).and_then(|draft| draft.flags(more));
        draft.and_then(Draft::finish).map_err(|error| match self.scenario {
            None if error.place.is_none() => Usage(format!(
                "{error}\n  No scenario was given: name one (heddle sim list) or a file, or give --policy, \
                    --cpus, --mix and --load."
            )),
            _ => usage(error),
        })
    }

    fn begin(&self, before: &[Flag]) -> Result<Draft, heddle_sim::ScenarioError> {
        let draft = Draft::new().flags(before)?;
        match self.scenario.as_deref() {
            None => Ok(draft),
            Some(name) => match Shipped::find(name) {
                Some(shipped) => draft.text(shipped.text, name, Path::new("")),
                None => draft.read(name).map_err(|error| unreadable(name, error)),
            },
        }
    }

    fn flags(&self) -> Result<Vec<Flag>, Usage> {
        let named = [
            ("--cpus", "machine.cpus", &self.cpus),
            ("--mix", "workload.mix", &self.mix),
            ("--arrivals", "workload.arrivals", &self.arrivals),
            ("--mechanism", "preemption.mechanism", &self.mechanism),
            ("--requests", "requests", &self.requests),
            ("--seed", "seed", &self.seed),
        ];
        let mut flags: Vec<Flag> =
            named.into_iter().filter_map(|(name, key, value)| flag(name, key, value)).collect();
        for text in &self.set {
            let (key, value) = text.split_once('=').ok_or_else(|| {
                Usage(format!(
                    "--set {text}: expected KEY=VALUE, for example --set costs.switch=200ns"
                ))
            })?;
            flags.push(Flag::new(&format!("--set {}", key.trim()), key.trim(), value.trim()));
        }
        Ok(flags)
    }
}

/// Returns the flag if it was given.
pub fn flag(name: &str, key: &str, value: &Option<String>) -> Option<Flag> {
    value.as_ref().map(|value| Flag::new(name, key, value))
}

fn usage(error: heddle_sim::ScenarioError) -> Usage {
    Usage(error.to_string())
}

/// Explains a name that is neither a file nor a scenario: most likely it is meant to be a scenario.
fn unreadable(name: &str, error: heddle_sim::ScenarioError) -> heddle_sim::ScenarioError {
    if error.place.is_some() || Path::new(name).exists() {
        return error;
    }
    let names: Vec<_> = SHIPPED.iter().map(|shipped| shipped.name).collect();
    let problem =
        format!("{}; expected a TOML file, or one of {}", error.problem, names.join(", "));
    heddle_sim::ScenarioError { problem, ..error }
}
