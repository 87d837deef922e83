//! Priority classes on one server, each in order of arrival within itself.
//!
//! Classes are given highest priority first. `sigma_i` is the load of the classes up to and including
//! the i-th. A. Cobham, "Priority assignment in waiting line problems", 1954; Kleinrock 1976, ch. 3.

use super::{Moments, positive};

/// One class of jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// Arrivals per unit of time, above zero.
    pub lambda: f64,
    /// Their service time; the third moment is not used.
    pub sizes: Moments,
}

impl Class {
    /// Returns the share of the server that the class needs.
    pub fn load(&self) -> f64 {
        self.lambda * self.sizes.mean
    }

    /// Returns the mean work left in service of this class at a random moment: `lambda E[S^2] / 2`.
    fn residual(&self) -> f64 {
        0.5 * self.lambda * self.sizes.second
    }
}

/// Mean wait of class `i` (from 0) if a job runs to its end once started:
/// `R / ((1 - sigma_(i-1)) (1 - sigma_i))` with `R = sum_j lambda_j E[S_j^2] / 2` over ALL classes.
/// O(classes).
///
/// `None` if there is no such class or all classes together overload the server: a low class that never
/// drains would still be found in service, but the formula does not say how often.
pub fn non_preemptive_wait(classes: &[Class], i: usize) -> Option<f64> {
    idle_share(classes)?;
    Some(residual(classes) / idle_shares(classes, i)?)
}

/// Mean sojourn of class `i` (from 0) if a higher class takes the server at once and the job resumes
/// where it was: `E[S_i] / (1 - sigma_(i-1)) + R_i / ((1 - sigma_(i-1)) (1 - sigma_i))` with
/// `R_i = sum_{j <= i} lambda_j E[S_j^2] / 2`. O(classes).
///
/// Lower classes do not matter: the class has its figure even if they overload the server.
pub fn preemptive_sojourn(classes: &[Class], i: usize) -> Option<f64> {
    let service = classes.get(i)?.sizes.mean / idle_share(&classes[..i])?;
    Some(service + residual(&classes[..=i]) / idle_shares(classes, i)?)
}

/// Kleinrock's conservation law: `sum_i rho_i E[W_i] = rho R / (1 - rho)`, whatever the order of the
/// classes, provided that no job is preempted, sizes are ignored within a class, and no server idles
/// while there is work. In units of time. O(classes). Kleinrock 1976, ch. 3.
pub fn conserved_wait(classes: &[Class]) -> Option<f64> {
    let idle = idle_share(classes)?;
    Some((1.0 - idle) * residual(classes) / idle)
}

fn residual(classes: &[Class]) -> f64 {
    classes.iter().map(Class::residual).sum()
}

/// Returns the share of the server that these classes leave, if they are valid and leave some.
fn idle_share(classes: &[Class]) -> Option<f64> {
    let sound = |class: &Class| positive(class.lambda).and(class.sizes.checked()).is_some();
    let idle = 1.0 - classes.iter().map(Class::load).sum::<f64>();
    (idle > 0.0 && classes.iter().all(sound)).then_some(idle)
}

/// `(1 - sigma_(i-1)) (1 - sigma_i)`.
fn idle_shares(classes: &[Class], i: usize) -> Option<f64> {
    Some(idle_share(&classes[..i.min(classes.len())])? * idle_share(classes.get(..=i)?)?)
}

#[cfg(test)]
mod tests {
    use super::super::single;
    use super::super::testing::{assert_digits, assert_same, bimodal};
    use super::*;

    /// Short jobs of 0.5 before long ones of 5.5.
    fn short_first(rho: f64) -> [Class; 2] {
        let class = |share: f64, size| Class { lambda: rho * share, sizes: Moments::fixed(size) };
        [class(0.9, 0.5), class(0.1, 5.5)]
    }

    #[test]
    fn two_classes_have_cobhams_figures() {
        let classes = short_first(0.7);
        assert_digits(non_preemptive_wait(&classes, 0).map(|wait| wait + 0.5), 2.1606, 4);
        assert_digits(non_preemptive_wait(&classes, 1).map(|wait| wait + 5.5), 11.0353, 4);
        assert_digits(preemptive_sojourn(&classes, 0), 0.6150, 4);
        assert_digits(preemptive_sojourn(&classes, 1), 13.5645, 4);
    }

    #[test]
    fn a_single_class_is_fcfs() {
        let class = Class { lambda: 0.8, sizes: bimodal().moments() };
        assert_same(non_preemptive_wait(&[class], 0), single::fcfs_mean_wait(0.8, &class.sizes));
        assert_same(preemptive_sojourn(&[class], 0), single::fcfs_mean_sojourn(0.8, &class.sizes));
    }

    #[test]
    fn the_conservation_law_holds_for_both_orders() {
        let mut classes = short_first(0.9);
        for _ in 0..2 {
            let wait = |i: usize| classes[i].load() * non_preemptive_wait(&classes, i).unwrap();
            assert_same(Some(wait(0) + wait(1)), conserved_wait(&classes));
            classes.reverse();
        }
        let fcfs = single::fcfs_mean_wait(0.9, &bimodal().moments());
        assert_same(conserved_wait(&classes), fcfs.map(|wait| 0.9 * wait));
    }

    #[test]
    fn a_high_class_does_not_see_the_overload_below_it() {
        let classes = short_first(1.5);
        assert!(preemptive_sojourn(&classes, 0).is_some());
        assert_eq!(preemptive_sojourn(&classes, 1), None);
        assert_eq!(non_preemptive_wait(&classes, 0), None);
        assert_eq!(conserved_wait(&classes), None);
    }

    #[test]
    fn invalid_classes_have_no_figure() {
        assert_eq!(non_preemptive_wait(&short_first(0.5), 2), None);
        assert_eq!(preemptive_sojourn(&[], 0), None);
        let idle = Class { lambda: 0.0, sizes: Moments::fixed(1.0) };
        assert_eq!(non_preemptive_wait(&[idle], 0), None);
    }
}
