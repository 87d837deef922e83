//! The results of a run, for people and programs.
//!
//! ```text
//!  Scenario, Outcome -> rows()      the one result format, for --json, reports and heddle compare
//!                    -> summary()   lines for a terminal
//!                    -> run_report(), curves_report(), sweep_report()   HTML
//! ```

mod curves;
mod page;
mod rows;
mod schedule;
mod summary;
mod sweeps;
mod words;

pub use curves::curves_report;
pub use page::run_report;
pub use rows::rows;
pub use schedule::schedule_csv;
pub use summary::{curves_table, summary};
pub use sweeps::{sweep_report, sweep_rows, sweep_table};
