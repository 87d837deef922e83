//! The workload: what arrives, and how long it takes.
//!
//! ```text
//!  Arrivals   poisson | periodic | mmpp(..) | closed(..) | trace(FILE)      when requests come
//!     | Gaps                                                               (open ones, at a rate)
//!  Mix        get: 95% 1us, scan(class=1): 5% 260us  |  a preset            of which kind they are
//!     | Part
//!  Service    10us | exp(..) | lognormal(..) | pareto(..) | uniform(..) | empirical(FILE)
//! ```
//!
//! The text forms are the same on the command line and in scenario files. Each prints as it reads, so
//! that a result can name its inputs. [`PRESETS`] are the mixes of the papers; [`TraceReader`] and
//! [`TraceWriter`] read and write recorded requests.
//!
//! ```
//! use heddle_sim::{Random, workload::{Gaps, Mix}};
//! let mix: Mix = "shinjuku-99.5-0.5".parse().unwrap();
//! let load = 0.8 * 20.0;
//! let mut gaps = Gaps::new(&"poisson".parse().unwrap(), load / mix.mean() * 1e9).unwrap();
//! let (mut when, mut what) = (Random::new(1, 0), Random::new(1, 1));
//! let (gap, (part, service)) = (gaps.next(&mut when), mix.sample(&mut what));
//! println!("after {gap}: a {} request of {service}", mix.parts()[part].name);
//! ```
//!
//! # Invariants
//!
//! - **I1** A printed value parses to an equal one (times up to 2^53 ns).
//! - **I2** No text and no file makes this module panic: an error says what is wrong, where, and what
//!   was expected.
//! - **I3** A sample is at least 1 ns; sampling allocates nothing, and one seed gives the same random
//!   numbers forever.
//! - **I4** A moment is in closed form, never from samples: theory can rely on it.

mod arrivals;
pub(crate) mod call;
mod empirical;
mod error;
mod gaps;
pub(crate) mod grammar;
mod mix;
mod part;
mod percent;
mod presets;
mod service;
mod table;
mod tails;
mod trace;

#[cfg(test)]
mod tests;

pub use arrivals::{Arrivals, Bursts};
pub use empirical::Empirical;
pub use error::{OutOfRange, WorkloadError};
pub use gaps::Gaps;
pub use grammar::GrammarError;
pub use mix::{Mix, MixError};
pub use part::Part;
pub use presets::{PRESETS, Preset};
pub use service::Service;
pub use table::{FileError, FileProblem};
pub use tails::{Lognormal, Pareto};
pub use trace::{TraceReader, TraceRequest, TraceSummary, TraceWriter};
