//! Rows and the table of a packet-processing service.

use super::super::system::System;
use super::flows::KINDS;
use super::{Mode, Sample, SnapOptions};
use crate::suite::PartResult;
use heddle_metrics::{Better, Cell, Collector, Mark, Row, Run, Table, human};

/// The case in results: the mode and the kind of message.
pub(super) fn case(mode: Mode, kind: &str) -> String {
    format!("{} {kind}", mode.name())
}

/// Adds the result of one system in one mode; `fifo` is that with `chrt -f 1` of the same round.
pub(super) fn add(
    collect: &mut Collector,
    system: &System,
    mode: Mode,
    sample: &Sample,
    fifo: Option<&Sample>,
) {
    let name = system.to_string();
    let why = sample.invalid();
    let run = |value: f64, why: &Option<String>| match why {
        Some(why) => Run::invalid(value, why.clone()),
        None => Run::ok(value),
    };
    for ((op, kind, _), wakeups) in KINDS.iter().zip(&sample.wakeups) {
        let case = case(mode, kind);
        let mut at = collect.without_load();
        at.latency(&name, &case, &sample.run.tally.op(*op).latency, why.as_deref());
        for (metric, time) in [("wakeup_p50", wakeups.p50()), ("wakeup_p99", wakeups.p99())] {
            at.add(&name, &case, metric, "ns", run(time.0 as f64, &why));
        }
        if let Some(fifo) = fifo {
            let why = why.clone().or_else(|| fifo.invalid());
            at.add(&name, &case, "p99_over_fifo", "x", run(sample.p99(*op) / fifo.p99(*op), &why));
        }
    }
    if let Some(share) = sample.antagonists {
        collect.add(&name, "antagonists", "cpu_percent", "%", run(share, &why));
    }
}

/// One progress line.
pub(super) fn line(system: &System, sample: &Sample) -> String {
    let time = |op, percent| {
        let latency = &sample.run.tally.op(op).latency;
        human(latency.percentile(percent).0 as f64, "ns")
    };
    let of = |&(op, kind, _): &(_, &str, usize)| {
        format!(
            "{kind} p50 {:>8} p99 {:>8} p99.9 {:>8}",
            time(op, 50.0),
            time(op, 99.0),
            time(op, 99.9)
        )
    };
    let kinds: Vec<String> = KINDS.iter().map(of).collect();
    let share = sample.antagonists.map_or(String::new(), |it| format!("  antagonists {it:.0} %"));
    let why = sample.invalid().map_or(String::new(), |why| format!("  ! {why}"));
    format!("  {:20} {}{share}{why}", system.to_string(), kinds.join("  "))
}

/// Rows with notes, and the table.
pub(super) fn judge(options: &SnapOptions, collect: Collector) -> PartResult {
    let of = |row: &Row| options.systems.iter().find(|system| system.to_string() == row.system);
    let note = |row: Row| {
        let policy = of(&row).and_then(System::policy).map(|policy| format!("policy {policy}"));
        let row = row.with_note(&policy.unwrap_or_default());
        if row.metric == "cpu_percent" { row.with_better(Better::Higher) } else { row }
    };
    let rows: Vec<Row> = collect.into_rows().into_iter().map(note).collect();
    let tables = table(options, &rows).into_iter().collect();
    PartResult { rows, tables, ..PartResult::default() }
}

