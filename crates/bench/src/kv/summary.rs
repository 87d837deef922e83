//! The comparison for people: one sentence, one picture, one table.
//!
//! A difference is stated only if all rounds agree on its direction ([`Row::is_distinct_from`]). Otherwise it is called
//! not measurable, whatever the median says.

use super::measured::Measured;
use super::options::KvOptions;
use super::system::System;
use super::tail::{TAILS, Tail, ratio_row};
use heddle_metrics::{BarChart, Cell, Mark, Results, Row, Table, human};

/// What the three are made from. Other systems are compared with `reference`, the two-queue policy.
pub(super) struct Summary<'a> {
    options: &'a KvOptions,
    measured: &'a Measured,
    results: &'a Results,
    reference: usize,
    tail: Tail,
}

impl<'a> Summary<'a> {
    /// `None` if the two-queue policy did not take part, or nothing was measured.
    pub(super) fn new(
        options: &'a KvOptions,
        measured: &'a Measured,
        results: &'a Results,
    ) -> Option<Summary<'a>> {
        let reference = options.systems.iter().position(System::is_two_queue)?;
        let mut summary = Summary { options, measured, results, reference, tail: TAILS[0] };
        summary.rate(options.half())?;
        if summary.machine_tail().is_some() {
            summary.tail = TAILS[1];
        }
        Some(summary)
    }

    /// The main finding: preemption against none, else the reference against the first other system.
    pub(super) fn headline(&self) -> Option<String> {
        let systems = &self.options.systems;
        let fifo = systems.iter().position(System::is_fifo);
        let other = fifo.or_else(|| (0..systems.len()).find(|&at| at != self.reference))?;
        let load = self.options.half();
        let ratio = self.ratio(other, load)?;
        let at = self.rate(load);
        let value = |system: usize| {
            let row = self.row(system, "get", self.tail.metric, at)?;
            Some(human(row.value, &row.unit))
        };
        let (with, without) = match fifo {
            Some(_) => ("preemption".to_owned(), "without".to_owned()),
            None => {
                ("Heddle's two-queue policy".into(), format!("with {}", systems[other].in_words()))
            }
        };
        Some(format!(
            "At {} of saturation, the {} of GETs is {} with {with} and {} {without}: {}.",
            self.share(load),
            self.tail.metric,
            value(self.reference)?,
            value(other)?,
            difference(&ratio),
        ))
    }

    /// The tails of both operations at half of saturation, a bar for each system.
    pub(super) fn picture(&self) -> Option<BarChart> {
        let load = self.options.half();
        let at = self.rate(load)?;
        let get = format!("GET, {}: the short requests", self.tail.metric);
        let panels = [
            ("get", self.tail.metric, get.as_str()),
            ("scan", "p99", "SCAN, p99: the long requests"),
        ];
        let title = format!("Latency at {} of saturation, {}", self.share(load), human(at, "1/s"));
        let chart = BarChart::at_load(self.results, at, &panels, &title);
        let explains = self.options.systems.iter().any(System::is_fifo);
        let caption = "Shorter is better. heddle two-queue interrupts a request that has used up its quantum \
                       while others wait; heddle fifo is the same runtime without preemption.";
        Some(if explains { chart.caption(caption) } else { chart.caption("Shorter is better.") })
    }

    /// Each system at each load, with what must be known beside the figures as notes.
    pub(super) fn table(&self) -> Table {
        let columns = [("get", "p50"), ("get", "p99"), ("get", "p99.9")];
        let head =
            ["load", "system", "GET p50", "GET p99", "GET p99.9", "vs. two-queue", "SCAN p99"];
        let mut table = Table::new(self.title(), head);
        let mut loads: Vec<usize> = (0..self.options.loads.len()).collect();
        loads.sort_by(|&a, &b| self.options.loads[a].total_cmp(&self.options.loads[b]));
        for load in loads.into_iter().filter(|&load| self.rate(load).is_some()) {
            for (at, system) in self.options.systems.iter().enumerate() {
                let name = format!("{:.0} %", self.options.loads[load] * 100.0);
                let name = if at == 0 { name } else { String::new() };
                let cell = |(case, metric)| {
                    self.row(at, case, metric, self.rate(load)).map_or_else(missing, value)
                };
                let mut line = vec![Cell::text(name), Cell::text(system.to_string())];
                line.extend(columns.map(cell));
                line.push(match at == self.reference {
                    true => Cell::number(""),
                    false => self.ratio(at, load).as_ref().map_or_else(missing, times),
                });
                line.push(cell(("scan", "p99")));
                table.push(line);
            }
        }
        table.notes = self.notes();
        table
    }

    fn title(&self) -> String {
        let saturation = self.measured.calibrated.map(|c| c.saturation);
        let full = saturation.map_or(String::new(), |s| format!("; 100 % is {}", human(s, "1/s")));
        format!("Latency of a key-value server{full}")
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!(
            "vs. two-queue: a system's {} of GETs over that of two-queue in the same round, median.",
            self.tail.metric
        )];
        let kept = self.results.rows.iter().find(|row| {
            row.metric == "scan_throughput_ratio"
                && row.system == self.options.systems[self.reference].to_string()
        });
        notes.extend(kept.map(cost));
        notes.extend(self.machine_tail().map(|tail| {
            format!(
                "The machine's own outliers dominate the p99.9: GETs alone, without any SCAN, have a p99.9 of {}. \
                 Quote the p99.",
                human(tail, "ns")
            )
        }));
        notes.extend(self.measured.ratio_in_words());
        notes
    }

    /// The p99.9 of GETs that is the machine's own (ns), if it is at least half of the reference's p99.9 at half of
    /// saturation: then that figure says more about the machine than about the policy.
    fn machine_tail(&self) -> Option<f64> {
        let tail = self.measured.machine_p999()?.0 as f64;
        let ours = self.row(self.reference, "get", "p99.9", self.rate(self.options.half()))?;
        (tail * 2.0 >= ours.value).then_some(tail)
    }

    fn ratio(&self, system: usize, load: usize) -> Option<Row> {
        ratio_row(self.options, self.measured, self.tail, (system, self.reference), load)
    }

    /// The rate (1/s) at which a load was offered; `None` if it was not measured.
    fn rate(&self, load: usize) -> Option<f64> {
        self.measured.samples.iter().find(|sample| sample.load == load).map(|s| s.run.rate)
    }

    fn row(&self, system: usize, case: &str, metric: &str, load: Option<f64>) -> Option<&Row> {
        let name = self.options.systems[system].to_string();
        let same = |row: &&Row| {
            row.system == name && row.case == case && row.metric == metric && row.load == load
        };
        self.results.rows.iter().find(same)
    }

    fn share(&self, load: usize) -> String {
        let percent = self.options.loads[load] * 100.0;
        let half = (percent - 50.0).abs() < 0.5;
        if half { "half".into() } else { format!("{percent:.0} %") }
    }
}

