use super::published::Curve;
use super::*;
use crate::{Load, Outcome, Scenario, run as simulate};

fn study<'a>(pool: &'a Pool<'a>) -> Study<'a> {
    Study { quick: true, pool }
}

fn curve(system: &str) -> Curve {
    Curve { system: system.into(), points: vec![] }
}

fn synthetic(system: &str, load: f64) -> Outcome {
    let pool = Pool::default();
    let scenario = skyloft_synthetic::scenario(&study(&pool), &curve(system));
    simulate(&Scenario { load: Load::PerSecond(load), ..scenario }).unwrap()
}

fn rocksdb(system: &str, load: f64) -> f64 {
    let pool = Pool::default();
    let scenario = skyloft_rocksdb::scenario(&study(&pool), &curve(system));
    simulate(&Scenario { load: Load::PerSecond(load), ..scenario }).unwrap().slowdown_p999.value
}

#[test]
fn every_published_curve_has_a_scenario() {
    let pool = Pool::default();
    for curve in published::synthetic().iter().chain(&published::synthetic_with_batch()) {
        assert!(
            skyloft_synthetic::scenario(&study(&pool), curve).check().is_ok(),
            "{}",
            curve.system
        );
    }
    for curve in published::schbench() {
        assert!(schbench::scenario(&study(&pool), &curve.system, 32).check().is_ok());
    }
    for curve in published::rocksdb() {
        assert!(
            skyloft_rocksdb::scenario(&study(&pool), &curve).check().is_ok(),
            "{}",
            curve.system
        );
    }
}

/// SKQ's order of its systems; and light requests see no SEEK under the hybrid policy.
#[test]
fn shared_events_carry_more_load_at_a_low_tail_than_connections_that_stay() {
    let pool = Pool::default();
    let findings = skq::rocksdb(&study(&pool)).unwrap();
    let value = |system: &str, metric: &str| {
        findings.iter().find(|f| f.system == system && f.metric == metric).unwrap().value
    };
    let load = ["vanilla", "best2", "best2_ws", "hybrid"].map(|system| value(system, "saturation"));
    assert!(load[0] < load[1] && load[1] < load[2], "{load:?}");
    assert!(load[3] > 15.0 * load[0], "{load:?}");
    assert!(value("vanilla / hybrid", "ratio_p99") > 20.0);
}

#[test]
fn preemption_saves_the_tail_of_rare_long_requests() {
    let p99 = |system| synthetic(system, 250_000.0).p99.value;
    let (none, thirty) = (p99("skyloft-inf"), p99("skyloft-30us"));
    assert!(thirty < 100_000.0 && none > 1_000_000.0, "{thirty} {none}");
}

#[test]
fn kernel_threads_cost_more_than_user_threads_at_every_load() {
    for load in [30_000.0, 230_000.0] {
        let p99 = |system| synthetic(system, load).p99.value;
        assert!(p99("skyloft-30us") < p99("ghost-30us"));
    }
}

/// A worker that is woken waits for whole requests: as many as are before it in its CPU's queue.
#[test]
fn schbench_waits_for_requests_under_linux_and_for_slices_under_skyloft() {
    let pool = Pool::default();
    let p99 = |system, workers| {
        let scenario = schbench::scenario(&study(&pool), system, workers);
        simulate(&scenario).unwrap().wait.p99().0 as f64
    };
    for (workers, requests) in [(48, 1.0), (72, 2.0), (96, 3.0)] {
        let waited = p99("linux-cfs", workers) / 2_340_000.0;
        assert!((waited - requests).abs() < 0.01, "{workers} workers: {waited}");
    }
    assert!(p99("skyloft-cfs", 48) < p99("linux-cfs-tuned", 48) / 10.0);
}

#[test]
fn shorter_quanta_give_smaller_slowdowns_at_a_middle_load() {
    let quanta = ["skyloft_5us", "skyloft_20us", "skyloft_100us", "skyloft_nopre"];
    let slowdowns = quanta.map(|system| rocksdb(system, 30_000.0));
    assert!(slowdowns.is_sorted() && slowdowns[3] > 3.0 * slowdowns[0], "{slowdowns:?}");
}

#[test]
fn a_timer_core_serves_few_cpus_by_signals_and_many_by_user_interrupts() {
    let pool = Pool::default();
    let findings = aspen::timer_core(&study(&pool)).unwrap();
    let cpus = |system: &str| findings.iter().find(|f| f.system == system).unwrap().value;
    assert!(cpus("signal 5us") <= 5.0, "{}", cpus("signal 5us"));
    assert!(cpus("uintr 5us") >= 20.0 && cpus("uintr 5us") <= cpus("concord-tuned 5us"));
    assert!(cpus("signal 50us") > cpus("signal 5us"));
}

#[test]
fn time_outside_the_machine_is_added_to_every_response() {
    let ideal = Scenario::ideal("fifo", 1, "5us".parse().unwrap(), 0.2);
    let without = Scenario { requests: 1_000, ..ideal };
    let with = Scenario { base: heddle_core::Ns::from_us(10), ..without.clone() };
    let (with, without) = (simulate(&with).unwrap(), simulate(&without).unwrap());
    assert!((with.mean.value - without.mean.value - 10_000.0).abs() < 1e-6);
    assert_eq!(with.wait, without.wait);
}

#[test]
fn findings_become_rows_and_plots() {
    let at = |load, paper, value| Finding {
        load: Some(load),
        ..Finding::value("skyloft-7a", "skyloft-30us", "p99", "ns", Some(paper), value, "")
    };
    let findings = [at(1e5, 100.0, 105.0), at(2e5, 100.0, 130.0)];
    assert_eq!(rows(&findings)[1].note, "paper 100, +30.0 %");
    let plots = plots(&findings);
    assert_eq!((plots.len(), plots[0].series.len()), (1, 2));
    let agreement = agreement(&findings, "p99").unwrap();
    assert_eq!((agreement.count, agreement.within), (2, 0.5));
    assert_eq!(agreement.worst.1, "skyloft-30us at 200000/s");
}

#[test]
fn an_unknown_name_is_none_and_names_differ() {
    assert_eq!(run("nothing", true, &Pool::default()).unwrap(), None);
    let names: std::collections::HashSet<_> = list().iter().map(|paper| paper.name).collect();
    assert_eq!(names.len(), list().len());
}
