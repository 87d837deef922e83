//! A scenario under construction: layers over each other, and the origin of each value.

use super::error::{ScenarioError, ValueSource};
use super::keys::{self, KEYS, Key};
use super::value::{Problem, RawValue};
use super::{Scenario, file};
use crate::workload::{Arrivals, Mix, Service};
use heddle_core::Ns;
use heddle_policies::nearest;
use std::fs;
use std::path::Path;

/// A scenario under construction: a file first, flags on top. Each layer replaces what it names and
/// keeps the rest.
///
/// ```
/// use heddle_sim::{Draft, Flag, SHIPPED};
/// let scenario = Draft::new()
///     .text(SHIPPED[0].text, SHIPPED[0].name, "".as_ref())
///     .and_then(|draft| draft.flags(&[Flag::new("--cpus", "machine.cpus", "4")]))
///     .and_then(Draft::finish)
///     .unwrap();
/// assert_eq!(scenario.machine.cpus, 4);
/// ```
#[derive(Clone, Debug)]
pub struct Draft {
    scenario: Scenario,
    /// Where each of [`KEYS`] was last given.
    places: Vec<Option<ValueSource>>,
    /// Whether values without a default must have been given.
    bare: bool,
}

/// A value that is not in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Its name in errors: `--cpus`.
    pub name: String,
    /// The key that it sets: `machine.cpus`.
    pub key: String,
    /// Its value, without quotes.
    pub value: String,
}

impl Flag {
    /// Returns the value of `key`, given as `name`.
    pub fn new(name: &str, key: &str, value: &str) -> Flag {
        Flag { name: name.into(), key: key.into(), value: value.into() }
    }
}

/// A value of a layer: its key, its place, and the value itself.
pub(super) struct Item {
    pub key: String,
    pub place: ValueSource,
    pub given: RawValue,
}

impl Default for Draft {
    fn default() -> Draft {
        Draft::new()
    }
}

impl Draft {
    /// Returns a draft without any values.
    pub fn new() -> Draft {
        let scenario = Scenario::ideal("", 0, Mix::of(Service::Fixed(Ns::from_us(1))), 0.0);
        Draft { bare: true, ..Draft::of(scenario) }
    }

    /// Returns a draft that starts from `scenario`.
    pub fn of(scenario: Scenario) -> Draft {
        Draft { scenario, places: vec![None; KEYS.len()], bare: false }
    }

