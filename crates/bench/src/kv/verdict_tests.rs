use super::*;
use crate::kv::{Calibrated, Cpus, ScanRate, ScanTime, StoreKind, System};
use heddle_core::Ns;
use heddle_load::{Answer, LoadRun, Op, Tally};

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
        pair: None,
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
    assert_eq!(
        verdict.headline.as_deref(),
        Some(
            "At half of saturation, the p99.9 of GETs is 900 us with preemption and 14.4 ms without: \
             16.0 times lower (rounds from 16.0 to 16.0)."
        )
    );
    let table = verdict.table.as_ref().unwrap();
    assert_eq!(table.notes.len(), 3);
    let ratio = |row: usize| table.rows[row][5].text.as_str();
    assert_eq!([0, 1, 2, 3].map(ratio), ["", "16.0 x", "10.0 x", "not measurable"]);
    let cost =
        "Cost of preemption to the throughput of SCANs alone: 4.0 % (rounds from 4.0 to 4.0 %).";
    assert_eq!(table.notes[1], cost);
    assert_eq!(row("heddle two-queue", "scan_throughput_ratio").value, 0.96);
    assert_eq!(row("tokio", "cpu").value, 50.0);
    assert_eq!(row("calibration", "scan_len").value, 9000.0);
    assert_eq!(row("calibration", "scan_ratio").value, 1000.0);
    let ratio = "A SCAN is 1000 times as long as a GET: 2.00 ms and 2.00 us, ";
    assert!(table.notes[2].starts_with(ratio), "{:?}", table.notes);
}

#[test]
fn the_p99_is_compared_if_the_machine_dominates_the_p999() {
    let mut measured = measured([US(600), US(9600), US(6000), US(600)], false);
    // The median of the rounds counts, and two-queue's p99.9 is 1.2 ms in the slower one.
    measured.quiet_p999 = vec![US(700), US(100), US(9000)];
    let verdict = judge(&options(), &measured);
    let notes = |verdict: &Verdict| verdict.table.clone().unwrap().notes;
    assert!(verdict.headline.as_ref().unwrap().contains("the p99 of GETs"), "{verdict:?}");
    assert!(verdict.picture.as_ref().unwrap().panels[0].case.starts_with("GET, p99:"));
    assert!(notes(&verdict)[0].contains("a system's p99 of GETs"));
    assert!(notes(&verdict)[2].contains("own outliers dominate the p99.9"), "{verdict:?}");
    measured.quiet_p999 = vec![US(100)];
    let quiet = judge(&options(), &measured);
    assert!(quiet.headline.as_ref().unwrap().contains("the p99.9 of GETs"), "{quiet:?}");
    assert!(notes(&quiet).iter().all(|line| !line.contains("outliers")));
}

#[test]
fn an_invalid_run_is_not_quoted_without_a_warning() {
    let verdict = judge(&options(), &measured([US(600); 4], true));
    assert!(!verdict.valid);
    let headline = verdict.headline.unwrap();
    assert!(headline.ends_with(": the runs are invalid, do not quote."), "{headline}");
}

#[test]
fn nothing_measured_is_not_valid() {
    let verdict = judge(&options(), &Measured { interrupted: true, ..Measured::default() });
    assert!(!verdict.valid && verdict.interrupted);
    assert!(verdict.headline.is_none() && verdict.table.is_none() && verdict.picture.is_none());
    assert!(verdict.results.rows.is_empty());
}

#[test]
fn without_preemption_to_compare_with_the_other_system_is_named() {
    let mut options = options();
    options.systems.remove(1);
    let mut measured = measured([US(600), US(9600), US(6000), US(600)], false);
    measured.samples.retain(|sample| sample.system < 3);
    let headline = judge(&options, &measured).headline.unwrap();
    assert!(
        headline.contains("900 us with Heddle's two-queue policy and 14.4 ms with tokio"),
        "{headline}"
    );
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
fn a_difference_that_rounds_disagree_on_is_not_measurable() {
    // Two-queue is faster in one round and slower in the other.
    let mut measured = measured([US(600); 4], false);
    let faster = measured.samples.iter_mut().find(|s| s.system == 1 && s.round == 0).unwrap();
    faster.run = run(US(300), false);
    let slower = measured.samples.iter_mut().find(|s| s.system == 1 && s.round == 1).unwrap();
    slower.run = run(US(4800), false);
    let verdict = judge(&options(), &measured);
    let headline = verdict.headline.unwrap();
    assert!(
        headline.ends_with("the difference is not measurable (rounds from 0.50 to 4.00 times)."),
        "{headline}"
    );
    assert_eq!(verdict.table.unwrap().rows[1][5].text, "not measurable");
}

#[test]
fn a_single_round_is_not_to_be_quoted() {
    let mut measured = measured([US(600), US(9600), US(6000), US(600)], false);
    measured.samples.retain(|sample| sample.round == 0);
    measured.scans.retain(|scan| scan.round == 0);
    let verdict = judge(&options(), &measured);
    let headline = verdict.headline.unwrap();
    assert!(
        headline.ends_with("in a single round, which has no spread: do not quote."),
        "{headline}"
    );
    let notes = verdict.table.unwrap().notes;
    assert!(notes[1].ends_with("not measurable in a single round (4.0 %)."), "{notes:?}");
}

#[test]
fn the_cost_is_stated_only_if_the_rounds_agree_on_it() {
    let cost = |kept: &[f64]| {
        let runs: Vec<Run> = kept.iter().copied().map(Run::ok).collect();
        let row = Row::from_runs("heddle", "scan alone", "scan_throughput_ratio", "", &runs);
        let text = crate::kv::summary::cost(&row);
        text.strip_prefix("Cost of preemption to the throughput of SCANs alone: ")
            .unwrap()
            .to_owned()
    };
    assert_eq!(cost(&[0.98, 1.01, 1.04]), "not measurable (rounds from -4.0 to 2.0 %).");
    assert_eq!(cost(&[0.65, 0.92, 1.15]), "not measurable (rounds from -15.0 to 35.0 %).");
    assert_eq!(cost(&[0.97, 0.98, 0.99]), "2.0 % (rounds from 1.0 to 3.0 %).");
    assert_eq!(cost(&[1.02, 1.03, 1.05]), "none; 3.0 % more (rounds from 2.0 to 5.0 %).");
}
