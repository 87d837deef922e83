//! The dilated server under the papers' mixes, one policy after the other.

mod options;
mod point;
mod rows;
mod run;
mod table;

pub use options::{Case, MixOptions, Point};
pub use point::measure;
pub(super) use rows::invalid;
pub use rows::{Sample, Target, gains, rows, targets, verdicts};
pub use run::run;
pub use table::tables;