    /// Lays a scenario file over the draft.
    ///
    /// # Errors
    /// [`ScenarioError`] with file, line and column.
    pub fn read(self, path: impl AsRef<Path>) -> Result<Draft, ScenarioError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let unreadable = |e: std::io::Error| ScenarioError {
            place: None,
            problem: format!("{name}: cannot be read: {e}"),
        };
        let text = fs::read_to_string(path).map_err(unreadable)?;
        self.text(&text, &name, path.parent().unwrap_or(Path::new("")))
    }

    /// Lays the text of a scenario file over the draft; see [`Scenario::parse`].
    ///
    /// # Errors
    /// [`ScenarioError`] with name, line and column.
    pub fn text(self, text: &str, name: &str, folder: &Path) -> Result<Draft, ScenarioError> {
        self.layer(file::items(text, name)?, folder)
    }

    /// Lays flags over the draft; the names of files are relative to the working directory.
    ///
    /// # Errors
    /// [`ScenarioError`] with the flag.
    pub fn flags(self, flags: &[Flag]) -> Result<Draft, ScenarioError> {
        let item = |flag: &Flag| Item {
            key: flag.key.clone(),
            place: ValueSource::Flag(flag.name.clone()),
            given: RawValue::from_flag(&flag.value),
        };
        self.layer(flags.iter().map(item).collect(), Path::new(""))
    }

    /// In the order of [`KEYS`], because some values build on others: the costs of a mechanism on the
    /// mechanism.
    fn layer(mut self, items: Vec<Item>, folder: &Path) -> Result<Draft, ScenarioError> {
        if let Some(item) = items.iter().find(|item| keys::find(&item.key).is_none()) {
            return Err(unknown(item));
        }
        exclusive(&items)?;
        for (at, key) in KEYS.iter().enumerate() {
            for item in items.iter().filter(|item| item.key == key.path) {
                (key.set)(&mut self.scenario, &item.given, folder)
                    .map_err(|problem| refused(key, item, problem))?;
                self.places[at] = Some(item.place.clone());
            }
        }
        self.idle_keys(&items)?;
        Ok(self)
    }

    /// Refuses keys that the arrivals make meaningless.
    fn idle_keys(&self, items: &[Item]) -> Result<(), ScenarioError> {
        let (idle, why): (&[&str], _) = match self.scenario.arrivals {
            Arrivals::Trace(_) => (
                &["workload.mix", "workload.load", "workload.rate"],
                "a trace says itself when requests come and how long they run",
            ),
            Arrivals::Closed { .. } => (
                &["workload.load", "workload.rate"],
                "in a closed loop the load follows from the clients",
            ),
            _ => (&[], ""),
        };
        match items.iter().find(|item| idle.contains(&item.key.as_str())) {
            None => Ok(()),
            Some(item) => {
                let problem = format!("`{}`: {why}; expected no such key", item.key);
                Err(ScenarioError { place: Some(item.place.clone()), problem })
            }
        }
    }

    /// Returns the scenario, if it is complete and does not contradict itself.
    ///
    /// # Errors
    /// [`ScenarioError`] with the place of the offending value, if it was given.
    pub fn finish(self) -> Result<Scenario, ScenarioError> {
        if let Some(key) =
            KEYS.iter().zip(&self.places).find_map(|(key, place)| self.lacks(key, place))
        {
            let problem = format!(
                "`{}` is missing; expected {}, for example {}",
                key.path, key.meaning, key.example
            );
            return Err(ScenarioError { place: None, problem });
        }
        match self.scenario.contradiction() {
            None => Ok(self.scenario),
            Some((key, words)) => {
                let at = KEYS.iter().position(|known| known.path == key);
                let place = at.and_then(|at| self.places[at].clone());
                Err(ScenarioError { place, problem: format!("`{key}`: {words}") })
            }
        }
    }

    fn lacks(&self, key: &'static Key, place: &Option<ValueSource>) -> Option<&'static Key> {
        let arrivals = &self.scenario.arrivals;
        let given = |path| {
            KEYS.iter().zip(&self.places).any(|(key, place)| key.path == path && place.is_some())
        };
        let needed = match key.path {
            "policy" | "machine.cpus" => true,
            "workload.mix" => !matches!(arrivals, Arrivals::Trace(_)),
            "workload.load" => arrivals.is_open() && !given("workload.rate"),
            _ => false,
        };
        (self.bare && needed && place.is_none()).then_some(key)
    }
}

/// Pairs of keys of which one layer may give at most one.
const EXCLUSIVE: &[[&str; 2]] = &[["workload.load", "workload.rate"]];

fn exclusive(items: &[Item]) -> Result<(), ScenarioError> {
    let find = |key: &str| items.iter().find(|item| item.key == key);
    for [one, other] in EXCLUSIVE {
        if let (Some(_), Some(second)) = (find(one), find(other)) {
            let problem = format!("`{one}` and `{other}` are both given; expected one of them");
            return Err(ScenarioError { place: Some(second.place.clone()), problem });
        }
    }
    Ok(())
}

fn refused(key: &Key, item: &Item, problem: Problem) -> ScenarioError {
    let problem = match problem {
        Problem::Expected(expected) => {
            format!(
                "`{}`: {} will not do; expected {expected}, for example {}",
                key.path, item.given, key.example
            )
        }
        Problem::Grammar(words) => format!("`{}`: {words}", key.path),
    };
    ScenarioError { place: Some(item.place.clone()), problem }
}

/// Lists the keys of the same table, and the one that was likely meant.
fn unknown(item: &Item) -> ScenarioError {
    let (table, _) = item.key.rsplit_once('.').unwrap_or(("", &item.key));
    let all = || KEYS.iter().map(|key| key.path);
    let sibling: Vec<&str> = all()
        .filter(|path| path.rsplit_once('.').map_or("", |(table, _)| table) == table)
        .collect();
    let known = if sibling.is_empty() { all().collect() } else { sibling };
    let meant =
        nearest(&item.key, all()).map_or(String::new(), |path| format!(", did you mean `{path}`?"));
    let dot = if meant.is_empty() { ";" } else { "" };
    let problem = format!("no key `{}`{meant}{dot} expected one of {}", item.key, known.join(", "));
    ScenarioError { place: Some(item.place.clone()), problem }
}
