//! Round robin with a quantum and a cost per preemption: how much load the costs leave room for.
//!
//! As the quantum goes to zero at no cost, round robin becomes processor sharing: see [`super::single`].

use super::{Mix, positive};

/// By this share of a quantum a size may exceed a whole number of quanta without needing another:
/// rounding of the quotient.
const ROUNDING: f64 = 1e-9;

/// The load (`rho`, without the costs) below which a round robin is stable:
/// `service / (service + cost * preemptions)`, since each job takes its service plus the cost of its
/// preemptions, and the server cannot be more than fully busy. O(1).
///
/// `service` is the mean service time, above zero; `cost` is the time a preemption takes, in the same unit, from 0;
/// `preemptions` is their mean number in a job: [`mix_preemptions`] or [`exponential_preemptions`].
pub fn max_load(service: f64, cost: f64, preemptions: f64) -> Option<f64> {
    let total = positive(service)? + cost * preemptions;
    (cost >= 0.0 && preemptions >= 0.0 && total.is_finite()).then(|| service / total)
}

/// The same for sizes of many quanta, whatever their distribution: `rho (1 + cost / quantum) < 1`. O(1).
///
/// Ignores that the last quantum of a job ends without a preemption, so the true limit is higher.
pub fn max_load_approx(quantum: f64, cost: f64) -> Option<f64> {
    max_load(quantum, cost, 1.0)
}

/// Mean preemptions of a job of a mix of fixed sizes, if each quantum that ends before the job does
/// costs one, whether or not other jobs wait: `E[ceil(S / quantum)] - 1`. O(parts).
///
/// A runtime that lets a job continue while none waits preempts less, but near the limit some job
/// always waits.
pub fn mix_preemptions(sizes: &Mix, quantum: f64) -> Option<f64> {
    let quantum = positive(quantum)?;
    Some(sizes.mean_of(|size| (size / quantum - ROUNDING).ceil().max(1.0) - 1.0))
}

/// Mean preemptions of a job of exponential size, counted as in [`mix_preemptions`]:
/// `sum_{j >= 1} P(S > j quantum) = 1 / (exp(quantum / service) - 1)`. O(1).
pub fn exponential_preemptions(service: f64, quantum: f64) -> Option<f64> {
    Some((positive(quantum)? / positive(service)?).exp_m1().recip())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_same, bimodal};
    use super::*;

    #[test]
    fn a_bimodal_job_is_preempted_at_the_end_of_each_quantum_but_its_last() {
        assert_same(mix_preemptions(&bimodal(), 0.5), Some(0.1 * 10.0));
        assert_same(mix_preemptions(&bimodal(), 1.0), Some(0.1 * 5.0));
        assert_same(mix_preemptions(&bimodal(), 0.1), Some(0.9 * 4.0 + 0.1 * 54.0));
        assert_same(mix_preemptions(&bimodal(), 10.0), Some(0.0));
    }

    #[test]
    fn an_exponential_job_is_preempted_as_often_as_it_outlives_a_quantum() {
        let sum: f64 = (1..10_000).map(|j| (-0.01 * f64::from(j)).exp()).sum();
        assert_same(exponential_preemptions(1.0, 0.01), Some(sum));
    }

    #[test]
    fn small_quanta_approach_the_rule_of_thumb() {
        let (quantum, cost) = (1e-4, 2e-5);
        let exact = max_load(1.0, cost, exponential_preemptions(1.0, quantum).unwrap());
        let approx = max_load_approx(quantum, cost).unwrap();
        assert_same(Some(approx), Some(1.0 / 1.2));
        assert!(exact.unwrap() > approx && exact.unwrap() - approx < 1e-4);
    }

    #[test]
    fn preemption_at_no_cost_leaves_the_whole_server() {
        assert_eq!(max_load(3.0, 0.0, 1_000.0), Some(1.0));
        assert_eq!(max_load_approx(5.0, 0.0), Some(1.0));
    }

    #[test]
    fn out_of_range_has_no_figure() {
        assert_eq!(max_load(0.0, 1.0, 1.0), None);
        assert_eq!(max_load(1.0, -1.0, 1.0), None);
        assert_eq!(max_load(1.0, f64::INFINITY, 1.0), None);
        assert_eq!(mix_preemptions(&bimodal(), 0.0), None);
        assert_eq!(exponential_preemptions(1.0, f64::NAN), None);
    }
}
