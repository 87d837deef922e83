//! Costs of scheduling that imply a computable limit: a server has no more than all its time.

use super::{BIMODAL, EXPONENTIAL, bimodal, ideal};
use crate::costs::{Costs, Dispatcher, Preemption};
use crate::theory::quantum;
use crate::validate::{Case, Measure};
use crate::workload::Arrivals;
use crate::{Load, Scenario};
use heddle_core::Ns;

pub(super) fn cases() -> Vec<Case> {
    vec![
        saturated(EXPONENTIAL, "exponential"),
        saturated(BIMODAL, "bimodal"),
        at_limit(0.97, 0.0),
        at_limit(1.03, 1.0),
        switches(),
        dispatcher(),
        timer_core(),
    ]
}

const LIMIT: &str =
    "rho (1 + c E[preemptions]/E[S]) < 1, about rho(1+c/q) < 1; a server's time is all it has";

/// A quantum of a tenth of the mean service; each preemption costs a fifth of the quantum.
const ROUND_ROBIN: &str = "round-robin:quantum=100us";

fn costly() -> Preemption {
    let ideal = Preemption::named("ideal").expect("it is in the table");
    Preemption { receive: Ns::from_us(20), ..ideal }
}

/// Returns the load at which preemptions use up what the requests leave.
fn limit(preemptions: Option<f64>) -> Option<f64> {
    quantum::max_load(1.0, 0.02, preemptions?)
}

/// Many clients that hardly think: a task always waits.
fn crowd(scenario: Scenario, tasks: u32) -> Scenario {
    let arrivals = Arrivals::Closed { tasks, think: "1us".parse().expect("a service") };
    Scenario { arrivals, load: Load::Share(0.5), ..scenario }
}

fn saturated(mix: &str, sizes: &str) -> Case {
    let preemptions = match mix {
        BIMODAL => quantum::mix_preemptions(&bimodal(), 0.1),
        _ => quantum::exponential_preemptions(1.0, 0.1),
    };
    let scenario = Scenario { preemption: costly(), ..ideal(ROUND_ROBIN, 1, mix, 0.5) };
    Case::new(format!("RR with costs, saturated, {sizes}"), LIMIT, crowd(scenario, 16))
        .expects(Measure::Throughput, limit(preemptions).map(|load| load * 1e3))
        .requests(100_000, 20_000)
}

/// At this share of the limit, expected to be reported unstable or not.
fn at_limit(share: f64, unstable: f64) -> Case {
    let load = limit(quantum::exponential_preemptions(1.0, 0.1)).expect("costs leave something");
    let scenario = ideal(ROUND_ROBIN, 1, EXPONENTIAL, share * load);
    let scenario = Scenario { preemption: costly(), ..scenario };
    Case::new(format!("RR with costs, at {share} of the limit"), LIMIT, scenario)
        .expects(Measure::Unstable, Some(unstable))
        .requests(300_000, 60_000)
}

/// Each task in order, each start a switch.
fn switches() -> Case {
    let theory = "throughput k/(E[S]+c); a server's time is all it has";
    let costs = Costs { switch: Ns::from_us(250), ..Costs::default() };
    let scenario = Scenario { costs, ..ideal("fifo", 4, EXPONENTIAL, 0.5) };
    Case::new("switch costs, 4 CPUs, saturated", theory, crowd(scenario, 64))
        .expects(Measure::Throughput, Some(4.0 / 1.25 * 1e3))
        .expects(Measure::Busy, Some(1.0 / 1.25))
        .requests(200_000, 25_000)
}

/// Each request is admitted, handed out, and noticed when it is done: 300 ns of the dispatcher.
fn dispatcher() -> Case {
    let theory = "throughput 1/(admit+notice+dispatch); a server's time is all it has";
    let dispatcher =
        Dispatcher { admit: Ns(100), notice: Ns(50), dispatch: Ns(150), handoff: Ns(200) };
    let scenario = Scenario { dispatcher: Some(dispatcher), ..ideal("fifo", 32, "exp(1us)", 0.5) };
    Case::new("dispatcher, 32 CPUs, saturated", theory, crowd(scenario, 128))
        .expects(Measure::Throughput, Some(1e9 / 300.0))
        .requests(200_000, 25_000)
}

/// Twenty CPUs ask for 4 million messages a second; at 612 ns each the timer core sends fewer.
fn timer_core() -> Case {
    let theory = "preemptions 1/send; a server's time is all it has";
    let signal = Preemption {
        deliver: Ns::ZERO,
        receive: Ns::ZERO,
        ..Preemption::named("signal").expect("it is in the table")
    };
    let scenario = ideal("shinjuku:quantum=5us", 20, "exp(1ms)", 0.5);
    Case::new(
        "timer core, 20 CPUs, saturated",
        theory,
        crowd(Scenario { preemption: signal, ..scenario }, 60),
    )
    .expects(Measure::Preemptions, Some(1e9 / 612.0))
    .requests(10_000, 1_000)
}
