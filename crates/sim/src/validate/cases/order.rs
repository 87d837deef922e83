//! Orders that depend on the requests: shortest first, and classes.

use super::{BIMODAL, EXPONENTIAL, bimodal, ideal};
use crate::Scenario;
use crate::costs::Preemption;
use crate::theory::priority::{self, Class};
use crate::theory::{Moments, srpt};
use crate::validate::{Case, Measure};

pub(super) fn cases() -> Vec<Case> {
    let exponential =
        [(0.5, 500_000), (0.7, 1_000_000), (0.9, 2_000_000)].map(|(rho, n)| remaining(rho, n));
    let rest = [remaining_bimodal(), shortest_job(), cobham(), preemptive()];
    exponential.into_iter().chain(rest).collect()
}

const SCHRAGE: &str =
    "E[T(x)] = lambda E[min(S,x)^2]/(2(1-rho(x))^2) + int dt/(1-rho(t)); Schrage and Miller 1966";

fn remaining(rho: f64, requests: u64) -> Case {
    Case::new(format!("M/M/1 SRPT, rho {rho}"), SCHRAGE, ideal("srpt", 1, EXPONENTIAL, rho))
        .expects(Measure::Mean, srpt::exponential_mean_sojourn(rho, 1.0))
        .requests(requests, requests / 5)
}

fn remaining_bimodal() -> Case {
    Case::new("M/G/1 SRPT bimodal, rho 0.7", SCHRAGE, ideal("srpt", 1, BIMODAL, 0.7))
        .expects(Measure::PartMean(0), srpt::mix_sojourn(0.7, &bimodal(), 0.5))
        .expects(Measure::PartMean(1), srpt::mix_sojourn(0.7, &bimodal(), 5.5))
        .requests(1_000_000, 100_000)
}

const COBHAM: &str = "E[W_i] = R/((1-sigma_(i-1))(1-sigma_i)); Cobham 1954, Kleinrock 1976, ch. 3";

/// The bimodal mix as two classes, the short one first; arrivals per ms.
fn short_first(rho: f64) -> [Class; 2] {
    let class = |share: f64, size| Class { lambda: rho * share, sizes: Moments::fixed(size) };
    [class(0.9, 0.5), class(0.1, 5.5)]
}

/// With two sizes, shortest job first gives priority to the short ones.
fn shortest_job() -> Case {
    let wait = |i| priority::non_preemptive_wait(&short_first(0.7), i);
    Case::new("M/G/1 SJF bimodal, rho 0.7", COBHAM, ideal("sjf", 1, BIMODAL, 0.7))
        .expects(Measure::PartMean(0), wait(0).map(|wait| wait + 0.5))
        .expects(Measure::PartMean(1), wait(1).map(|wait| wait + 5.5))
        .requests(1_000_000, 100_000)
}

/// Two classes of tasks, the latency-critical first; no preemption.
fn cobham() -> Case {
    let wait = |i| priority::non_preemptive_wait(&short_first(0.7), i);
    let mix = "short: 90% 500us, long(class=1): 10% 5.5ms";
    let none = Preemption::named("none").expect("it is in the table");
    let scenario = Scenario { preemption: none, ..ideal("shinjuku-shenango", 1, mix, 0.7) };
    Case::new("two classes, not preempted, rho 0.7", COBHAM, scenario)
        .expects(Measure::PartMean(0), wait(0).map(|wait| wait + 0.5))
        .expects(Measure::PartMean(1), wait(1).map(|wait| wait + 5.5))
        .requests(1_000_000, 100_000)
}

/// The same with preemption within a hundredth of a service. The low class is exponential: preempted
/// tasks go behind others of their class, not before them, which makes no difference to the
/// exponential.
fn preemptive() -> Case {
    let theory = "E[T_i] = E[S_i]/(1-sigma_(i-1)) + R_i/((1-sigma_(i-1))(1-sigma_i)); \
                  Cobham 1954, Kleinrock 1976, ch. 3";
    let mix = "short: 90% 500us, long(class=1): 10% exp(5.5ms)";
    let policy = "shinjuku-shenango:quantum=10s,long=10s,congestion=1ns,check=5us";
    let [high, low] = short_first(0.7);
    let classes = [high, Class { sizes: Moments::exponential(5.5), ..low }];
    Case::new("two classes, preempted, rho 0.7", theory, ideal(policy, 1, mix, 0.7))
        .expects(Measure::PartMean(0), priority::preemptive_sojourn(&classes, 0))
        .expects(Measure::PartMean(1), priority::preemptive_sojourn(&classes, 1))
        .requests(500_000, 50_000)
}
