//! Laws that hold for every policy of a kind.

use super::{BIMODAL, bimodal, ideal};
use crate::theory::priority::{self, Class};
use crate::theory::{Moments, single};
use crate::validate::{Case, Measure};
use crate::{Load, Scenario, costs::Preemption, workload::Arrivals};

/// Policies under which no CPU idles while a task waits.
const WORK_CONSERVING: [&str; 8] = [
    "fifo",
    "round-robin:quantum=200us",
    "work-stealing",
    "two-queue:quantum=200us",
    "mlfq:quantum=200us",
    "shinjuku:quantum=200us",
    "sjf",
    "srpt",
];

pub(super) fn cases() -> Vec<Case> {
    let work = WORK_CONSERVING.map(work);
    let kleinrock = ["fifo", "work-stealing", "shinjuku-shenango"].map(conserved);
    let little = [("fifo", 4), ("round-robin:quantum=200us", 4), ("two-queue:quantum=200us", 16)];
    let little = little.map(|(policy, cpus)| self::little(policy, cpus));
    work.into_iter().chain(kleinrock).chain(little).chain([closed()]).collect()
}

/// The same arrivals make the same busy periods, whatever the order of service: the runs of these cases
/// share their seeds, so the measurements differ only by how the run ends.
fn work(policy: &str) -> Case {
    let theory =
        "busy period E[S]/(1-rho), busy share rho, whatever the order; Kleinrock 1975, ch. 5";
    Case::new(format!("work conservation, {policy}"), theory, ideal(policy, 1, BIMODAL, 0.7))
        .expects(Measure::BusyPeriod, single::ps_sojourn(0.7, 1.0))
        .expects(Measure::Busy, Some(0.7))
        .requests(200_000, 25_000)
}

/// Two classes, which an order may or may not distinguish.
fn conserved(policy: &str) -> Case {
    let theory = "sum rho_i E[W_i] = rho R/(1-rho) without preemption; Kleinrock 1976, ch. 3";
    let mix = "short: 90% 500us, long(class=1): 10% 5.5ms";
    let none = Preemption::named("none").expect("it is in the table");
    let class = Class { lambda: 0.7, sizes: bimodal().moments() };
    let scenario = Scenario { preemption: none, ..ideal(policy, 1, mix, 0.7) };
    Case::new(format!("conservation law, {policy}"), theory, scenario)
        .expects(Measure::ConservedWait, priority::conserved_wait(&[class]))
        .requests(1_000_000, 100_000)
}

fn little(policy: &str, cpus: usize) -> Case {
    let theory = "L = lambda E[T], and the busy share is the load; Little 1961";
    let scenario = ideal(policy, cpus, BIMODAL, 0.8);
    Case::new(format!("Little's law, {cpus} CPUs, {policy}"), theory, scenario)
        .expects(Measure::Little, Some(1.0))
        .expects(Measure::Busy, Some(0.8))
        .requests(200_000, 50_000)
}

/// Ten clients that think for 10 ms in the mean, one CPU.
fn closed() -> Case {
    let theory = "R_n = E[S](1+Q_(n-1)), X = n/(R_n+Z), Q_n = X R_n; mean value analysis, Reiser and Lavenberg 1980";
    let (clients, think) = (10, 10.0);
    let (response, per_ms) = mean_values(clients, think, Moments::exponential(1.0).mean);
    let arrivals =
        Arrivals::Closed { tasks: clients, think: "exp(10ms)".parse().expect("a service") };
    let load = Load::Share(0.5);
    let scenario = Scenario { arrivals, load, ..ideal("fifo", 1, super::EXPONENTIAL, 0.5) };
    Case::new("closed loop, 10 clients", theory, scenario)
        .expects(Measure::Mean, Some(response))
        .expects(Measure::Throughput, Some(per_ms * 1e3))
        .requests(200_000, 25_000)
}

/// Returns the mean response time and the throughput of a closed loop with one exponential server.
fn mean_values(clients: u32, think: f64, service: f64) -> (f64, f64) {
    (1..=clients).fold((0.0, 0.0), |(response, throughput), n| {
        let queue = throughput * response;
        let response = service * (1.0 + queue);
        (response, f64::from(n) / (response + think))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The machine repairman by its birth and death process, for two clients: p1 = 2a p0, p2 = 2a^2 p0
    /// with a = E[S]/Z.
    #[test]
    fn mean_values_are_those_of_the_machine_repairman() {
        let (response, throughput) = mean_values(2, 4.0, 1.0);
        let (p1, p2) = (2.0 * 0.25, 2.0 * 0.25f64.powi(2));
        let busy = (p1 + p2) / (1.0 + p1 + p2);
        assert!((throughput - busy).abs() < 1e-12);
        assert!((response - (2.0 / busy - 4.0)).abs() < 1e-12);
    }
}
