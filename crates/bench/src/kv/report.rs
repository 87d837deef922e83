//! The comparison as an HTML report.

use super::options::KvOptions;
use super::scan_time::ScanTime;
use super::verdict::Verdict;
use crate::load::Op;
use heddle_metrics::{LinePlot, Report};

/// The figures that each report has: case, metric, title.
const PLOTS: [(&str, &str, &str); 4] = [
    ("get", "p99.9", "GET, p99.9"),
    ("get", "p99", "GET, p99"),
    ("scan", "p99", "SCAN, p99: what the long requests pay"),
    ("all", "cpu", "CPU time of the server"),
];

/// Latency against load, one curve for each system.
pub fn report(options: &KvOptions, verdict: &Verdict) -> Report {
    let results = &verdict.results;
    let mut report = Report::new("Scheduling a key-value server");
    for line in &verdict.headlines {
        report = report.headline(line.as_str());
    }
    report = report.section("Latency against load", introduction(options));
    let ours = options.systems.iter().find(|s| s.is_two_queue());
    for (case, metric, title) in PLOTS {
        let plot = LinePlot::over_load(results, case, metric, title);
        if plot.series.iter().any(|series| !series.points.is_empty()) {
            let ours = ours.map(ToString::to_string).unwrap_or_default();
            report = report.plot(plot.emphasise(&ours));
        }
    }
    for note in conditions(options) {
        report = report.notes(note);
    }
    if verdict.interrupted {
        report = report.notes("Interrupted: some systems or loads are missing.");
    }
    report.results(results.clone())
}

fn introduction(options: &KvOptions) -> String {
    format!(
        "A server on {} answers {} (shares in per cent) that arrive at random, as from many \
         independent clients. Latency counts from the moment at which a request was due.",
        options.store.name(),
        options.mix
    )
}

/// What a reader must know before quoting.
pub fn conditions(options: &KvOptions) -> Vec<String> {
    let mut said = vec![
        format!(
            "Store: {}, {} keys of {} bytes.",
            options.store.name(),
            options.keys,
            options.value_len
        ),
        format!("{}.", capital(&options.cpus.in_words())),
        format!(
            "Open loop, Poisson, UDP on loopback; {} rounds of {} a point, interleaved, medians.",
            options.rounds, options.duration
        ),
        "Ratios of one run count; an absolute time only beside its peers.".to_owned(),
    ];
    if options.mix.share(Op::Scan) > 0.0 {
        said.push(scan_in_words(options.scan));
    }
    if options.store == super::StoreKind::Memory {
        said.push(
            "The in-memory store, because this program was built without RocksDB or --store said so."
                .to_owned(),
        );
    }
    said
}

fn scan_in_words(scan: ScanTime) -> String {
    match scan {
        ScanTime::Time(time) => format!("A SCAN lasts {time} or a little more."),
        ScanTime::Gets(gets) => format!(
            "A SCAN is as long as {gets} GETs or a little more: both are measured at the start, on this machine and store."
        ),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}
