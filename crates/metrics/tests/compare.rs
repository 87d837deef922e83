//! Comparisons: a difference counts only if the runs of both sides do not overlap.

use heddle_metrics::{Machine, Results, Row, Run, TextStyle, Verdict, compare};
use proptest::prelude::*;

fn one(unit: &str, runs: &[Run]) -> Results {
    Results::new(
        Vec::new(),
        Machine::default(),
        vec![Row::from_runs("heddle", "get", "m", unit, runs)],
    )
}

fn ok(values: &[f64]) -> Vec<Run> {
    values.iter().copied().map(Run::ok).collect()
}

fn verdict(unit: &str, a: &[Run], b: &[Run]) -> Verdict {
    compare(&one(unit, a), &one(unit, b)).changes[0].verdict
}

#[test]
fn verdicts() {
    let (low, high, both) = (ok(&[1.0, 2.0, 3.0]), ok(&[5.0, 6.0]), ok(&[2.0, 6.0]));
    assert_eq!(verdict("ns", &low, &high), Verdict::Worse);
    assert_eq!(verdict("ns", &high, &low), Verdict::Better);
    assert_eq!(verdict("op/s", &low, &high), Verdict::Better);
    assert_eq!(verdict("ns", &low, &both), Verdict::WithinSpread);
    assert_eq!(verdict("ns", &low, &ok(&[9.0])), Verdict::Unclear);
    assert_eq!(verdict("ns", &low, &ok(&[2.5])), Verdict::WithinSpread);
    assert_eq!(verdict("ns", &[Run::invalid(1.0, "late")], &high), Verdict::Unclear);
}

#[test]
fn units_and_machines_are_compared_too() {
    let mut b = one("us", &ok(&[1.0, 1.0]));
    b.machine.cores = 64;
    b.rows.push(Row::from_runs("tokio", "get", "m", "ns", &ok(&[1.0])).with_load(1e4));
    let comparison = compare(&one("ns", &ok(&[1.0, 1.0])), &b);
    assert_eq!(
        (comparison.changes[0].verdict, comparison.changes[0].ratio),
        (Verdict::Unclear, None)
    );
    assert_eq!(comparison.only_b, ["tokio get m at 10.0 k/s"]);
    let text = comparison.to_table().to_text(TextStyle::PLAIN);
    assert!(
        text.contains("usable cores differ: 0 (A), 64 (B)") && text.contains("units differ"),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&comparison.to_json()).unwrap();
    assert_eq!(json["changes"][0]["verdict"], "unclear");
}

proptest! {
    #[test]
    fn swapping_the_sides_swaps_the_verdict(a in prop::collection::vec(1f64..100.0, 2..5),
                                            b in prop::collection::vec(1f64..100.0, 2..5)) {
        let swapped = match verdict("ns", &ok(&a), &ok(&b)) {
            Verdict::Better => Verdict::Worse,
            Verdict::Worse => Verdict::Better,
            same => same,
        };
        prop_assert_eq!(verdict("ns", &ok(&b), &ok(&a)), swapped);
    }

    #[test]
    fn nothing_differs_from_itself(values in prop::collection::vec(1f64..100.0, 1..5)) {
        prop_assert_eq!(verdict("ns", &ok(&values), &ok(&values)), Verdict::WithinSpread);
    }
}
