//! Keeping a service within its limit: when to look for a change, when to try it, when to take it back.
//!
//! Pure: measurements and the time in, decisions out. `heddle tune` carries them out.
//!
//! ```text
//!            missed in 2 of 3 epochs            as predicted, no guard violated
//!   Watching ----------------------> Trying --------------------------------> Holding
//!      ^  ^                            |  worse, or a guard violated             |
//!      |  +----------------------------+                                         |
//!      +-------- a guard violated in one epoch, or the service changed ----------+
//! ```
//!
//! - **I1** At most [`CHANGES`] changes an hour, and [`DWELL`] between two.
//! - **I2** An epoch in which the service restarted, too few requests came or too much was lost decides nothing.
//! - **I3** After predictions that were wrong by more than a quarter twice in a row, it proposes nothing more.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use heddle_core::Ns;
use serde::Serialize;

use crate::predict::Prediction;
use crate::slo::{Slo, SloError};
use crate::verdict::{Outcome, Verdict};

/// Changes in an hour, at most.
pub const CHANGES: usize = 6;
/// Time between two changes, at least.
pub const DWELL: Ns = Ns::from_secs(60);
const HOUR: Ns = Ns::from_secs(3600);
/// The epochs that are looked at, and how many of them must miss the limit.
const EPOCHS: usize = 3;
const MISSED: usize = 2;
/// How far a prediction may be off, as a share.
const WRONG: f64 = 0.25;

/// A condition that must hold while a change is in effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Guardrail {
    /// A limit on a quantile: `p99(long) < 300ms`.
    Quantile(Slo),
    /// The least share of the requests per second before the change: `rate >= 95%`.
    Rate(f64),
}

/// Why a text is no guard.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GuardrailError {
    /// It is no limit on a quantile.
    #[error(transparent)]
    Quantile(#[from] SloError),
    /// It is no share.
    #[error("`{0}`: expected a share of the rate before, for example 'rate >= 95%'")]
    Rate(String),
}

impl FromStr for Guardrail {
    type Err = GuardrailError;

    fn from_str(text: &str) -> Result<Guardrail, GuardrailError> {
        let Some(rest) = text.trim().strip_prefix("rate") else {
            return Ok(Guardrail::Quantile(text.parse()?));
        };
        let number =
            rest.trim_start().strip_prefix(">=").and_then(|rest| rest.trim().strip_suffix('%'));
        let percent = number.and_then(|number| number.trim().parse::<f64>().ok());
        let percent = percent.filter(|percent| (1.0..=100.0).contains(percent));
        Ok(Guardrail::Rate(percent.ok_or_else(|| GuardrailError::Rate(text.into()))? / 100.0))
    }
}

impl fmt::Display for Guardrail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Guardrail::Quantile(slo) => write!(f, "{slo}"),
            Guardrail::Rate(share) => write!(f, "rate >= {}%", (share * 1e4).round() / 100.0),
        }
    }
}

/// What an epoch showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Epoch {
    /// The limit's quantile; `None` if too few requests lie beyond it.
    pub quantile: Option<Ns>,
    /// Requests per second.
    pub rate: f64,
    /// For each guard with a quantile its value, if there are enough requests; `None` for a rate.
    pub guards: Vec<Option<Ns>>,
    /// Why the epoch decides nothing.
    pub ignored: Option<String>,
}

/// What to do after an epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Nothing.
    Wait {
        /// Why.
        why: String,
    },
    /// Look for a change.
    Ask,
    /// Take the change in effect back, at once.
    RollBack {
        /// Why.
        why: String,
    },
}

/// Decides.
#[derive(Clone, Debug)]
pub struct Tuner {
    slo: Slo,
    guards: Vec<Guardrail>,
    missed: VecDeque<bool>,
    /// When changes were made.
    changes: VecDeque<Ns>,
    /// The rate before the change in effect, if there is one.
    holding: Option<f64>,
    /// The rate of the last epoch without a change.
    rate: f64,
    /// Predictions in a row that were wrong.
    wrong: usize,
}

impl Tuner {
    /// Starts without a change in effect.
    #[must_use]
    pub fn new(slo: Slo, guards: Vec<Guardrail>) -> Tuner {
        let (missed, changes) = (VecDeque::new(), VecDeque::new());
        Tuner { slo, guards, missed, changes, holding: None, rate: 0.0, wrong: 0 }
    }

