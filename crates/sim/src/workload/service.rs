//! How long a request runs.

use super::call::{Call, Form};
use super::grammar::{GrammarError, Quoted, Span};
use super::{Empirical, Lognormal, OutOfRange, Pareto, WorkloadError};
use crate::Random;
use heddle_core::Ns;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A distribution of service times.
///
/// Its text is a time, or a call: `10us`, `exp(10us)`, `lognormal(10us, cv=2)`,
/// `pareto(10us, shape=1.5)`, `pareto(10us, shape=1.5, max=10ms)`, `uniform(5us, 20us)`,
/// `empirical(FILE)`. A printed distribution parses to an equal one, as long as no time exceeds 2^53 ns
/// (104 days).
///
/// Moments are those of the continuous distribution; samples are rounded to whole nanoseconds, and at
/// least one.
///
/// ```
/// use heddle_sim::{Random, workload::Service};
/// let service: Service = "exp(10us)".parse().unwrap();
/// assert_eq!((service.mean(), service.moment(2)), (1e4, 2e8));
/// assert!(service.sample(&mut Random::new(1, 0)).0 > 0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Service {
    /// A fixed time.
    Fixed(Ns),
    /// Exponential.
    Exponential {
        /// Its mean.
        mean: Ns,
    },
    /// Lognormal: a tail heavier than the exponential's, with all moments finite.
    Lognormal(Lognormal),
    /// Pareto: a tail that falls as a power.
    Pareto(Pareto),
    /// Every time between the two, equally likely.
    Uniform {
        /// The shortest.
        from: Ns,
        /// The longest.
        to: Ns,
    },
    /// As recorded in a file.
    Empirical(Empirical),
}

const FORMS: &[Form] = &[
    Form { name: "exp", arguments: &["mean"], places: 1, example: "exp(10us)" },
    Form {
        name: "lognormal",
        arguments: &["mean", "cv"],
        places: 1,
        example: "lognormal(10us, cv=2)",
    },
    Form {
        name: "pareto",
        arguments: &["mean", "shape", "max"],
        places: 1,
        example: "pareto(10us, shape=1.5)",
    },
    Form { name: "uniform", arguments: &["from", "to"], places: 2, example: "uniform(5us, 20us)" },
    Form { name: "empirical", arguments: &["file"], places: 1, example: "empirical(times.csv)" },
];

impl Service {
    /// Returns the mean, in ns.
    pub fn mean(&self) -> f64 {
        self.moment(1)
    }

    /// Returns the mean of the `k`-th power, in ns^k, in closed form; infinite if it diverges (Pareto).
    /// The first three are what Pollaczek and Khinchine's formulas for mean and variance of the wait
    /// need.
    pub fn moment(&self, k: u32) -> f64 {
        let power = |ns: Ns| (ns.0 as f64).powf(f64::from(k));
        match self {
            Service::Fixed(time) => power(*time),
            Service::Exponential { mean } => power(*mean) * (1..=k).map(f64::from).product::<f64>(),
            Service::Lognormal(lognormal) => lognormal.moment(k),
            Service::Pareto(pareto) => pareto.moment(k),
            Service::Uniform { from, to } => uniform_moment(k, from.0 as f64, to.0 as f64),
            Service::Empirical(empirical) => empirical.moment(k),
        }
    }

    /// Draws a service time, at least 1 ns. Allocates nothing; every sample of one distribution uses
    /// the same number of random numbers.
    #[inline]
    pub fn sample(&self, random: &mut Random) -> Ns {
        let time = match self {
            Service::Fixed(time) => return (*time).max(Ns(1)),
            Service::Exponential { mean } => mean.0 as f64 * random.exponential(),
            Service::Lognormal(lognormal) => lognormal.draw(random),
            Service::Pareto(pareto) => pareto.draw(random),
            Service::Uniform { from, to } => between(from.0 as f64, to.0 as f64, random.unit()),
            Service::Empirical(empirical) => empirical.draw(random),
        };
        // Processors convert to signed numbers in one step.
        Ns((time + 0.5) as i64 as u64).max(Ns(1))
    }

