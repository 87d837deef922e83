//! Rounds of a part in which each system is measured once, in one process of its own.

use super::options::ShareOptions;
use super::part::Part;
use super::system::System;
use crate::posix::rounds::attempts;
use heddle_metrics::{Collector, Progress, Row};
use std::io;
use std::sync::atomic::AtomicBool;

/// What the systems of a round gave, in the order in which they ran.
pub(super) type Turn<S> = Vec<(System, Result<S, String>)>;

/// How a part is measured.
pub(super) struct Method<S> {
    /// Measures a system.
    pub(super) once: fn(&ShareOptions, System, &AtomicBool) -> io::Result<S>,
    /// Returns why a measurement is done again.
    pub(super) disturbed: fn(&S) -> Option<String>,
    /// Adds a round.
    pub(super) add: fn(&mut Collector, &Turn<S>),
}

/// Measures `part` in so many `rounds`; returns the rows so far if `stop` is set. A system that fails gives an invalid
/// row.
pub(super) fn rows<S>(
    options: &ShareOptions,
    (part, rounds): (Part, u32),
    method: &Method<S>,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> Vec<Row> {
    let mut collect = Collector::new();
    let name = crate::suite::Part::name(part);
    'all: for round in 0..rounds {
        let mut turn = Turn::new();
        for system in options.turns(part, round) {
            progress.step(&format!("{name}, round {}: {system}", round + 1));
            let once = || (method.once)(options, system, stop);
            match attempts(options.tries, once, method.disturbed) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                measured => turn.push((system, measured.map_err(|error| error.to_string()))),
            }
        }
        (method.add)(&mut collect, &turn);
    }
    let mut rows = collect.into_rows();
    rows.sort_by_key(|row| System::ALL.iter().position(|system| system.name() == row.system));
    rows
}