/// A line for each system, mode and kind of message.
fn table(options: &SnapOptions, rows: &[Row]) -> Option<Table> {
    let title = format!(
        "Round trips to the workers of a packet-processing service, alone and beside {} antagonists on one CPU",
        options.antagonists
    );
    let head = [
        "messages",
        "system",
        "p50",
        "p99",
        "rounds",
        "p99.9",
        "wakeup p99",
        "p99 over chrt -f 1's",
        "antagonists",
    ];
    let mut table = Table::new(title, head);
    for mode in Mode::ALL {
        for (_, kind, _) in KINDS {
            let case = case(mode, kind);
            for system in &options.systems {
                let name = system.to_string();
                let find = |case: &str, metric: &str| row(rows, &name, case, metric);
                let Some(p99) = find(&case, "p99") else { continue };
                let mark = if p99.valid { Mark::Plain } else { Mark::Invalid };
                let time =
                    |metric| find(&case, metric).map_or("-".into(), |row| human(row.value, "ns"));
                let ratio = find(&case, "p99_over_fifo");
                let share = find("antagonists", "cpu_percent").filter(|_| mode == Mode::Loaded);
                table.push(vec![
                    Cell::text(case.clone()),
                    Cell::text(name.clone()),
                    Cell::number(time("p50")),
                    Cell::number(human(p99.value, "ns")).marked(mark),
                    Cell::number(format!("{}..{}", human(p99.min, "ns"), human(p99.max, "ns"))),
                    Cell::number(time("p99.9")),
                    Cell::number(time("wakeup_p99")),
                    Cell::number(ratio.map_or("-".into(), |row| format!("{:.2}", row.value))),
                    Cell::number(share.map_or("-".into(), |row| format!("{:.1} %", row.value))),
                ]);
            }
        }
    }
    for system in options.systems.iter().filter(|system| system.policy().is_some()) {
        table.notes.push(format!("{system}: {}", system.policy().unwrap_or_default()));
    }
    table.notes.push(format!(
        "{} messages/s, a sixth of them short; workers and antagonists on CPU {}, clients and agent on CPU {}; wakeup: \
         from the sending until the worker reads; antagonists: their share of the CPU",
        options.rate, options.worker_cpu, options.load_cpu
    ));
    (!table.rows.is_empty()).then_some(table)
}

fn row<'a>(rows: &'a [Row], system: &str, case: &str, metric: &str) -> Option<&'a Row> {
    rows.iter().find(|row| (&*row.system, &*row.case, &*row.metric) == (system, case, metric))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_core::Ns;
    use heddle_load::{LoadRun, Op, Tally};
    use heddle_metrics::Histogram;

    fn sample(latency: u64, antagonists: Option<f64>, doubt: Option<&str>) -> Sample {
        let mut tally = Tally::new(Ns::from_secs(2), [None; Op::ALL.len()]);
        let mut wakeups = [Histogram::new(), Histogram::new()];
        for ((op, ..), wakeups) in KINDS.iter().zip(&mut wakeups) {
            let answer = heddle_load::Answer { id: 0, ok: true, service: None, at: None };
            tally.sent(*op, Ns::ZERO, Ns::ZERO);
            tally.answered(*op, Ns(latency), answer);
            wakeups.record(Ns(latency / 2));
        }
        let run = LoadRun { rate: 1.0, tally, window: Ns::from_secs(1) };
        Sample { run, wakeups, antagonists, doubt: doubt.map(String::from) }
    }

    #[test]
    fn a_round_is_compared_with_real_time_priority_and_doubts_make_it_invalid() {
        let options = SnapOptions::new(Some(heddle_agent::guardian::Kind::Rt), 0, 1, true);
        let mut collect = Collector::new();
        let fifo = sample(100, Some(80.0), None);
        add(&mut collect, &System::Fifo, Mode::Loaded, &fifo, None);
        let agent = options.systems.last().unwrap().clone();
        add(&mut collect, &agent, Mode::Loaded, &sample(200, Some(70.0), None), Some(&fifo));
        let doubtful = sample(300, None, Some("the enclave is gone"));
        add(&mut collect, &agent, Mode::Quiet, &doubtful, Some(&fifo));
        let judged = judge(&options, collect);
        let find = |case, metric| row(&judged.rows, "agent-rt", case, metric).unwrap();
        assert!((find("loaded 64 B", "p99_over_fifo").value - 2.0).abs() < 0.1);
        assert_eq!(find("antagonists", "cpu_percent").value, 70.0);
        assert!(find("loaded 64 kB", "wakeup_p99").note.contains("policy priority"));
        let quiet = find("quiet 64 B", "p99");
        assert!(!quiet.valid && quiet.note.contains("the enclave is gone"), "{quiet:?}");
        // Two kinds of messages, for SCHED_FIFO loaded and the agent in both modes.
        assert_eq!(judged.tables[0].rows.len(), 6);
    }
}
