use super::*;
use crate::kv::{Calibrated, Cpus, ScanRate, ScanTime, StoreKind, System};
use crate::load::{Answer, LoadRun, Tally};
use heddle_core::Ns;

fn options() -> KvOptions {
    KvOptions {
        program: "heddle".into(),
        systems: System::defaults(),
        store: StoreKind::Memory,
        mix: "get=95,scan=5".parse().unwrap(),
        scan: ScanTime::Gets(1000),
        loads: vec![0.2, 0.5],
        rounds: 2,
        duration: Ns::from_secs(1),
        keys: 100,
        value_len: 8,
        seed: 1,
        cpus: Cpus::divide(&[0, 1], None).unwrap(),
    }
}

fn run(get: Ns, late: bool) -> LoadRun {
    let mut tally = Tally::new(Ns::from_secs(1), [None; 3]);
    for op in [Op::Get, Op::Scan] {
        tally.sent(op, if late { Ns::from_ms(5) } else { Ns::ZERO }, Ns::ZERO);
        tally.completed(op);
        tally.answered(op, get, Answer { id: 0, ok: true, service: None, at: None });
    }
    LoadRun { rate: 5000.0, tally, window: Ns::from_secs(1) }
}

/// Each system's GETs take `get` at half load in both rounds; the second round takes twice as long.
fn measured(get: [Ns; 4], late: bool) -> Measured {
    let mut measured = Measured::default();
    for round in 0..2u32 {
        for (system, get) in get.into_iter().enumerate() {
            let run = run(get * u64::from(round + 1), late);
            measured.samples.push(Sample { round, system, load: 1, run, cpu: Some(50.0) });
            let rate = if system == 0 { 480.0 } else { 500.0 };
            measured.scans.push(ScanRate { round, system, rate });
        }
    }
    measured.calibrated =
        Some(Calibrated { scan_len: 9000, scan_service: Ns::from_ms(2), saturation: 1e4 });
    measured.get_service = Some(Ns::from_us(2));
    measured.quiet_p999 = vec![US(100), US(90), US(4000)];
    measured
}

const US: fn(u64) -> Ns = Ns::from_us;

#[test]
fn ratios_are_taken_within_rounds_and_said_in_words() {
    let verdict = judge(&options(), &measured([US(600), US(9600), US(6000), US(600)], false));
    let row = |system: &str, metric: &str| {
        let rows = &verdict.results.rows;
        rows.iter().find(|r| r.system == system && r.metric == metric).cloned().unwrap()
    };
    let ratio = row("heddle fifo", "p999_ratio");
    // Histograms keep three digits.
    assert!((ratio.value - 16.0).abs() < 0.1 && (ratio.max - ratio.min) < 0.1, "{ratio:?}");
    assert!(verdict.valid);
    assert_eq!(verdict.headlines.len(), 5);
    let first = &verdict.headlines[0];
    assert!(first.starts_with("p99.9 of GETs at half of saturation: "), "{first}");
    assert!(first.ends_with("with Heddle run to completion: 16.0 times lower."), "{first}");
    assert!(verdict.headlines[2].ends_with("no difference."));
    let cost = "What it costs: 4.0 % of the throughput of SCANs alone (rounds from 4.0 to 4.0 %).";
    assert_eq!(verdict.headlines[3], cost);
    assert_eq!(row("heddle two-queue", "scan_throughput_ratio").value, 0.96);
    assert_eq!(row("tokio", "cpu").value, 50.0);
    assert_eq!(row("calibration", "scan_len").value, 9000.0);
    assert_eq!(row("calibration", "scan_ratio").value, 1000.0);
    let ratio = "A SCAN is 1000 times as long as a GET: 2.00 ms and 2.00 us, ";
    assert!(verdict.headlines[4].starts_with(ratio), "{:?}", verdict.headlines[4]);
}

#[test]
fn the_p99_stands_beside_a_tail_that_is_the_machines_own() {
    let mut measured = measured([US(600), US(9600), US(6000), US(600)], false);
    // The median of the rounds counts, and two-queue's p99.9 is 1.2 ms in the slower one.
    measured.quiet_p999 = vec![US(700), US(100), US(9000)];
    let verdict = judge(&options(), &measured);
    assert!(verdict.headlines[0].contains("; p99: "), "{:?}", verdict.headlines);
    assert!(
        verdict.headlines[3].contains("own outliers rule the p99.9"),
        "{:?}",
        verdict.headlines
    );
    measured.quiet_p999 = vec![US(100)];
    let quiet = judge(&options(), &measured);
    assert!(
        quiet.headlines.iter().all(|line| !line.contains("outliers") && !line.contains("p99:"))
    );
}

#[test]
fn an_invalid_run_is_not_quoted_without_saying_so() {
    let verdict = judge(&options(), &measured([US(600); 4], true));
    assert!(!verdict.valid);
    assert!(verdict.headlines[0].contains("do not quote"));
}

#[test]
fn nothing_measured_is_not_valid() {
    let verdict = judge(&options(), &Measured { interrupted: true, ..Measured::default() });
    assert!(!verdict.valid && verdict.interrupted);
    assert!(verdict.headlines.is_empty() && verdict.results.rows.is_empty());
}

#[test]
fn the_report_has_its_figures_and_conditions() {
    let options = options();
    let verdict = judge(&options, &measured([US(600); 4], false));
    let html = crate::kv::report(&options, &verdict).to_html();
    for text in ["GET, p99.9", "SCAN, p99", "in-memory store", "load process on CPU 1"] {
        assert!(html.contains(text), "{text}");
    }
    assert_eq!(Results::from_html("report", &html).unwrap(), verdict.results);
}

#[test]
fn a_loss_within_the_spread_is_called_none() {
    let runs = [Run::ok(0.98), Run::ok(1.01), Run::ok(1.04)];
    let row = Row::from_runs("heddle", "scan alone", "scan_throughput_ratio", "", &runs);
    assert!(super::cost(&row).starts_with("What it costs: nothing measurable"), "{row:?}");
}
