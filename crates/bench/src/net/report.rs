//! Tables, conditions, and the bench as an HTML report.

use super::options::NetOptions;
use super::part::Part;
use super::targets::find;
use super::usage::accounts_softirqs_apart;
use crate::posix::rounds::MOST_OTHERS;
use crate::suite::Outcome;
use heddle_metrics::{BarChart, Cell, Mark, Report, Results, Row, Table};

/// What tables of systems show, in this order.
const SHOWN: [&str; 16] = [
    "p50",
    "p99",
    "p99.9",
    "rate",
    "throughput",
    "goodput",
    "cpu",
    "server_cpu",
    "client_cpu",
    "p999_ratio",
    "cost",
    "is_ready",
    "idle_cpu",
    "preemptions",
    "interrupts",
    "bytes",
];

/// The tables of a part's rows: systems, then ratios.
pub(super) fn tables(rows: &[Row]) -> Vec<Table> {
    let systems = heddle_metrics::tables(&Results::here(rows.to_vec()).with_metrics(&SHOWN));
    systems.into_iter().chain(ratios(rows)).collect()
}

/// A ratio's metric, and the system that it refers to.
fn ratio(row: &Row) -> Option<(&str, &str)> {
    row.metric.split_once("_of_")
}

/// One line for each case, system and reference, one column for each metric.
fn ratios(rows: &[Row]) -> Option<Table> {
    let metrics = ["p50", "p99", "p99.9", "rate", "goodput", "cpu"];
    let of = |row: &Row, metric: &str| ratio(row).is_some_and(|(of, _)| of == metric);
    let there = |metric: &&str| rows.iter().any(|row| of(row, metric));
    let metrics: Vec<&str> = metrics.into_iter().filter(there).collect();
    let mut table = Table::new(
        "Ratios within a round",
        ["case", "of"].into_iter().chain(metrics.iter().copied()),
    );
    let mut lines: Vec<(&str, &str, &str)> = Vec::new();
    for row in rows {
        let Some((_, reference)) = ratio(row) else { continue };
        if !lines.contains(&(&row.case, &row.system, reference)) {
            lines.push((&row.case, &row.system, reference));
        }
    }
    for (case, system, reference) in &lines {
        let cell = |metric: &&str| {
            let name = format!("{metric}_of_{reference}");
            find(rows, system, case, &name).map_or_else(|| Cell::number("-"), value)
        };
        let head = [Cell::text(*case), Cell::text(format!("{system} over {reference}"))];
        table.push(head.into_iter().chain(metrics.iter().map(cell)).collect());
    }
    (!lines.is_empty()).then_some(table)
}

fn value(row: &Row) -> Cell {
    let text = match row.runs {
        0 | 1 => format!("{:.2} x", row.value),
        _ => format!("{:.2} x ({:.2}-{:.2})", row.value, row.min, row.max),
    };
    if row.valid { Cell::number(text) } else { Cell::number(text).marked(Mark::Invalid) }
}

/// What others published of systems that pass the kernel by: not measured here, on other machines.
pub(super) const OTHERS: &str = "Others' figures, from their papers and threads, never ours and not on this machine: \
    Shenango serves 5 million memcached requests/s at a p99.9 of 37 us; Junction, Caladan's heir, 1.6 to 7.0 times \
    Linux's throughput with 1.2 to 3.8 times fewer cores; Skyloft is within 2 % of Shenango on memcached (4 workers), \
    and takes 1.9 times its load on RocksDB at a slowdown of 50; Aspen-KB's user interrupts give 58 % more GETs at a \
    tail of 50 us; SCION's AF_XDP underlay has 2.1 times the rate of sockets on a ConnectX-6, and 1.3 to 1.9 times on \
    veth.";

/// The kernel's congestion control for new connections.
const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// What a reader must know before quoting.
pub(super) fn conditions(options: &NetOptions) -> Vec<String> {
    let softirqs = match accounts_softirqs_apart() {
        true => "this kernel accounts softirqs apart from tasks: their time is added",
        false => {
            "this kernel charges softirqs to the task that they interrupt, where they are counted"
        }
    };
    let mut said = vec![
        format!(
            "Two namespaces, a veth pair with an MTU of 1,500 B, checksums computed by the senders (`tx off`, which \
             also ends segmentation by the device); {}.",
            options.cpus.in_words()
        ),
        "plain: one thread on kernel sockets, epoll for TCP; kernel: Heddle's runtime, net=kernel; xdp: the same, \
         lanes. One worker; clients are plain, those of xdp-both excepted."
            .into(),
        format!(
            "Closed loop, {} each, systems in turn within a round, both ends fresh processes; medians of {} rounds \
             with least and greatest; X_of_Y is X over that of system Y in the same round.",
            options.duration, options.rounds
        ),
        format!(
            "cpu: of both processes and ksoftirqd, for each request or KiB; {softirqs}. softirq: per cent of one CPU, \
             as /proc/stat samples it, the whole machine's. A run is invalid if others used more than {:.0} % of a \
             CPU; it is then made again, twice at most.",
            MOST_OTHERS * 100.0
        ),
        format!(
            "Congestion control: {} unless a name says otherwise; lanes have the kernel's.",
            std::fs::read_to_string(CONGESTION_CONTROL).unwrap_or_default().trim(),
        ),
        "veth copies: ratios say nothing about network cards with zero copy, hardware queues or offloads.".into(),
        OTHERS.into(),
    ];
    if options.quick {
        said.push("--quick: each part once and shortly, not to quote.".into());
    }
    said
}

/// Ratios, response times, all tables.
pub(super) fn report(
    conditions: Vec<String>,
    outcome: &Outcome<Part>,
    results: &Results,
) -> Report {
    let head = (
        "Network",
        "The runtime's own network and the kernel's",
        "Targets above; figures and tables below.",
    );
    let charts = [
        ("p50", "Response time, median"),
        ("rate", "Requests per second"),
        ("cpu", "CPU time of both ends"),
        ("goodput", "One stream"),
    ];
    let figures = |mut report: Report| {
        for (metric, title) in charts {
            let chart = BarChart::of(results, metric, title);
            if !chart.panels.is_empty() {
                report = report.bars(chart);
            }
        }
        report
    };
    outcome.report(head, figures, conditions, results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_metrics::{Run, TextStyle};

    #[test]
    fn ratios_have_a_table_of_their_own() {
        let row = |metric: &str, unit: &str, value| {
            Row::from_runs("xdp", "tcp-1", metric, unit, &[Run::ok(value)])
        };
        let rows =
            [row("p50", "ns", 9.0), row("p50_of_kernel", "x", 0.5), row("p50_of_plain", "x", 0.7)];
        let texts: Vec<String> =
            tables(&rows).iter().map(|table| table.to_text(TextStyle::PLAIN)).collect();
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(!texts[0].contains("_of_"), "{}", texts[0]);
        assert!(
            texts[1].contains("xdp over kernel") && texts[1].contains("0.70 x"),
            "{}",
            texts[1]
        );
    }
}
