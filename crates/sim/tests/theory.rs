//! Every case of queueing theory, with runs short enough for a test suite and fixed seeds.

use heddle_sim::validate::{self, Check};

fn line(check: &Check) -> String {
    let error = 100.0 * check.relative_error();
    format!("{}: {}: off by {error:.2} %: {check}", check.case, check.measure)
}

/// Within 2 %, or within a confidence interval that is not too wide to mean anything.
#[test]
fn every_case_agrees_with_theory() {
    let checks = validate::run(true, |_, _| {});
    let off: Vec<String> = checks.iter().filter(|check| !check.agrees()).map(line).collect();
    assert!(off.is_empty(), "{}", off.join("\n"));
    assert!(checks.len() > 80);
}
