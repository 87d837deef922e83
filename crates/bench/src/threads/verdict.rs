//! A one-line verdict, and published figures for comparison.

use heddle_metrics::Row;

use super::{Op, System};

/// Skyloft (SOSP 2024), Table 7, on a 2.0 GHz Xeon 5418Y. It spawns detached: `spawn_yield` here.
pub const PAPER: &str = "Skyloft's paper, 2.0 GHz: yield 37 ns, spawn_yield 191 ns, mutex 27 ns, condvar 86 ns \
    (another machine: compare the order, not the figures)";

/// The operations in which Heddle is ahead of its best rival, or why no verdict is possible.
pub fn verdict(rows: &[Row]) -> String {
    let compared: Vec<Comparison> =
        Op::ALL.into_iter().filter_map(|op| compare(rows, op)).collect();
    if compared.is_empty() {
        return "no verdict: it needs a valid figure of heddle and of one of tokio, may, Boost.Fiber and Go".to_owned();
    }
    let (ahead, behind): (Vec<_>, Vec<_>) = compared.into_iter().partition(|c| c.heddle < c.best);
    let mut parts = Vec::new();
    if !ahead.is_empty() {
        parts.push(format!("heddle is ahead of the best rival in {}", list(&ahead)));
    }
    if !behind.is_empty() {
        parts.push(format!("heddle is behind in {}", list(&behind)));
    }
    parts.extend(without(rows));
    parts.join("; ")
}

/// Rivals without a figure: a missing rival does not count as beaten.
fn without(rows: &[Row]) -> Option<String> {
    let figures = |rival: &System| Op::ALL.into_iter().any(|op| value(rows, *rival, op).is_some());
    let absent: Vec<&str> =
        System::RIVALS.into_iter().filter(|r| !figures(r)).map(System::name).collect();
    (!absent.is_empty()).then(|| format!("not compared: {}", absent.join(", ")))
}

struct Comparison {
    op: Op,
    heddle: f64,
    best: f64,
    rival: System,
}

fn compare(rows: &[Row], op: Op) -> Option<Comparison> {
    let rivals =
        System::RIVALS.into_iter().filter_map(|rival| Some((value(rows, rival, op)?, rival)));
    let (best, rival) = rivals.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Comparison { op, heddle: value(rows, System::Heddle, op)?, best, rival })
}

fn value(rows: &[Row], system: System, op: Op) -> Option<f64> {
    let mut rows = rows.iter().filter(|row| row.system == system.name() && row.case == op.name());
    rows.find(|row| row.valid).map(|row| row.value)
}

fn list(compared: &[Comparison]) -> String {
    let parts: Vec<String> = compared
        .iter()
        .map(|c| format!("{} ({:.1} against {:.1} ns of {})", c.op, c.heddle, c.best, c.rival))
        .collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use heddle_metrics::Run;

    use super::*;

    fn row(system: System, op: Op, value: f64) -> Row {
        Row::from_runs(system.name(), op.name(), "cpu_ns_per_op", "ns", &[Run::ok(value)])
    }

    #[test]
    fn each_operation_is_held_against_its_own_best_rival() {
        let rows = [
            row(System::Heddle, Op::Yield, 25.0),
            row(System::May, Op::Yield, 48.0),
            row(System::Tokio, Op::Yield, 96.0),
            row(System::Heddle, Op::Mutex, 30.0),
            row(System::Go, Op::Mutex, 19.4),
        ];
        assert_eq!(
            verdict(&rows),
            "heddle is ahead of the best rival in yield (25.0 against 48.0 ns of may); \
             heddle is behind in mutex (30.0 against 19.4 ns of go); \
             not compared: tokio-mt, boost-fiber"
        );
    }

    #[test]
    fn without_heddle_or_without_rivals_there_is_no_verdict() {
        assert!(verdict(&[row(System::Tokio, Op::Yield, 96.0)]).starts_with("no verdict"));
        assert!(verdict(&[row(System::Heddle, Op::Yield, 25.0)]).starts_with("no verdict"));
        let pthread_only =
            [row(System::Heddle, Op::Yield, 25.0), row(System::Pthread, Op::Yield, 671.0)];
        assert!(verdict(&pthread_only).starts_with("no verdict"));
    }
}
