//! Many CPUs: one queue for all, or a queue each and a rule to choose one.

use super::{BIMODAL, EXPONENTIAL, bimodal, ideal};
use crate::theory::dispatch::{self, SizeGroup};
use crate::theory::many;
use crate::validate::{Case, Measure};
use crate::{Scenario, Steer, Steering};

/// A queue per CPU, in order of arrival, without stealing.
const OWN_QUEUES: &str = "best-of-two:choices=1";

pub(super) fn cases() -> Vec<Case> {
    let shared = [(2, 0.8), (4, 0.8), (16, 0.8), (16, 0.9), (64, 0.9)].map(|(k, rho)| mmk(k, rho));
    let choices =
        [(1, 0.8), (2, 0.9), (3, 0.9), (2, 0.95), (3, 0.95)].map(|(d, rho)| fewest(d, rho));
    let turns = [2, 4].map(turns);
    let rest = [placed_by_the_policy(), sita(), sita_overloaded()];
    shared.into_iter().chain(choices).chain(turns).chain(rest).collect()
}

fn mmk(servers: u32, rho: f64) -> Case {
    let theory = "Erlang C, P(W>t) = C exp(-k(1-rho)t/E[S]); Erlang 1917, Kleinrock 1975, ch. 3";
    let name = format!("M/M/{servers}, rho {rho}");
    let requests = if rho > 0.8 { 4_000_000 } else { 1_500_000 };
    Case::new(name, theory, ideal("fifo", servers as usize, EXPONENTIAL, rho))
        .expects(Measure::Mean, many::mmk_mean_sojourn(servers, rho, 1.0))
        .expects(Measure::Waiting, many::erlang_c(servers, rho))
        .expects(Measure::WaitPercentile(99.0), many::mmk_wait_quantile(servers, rho, 1.0, 0.99))
        .requests(requests, requests / 10)
}

fn steered(to: Steer, scenario: Scenario) -> Scenario {
    Scenario { steering: Steering { to, binds: true }, ..scenario }
}

const MEAN_FIELD: &str =
    "E[T] = E[S] sum rho^((d^i-d)/(d-1)) as the CPUs go to infinity; Mitzenmacher 2001";

/// A thousand CPUs; each arrival goes to the least loaded of `choices`, steered before the policy.
fn fewest(choices: u32, rho: f64) -> Case {
    let scenario = steered(Steer::Fewest { choices }, ideal(OWN_QUEUES, 1000, EXPONENTIAL, rho));
    thousand(format!("best of {choices} of 1000 CPUs, rho {rho}"), choices, rho, scenario)
}

/// The same with the choice made by the policy.
fn placed_by_the_policy() -> Case {
    let scenario = ideal("best-of-two:by=tasks", 1000, EXPONENTIAL, 0.9);
    thousand("best of 2 of 1000 CPUs by the policy, rho 0.9".into(), 2, 0.9, scenario)
}

/// With one choice, queues that began empty forget it only after 1/(1 - sqrt(rho))^2 services.
fn thousand(name: String, choices: u32, rho: f64, scenario: Scenario) -> Case {
    let scenario = Scenario { warmup: 1.0, ..scenario };
    Case::new(name, MEAN_FIELD, scenario)
        .expects(Measure::Mean, dispatch::choices_mean_sojourn(choices, rho, 1.0))
        .requests(500_000, 200_000)
}

fn turns(servers: u32) -> Case {
    let theory = "E[T] = E[S]/(1-sigma), sigma = (k rho/(k rho+1-sigma))^k; Kleinrock 1975, ch. 6";
    let scenario = ideal(OWN_QUEUES, servers as usize, EXPONENTIAL, 0.7);
    Case::new(
        format!("E{servers}/M/1, in turn, rho 0.7"),
        theory,
        steered(Steer::RoundRobin, scenario),
    )
    .expects(Measure::Mean, dispatch::round_robin_mean_sojourn(servers, 0.7, 1.0))
    .requests(1_000_000, 100_000)
}

const BY_SIZE: &str =
    "each host an M/G/1 of its own sizes; Harchol-Balter, Crovella and Murta 1999";

/// Three hosts: by their work, one for the short requests and two for the long ones.
fn by_size(rho: f64) -> Scenario {
    steered(Steer::ByPart, ideal(OWN_QUEUES, 3, BIMODAL, rho))
}

fn hosts(rho: f64) -> Vec<dispatch::SitaHost> {
    let groups = [SizeGroup { largest: 0.5, hosts: 1 }, SizeGroup { largest: 5.5, hosts: 2 }];
    dispatch::sita(3.0 * rho, &bimodal(), &groups).expect("every size has a host")
}

fn sita() -> Case {
    let hosts = hosts(0.6);
    Case::new("SITA bimodal, 3 hosts, rho 0.6", BY_SIZE, by_size(0.6))
        .expects(Measure::PartMean(0), hosts[0].mean_sojourn)
        .expects(Measure::PartMean(1), hosts[1].mean_sojourn)
        .expects(Measure::Busy, Some((hosts[0].load + 2.0 * hosts[1].load) / 3.0))
        .requests(1_000_000, 100_000)
}

/// All hosts together have room, but the short requests' host does not.
fn sita_overloaded() -> Case {
    let overloaded = hosts(0.8)[0].mean_sojourn.is_none();
    Case::new("SITA bimodal, 3 hosts, rho 0.8: the first at 1.08", BY_SIZE, by_size(0.8))
        .expects(Measure::Unstable, Some(f64::from(u8::from(overloaded))))
        .requests(200_000, 100_000)
}