/// A ratio of a system's time to the reference's, as the reference's merit.
fn difference(ratio: &Row) -> String {
    let Row { value, min, max, .. } = *ratio;
    let (factor, from, to, direction) = match value >= 1.0 {
        true => (value, min, max, "lower"),
        false => (1.0 / value, 1.0 / max, 1.0 / min, "higher"),
    };
    if !ratio.valid {
        "the runs are invalid, do not quote".into()
    } else if ratio.runs < 2 {
        format!(
            "{factor:.1} times {direction} in a single round, which has no spread: do not quote"
        )
    } else if !ratio.is_distinct_from(1.0) {
        format!("the difference is not measurable (rounds from {min:.2} to {max:.2} times)")
    } else {
        format!("{factor:.1} times {direction} (rounds from {from:.1} to {to:.1})")
    }
}

/// The cost of preemption to SCANs, from the share of their throughput that is kept.
pub(super) fn cost(kept: &Row) -> String {
    let percent = |kept: f64| (1.0 - kept) * 100.0;
    let (lost, least, most) = (percent(kept.value), percent(kept.max), percent(kept.min));
    let what = "Cost of preemption to the throughput of SCANs alone:";
    if kept.runs < 2 {
        format!("{what} not measurable in a single round ({lost:.1} %).")
    } else if !kept.is_distinct_from(1.0) {
        format!("{what} not measurable (rounds from {least:.1} to {most:.1} %).")
    } else if lost < 0.0 {
        format!("{what} none; {:.1} % more (rounds from {:.1} to {:.1} %).", -lost, -most, -least)
    } else {
        format!("{what} {lost:.1} % (rounds from {least:.1} to {most:.1} %).")
    }
}

fn times(ratio: &Row) -> Cell {
    match ratio.runs < 2 || ratio.is_distinct_from(1.0) {
        true => marked(Cell::number(format!("{:.1} x", ratio.value)), ratio),
        false => Cell::number("not measurable"),
    }
}

fn value(row: &Row) -> Cell {
    marked(Cell::number(human(row.value, &row.unit)), row)
}

fn marked(cell: Cell, row: &Row) -> Cell {
    if row.valid { cell } else { cell.marked(Mark::Invalid) }
}

fn missing() -> Cell {
    Cell::number("-")
}