    /// Reads a distribution as [`FromStr`] does, with a file name relative to `folder`; printed, it is
    /// relative to the working directory.
    ///
    /// # Errors
    /// As [`FromStr`].
    pub fn parse_in(text: &str, folder: &Path) -> Result<Service, WorkloadError> {
        Service::read(Span::new(text), folder)
    }

    pub(super) fn read(span: Span<'_>, folder: &Path) -> Result<Service, WorkloadError> {
        let example = FORMS[0].example;
        if span.text().is_empty() {
            return Err(span.not("a service time", example).into());
        }
        if !span.text().starts_with(|c: char| c.is_alphabetic()) {
            return Ok(Service::Fixed(span.ns(example)?));
        }
        let call = Call::read(span, FORMS)?;
        match call.form.name {
            "exp" => Ok(Service::Exponential { mean: call.ns("mean")? }),
            "lognormal" => Ok(Service::Lognormal(lognormal(&call)?)),
            "pareto" => Ok(Service::Pareto(pareto(&call)?)),
            "uniform" => Ok(uniform(&call)?),
            _ => {
                let file = call.value("file")?.unquoted(call.form.example)?;
                Ok(Service::Empirical(Empirical::open(&folder.join(file))?))
            }
        }
    }
}

fn lognormal(call: &Call<'_>) -> Result<Lognormal, GrammarError> {
    let cv = call.number("cv", Lognormal::CV)?;
    Lognormal::new(call.ns("mean")?, cv).map_err(|e| parameter_error(call, &e))
}

fn pareto(call: &Call<'_>) -> Result<Pareto, GrammarError> {
    let max = call.find("max").map(|_| call.ns("max")).transpose()?;
    let shapes = if max.is_some() { Pareto::BOUNDED_SHAPE } else { Pareto::SHAPE };
    let shape = call.number("shape", shapes)?;
    Pareto::new(call.ns("mean")?, shape, max).map_err(|e| parameter_error(call, &e))
}

fn uniform(call: &Call<'_>) -> Result<Service, GrammarError> {
    let (from, to) = (call.ns("from")?, call.ns("to")?);
    match from <= to {
        true => Ok(Service::Uniform { from, to }),
        false => Err(call.not("to", "a longest time that is not below the shortest")),
    }
}

fn parameter_error(call: &Call<'_>, error: &OutOfRange) -> GrammarError {
    call.not(error.argument, error.allowed)
}

/// Returns the point of `from..to` that lies the share `part` of the way.
#[inline]
pub(super) fn between(from: f64, to: f64, part: f64) -> f64 {
    from + part * (to - from)
}

/// Returns the mean of `x^k` over `from..to`: the sum of `from^i to^(k-i)` over `i`, divided by
/// `k + 1`. Without a difference of large numbers, so it also holds for `from = to`.
pub(super) fn uniform_moment(k: u32, from: f64, to: f64) -> f64 {
    let power = |x: f64, n: u32| x.powf(f64::from(n));
    let sum: f64 = (0..=k).map(|i| power(from, i) * power(to, k - i)).sum();
    sum / (f64::from(k) + 1.0)
}

impl FromStr for Service {
    type Err = WorkloadError;

    /// # Errors
    /// [`WorkloadError::Grammar`] or, for `empirical(FILE)`, [`WorkloadError::File`].
    fn from_str(text: &str) -> Result<Service, WorkloadError> {
        Service::parse_in(text, Path::new(""))
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Service::Fixed(time) => write!(f, "{time}"),
            Service::Exponential { mean } => write!(f, "exp({mean})"),
            Service::Lognormal(l) => write!(f, "lognormal({}, cv={})", l.mean(), l.cv()),
            Service::Pareto(p) => {
                write!(f, "pareto({}, shape={}", p.mean(), p.shape())?;
                p.max().map_or(Ok(()), |max| write!(f, ", max={max}"))?;
                f.write_str(")")
            }
            Service::Uniform { from, to } => write!(f, "uniform({from}, {to})"),
            Service::Empirical(empirical) => {
                write!(f, "empirical({})", Quoted(&empirical.file().to_string_lossy()))
            }
        }
    }
}
