//! Values as given in a file or on the command line, and how they are read.

use heddle_core::Ns;
use std::fmt;
use std::str::FromStr;
use toml::de::DeValue;

/// A value in a file or on the command line.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RawValue {
    Text(String),
    Whole(i64),
    Number(f64),
    Truth(bool),
    /// A value that no key accepts, in words: `a list`.
    Other(&'static str),
}

/// Why a value is refused.
#[derive(Clone, Debug)]
pub(super) enum Problem {
    /// Not what is expected.
    Expected(String),
    /// The error of its own grammar.
    Grammar(String),
}

impl Problem {
    pub fn grammar(error: impl fmt::Display) -> Problem {
        Problem::Grammar(error.to_string())
    }
}

impl RawValue {
    /// Converts a value of a file.
    pub fn from_toml(value: &DeValue<'_>) -> RawValue {
        match value {
            DeValue::String(text) => RawValue::Text(text.to_string()),
            DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix())
                .map_or(RawValue::Other("a number that is too large"), RawValue::Whole),
            DeValue::Float(n) => {
                n.as_str().parse().map_or(RawValue::Other("an odd number"), RawValue::Number)
            }
            DeValue::Boolean(truth) => RawValue::Truth(*truth),
            DeValue::Datetime(_) => RawValue::Other("a date"),
            DeValue::Array(_) => RawValue::Other("a list"),
            DeValue::Table(_) => RawValue::Other("an empty table"),
        }
    }

    /// Converts a value of a command line, where nothing is in quotes.
    pub fn from_flag(text: &str) -> RawValue {
        let whole = || text.parse().map(RawValue::Whole).ok();
        let number = || text.parse().map(RawValue::Number).ok();
        let truth = || text.parse().map(RawValue::Truth).ok();
        whole().or_else(number).or_else(truth).unwrap_or_else(|| RawValue::Text(text.into()))
    }

    pub fn text(&self, expected: &str) -> Result<&str, Problem> {
        match self {
            RawValue::Text(text) => Ok(text),
            _ => Err(Problem::Expected(expected.into())),
        }
    }

    /// Returns a text parsed by its own grammar.
    pub fn parsed<T: FromStr<Err: fmt::Display>>(&self, expected: &str) -> Result<T, Problem> {
        self.text(expected)?.parse().map_err(Problem::grammar)
    }

    /// Returns a time that is not negative.
    pub fn time(&self) -> Result<Ns, Problem> {
        let expected = "a time of at least 0ns, in quotes";
        self.text(expected)?.parse().map_err(|_| Problem::Expected(expected.into()))
    }

    pub fn whole(&self, least: u64, most: u64) -> Result<u64, Problem> {
        match *self {
            RawValue::Whole(n) if u64::try_from(n).is_ok_and(|n| (least..=most).contains(&n)) => {
                Ok(n as u64)
            }
            _ => Err(Problem::Expected(match most {
                u64::MAX => format!("a whole number of at least {least}"),
                _ => format!("a whole number from {least} to {most}"),
            })),
        }
    }

    /// Returns a number that satisfies `good`; a share may also be given as `70%`.
    pub fn number(&self, expected: &str, good: impl Fn(f64) -> bool) -> Result<f64, Problem> {
        let number = match self {
            RawValue::Number(n) => Some(*n),
            RawValue::Whole(n) => Some(*n as f64),
            RawValue::Text(text) => {
                text.strip_suffix('%').and_then(|n| n.trim().parse().ok()).map(|n: f64| n / 100.0)
            }
            _ => None,
        };
        number
            .filter(|&n| n.is_finite() && good(n))
            .ok_or_else(|| Problem::Expected(expected.into()))
    }

    pub fn truth(&self) -> Result<bool, Problem> {
        match self {
            RawValue::Truth(truth) => Ok(*truth),
            _ => Err(Problem::Expected("true or false".into())),
        }
    }
}

impl fmt::Display for RawValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RawValue::Text(text) => write!(f, "`{text}`"),
            RawValue::Whole(n) => write!(f, "{n}"),
            RawValue::Number(n) => write!(f, "{n}"),
            RawValue::Truth(truth) => write!(f, "{truth}"),
            RawValue::Other(words) => f.write_str(words),
        }
    }
}
