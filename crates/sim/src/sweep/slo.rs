//! Service-level objectives.

use crate::{Outcome, PartOutcome, Scenario};
use heddle_core::Ns;
use std::fmt;
use std::str::FromStr;

/// A service-level objective: one limit or several, all of which must be kept.
///
/// Its text is limits separated by commas, each `[PART] WHICH [slowdown|wait] <= LIMIT`: a part of the
/// mix (or all requests), `mean`, `max` or a percentile, the response time or another measure, and a
/// time or, for slowdowns, a number.
///
/// ```
/// use heddle_sim::sweep::Slo;
/// let slo: Slo = "p99.9 slowdown <= 50, get p99 <= 20us".parse().unwrap();
/// assert_eq!(slo.to_string(), "p99.9 slowdown <= 50, get p99 <= 20us");
/// let error = "p99.9 <= 50".parse::<Slo>().unwrap_err().to_string();
/// assert_eq!(
///     error,
///     "`p99.9 <= 50`: `50` will not do as a limit; expected a time, for example p99 <= 50us"
/// );
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Slo {
    limits: Vec<Limit>,
}

/// A text that is not an objective, or an objective for which a scenario has no part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`: {problem}; expected {expected}, for example {example}")]
pub struct SloError {
    /// The limit in question.
    pub text: String,
    /// The problem.
    pub problem: String,
    /// What was expected.
    pub expected: String,
    /// A correct limit.
    pub example: &'static str,
}

#[derive(Clone, Debug, PartialEq)]
struct Limit {
    part: Option<String>,
    which: Which,
    of: Measure,
    /// Nanoseconds, or a factor.
    most: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Which {
    Mean,
    Max,
    Percentile(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Response,
    Slowdown,
    Wait,
}

impl Slo {
    /// Returns whether a run kept all limits. A run without a steady state, or without a request of the
    /// part, did not.
    pub fn holds(&self, outcome: &Outcome) -> bool {
        outcome.unstable.is_none() && self.limits.iter().all(|limit| limit.holds(outcome))
    }

    /// Refuses parts that the mix of `scenario` does not have.
    ///
    /// # Errors
    /// [`SloError`], which lists the parts.
    pub fn check(&self, scenario: &Scenario) -> Result<(), SloError> {
        let names: Vec<&str> = scenario.mix.parts().iter().map(|part| part.name.as_str()).collect();
        let missing = |limit: &&Limit| {
            limit.part.as_ref().is_some_and(|part| !names.contains(&part.as_str()))
        };
        match self.limits.iter().find(missing) {
            None => Ok(()),
            Some(limit) => {
                let problem = format!(
                    "no part of the mix is called `{}`",
                    limit.part.as_deref().unwrap_or_default()
                );
                Err(error(
                    &limit.to_string(),
                    &problem,
                    &format!("none, or one of {}", names.join(", ")),
                    PLAIN,
                ))
            }
        }
    }
}

impl Limit {
    fn holds(&self, outcome: &Outcome) -> bool {
        let part = match &self.part {
            None => Some(&outcome.all),
            Some(name) => outcome.parts.iter().find(|part| part.name == *name),
        };
        part.is_some_and(|part| part.response.count() > 0 && self.value(part, outcome) <= self.most)
    }

    fn value(&self, part: &PartOutcome, outcome: &Outcome) -> f64 {
        let times = match self.of {
            Measure::Response => &part.response,
            Measure::Wait => &outcome.wait,
            Measure::Slowdown => {
                return match self.which {
                    Which::Mean => part.slowdown.mean(),
                    Which::Max => part.slowdown.max(),
                    Which::Percentile(percent) => part.slowdown.percentile(percent),
                };
            }
        };
        let time = match self.which {
            Which::Mean => times.mean(),
            Which::Max => times.max(),
            Which::Percentile(percent) => times.percentile(percent),
        };
        time.0 as f64
    }
}

const PLAIN: &str = "p99 <= 50us";
const SLOWDOWN: &str = "p99.9 slowdown <= 50";

fn error(text: &str, problem: &str, expected: &str, example: &'static str) -> SloError {
    SloError { text: text.into(), problem: problem.into(), expected: expected.into(), example }
}

impl FromStr for Slo {
    type Err = SloError;

    /// # Errors
    /// [`SloError`], which says what is wrong and what was expected.
    fn from_str(text: &str) -> Result<Slo, SloError> {
        let limits = text.split(',').map(str::trim).map(str::parse);
        Ok(Slo { limits: limits.collect::<Result<_, _>>()? })
    }
}

impl FromStr for Limit {
    type Err = SloError;

    fn from_str(text: &str) -> Result<Limit, SloError> {
        let form = "[PART] p99 [slowdown|wait] <= LIMIT";
        let (left, right) =
            text.split_once("<=").ok_or_else(|| error(text, "there is no `<=`", form, PLAIN))?;
        let mut words: Vec<&str> = left.split_whitespace().collect();
        let of = match words.last() {
            Some(&"slowdown") => Measure::Slowdown,
            Some(&"wait") => Measure::Wait,
            _ => Measure::Response,
        };
        words.truncate(words.len() - usize::from(of != Measure::Response));
        let (part, which) = match words[..] {
            [which] => (None, which),
            [part, which] => (Some(part.to_owned()), which),
            _ => return Err(error(text, &format!("`{}` will not do", left.trim()), form, PLAIN)),
        };
        let part = part.filter(|part| part != "all");
        if part.is_some() && of == Measure::Wait {
            return Err(error(
                text,
                "waits are not told apart by part",
                "p99 wait <= LIMIT",
                "p99 wait <= 5us",
            ));
        }
        Ok(Limit {
            part,
            which: read_which(text, which)?,
            of,
            most: read_limit(text, of, right.trim())?,
        })
    }
}

fn read_which(text: &str, which: &str) -> Result<Which, SloError> {
    let percent =
        || which.strip_prefix('p')?.parse().ok().filter(|percent| (0.0..100.0).contains(percent));
    match which {
        "mean" => Ok(Which::Mean),
        "max" => Ok(Which::Max),
        _ => percent().map(Which::Percentile).ok_or_else(|| {
            error(
                text,
                &format!("`{which}` will not do"),
                "mean, max or a percentile such as p99.9",
                PLAIN,
            )
        }),
    }
}

fn read_limit(text: &str, of: Measure, limit: &str) -> Result<f64, SloError> {
    let number = match of {
        Measure::Slowdown => limit
            .trim_end_matches('x')
            .trim_end()
            .parse()
            .ok()
            .filter(|&most: &f64| most >= 1.0 && most.is_finite()),
        _ => limit.parse().ok().filter(|&ns| ns > Ns::ZERO).map(|ns: Ns| ns.0 as f64),
    };
    let (expected, example) = match of {
        Measure::Slowdown => ("a number of at least 1", SLOWDOWN),
        _ => ("a time", PLAIN),
    };
    number
        .ok_or_else(|| error(text, &format!("`{limit}` will not do as a limit"), expected, example))
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, limit) in self.limits.iter().enumerate() {
            write!(f, "{}{limit}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.part.as_ref().map_or(Ok(()), |part| write!(f, "{part} "))?;
        match self.which {
            Which::Mean => f.write_str("mean")?,
            Which::Max => f.write_str("max")?,
            Which::Percentile(percent) => write!(f, "p{percent}")?,
        }
        match self.of {
            Measure::Response => write!(f, " <= {}", Ns(self.most as u64)),
            Measure::Slowdown => write!(f, " slowdown <= {}", self.most),
            Measure::Wait => write!(f, " wait <= {}", Ns(self.most as u64)),
        }
    }
}
