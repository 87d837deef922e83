//! Many servers, each with its own queue in order of arrival: how much the choice of the queue is
//! worth.
//!
//! A random choice makes each server an M/M/1 or M/G/1 of its own: see [`super::single`].

use super::{Mix, positive, single, stable};

/// Mean sojourn if each arrival joins the shortest of `choices` queues drawn at random, exponential
/// sizes, in the limit of many servers: `service sum_{i >= 1} rho^((d^i - d) / (d - 1))`.
///
/// `choices` from 1, which is M/M/1; `rho` is the load of each server. A simulation of a thousand
/// servers was within 0.3 % of the limit at loads of 0.9 and 0.95. O(log(1 / (1 - rho))) for two
/// choices or more, O(1) for one. Mitzenmacher, "The power of two choices in randomized load
/// balancing", 2001; Vvedenskaya, Dobrushin and Karpelevich 1996.
pub fn choices_mean_sojourn(choices: u32, rho: f64, service: f64) -> Option<f64> {
    let (rho, service, d) = (stable(rho)?, positive(service)?, f64::from(choices));
    let powers = || std::iter::successors(Some(0.0), |power| Some(d * (power + 1.0)));
    let terms = || powers().map(|power| rho.powf(power)).take_while(|&term| term > 1e-20);
    match choices {
        0 => None,
        1 => single::mm1_mean_sojourn(rho, service),
        _ => Some(service * terms().sum::<f64>()),
    }
}

/// Mean sojourn if Poisson arrivals go to `servers` exponential servers in turn, so that each sees
/// every `servers`-th: E_k/M/1, a special G/M/1. `service / (1 - sigma)`, where `sigma` is the least
/// root of `sigma = (k rho / (k rho + 1 - sigma))^k`, the probability that an arrival finds its server
/// busy.
///
/// `servers` from 1, which is M/M/1. O(log(1 / (1 - rho))) Newton steps; good to 1e-9 for `rho` up to 1
/// - 1e-6. Kleinrock 1975, ch. 6.
pub fn round_robin_mean_sojourn(servers: u32, rho: f64, service: f64) -> Option<f64> {
    let (rho, k) = (stable(rho)?, f64::from(servers));
    let service = (servers > 0).then_some(positive(service)?)?;
    Some(service / idle_probability(k, k * rho))
}

/// `1 - sigma` of E_k/M/1 for phases of rate `phase`, in services: the probability that an arrival
/// finds its server idle.
///
/// It is the root above zero of `1 - (1 + idle / phase)^-k = idle`. The left side is concave and below
/// the right at 1, so Newton steps from there fall towards the root and cannot pass it. Solved for the
/// idle probability, which is small at a high load: computing `1 - sigma` from `sigma` would lose its
/// digits there.
fn idle_probability(k: f64, phase: f64) -> f64 {
    let mut idle = 1.0;
    for _ in 0..100 {
        let busy = -k * (idle / phase).ln_1p();
        let slope = k * busy.exp() / (phase + idle);
        let step = (-busy.exp_m1() - idle) / (1.0 - slope);
        idle += step;
        if step.abs() <= 1e-9 * idle {
            break;
        }
    }
    idle
}

/// A group of hosts that serve the sizes of one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeGroup {
    /// The largest size served here; the smallest is above the largest of the group before (or above zero).
    pub largest: f64,
    /// How many hosts share the interval, each arrival choosing one at random.
    pub hosts: u32,
}

/// One host of a [`SizeGroup`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SitaHost {
    /// Its load, above 1 if the cutoffs leave it too much.
    pub load: f64,
    /// Its mean sojourn; `None` if it is not stable.
    pub mean_sojourn: Option<f64>,
}

/// Size interval task assignment: each host is an M/G/1 FCFS of its own interval of sizes. O(groups *
/// parts).
///
/// `lambda` is the rate of all arrivals together. Returns an answer per group, in order; a group whose
/// interval holds no size is idle and has no sojourn. `None` if the rate is not above zero, a group has
/// no hosts, or the last group leaves sizes unserved. Harchol-Balter, Crovella and Murta, "On choosing
/// a task assignment policy for a distributed server system", 1999; Harchol-Balter 2013, ch. 24.
pub fn sita(lambda: f64, sizes: &Mix, groups: &[SizeGroup]) -> Option<Vec<SitaHost>> {
    let lambda = positive(lambda)?;
    let served = groups.last()?.largest >= sizes.parts().last()?.1;
    let lows = std::iter::once(0.0).chain(groups.iter().map(|group| group.largest));
    let host = |(group, low): (&SizeGroup, f64)| {
        sita_host(lambda / f64::from(group.hosts), sizes.between(low, group.largest))
    };
    (served && groups.iter().all(|group| group.hosts > 0))
        .then(|| groups.iter().zip(lows).map(host).collect())
}

