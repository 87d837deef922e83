//! How a program is compiled.

use std::fmt;

use serde::Deserialize;

/// Without probes, or with them by one placement and check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) enum Variant {
    /// By clang alone.
    None,
    /// As `heddle cc` does: a distance between probes that is bounded, and a budget in place of the clock.
    BoundedClock,
    /// The same places, at which a flag is tested.
    BoundedFlag,
    /// At each function's entry and each back edge, as Concord places them, and with its flag.
    NaiveFlag,
    /// At the same places, with a budget.
    NaiveClock,
}

impl Variant {
    /// All, in the order of the tables.
    pub(super) const ALL: [Variant; 5] = [
        Variant::None,
        Variant::BoundedClock,
        Variant::BoundedFlag,
        Variant::NaiveFlag,
        Variant::NaiveClock,
    ];
    /// Those with probes.
    pub(super) const PROBED: [Variant; 4] =
        [Variant::BoundedClock, Variant::BoundedFlag, Variant::NaiveFlag, Variant::NaiveClock];

    pub(super) fn name(self) -> &'static str {
        match self {
            Variant::None => "none",
            Variant::BoundedClock => "bounded+clock",
            Variant::BoundedFlag => "bounded+flag",
            Variant::NaiveFlag => "naive+flag",
            Variant::NaiveClock => "naive+clock",
        }
    }

    /// The options of the pass; `None` if it does not run.
    pub(super) fn options(self) -> Option<[&'static str; 2]> {
        const BOUNDED: &str = "--heddle-placement=bounded";
        const NAIVE: &str = "--heddle-placement=naive";
        const CLOCK: &str = "--heddle-check=clock";
        const FLAG: &str = "--heddle-check=flag";
        match self {
            Variant::None => None,
            Variant::BoundedClock => Some([BOUNDED, CLOCK]),
            Variant::BoundedFlag => Some([BOUNDED, FLAG]),
            Variant::NaiveFlag => Some([NAIVE, FLAG]),
            Variant::NaiveClock => Some([NAIVE, CLOCK]),
        }
    }
}

impl TryFrom<String> for Variant {
    type Error = String;

    fn try_from(name: String) -> Result<Variant, String> {
        Variant::ALL.into_iter().find(|variant| variant.name() == name).ok_or_else(|| {
            format!("no variant `{name}`; there are {}", Variant::ALL.map(Variant::name).join(", "))
        })
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
