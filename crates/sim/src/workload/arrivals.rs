//! When requests come.

use super::call::{Call, Form};
use super::grammar::{GrammarError, Quoted, Span};
use super::percent::{self, Percent};
use super::{OutOfRange, Service, WorkloadError};
use heddle_core::Ns;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The process by which requests arrive. The rate is not part of it: a sweep varies one and keeps the
/// other.
///
/// Its text is `poisson`, `periodic`, `mmpp(factor=5, share=10%, length=1ms)`,
/// `closed(tasks=64, think=exp(1ms))` or `trace(FILE)`; printing returns the same text.
///
/// ```
/// use heddle_sim::workload::Arrivals;
/// let arrivals: Arrivals = "mmpp(factor=5, share=10%, length=1ms)".parse().unwrap();
/// assert!(arrivals.is_open());
/// assert_eq!(arrivals.to_string(), "mmpp(factor=5, share=10%, length=1ms)");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// Open; gaps are exponential and independent.
    Poisson,
    /// Open; all gaps are equal.
    Periodic,
    /// Open; a Poisson process with two rates (Markov-modulated).
    Mmpp(Bursts),
    /// Each of `tasks` clients waits for its answer, thinks, and sends the next request.
    Closed {
        /// How many clients, at least 1.
        tasks: u32,
        /// The time from an answer to the client's next request.
        think: Service,
    },
    /// As recorded in a file, read by [`TraceReader`](super::TraceReader).
    Trace(PathBuf),
}

/// The bursts of [`Arrivals::Mmpp`]: two phases of exponential length, each with a constant rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    factor: f64,
    share: f64,
    length: Ns,
}

const FACTOR: &str = "a number above 1 and at most 1000000";
const SHARE: &str = "a share above 0% and below 100%";
const TASKS: &str = "a whole number of at least 1";

impl Bursts {
    /// Creates bursts with `factor` times the rate between them (`1 < factor <= 1e6`), which take up
    /// this `share` of the time (`0 < share < 1`) and last `length` in the mean.
    ///
    /// # Errors
    /// [`OutOfRange`].
    pub fn new(factor: f64, share: f64, length: Ns) -> Result<Bursts, OutOfRange> {
        OutOfRange::unless(factor > 1.0 && factor <= 1e6, "factor", factor, FACTOR)?;
        OutOfRange::unless(share > 0.0 && share < 1.0, "share", share, SHARE)?;
        OutOfRange::unless(length > Ns::ZERO, "length", length, "above zero")?;
        Ok(Bursts { factor, share, length })
    }

    /// Returns the rate in a burst over that between bursts.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Returns the share of time in bursts.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Returns the mean length of a burst.
    pub fn length(&self) -> Ns {
        self.length
    }

    /// Returns the rates between and in bursts if the long-run rate is `rate`; in the same unit.
    pub fn rates(&self, rate: f64) -> [f64; 2] {
        let calm = rate / (1.0 - self.share + self.share * self.factor);
        [calm, calm * self.factor]
    }

    /// Returns the mean lengths of the phases between and in bursts, in ns.
    pub fn lengths(&self) -> [f64; 2] {
        let burst = self.length.0 as f64;
        [burst / self.share * (1.0 - self.share), burst]
    }

    /// Returns the index of dispersion for counts at `rate_per_s`: variance over mean of the arrivals
    /// in a long window, 1 for a Poisson process (Fischer and Meier-Hellstern, "The Markov-modulated
    /// Poisson process cookbook", 1993, section 2).
    pub fn dispersion(&self, rate_per_s: f64) -> f64 {
        let rate = rate_per_s / 1e9;
        let ([calm, burst], lengths) = (self.rates(rate), self.lengths());
        let switches: f64 = lengths.iter().map(|length| 1.0 / length).sum();
        let variance = self.share * (1.0 - self.share) * (burst - calm).powi(2);
        1.0 + 2.0 * variance / (switches * rate)
    }
}

const FORMS: &[Form] = &[
    Form { name: "poisson", arguments: &[], places: 0, example: "poisson" },
    Form { name: "periodic", arguments: &[], places: 0, example: "periodic" },
    Form {
        name: "mmpp",
        arguments: &["factor", "share", "length"],
        places: 0,
        example: "mmpp(factor=5, share=10%, length=1ms)",
    },
    Form {
        name: "closed",
        arguments: &["tasks", "think"],
        places: 0,
        example: "closed(tasks=64, think=exp(1ms))",
    },
    Form { name: "trace", arguments: &["file"], places: 1, example: "trace(requests.csv)" },
];

impl Arrivals {
    /// Returns whether requests arrive at their own rate, whatever becomes of earlier ones.
    pub fn is_open(&self) -> bool {
        matches!(self, Arrivals::Poisson | Arrivals::Periodic | Arrivals::Mmpp(_))
    }

    /// Reads arrivals as [`FromStr`] does, with file names relative to `folder`; printed, they are
    /// relative to the working directory.
    ///
    /// # Errors
    /// As [`FromStr`].
    pub fn parse_in(text: &str, folder: &Path) -> Result<Arrivals, WorkloadError> {
        let call = Call::read(Span::new(text), FORMS)?;
        match call.form.name {
            "poisson" => Ok(Arrivals::Poisson),
            "periodic" => Ok(Arrivals::Periodic),
            "mmpp" => Ok(Arrivals::Mmpp(bursts(&call)?)),
            "closed" => closed(&call, folder),
            _ => {
                let file = call.value("file")?.unquoted(call.form.example)?;
                Ok(Arrivals::Trace(folder.join(file)))
            }
        }
    }
}

fn bursts(call: &Call<'_>) -> Result<Bursts, GrammarError> {
    let factor = call.number("factor", FACTOR)?;
    let share = percent::parse(call.value("share")?.text());
    let share = share.ok_or_else(|| call.not("share", SHARE))?;
    Bursts::new(factor, share, call.ns("length")?).map_err(|e| call.not(e.argument, e.allowed))
}

fn closed(call: &Call<'_>, folder: &Path) -> Result<Arrivals, WorkloadError> {
    let tasks = call.value("tasks")?.text().parse().ok().filter(|&n| n > 0);
    let tasks = tasks.ok_or_else(|| call.not("tasks", TASKS))?;
    Ok(Arrivals::Closed { tasks, think: Service::read(call.value("think")?, folder)? })
}

impl FromStr for Arrivals {
    type Err = WorkloadError;

    /// # Errors
    /// [`WorkloadError::Grammar`], or [`WorkloadError::File`] from the think time. A trace is not opened.
    fn from_str(text: &str) -> Result<Arrivals, WorkloadError> {
        Arrivals::parse_in(text, Path::new(""))
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arrivals::Poisson => f.write_str("poisson"),
            Arrivals::Periodic => f.write_str("periodic"),
            Arrivals::Mmpp(Bursts { factor, share, length }) => {
                write!(f, "mmpp(factor={factor}, share={}, length={length})", Percent(*share))
            }
            Arrivals::Closed { tasks, think } => write!(f, "closed(tasks={tasks}, think={think})"),
            Arrivals::Trace(file) => write!(f, "trace({})", Quoted(&file.to_string_lossy())),
        }
    }
}
