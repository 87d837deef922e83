//! Rows and targets of a ladder.

use super::ladder::Level;
use super::part::Part;
use super::system::System;
use crate::suite::Target;
use heddle_metrics::{Better, Collector, Results, Row, Run, Table};

const RATE: &str = "rate";
const CPU: &str = "server_cpu_per_op";
/// A level's rate divided by the first level's.
const KEPT: &str = "rate_kept";

/// A rate can fall by a tenth from the fewest connections to the most.
const FLAT: f64 = 0.9;

fn case(part: Part, connections: usize) -> String {
    format!("{part}-{connections}")
}

/// Adds the results of one run.
pub(super) fn add(collect: &mut Collector, part: Part, system: System, levels: &[Level]) {
    let system = system.to_string();
    for level in levels {
        let case = case(part, level.connections);
        collect.add(&system, &case, RATE, "1/s", Run::ok(level.rate));
        // The kernel counts in ticks of 10 ms: too coarse for a thousand connections.
        if part != Part::Accept {
            collect.add(&system, &case, CPU, "ns", Run::ok(level.cpu_ns));
        }
        if level.connections != levels[0].connections {
            collect.add(&system, &case, KEPT, "x", Run::ok(level.rate / levels[0].rate));
        }
    }
}

pub(super) fn directed(row: Row) -> Row {
    if row.metric == KEPT { row.with_better(Better::Higher) } else { row }
}

pub(super) fn tables(rows: &[Row]) -> Vec<Table> {
    heddle_metrics::tables(&Results::here(rows.to_vec()).with_metrics(&[RATE, CPU, KEPT]))
}

/// Heddle's rate with the most connections divided by that with the fewest.
pub(super) fn targets(part: Part, most: usize, rows: &[Row]) -> Vec<Target> {
    let (chief, case) = (System::Heddle.to_string(), case(part, most));
    let same = |row: &&Row| row.system == chief && row.case == case && row.metric == KEPT;
    let target = |row: &Row| {
        Target::at_least(
            &format!("{part}: the rate with {most} connections over that with the fewest"),
            row,
            FLAT,
        )
    };
    rows.iter().find(same).map(target).into_iter().collect()
}
