//! Requests of several kinds.

use super::grammar::Span;
use super::part::plain;
use super::percent::Percent;
use super::{Part, Preset, Service, WorkloadError, presets};
use crate::Random;
use heddle_core::Ns;
use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Kinds of request, each with its share of all.
///
/// Its text is the name of a [preset](super::PRESETS), or parts separated by commas: a share and a
/// [`Service`], optionally preceded by a name and a class. A single part needs no share.
///
/// ```text
/// exp(10us)
/// 99.5% 4us, 0.5% 10ms
/// get: 95% 1us, scan(class=1): 5% 260us
/// rocksdb-50-50
/// ```
///
/// A part without a name is called by its service. A printed mix parses to an equal one.
///
/// ```
/// use heddle_sim::workload::Mix;
/// let mix: Mix = "get: 95% 1us, scan(class=1): 5% 260us".parse().unwrap();
/// assert_eq!(mix.mean(), 0.95 * 1_000.0 + 0.05 * 260_000.0);
/// assert_eq!(mix.to_string().parse::<Mix>().unwrap(), mix);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    parts: Vec<Part>,
    /// The cumulative share up to each part; infinite for the last, so that no draw falls behind it.
    up_to: Vec<f64>,
}

/// Parts that do not make a mix.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MixError {
    /// The shares do not sum to 1, or one is not a share at all.
    #[error(
        "the shares of a mix are above 0 % and sum to 100 %; these sum to {} %: {parts}",
        (sum * 1e8).round() / 1e6
    )]
    Shares {
        /// The sum; 1 was expected.
        sum: f64,
        /// The shares as given.
        parts: String,
    },
    /// Two parts have the same name.
    #[error("two parts are called `{0}`; give one of them another name, for example get: 50% 1us")]
    Twice(String),
    /// A name that the text of a mix cannot hold.
    #[error(
        "`{0}` is not a valid name of a part; expected letters, digits and -_. , for example get: 50% 1us"
    )]
    Name(String),
}

/// How far from 1 the sum of the shares may be.
const SHARES_WITHIN: f64 = 1e-6;

impl Mix {
    /// Creates the mix of `parts`, in this order.
    ///
    /// # Errors
    /// [`MixError`] if the shares do not sum to 1 within 1e-6 (no parts sum to 0), or a name is invalid
    /// or used twice.
    pub fn new(parts: Vec<Part>) -> Result<Mix, MixError> {
        check_shares(&parts)?;
        check_names(&parts)?;
        let add = |sum: &mut f64, part: &Part| {
            *sum += part.share;
            Some(*sum)
        };
        let mut up_to: Vec<f64> = parts.iter().scan(0.0, add).collect();
        up_to.iter_mut().last().into_iter().for_each(|last| *last = f64::INFINITY);
        Ok(Mix { parts, up_to })
    }

    /// Creates a mix of one part.
    pub fn of(service: Service) -> Mix {
        Mix { parts: vec![Part::new(1.0, service)], up_to: vec![f64::INFINITY] }
    }

    /// Returns the parts, in the order of the indices that [`Mix::sample`] returns.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the mean service time, in ns.
    pub fn mean(&self) -> f64 {
        self.moment(1)
    }

    /// Returns the mean of the `k`-th power of the service time, in ns^k.
    pub fn moment(&self, k: u32) -> f64 {
        self.parts.iter().map(|part| part.share * part.service.moment(k)).sum()
    }

    /// Returns the squared coefficient of variation: variance over squared mean. 1 is exponential.
    pub fn scv(&self) -> f64 {
        self.moment(2) / self.mean().powi(2) - 1.0
    }

    /// Draws the part that a request belongs to, and its service time. Takes time linear in the number
    /// of parts; a single part is found without a random number.
    #[inline]
    pub fn sample(&self, random: &mut Random) -> (usize, Ns) {
        let part = match self.parts.len() {
            1 => 0,
            _ => {
                let draw = random.unit();
                self.up_to.iter().take_while(|&&up_to| draw > up_to).count()
            }
        };
        (part, self.parts[part].service.sample(random))
    }

    /// Reads a mix as [`FromStr`] does, with file names relative to `folder`; printed, they are
    /// relative to the working directory.
    ///
    /// # Errors
    /// As [`FromStr`].
    pub fn parse_in(text: &str, folder: &Path) -> Result<Mix, WorkloadError> {
        let span = Span::new(text);
        if plain(span.text()) && span.text().starts_with(char::is_alphabetic) {
            let preset = Preset::find(span.text()).ok_or_else(|| presets::unknown(span))?;
            return Ok(preset.mix());
        }
        let alone = span.pieces().count() == 1;
        let parts = span.pieces().map(|piece| Part::read(piece, alone, folder));
        Ok(Mix::new(parts.collect::<Result<_, _>>()?)?)
    }
}

fn check_shares(parts: &[Part]) -> Result<(), MixError> {
    let sum: f64 = parts.iter().map(|part| part.share).sum();
    let shares = parts.iter().all(|part| part.share > 0.0 && part.share <= 1.0);
    if shares && (sum - 1.0).abs() <= SHARES_WITHIN {
        return Ok(());
    }
    let given: Vec<_> = parts.iter().map(|part| Percent(part.share).to_string()).collect();
    Err(MixError::Shares { sum, parts: given.join(" + ") })
}

fn check_names(parts: &[Part]) -> Result<(), MixError> {
    let mut seen = HashSet::new();
    for Part { name, service, .. } in parts {
        if !plain(name) && *name != service.to_string() {
            return Err(MixError::Name(name.clone()));
        }
        if !seen.insert(name) {
            return Err(MixError::Twice(name.clone()));
        }
    }
    Ok(())
}

impl From<Service> for Mix {
    fn from(service: Service) -> Mix {
        Mix::of(service)
    }
}

impl FromStr for Mix {
    type Err = WorkloadError;

    /// # Errors
    /// [`WorkloadError`], which says where the text is wrong and what was expected.
    fn from_str(text: &str) -> Result<Mix, WorkloadError> {
        Mix::parse_in(text, Path::new(""))
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alone = self.parts.len() == 1;
        for (i, part) in self.parts.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            part.write(alone, f)?;
        }
        Ok(())
    }
}
