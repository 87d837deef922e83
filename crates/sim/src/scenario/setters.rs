//! Values that need more than a reader: names, grammars, units.

use super::value::{Problem, RawValue};
use super::{Load, Scenario};
use crate::costs::{MECHANISMS, Preemption, PreemptionSource};
use crate::workload::{Arrivals, Mix};
use heddle_core::{CpuSet, Policy};
use heddle_policies::{PolicyError, Visitor, with_policy};
use std::path::Path;

/// Stores a value if it could be read.
pub(super) fn put<T>(slot: &mut T, value: Result<T, Problem>) -> Result<(), Problem> {
    *slot = value?;
    Ok(())
}

struct Exists;
impl Visitor for Exists {
    type Out = ();
    fn visit<P: Policy>(self, _: P) {}
}

/// Checks that the policy exists.
///
/// # Errors
/// [`PolicyError`], which lists the policies.
pub(crate) fn check_policy(text: &str) -> Result<(), PolicyError> {
    with_policy(text, Exists)
}

pub(super) fn set_policy(s: &mut Scenario, given: &RawValue, _: &Path) -> Result<(), Problem> {
    let text = given.text("a policy, in quotes")?;
    check_policy(text).map_err(Problem::grammar)?;
    s.policy = text.trim().into();
    Ok(())
}

pub(super) fn cpus(given: &RawValue, least: u64) -> Result<usize, Problem> {
    Ok(given.whole(least, CpuSet::CAPACITY as u64)? as usize)
}

pub(super) fn set_mechanism(s: &mut Scenario, given: &RawValue, _: &Path) -> Result<(), Problem> {
    let names: Vec<_> = MECHANISMS.iter().map(|m| m.name).collect();
    let expected = || Problem::Expected(format!("one of {}", names.join(", ")));
    let name = given.text("a name, in quotes")?;
    s.preemption = Preemption::named(name).ok_or_else(expected)?;
    Ok(())
}

/// Returns the name of the mechanism with these costs.
pub(super) fn named(preemption: &Preemption) -> Option<&'static str> {
    MECHANISMS.iter().find(|m| m.preemption == *preemption).map(|m| m.name)
}

/// Returns the costs, if they are not those of a mechanism.
pub(super) fn unnamed(s: &Scenario) -> Option<&Preemption> {
    Some(&s.preemption).filter(|own| named(own).is_none())
}

const PREEMPTION_SOURCES: [(PreemptionSource, &str); 4] = [
    (PreemptionSource::Disabled, "nobody"),
    (PreemptionSource::LocalTimer, "local-timer"),
    (PreemptionSource::TimerCore, "timer-core"),
    (PreemptionSource::Dispatcher, "dispatcher"),
];

pub(super) fn preemption_source(by: PreemptionSource) -> &'static str {
    PREEMPTION_SOURCES.iter().find(|(source, _)| *source == by).expect("the table has all").1
}

pub(super) fn set_preemption_source(
    s: &mut Scenario,
    given: &RawValue,
    _: &Path,
) -> Result<(), Problem> {
    let names = PREEMPTION_SOURCES.map(|(_, name)| name);
    let expected = format!("one of {}", names.join(", "));
    let text = given.text(&expected)?;
    let known = PREEMPTION_SOURCES.iter().find(|(_, name)| *name == text);
    s.preemption.by = known.ok_or(Problem::Expected(expected))?.0;
    Ok(())
}

pub(super) fn set_slowdown(s: &mut Scenario, given: &RawValue, _: &Path) -> Result<(), Problem> {
    let whole = |permille: f64| (permille - permille.round()).abs() < 1e-6;
    let good = |share: f64| (0.0..=1.0).contains(&share) && whole(share * 1e3);
    let share = given.number("a percentage of at most 100% with one decimal, in quotes", good)?;
    s.preemption.slowdown_permille = (share * 1e3).round() as u32;
    Ok(())
}

pub(super) fn set_dispatcher(s: &mut Scenario, given: &RawValue, _: &Path) -> Result<(), Problem> {
    let expected = "a table with admit, notice, dispatch and handoff, or none";
    match given.text(expected)? {
        "none" => s.dispatcher = None,
        _ => return Err(Problem::Expected(expected.into())),
    }
    Ok(())
}

pub(super) fn set_arrivals(
    s: &mut Scenario,
    given: &RawValue,
    folder: &Path,
) -> Result<(), Problem> {
    let text = given.text("arrivals, in quotes")?;
    s.arrivals = Arrivals::parse_in(text, folder).map_err(Problem::grammar)?;
    Ok(())
}

pub(super) fn set_mix(s: &mut Scenario, given: &RawValue, folder: &Path) -> Result<(), Problem> {
    let text = given.text("a mix, in quotes")?;
    s.mix = Mix::parse_in(text, folder).map_err(Problem::grammar)?;
    Ok(())
}

pub(super) fn set_load(s: &mut Scenario, given: &RawValue, _: &Path) -> Result<(), Problem> {
    s.load = Load::Share(given.number("a share above 0 and below 1", |share| share > 0.0)?);
    Ok(())
}

/// A number, or one with a unit: `200k/s`, `1.5M/s`.
pub(super) fn set_rate(s: &mut Scenario, given: &RawValue, _: &Path) -> Result<(), Problem> {
    let expected = "requests per second above zero";
    let scaled = |text: &str| {
        let text = text.strip_suffix("/s")?;
        let (number, scale) = match text.strip_suffix(['k', 'M']) {
            Some(number) => (number, if text.ends_with('k') { 1e3 } else { 1e6 }),
            None => (text, 1.0),
        };
        Some(RawValue::Number(number.trim().parse::<f64>().ok()? * scale))
    };
    let number = match given {
        RawValue::Text(text) => scaled(text).ok_or_else(|| Problem::Expected(expected.into()))?,
        other => other.clone(),
    };
    s.load = Load::PerSecond(number.number(expected, |rate| rate > 0.0)?);
    Ok(())
}
