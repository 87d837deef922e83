//! Samples have the moments of the closed forms.

use super::Scratch;
use crate::Random;
use crate::workload::{Lognormal, Mix, Pareto, Service};
use heddle_core::Ns;

const DRAWS: u32 = 1_000_000;

/// Returns the sampled mean of the `k`-th power over the closed form.
fn ratio(mix: &Mix, k: i32) -> f64 {
    let mut random = Random::new(5, 2);
    let sum: f64 = (0..DRAWS).map(|_| (mix.sample(&mut random).1.0 as f64).powi(k)).sum();
    sum / f64::from(DRAWS) / mix.moment(k as u32)
}

#[track_caller]
fn check(text: &str) {
    let mix: Mix = text.parse().unwrap();
    for k in 1..=2 {
        let ratio = ratio(&mix, k);
        assert!((ratio - 1.0).abs() < 0.01, "{text}: moment {k} is off by a factor {ratio}");
    }
}

/// I4: a wrong closed form would not match the samples.
#[test]
fn sampled_moments_are_the_closed_ones() {
    check("10us");
    check("exp(10us)");
    check("lognormal(10us, cv=0.1)");
    check("lognormal(10us, cv=1)");
    check("pareto(10us, shape=5)");
    check("pareto(10us, shape=1.5, max=200us)");
    check("pareto(10us, shape=1, max=200us)");
    check("pareto(10us, shape=2, max=200us)");
    check("pareto(10us, shape=0.5, max=100us)");
    check("uniform(5us, 20us)");
    check("uniform(5us, 5us)");
}

#[test]
fn mixes_too() {
    for name in ["rocksdb-50-50", "aspen-rocksdb", "dataframe", "search", "bimodal-90-10"] {
        check(name);
    }
}

#[test]
fn tables_too() {
    let samples = "service,weight\n1us,3\n2us,0.5\n10us,1.5\n# rare\n100us,0.25\n";
    let samples = Scratch::new("samples", samples.as_bytes());
    check(&format!("empirical({:?})", samples.path()));
    let quantiles = "quantile,service\n0,500ns\n0.5,1us\n0.9,5us\n1,80us\n";
    let quantiles = Scratch::new("quantiles", quantiles.as_bytes());
    check(&format!("empirical({:?})", quantiles.path()));

    let mix: Mix = format!("empirical({:?})", quantiles.path()).parse().unwrap();
    let mean = 0.5 * 750.0 + 0.4 * 3_000.0 + 0.1 * 42_500.0;
    assert!((mix.mean() - mean).abs() < 1e-6, "{} for {mean}", mix.mean());
}

#[test]
fn third_moments_are_those_of_the_textbook() {
    let third = |text: &str| text.parse::<Service>().unwrap().moment(3) / 1e12;
    assert!((third("10us") - 1.0).abs() < 1e-12);
    assert!((third("exp(10us)") - 6.0).abs() < 1e-12);
    assert!((third("lognormal(10us, cv=2)") - 125.0).abs() < 1e-9);
    assert!((third("uniform(0.000001ms, 20us)") - 2.0).abs() < 1e-3);
    assert_eq!(third("pareto(10us, shape=3)"), f64::INFINITY);
    assert!((third("pareto(10us, shape=4)") - 0.75f64.powi(3) * 4.0).abs() < 1e-12);
}

/// A bound so far off that it hardly cuts gives the unbounded distribution.
#[test]
fn a_distant_bound_changes_nothing() {
    let free = Pareto::new(Ns::from_us(10), 3.5, None).unwrap();
    let bounded = Pareto::new(Ns::from_us(10), 3.5, Some(Ns::from_secs(1_000_000))).unwrap();
    for k in 1..=3 {
        assert!((bounded.moment(k) / free.moment(k) - 1.0).abs() < 1e-4, "moment {k}");
    }
}

#[test]
fn a_bounded_pareto_has_its_mean_and_stays_below() {
    let mut random = Random::new(3, 3);
    for (shape, max) in
        [(0.1, u64::MAX), (0.5, 10_001), (1.0, 20_000), (1.5, 1 << 40), (1e3, 10_010)]
    {
        let pareto = Pareto::new(Ns::from_us(10), shape, Some(Ns(max))).unwrap();
        assert!((pareto.moment(1) / 1e4 - 1.0).abs() < 1e-6, "{pareto:?} {}", pareto.moment(1));
        let service = Service::Pareto(pareto);
        assert!((0..10_000).all(|_| service.sample(&mut random) <= Ns(max)), "{service}");
    }
}

/// I3.
#[test]
fn nothing_takes_less_than_a_nanosecond() {
    let mut random = Random::new(1, 1);
    for text in ["exp(1ns)", "lognormal(1ns, cv=9)", "pareto(1ns, shape=1.1)", "uniform(1ns, 1ns)"]
    {
        let service: Service = text.parse().unwrap();
        assert!((0..10_000).all(|_| service.sample(&mut random) >= Ns(1)), "{text}");
    }
    assert_eq!(Service::Fixed(Ns::ZERO).sample(&mut random), Ns(1));
}

/// A single part is found without a draw, so its samples are those of its service.
#[test]
fn a_part_alone_costs_no_random_number() {
    let (mut one, mut other) = (Random::new(9, 9), Random::new(9, 9));
    let service = Service::Lognormal(Lognormal::new(Ns::from_us(3), 2.0).unwrap());
    let mix = Mix::of(service.clone());
    for _ in 0..100 {
        assert_eq!(mix.sample(&mut one), (0, service.sample(&mut other)));
    }
}

#[test]
fn parts_come_as_often_as_their_shares() {
    let mix: Mix = "a: 70% 1us, b: 29.5% 2us, c: 0.5% 3us".parse().unwrap();
    let mut random = Random::new(2, 2);
    let mut seen = [0.0; 3];
    for _ in 0..DRAWS {
        let (part, time) = mix.sample(&mut random);
        assert_eq!(time, Ns::from_us(part as u64 + 1));
        seen[part] += 1.0 / f64::from(DRAWS);
    }
    for (seen, share) in seen.into_iter().zip([0.7, 0.295, 0.005]) {
        assert!((seen / share - 1.0).abs() < 0.03, "{seen} for {share}");
    }
}
