//! What a service promises, and what a change must not break.

use std::fmt;
use std::str::FromStr;

use heddle_core::Ns;
use serde::{Deserialize, Serialize};

/// A limit on a quantile of response times: `p99 < 20ms`, `p99.9(short) <= 300us`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slo {
    /// The quantile, above 0 and below 1.
    pub quantile: f64,
    /// The class of requests; all of them if `None`.
    pub class: Option<String>,
    /// The limit.
    pub limit: Ns,
}

/// Why a text is not a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}`: {problem}; expected a quantile and a time, for example 'p99 < 20ms' or 'p99(short) < 5ms'"
)]
pub struct SloError {
    text: String,
    problem: &'static str,
}

impl FromStr for Slo {
    type Err = SloError;

    fn from_str(text: &str) -> Result<Slo, SloError> {
        let wrong = |problem| SloError { text: text.into(), problem };
        let (left, right) = text.split_once('<').ok_or(wrong("there is no `<`"))?;
        let left = left.trim();
        let (quantile, class) = match left.split_once('(') {
            None => (left, None),
            Some((quantile, class)) => {
                let class = class.strip_suffix(')').ok_or(wrong("a `)` is missing"))?.trim();
                if class.is_empty() {
                    return Err(wrong("the class has no name"));
                }
                (quantile.trim(), Some(class.to_string()))
            }
        };
        let percent = quantile.strip_prefix('p').and_then(|number| number.parse::<f64>().ok());
        let percent = percent.ok_or(wrong("it does not begin with a quantile"))?;
        if !(percent > 0.0 && percent < 100.0) {
            return Err(wrong("a quantile is above p0 and below p100"));
        }
        let limit = right.trim_start_matches('=').trim().parse::<Ns>();
        let limit = limit.map_err(|_| wrong("the limit is not a time"))?;
        if limit == Ns::ZERO {
            return Err(wrong("the limit is zero"));
        }
        Ok(Slo { quantile: percent / 100.0, class, limit })
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Percentile(self.quantile))?;
        if let Some(class) = &self.class {
            write!(f, "({class})")?;
        }
        write!(f, " < {}", self.limit)
    }
}

/// Writes a quantile as operators do: 0.99 as `p99`, 0.999 as `p99.9`.
#[derive(Clone, Copy, Debug)]
pub struct Percentile(
    /// The quantile, from 0 to 1.
    pub f64,
);

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A float such as 0.999 * 100 has noise in its last digits.
        write!(f, "p{}", (self.0 * 1e6).round() / 1e4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_written() {
        for (text, quantile, class, limit) in [
            ("p99 < 20ms", 0.99, None, Ns::from_ms(20)),
            ("p99.9<=300us", 0.999, None, Ns::from_us(300)),
            ("p50(short) < 1.5ms", 0.5, Some("short"), Ns::from_us(1500)),
        ] {
            let slo: Slo = text.parse().unwrap();
            assert!((slo.quantile - quantile).abs() < 1e-9, "{text}");
            assert_eq!((slo.class.as_deref(), slo.limit), (class, limit), "{text}");
            assert_eq!(slo.to_string().parse::<Slo>().unwrap(), slo);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, problem) in [
            ("fast", "there is no `<`"),
            ("99 < 20ms", "it does not begin with a quantile"),
            ("p100 < 20ms", "a quantile is above p0 and below p100"),
            ("pNaN < 20ms", "a quantile is above p0 and below p100"),
            ("p99 < soon", "the limit is not a time"),
            ("p99 < 0ms", "the limit is zero"),
            ("p99(short < 1ms", "a `)` is missing"),
            ("p99() < 1ms", "the class has no name"),
        ] {
            assert_eq!(text.parse::<Slo>().unwrap_err().problem, problem, "{text}");
        }
    }
}
