//! The simulator's predictions for the measured cases.

use super::part::Part;
use crate::suite::Part as _;
use heddle_metrics::{Results, Row};

/// Prefix of simulated systems: `sim:hybrid`.
pub const PREFIX: &str = "sim:";

/// Tolerance within which two loads are the same point of a table.
const SAME_LOAD: f64 = 0.02;

/// Turns rows of a simulation into predictions. Cases and metrics must have the names used here (`gis`,
/// `light_p99_ns`); loads are in requests per second.
#[must_use]
pub fn predicted(results: Results) -> Vec<Row> {
    let name = |system: String| match system.starts_with(PREFIX) {
        true => system,
        false => format!("{PREFIX}{system}"),
    };
    results.rows.into_iter().map(|row| Row { system: name(row.system.clone()), ..row }).collect()
}

/// The predictions for a part, at the measured loads.
pub(super) fn about(part: Part, measured: &[Row], predictions: &[Row]) -> Vec<Row> {
    let name = part.name();
    let of_part = |row: &&Row| {
        row.case == name || row.case.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
    };
    let near = |load: f64| {
        let loads = measured.iter().filter_map(|row| row.load);
        loads.into_iter().find(|at| (at / load - 1.0).abs() < SAME_LOAD)
    };
    let placed = |row: &Row| Row { load: row.load.map(|at| near(at).unwrap_or(at)), ..row.clone() };
    predictions.iter().filter(of_part).map(placed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_metrics::Run;

    fn row(system: &str, case: &str, load: f64) -> Row {
        Row::from_runs(system, case, "light_p99_ns", "ns", &[Run::ok(1.0)]).with_load(load)
    }

    #[test]
    fn predictions_stand_at_the_loads_that_were_measured() {
        let rows = vec![row("hybrid", "gis", 8_900.0), row("sim:fifo", "zippydb", 1.0)];
        let predictions = predicted(Results::here(rows));
        let measured = [row("hybrid", "gis", 8_888.8)];
        let about_gis = about(Part::Gis, &measured, &predictions);
        assert_eq!(about_gis.len(), 1);
        assert_eq!(
            (about_gis[0].system.as_str(), about_gis[0].load),
            ("sim:hybrid", Some(8_888.8))
        );
        assert_eq!(about(Part::ZippyDb, &measured, &predictions)[0].system, "sim:fifo");
        assert!(about(Part::Pipes, &measured, &predictions).is_empty());
    }
}