/// Returns the host that gets its share of `lambda`.
fn sita_host(lambda: f64, interval: Option<(f64, Mix)>) -> SitaHost {
    let Some((share, sizes)) = interval else {
        return SitaHost { load: 0.0, mean_sojourn: None };
    };
    let sizes = sizes.moments();
    let load = lambda * share * sizes.mean;
    SitaHost { load, mean_sojourn: single::fcfs_mean_sojourn(load, &sizes) }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_digits, assert_same, bimodal};
    use super::*;

    const LONG_ON_ONE: [SizeGroup; 2] =
        [SizeGroup { largest: 0.5, hosts: 3 }, SizeGroup { largest: 5.5, hosts: 1 }];

    #[test]
    fn two_choices_have_the_figures_of_the_mean_field() {
        for (rho, d, sojourn) in [
            (0.9, 1, 10.0),
            (0.9, 2, 2.6141),
            (0.9, 3, 2.0279),
            (0.95, 1, 20.0),
            (0.95, 2, 3.3830),
            (0.95, 3, 2.5351),
        ] {
            assert_digits(choices_mean_sojourn(d, rho, 1.0), sojourn, 4);
        }
    }

    #[test]
    fn one_choice_is_the_same_sum() {
        let sum: f64 = (0..2_000).map(|i| 0.95f64.powi(i)).sum();
        assert_same(choices_mean_sojourn(1, 0.95, 4.0), Some(4.0 * sum));
        assert_same(choices_mean_sojourn(8, 0.0, 4.0), Some(4.0));
    }

    #[test]
    fn taking_turns_has_the_figures_of_g_m_1() {
        assert_digits(round_robin_mean_sojourn(2, 0.7, 1.0), 2.6006, 4);
        assert_digits(round_robin_mean_sojourn(4, 0.7, 1.0), 2.2367, 4);
    }

    #[test]
    fn taking_turns_on_one_server_is_mm1() {
        for rho in [0.0, 0.5, 0.9, 0.999_999] {
            let (turns, mm1) =
                (round_robin_mean_sojourn(1, rho, 2.0), single::mm1_mean_sojourn(rho, 2.0));
            assert_same(turns, mm1);
        }
    }

    #[test]
    fn many_turns_are_nearly_periodic() {
        // D/M/1: sigma = exp(-(1 - sigma) / rho), by plain iteration.
        let sigma = (0..2_000).fold(0.0f64, |sigma, _| (-(1.0 - sigma) / 0.9).exp());
        let many = round_robin_mean_sojourn(1_000_000, 0.9, 1.0).unwrap();
        assert!((many * (1.0 - sigma) - 1.0).abs() < 1e-5);
    }

    #[test]
    fn sita_splits_a_bimodal_load() {
        let hosts = sita(1.6, &bimodal(), &LONG_ON_ONE).unwrap();
        assert_digits(Some(hosts[0].load), 0.24, 9);
        assert_digits(hosts[0].mean_sojourn, 0.5789, 4);
        assert_digits(Some(hosts[1].load), 0.88, 9);
        assert_digits(hosts[1].mean_sojourn, 25.667, 3);
    }

    #[test]
    fn sita_reports_the_host_that_is_overloaded() {
        let hosts = sita(2.8, &bimodal(), &LONG_ON_ONE).unwrap();
        assert_digits(Some(hosts[1].load), 1.54, 9);
        assert_eq!(hosts[1].mean_sojourn, None);
        assert!(hosts[0].mean_sojourn.is_some());
    }

    #[test]
    fn sita_with_one_interval_is_fcfs() {
        let hosts = sita(1.4, &bimodal(), &[SizeGroup { largest: 10.0, hosts: 2 }]).unwrap();
        assert_same(hosts[0].mean_sojourn, single::fcfs_mean_sojourn(0.7, &bimodal().moments()));
    }

    #[test]
    fn impossible_inputs_have_no_figure() {
        assert_eq!(choices_mean_sojourn(0, 0.5, 1.0), None);
        assert_eq!(choices_mean_sojourn(2, 1.0, 1.0), None);
        assert_eq!(round_robin_mean_sojourn(0, 0.5, 1.0), None);
        assert_eq!(sita(1.0, &bimodal(), &[]), None);
        assert_eq!(sita(1.0, &bimodal(), &LONG_ON_ONE[..1]), None);
        assert_eq!(sita(1.0, &bimodal(), &[SizeGroup { largest: 9.0, hosts: 0 }]), None);
    }
}
