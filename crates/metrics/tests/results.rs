//! The result format: written results are read back; wrong ones are rejected with a remedy.

use heddle_metrics::{Collector, Error, Histogram, Machine, Results, Row, Run, write_atomically};
use proptest::prelude::*;
use std::os::unix::fs::PermissionsExt as _;

fn run() -> impl Strategy<Value = Run> {
    let value = prop_oneof![-1e12f64..1e12, Just(f64::NAN), Just(f64::INFINITY)];
    (value, any::<bool>())
        .prop_map(|(v, ok)| if ok { Run::ok(v) } else { Run::invalid(v, "late \"sends\"") })
}

prop_compose! {
    fn row()(system in ".*", metric in ".*", runs in prop::collection::vec(run(), 0..6),
             load in prop::option::of(0.0f64..1e9), samples in prop::option::of(any::<u64>())) -> Row {
        let row = Row::from_runs(&system, "case", &metric, "ns", &runs);
        let row = load.map_or(row.clone(), |l| row.with_load(l));
        samples.map_or(row.clone(), |s| row.with_samples(s))
    }
}

fn results(rows: Vec<Row>) -> Results {
    Results::new(vec!["heddle".into(), "bench".into()], Machine::default(), rows)
}

proptest! {
    /// I4, and I1: whatever the runs, every numeric field of the JSON is a number.
    #[test]
    fn json_round_trip(rows in prop::collection::vec(row(), 0..5)) {
        let results = results(rows);
        prop_assert_eq!(Results::from_json("memory", &results.to_json()).unwrap(), results);
    }

    /// I2.
    #[test]
    fn the_median_lies_among_the_valid(runs in prop::collection::vec(run(), 1..8)) {
        let row = Row::from_runs("s", "c", "m", "ns", &runs);
        let valid: Vec<f64> =
            runs.iter().filter(|r| r.invalid.is_none() && r.value.is_finite()).map(|r| r.value).collect();
        prop_assert_eq!(row.valid, !valid.is_empty());
        prop_assert!(row.min <= row.value && row.value <= row.max);
        prop_assert_eq!(row.note.is_empty(), valid.len() == runs.len());
        if row.valid {
            prop_assert_eq!(row.runs as usize, valid.len());
            prop_assert!(valid.contains(&row.min) && valid.contains(&row.max));
        }
    }
}

#[test]
fn optional_fields_are_absent_when_unused() {
    let json = results(vec![Row::from_runs("s", "c", "m", "ns", &[Run::ok(1.0)])]).to_json();
    for field in ["load", "samples", "better", "invalid_runs"] {
        assert!(!json.contains(field), "{field}");
    }
}

#[test]
fn the_design_document_example_is_read() {
    let text = r#"{"schema": 1, "command": ["heddle"], "machine": {}, "rows": [{"system": "heddle",
        "case": "yield", "metric": "cpu_ns_per_op", "value": 24.1, "unit": "ns", "runs": 5, "min": 23.9,
        "max": 24.8, "valid": true, "note": "", "a_later_field": 1}]}"#;
    assert_eq!(Results::from_json("example", text).unwrap().rows[0].value, 24.1);
}

#[test]
fn errors_name_the_file_the_fault_and_the_remedy() {
    let newer = r#"{"schema": 2, "everything": "else"}"#;
    let error = Results::from_json("b.json", newer).unwrap_err();
    assert!(matches!(error, Error::Schema { .. }));
    let text = error.to_string();
    assert!(
        text.contains("b.json") && text.contains("schema 2") && text.contains("measure again"),
        "{text}"
    );

    let error = Results::from_json("c.json", "{\"rows\": 3").unwrap_err();
    assert!(error.to_string().contains("c.json"), "{error}");

    let mut wrong = results(vec![Row::from_runs("s", "c", "m", "ns", &[Run::ok(1.0)])]);
    wrong.rows[0].min = 2.0;
    let error = Results::from_json("d.json", &wrong.to_json()).unwrap_err();
    assert!(error.to_string().contains("row 0 (s c m)"), "{error}");

    let error = Results::read("/nonexistent/e.json").unwrap_err();
    assert!(error.to_string().contains("/nonexistent/e.json"), "{error}");
    assert!(matches!(Results::from_html("f.html", "<html>").unwrap_err(), Error::NoResults { .. }));
}

#[test]
fn files_are_replaced_atomically() {
    let folder = std::env::temp_dir().join(format!("heddle-metrics-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("r.json");
    let first = results(Vec::new());
    first.write(&path).unwrap();
    assert_eq!(Results::read(&path).unwrap(), first);
    write_atomically(&path, "other").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "other");
    // As readable as any file of this user: the umask decides.
    std::fs::write(folder.join("plain"), "").unwrap();
    let mode = |name| std::fs::metadata(folder.join(name)).unwrap().permissions().mode();
    assert_eq!(mode("r.json"), mode("plain"));
    std::fs::remove_file(folder.join("plain")).unwrap();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no temporary file is left");

    let error = write_atomically(folder.join("no/such/folder.html"), "x").unwrap_err().to_string();
    assert!(error.contains("no/such/folder.html") && error.contains("unchanged"), "{error}");
    // If a folder has the file's name, the rename fails and the temporary file is removed.
    std::fs::create_dir(folder.join("taken")).unwrap();
    assert!(write_atomically(folder.join("taken"), "x").is_err());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
    // A link still points to the replaced file; a device is never replaced.
    std::os::unix::fs::symlink(&path, folder.join("link")).unwrap();
    write_atomically(folder.join("link"), "through").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "through");
    assert!(folder.join("link").is_symlink());
    write_atomically("/dev/null", "gone").unwrap();
    assert!(!std::path::Path::new("/dev/null").is_file());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn metrics_are_selected_by_name() {
    let row = |metric: &str| Row::from_runs("s", "c", metric, "ns", &[Run::ok(1.0)]);
    let chosen = results(vec![row("p50"), row("p99"), row("mean")]).with_metrics(&["p99", "p50"]);
    assert_eq!(chosen.rows.iter().map(|r| r.metric.as_str()).collect::<Vec<_>>(), ["p50", "p99"]);
}

#[test]
fn runs_at_different_loads_are_not_mixed() {
    let mut h = Histogram::new();
    h.record(heddle_core::Ns(1000));
    let mut collect = Collector::new();
    for load in [1e3, 2e3, 1e3] {
        collect.at_load(load).latency("heddle", "get", &h, None);
    }
    collect.at_load(2e3).latency("heddle", "get", &Histogram::new(), None);
    let rows = collect.into_rows();
    let p99: Vec<&Row> = rows.iter().filter(|r| r.metric == "p99").collect();
    assert_eq!(p99.len(), 2);
    assert_eq!((p99[0].load, p99[0].runs, p99[0].samples), (Some(1e3), 2, Some(2)));
    assert_eq!((p99[1].runs, p99[1].note.as_str()), (1, "1 of 2 runs invalid (no samples)"));
}
