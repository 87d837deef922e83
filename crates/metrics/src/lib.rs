//! Measurements in one format, from the histogram of one run to the report that people read.
//!
//! ```text
//!  Histogram, Slowdown   one run's samples          (a load process prints them as JSON)
//!         |
//!     Collector          several runs -> one Row    (median, min, max; invalid runs kept apart)
//!         |
//!      Results           the one result format      {"schema": 1, "command", "machine", "rows"}
//!         |
//!   +-----+--------+----------------+
//!  tables()     compare()        Report
//!  terminal     two results      one HTML file with the results inside it
//! ```
//!
//! The crate knows nothing about schedulers: every bench, and any other program, can use it alone.
//!
//! ```
//! use heddle_core::Ns;
//! use heddle_metrics::{Collector, Histogram, Results, Run, TextStyle, tables};
//!
//! let mut collect = Collector::new();
//! for value in [24.1, 24.6, 23.9] {
//!     collect.add("heddle", "yield", "cpu_ns_per_op", "ns", Run::ok(value));
//! }
//! let mut latency = Histogram::new();
//! latency.record(Ns::from_us(15));
//! collect.at_load(20_000.0).latency("heddle", "get", &latency, None);
//!
//! let results = Results::here(collect.into_rows());
//! for table in tables(&results) {
//!     print!("{}", table.to_text(TextStyle::PLAIN));
//! }
//! println!("{}", results.to_json());
//! ```
//!
//! # Invariants
//!
//! - **I1** A number that is not finite never reaches a row: it becomes an invalid run with a note.
//! - **I2** An invalid run never affects a median while a valid one exists, and is never dropped silently.
//! - **I3** Merging histograms equals recording the union of their samples.
//! - **I4** Results read back from JSON or from an HTML report equal those written.
//! - **I5** Text from outside (names, notes, commands) is escaped wherever it is written to HTML or a terminal.
//! - **I6** A file is written whole or not at all.
//!
//! Nothing here measures time, except [`Progress`], which displays the elapsed time.

#![forbid(unsafe_code)]

mod collect;
mod compare;
mod counts;
mod error;
mod file;
mod format;
mod histogram;
mod machine;
mod pivot;
mod progress;
mod report;
mod results;
mod row;
mod slowdown;
mod table;
mod units;

pub use collect::{Collector, LoadPoint};
pub use compare::{Change, Comparison, Side, Verdict, compare};
pub use counts::DecodeError;
pub use error::Error;
pub use file::{check_writable, write_atomically};
pub use format::SCHEMA;
pub use histogram::Histogram;
pub use machine::Machine;
pub use pivot::tables;
pub use progress::Progress;
pub use report::{Axis, Bar, BarChart, LinePlot, Panel, Point, Report, Series};
pub use results::Results;
pub use row::{Better, Row, Run};
pub use slowdown::Slowdown;
pub use table::{Cell, Mark, Table, TextStyle};
pub use units::human;
