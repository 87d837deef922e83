//! One CPU in order of arrival.

use super::{BIMODAL, EXPONENTIAL, bimodal, ideal};
use crate::theory::{Mix as Sizes, deterministic, single};
use crate::validate::{Case, Measure};

pub(super) fn cases() -> Vec<Case> {
    let mm1 = [(0.5, 500_000), (0.7, 1_000_000), (0.9, 4_000_000)].map(|(rho, n)| mm1(rho, n));
    let md1 = [(0.7, 1_000_000), (0.9, 2_000_000)].map(|(rho, n)| md1(rho, n));
    let mg1 = [(0.5, 1_000_000), (0.7, 2_000_000), (0.9, 5_000_000)].map(|(rho, n)| mg1(rho, n));
    mm1.into_iter().chain(md1).chain(mg1).chain([shinjuku()]).collect()
}

fn mm1(rho: f64, requests: u64) -> Case {
    let theory = "E[T] = E[S]/(1-rho), T exponential; Kleinrock 1975, ch. 3 and 5";
    let quantile = |q| single::mm1_sojourn_quantile(rho, 1.0, q);
    Case::new(format!("M/M/1, rho {rho}"), theory, ideal("fifo", 1, EXPONENTIAL, rho))
        .expects(Measure::Mean, single::mm1_mean_sojourn(rho, 1.0))
        .expects(Measure::Percentile(50.0), quantile(0.5))
        .expects(Measure::Percentile(99.0), quantile(0.99))
        .expects(Measure::InSystem, Some(rho / (1.0 - rho)))
        .requests(requests, requests / 10)
}

fn md1(rho: f64, requests: u64) -> Case {
    let theory =
        "E[T] = E[S](1+rho/(2(1-rho))), P(W<=t) by Franx's sum; Kleinrock 1975, ch. 5; Franx 2001";
    Case::new(format!("M/D/1, rho {rho}"), theory, ideal("fifo", 1, "1ms", rho))
        .expects(Measure::Mean, deterministic::md1_mean_sojourn(rho, 1.0))
        .expects(Measure::Percentile(99.0), deterministic::md1_sojourn_quantile(rho, 1.0, 0.99))
        .requests(requests, requests / 10)
}

const POLLACZEK: &str = "E[W] = lambda E[S^2]/(2(1-rho)), slowdown 1+E[W]E[1/S]; \
                         Pollaczek-Khinchine, Kleinrock 1975, ch. 5";

fn mg1(rho: f64, requests: u64) -> Case {
    let sizes = bimodal();
    let slowdown = single::fcfs_mean_slowdown(rho, &sizes.moments(), sizes.mean_of(f64::recip));
    Case::new(format!("M/G/1 bimodal, rho {rho}"), POLLACZEK, ideal("fifo", 1, BIMODAL, rho))
        .expects(Measure::MeanWait, single::fcfs_mean_wait(rho, &sizes.moments()))
        .expects(Measure::Slowdown, slowdown)
        .requests(requests, requests / 10)
}

/// The mix of the papers, whose long requests are 2,500 times the short ones: rare events decide everything.
fn shinjuku() -> Case {
    let sizes = Sizes::new(&[(0.995, 0.004), (0.005, 10.0)]).expect("a distribution");
    let slowdown = single::fcfs_mean_slowdown(0.5, &sizes.moments(), sizes.mean_of(f64::recip));
    let scenario = ideal("fifo", 1, "shinjuku-99.5-0.5", 0.5);
    Case::new("M/G/1 Shinjuku's mix, rho 0.5", POLLACZEK, scenario)
        .expects(Measure::MeanWait, single::fcfs_mean_wait(0.5, &sizes.moments()))
        .expects(Measure::Slowdown, slowdown)
        .requests(5_000_000, 500_000)
}
