//! How well the simulator agrees with published results.

use super::Finding;
use std::fmt;

/// The errors of a group of findings.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreement {
    /// How many values are compared.
    pub count: usize,
    /// The share of them whose error is at most 10 %.
    pub within: f64,
    /// The share of them within 10 % or within the simulator's own confidence interval.
    pub within_noise: f64,
    /// The median of the errors' sizes.
    pub median: f64,
    /// The largest error by absolute value, with its sign, and its finding.
    pub worst: (f64, String),
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Agreement { count, within, within_noise, median, worst: (worst, whose) } = self;
        let of = |share: f64| (share * *count as f64).round();
        write!(
            f,
            "{} of {count} within 10 % ({} with the simulator's interval), median {:.0} %, worst {:+.0} % ({whose})",
            of(*within),
            of(*within_noise),
            median * 100.0,
            worst * 100.0
        )
    }
}

/// Returns the errors of those `findings` that have a paper's value and belong to `metric`; `None` if
/// there are none.
pub fn agreement<'f>(
    findings: impl IntoIterator<Item = &'f Finding>,
    metric: &str,
) -> Option<Agreement> {
    let compared: Vec<(&Finding, f64)> = findings
        .into_iter()
        .filter(|f| f.metric == metric)
        .filter_map(|f| f.error().map(|error| (f, error)))
        .collect();
    let count = compared.len();
    let share = |test: &dyn Fn(&(&Finding, f64)) -> bool| {
        compared.iter().filter(|&c| test(c)).count() as f64 / count as f64
    };
    let close = |&(_, error): &(&Finding, f64)| error.abs() <= 0.1;
    let noisy =
        |&(f, _): &(&Finding, f64)| (f.value - f.paper.unwrap_or(f.value)).abs() <= f.half_width;
    let mut sizes: Vec<f64> = compared.iter().map(|(_, error)| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let (worst, error) = compared.iter().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))?;
    let at = worst.load.map_or(String::new(), |load| format!(" at {load:.0}/s"));
    Some(Agreement {
        count,
        within: share(&close),
        within_noise: share(&|c| close(c) || noisy(c)),
        median: sizes[count / 2],
        worst: (*error, format!("{}{at}", worst.system)),
    })
}
