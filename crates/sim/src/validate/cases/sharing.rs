//! Processor sharing, by round robin with a small quantum.

use super::{BIMODAL, EXPONENTIAL, ideal};
use crate::theory::single;
use crate::validate::{Case, Measure};

const SHARING: &str = "E[T(x)] = x/(1-rho) whatever the sizes (insensitivity), as the quantum goes to 0; \
                       Kleinrock 1976, ch. 4";

pub(super) fn cases() -> Vec<Case> {
    let bimodal = sharing("bimodal", BIMODAL, "shinjuku:quantum=20us")
        .expects(Measure::PartMean(0), single::ps_sojourn(0.7, 0.5))
        .expects(Measure::PartMean(1), single::ps_sojourn(0.7, 5.5))
        .expects(Measure::Slowdown, single::ps_slowdown(0.7));
    vec![
        sharing("exponential", EXPONENTIAL, "round-robin:quantum=20us"),
        // A whole number of quanta each: too long a quantum shows most here.
        sharing("deterministic", "1ms", "round-robin:quantum=10us"),
        sharing("bimodal", BIMODAL, "round-robin:quantum=20us"),
        Case { name: "M/G/1-PS bimodal, rho 0.7, one queue".into(), ..bimodal },
    ]
}

fn sharing(sizes: &str, mix: &str, policy: &str) -> Case {
    let scenario = ideal(policy, 1, mix, 0.7);
    Case::new(format!("M/G/1-PS {sizes}, rho 0.7"), SHARING, scenario)
        .expects(Measure::Mean, single::ps_sojourn(0.7, 1.0))
        .requests(300_000, 20_000)
}