    /// Whether a change is in effect.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.holding.is_some()
    }

    /// Decides after an epoch that ended at `now`.
    pub fn epoch(&mut self, now: Ns, epoch: &Epoch) -> Action {
        let wait = |why: &str| Action::Wait { why: why.into() };
        if let Some(why) = &epoch.ignored {
            return wait(why);
        }
        if let Some(before) = self.holding {
            let broken = self.violated(epoch, before).map(ToString::to_string);
            if let Some(guard) = broken {
                self.took_back(now);
                return Action::RollBack { why: format!("{guard} does not hold") };
            }
        } else {
            self.rate = epoch.rate;
        }
        let Some(quantile) = epoch.quantile else {
            return wait("too few requests beyond the quantile");
        };
        if self.missed.len() == EPOCHS {
            self.missed.pop_front();
        }
        self.missed.push_back(quantile > self.slo.limit);
        if self.missed.iter().filter(|&&missed| missed).count() < MISSED {
            return wait("the limit is kept");
        }
        match self.obstacle(now) {
            Some(why) => Action::Wait { why },
            None => Action::Ask,
        }
    }

    /// Returns why no change can be made now.
    fn obstacle(&mut self, now: Ns) -> Option<String> {
        while self.changes.front().is_some_and(|&at| now - at >= HOUR) {
            self.changes.pop_front();
        }
        let recent = self.changes.back().is_some_and(|&at| now - at < DWELL);
        match () {
            () if self.holding.is_some() => {
                Some("it is missed with the change in effect: add workers or shed load".into())
            }
            () if self.wrong >= 2 => Some(
                "the last two predictions were wrong: the model is not believed any \
                    more"
                    .into(),
            ),
            () if recent => Some("the last change was less than a minute ago".into()),
            () if self.changes.len() >= CHANGES => {
                Some("there were six changes in the last hour".into())
            }
            () => None,
        }
    }

    /// Returns why a proposal is not tried: a guard would be violated.
    #[must_use]
    pub fn refuses(&self, prediction: &Prediction) -> Option<String> {
        let violated = |guard: &&Guardrail| match guard {
            Guardrail::Rate(_) => false,
            Guardrail::Quantile(slo) => {
                let class = slo.class.as_deref().unwrap_or("all");
                let row = |row: &&crate::predict::Row| {
                    row.class == class && row.quantile >= slo.quantile - 1e-9
                };
                prediction.rows.iter().find(row).is_some_and(|row| row.after > slo.limit)
            }
        };
        let guard = self.guards.iter().find(violated)?;
        Some(format!("{guard} would not hold"))
    }

    /// A trial has ended. Returns whether the change stays in effect.
    pub fn tried(&mut self, now: Ns, prediction: &Prediction, outcome: &Outcome) -> bool {
        self.changes.push_back(now);
        self.missed.clear();
        let measured = outcome.ratio.map_or(0.0, |ratio| ratio.value);
        if outcome.ratio.is_some() {
            let wrong = (measured / prediction.ratio.value - 1.0).abs() > WRONG;
            self.wrong = if wrong { self.wrong + 1 } else { 0 };
        }
        let keep = matches!(outcome.verdict, Verdict::AsPredicted | Verdict::Better);
        self.holding = keep.then_some(self.rate);
        keep
    }

    fn took_back(&mut self, now: Ns) {
        self.holding = None;
        self.changes.push_back(now);
        self.missed.clear();
    }

    fn violated(&self, epoch: &Epoch, before: f64) -> Option<&Guardrail> {
        let values = epoch.guards.iter().copied().chain(std::iter::repeat(None));
        let mut pairs = self.guards.iter().zip(values);
        let broken = |(guard, value): &(&Guardrail, Option<Ns>)| match guard {
            Guardrail::Quantile(slo) => value.is_some_and(|value| value > slo.limit),
            Guardrail::Rate(least) => epoch.rate < least * before,
        };
        pairs.find(broken).map(|(guard, _)| guard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interval;
    use crate::options::{Change, Effort};

    fn tuner() -> Tuner {
        let guards = ["p99(long) < 300ms", "rate >= 95%"].map(|text| text.parse().unwrap());
        Tuner::new("p99 < 20ms".parse().unwrap(), guards.to_vec())
    }

    fn epoch(ms: u64, long_ms: u64, rate: f64) -> Epoch {
        let guards = vec![Some(Ns::from_ms(long_ms)), None];
        Epoch { quantile: Some(Ns::from_ms(ms)), rate, guards, ignored: None }
    }

    fn prediction(ratio: f64) -> Prediction {
        let ratio = Interval { value: ratio, low: ratio, high: ratio };
        let (effort, change) = (Effort::None, Change::SharedSocket);
        Prediction {
            change,
            effort,
            apply: None,
            undo: None,
            ratio,
            after: Ns(1),
            rows: vec![],
            harm: None,
        }
    }

    fn outcome(verdict: Verdict, ratio: f64) -> Outcome {
        let ratio = Some(Interval { value: ratio, low: ratio, high: ratio });
        Outcome { verdict, ratio, off: Ns(1), on: Ns(1), pairs: 2, discarded: vec![] }
    }

    fn second(n: u64) -> Ns {
        Ns::from_secs(n)
    }

    #[test]
    fn two_missed_epochs_of_three_ask_for_a_change() {
        let mut tuner = tuner();
        let mut asks = |ms, at| tuner.epoch(second(at), &epoch(ms, 100, 50.0)) == Action::Ask;
        assert!(!asks(30, 10) && !asks(10, 20) && asks(30, 30));
        assert!(!asks(10, 40) && !asks(10, 50) && !asks(30, 60) && asks(30, 70));
    }

    #[test]
    fn a_violated_guard_takes_the_change_back_at_once() {
        for (broken, guard) in
            [(epoch(10, 400, 50.0), "p99(long) < 300ms"), (epoch(10, 100, 40.0), "rate >= 95%")]
        {
            let mut tuner = tuner();
            tuner.epoch(second(1), &epoch(30, 100, 50.0));
            assert!(tuner.tried(second(2), &prediction(3.0), &outcome(Verdict::AsPredicted, 3.0)));
            assert!(matches!(tuner.epoch(second(3), &epoch(10, 100, 50.0)), Action::Wait { .. }));
            let Action::RollBack { why } = tuner.epoch(second(4), &broken) else {
                panic!("{guard}")
            };
            assert!(why.contains(guard) && !tuner.is_holding(), "{why}");
        }
    }

    #[test]
    fn changes_are_few_and_apart() {
        let mut tuner = tuner();
        let mut now = Ns::ZERO;
        let mut made = Vec::new();
        while now < second(7200) {
            now += second(10);
            if tuner.epoch(now, &epoch(30, 100, 50.0)) == Action::Ask {
                made.push(now);
                assert!(!tuner.tried(now, &prediction(2.0), &outcome(Verdict::Unclear, 2.0)));
            }
        }
        assert!(made.windows(2).all(|pair| pair[1] - pair[0] >= DWELL), "{made:?}");
        let in_first_hour = made.iter().filter(|&&at| at < second(3600)).count();
        assert_eq!((in_first_hour, made.len() <= 2 * CHANGES + 1), (CHANGES, true), "{made:?}");
    }

    #[test]
    fn a_model_that_was_wrong_twice_is_not_believed() {
        let mut tuner = tuner();
        for _ in 0..2 {
            tuner.tried(Ns::ZERO, &prediction(10.0), &outcome(Verdict::Worse, 1.0));
        }
        tuner.epoch(second(100), &epoch(30, 100, 50.0));
        let Action::Wait { why } = tuner.epoch(second(110), &epoch(30, 100, 50.0)) else {
            panic!("it asked")
        };
        assert!(why.contains("not believed"), "{why}");
    }

    #[test]
    fn an_epoch_that_says_nothing_decides_nothing() {
        let mut tuner = tuner();
        let ignored = Epoch { ignored: Some("it restarted".into()), ..epoch(30, 400, 50.0) };
        for at in 0..10 {
            assert_eq!(
                tuner.epoch(second(at), &ignored),
                Action::Wait { why: "it restarted".into() }
            );
        }
        let few = Epoch { quantile: None, ..epoch(30, 100, 50.0) };
        assert!((0..10).all(|at| matches!(tuner.epoch(second(at), &few), Action::Wait { .. })));
    }

    #[test]
    fn a_prediction_that_breaks_a_guard_is_refused() {
        let row = |class: &str, ms| crate::predict::Row {
            class: class.into(),
            quantile: 0.99,
            before: Ns(1),
            after: Ns::from_ms(ms),
            ratio: Interval::default(),
        };
        let with = |rows| Prediction { rows, ..prediction(2.0) };
        assert!(tuner().refuses(&with(vec![row("short", 400), row("long", 400)])).is_some());
        assert_eq!(tuner().refuses(&with(vec![row("short", 400), row("long", 200)])), None);
    }

    #[test]
    fn guards_are_read_and_written() {
        for text in ["p99(long) < 300ms", "rate >= 95%"] {
            assert_eq!(text.parse::<Guardrail>().unwrap().to_string(), text);
        }
        for text in ["rate", "rate >= 0%", "rate >= 120%", "rate < 3", "fast"] {
            assert!(text.parse::<Guardrail>().is_err(), "{text}");
        }
    }
}
