//! The cases, one file per kind of model.

mod costs;
mod laws;
mod many;
mod order;
mod sharing;
mod single;

use super::Case;
use crate::Scenario;
use crate::theory::Mix as Sizes;
use crate::workload::Mix;

/// 90 % of 0.5 ms and 10 % of 5.5 ms: mean 1 ms, second moment 3.25 ms^2.
const BIMODAL: &str = "short: 90% 500us, long: 10% 5.5ms";

/// Exponential with a mean of 1 ms.
const EXPONENTIAL: &str = "exp(1ms)";

/// Every case, in the order of the table.
pub fn cases() -> Vec<Case> {
    [
        single::cases(),
        many::cases(),
        sharing::cases(),
        order::cases(),
        laws::cases(),
        costs::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn mix(text: &str) -> Mix {
    text.parse().expect("the texts of this module are mixes")
}

fn ideal(policy: &str, cpus: usize, text: &str, load: f64) -> Scenario {
    Scenario::ideal(policy, cpus, mix(text), load)
}

/// [`BIMODAL`] in ms.
fn bimodal() -> Sizes {
    Sizes::new(&[(0.9, 0.5), (0.1, 5.5)]).expect("a distribution")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_case_has_a_name_of_its_own_and_something_to_expect() {
        let cases = cases();
        let names: HashSet<_> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
        assert!(cases.iter().all(|case| !case.expected.is_empty() && case.theory.contains(';')));
    }

    #[test]
    fn the_mixes_have_the_moments_that_the_theory_is_given() {
        let (mix, sizes) = (mix(BIMODAL), bimodal().moments());
        assert!((mix.mean() / 1e6 - sizes.mean).abs() < 1e-9);
        assert!((mix.moment(2) / 1e12 - sizes.second).abs() < 1e-9);
    }
}
