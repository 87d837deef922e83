//! The comparison as an HTML report.

use super::options::{KvOptions, StoreKind};
use super::scan_time::ScanTime;
use super::verdict::Verdict;
use heddle_load::Op;
use heddle_metrics::{LinePlot, Report};

/// The curves over load: case, metric, title.
const PLOTS: [(&str, &str, &str); 4] = [
    ("get", "p99.9", "GET, p99.9"),
    ("get", "p99", "GET, p99"),
    ("scan", "p99", "SCAN, p99: what long requests pay"),
    ("all", "cpu", "CPU time of the server"),
];

/// Fewer points than these make no curve that is worth a place on the page: it is folded away.
const CURVE: usize = 3;

/// One sentence, one picture and one table; then latency against load, one curve for each system.
pub fn report(options: &KvOptions, verdict: &Verdict) -> Report {
    let mut report = Report::new("Scheduling a key-value server");
    if let Some(headline) = &verdict.headline {
        report = report.headline(headline.as_str());
    }
    if let Some(picture) = verdict.picture.clone() {
        report = report.bars(picture);
    }
    if let Some(table) = verdict.table.clone() {
        report = report.table(table);
    }
    report = curves(report, options, verdict);
    for note in conditions(options) {
        report = report.notes(note);
    }
    if verdict.interrupted {
        report = report.notes("Interrupted: some systems or loads are missing.");
    }
    report.results(verdict.results.clone())
}

fn curves(report: Report, options: &KvOptions, verdict: &Verdict) -> Report {
    let title = "Latency against load";
    let mut report = match options.loads.len() < CURVE {
        true => report.fold(title, introduction(options)),
        false => report.section(title, introduction(options)),
    };
    let reference = options.systems.iter().find(|s| s.is_two_queue());
    let reference = reference.map(ToString::to_string).unwrap_or_default();
    for (case, metric, title) in PLOTS {
        let plot = LinePlot::over_load(&verdict.results, case, metric, title);
        if plot.series.iter().any(|series| !series.points.is_empty()) {
            report = report.plot(plot.emphasise(&reference));
        }
    }
    report
}

fn introduction(options: &KvOptions) -> String {
    let store = match options.store {
        StoreKind::Memory => "an in-memory store",
        StoreKind::RocksDb => "RocksDB",
    };
    format!(
        "A server on {store} answers {} (shares in per cent) that arrive at random, as if from many \
         independent clients. Latency counts from the moment at which a request was due.",
        options.mix
    )
}

/// The conditions that a reader must know before quoting.
pub fn conditions(options: &KvOptions) -> Vec<String> {
    let mut conditions = vec![
        format!(
            "Store: {}, {} keys of {} bytes.",
            options.store.name(),
            options.keys,
            options.value_len
        ),
        format!("{}.", capital(&options.cpus.in_words())),
        format!(
            "Open loop, Poisson arrivals, UDP {}; {} of {} a point.",
            match options.pair {
                Some(_) => "between two namespaces, over a veth pair",
                None => "on loopback",
            },
            match options.rounds {
                1 => "one round".to_owned(),
                rounds => format!("medians of {rounds} interleaved rounds"),
            },
            options.duration
        ),
        "Quote ratios within this run; an absolute time only beside its peers.".to_owned(),
    ];
    if options.mix.share(Op::Scan) > 0.0 {
        conditions.push(scan_in_words(options.scan));
    }
    if options.store == StoreKind::Memory {
        conditions.push(
            "The in-memory store: this program was built without RocksDB, or --store asked for it."
                .to_owned(),
        );
    }
    conditions
}

fn scan_in_words(scan: ScanTime) -> String {
    match scan {
        ScanTime::Time(time) => format!("A SCAN lasts {time} or a little more."),
        ScanTime::Gets(gets) => format!(
            "A SCAN is as long as {gets} GETs or a little more, or reads all keys; both are measured at the start, on \
             this machine and store."
        ),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}
