//! Aspen-KB: RocksDB under work stealing with two queues and a timer core; 24 CPUs, 25 without preemption.

use super::costs::aspen;
use super::finding::Finding;
use super::study::Study;
use crate::costs::{Costs, Preemption};
use crate::workload::Arrivals;
use crate::{Load, Scenario, SimError, Steer, Steering, run};
use heddle_core::Ns;

/// The GETs' tail is at most 50 us. The paper does not say which percentile its tail is; Caladan's load
/// generator reports p99.9.
const SLO: &str = "get p99.9 <= 50us";

/// The quanta of Fig. 9, in us.
const QUANTA: [u64; 7] = [2, 5, 10, 15, 20, 30, 50];

/// The mechanisms, each with the quantum that is best for it (section 4.3): signal 1.7 us to send and
/// 2.4 to receive; user interrupt 0.2 and 0.4; Concord tuned: a store to send, 5,000 checks in 260 us,
/// 2.3 % slower; Concord by default: 95,000 checks, 31.2 % slower (section 4.1.1).
fn mechanisms_of_paper() -> [(&'static str, Preemption, u64); 4] {
    let probe =
        |slowdown_permille, between| Preemption { slowdown_permille, ..aspen(10, between, 0) };
    [
        ("uintr", aspen(200, 606, 400), 5),
        ("signal", aspen(1_700, 2_637, 2_400), 15),
        ("concord-tuned", probe(23, 26), 5),
        ("concord", probe(312, 1), 5),
    ]
}

/// Packets go by hash to the CPUs' queues, from which idle CPUs steal. New threads run before preempted
/// ones; preempted ones have 100 us (section 3.2) and are overtaken for as long as new ones arrive.
fn rocksdb(study: &Study<'_>, quantum_us: u64, preemption: Preemption) -> Scenario {
    let policy = format!("two-queue:quantum={quantum_us}us,long=100us,patience=1000000000");
    let preemption = Preemption { interval: Ns::from_us(quantum_us), ..preemption };
    let mix = "aspen-rocksdb".parse().expect("a preset");
    Scenario {
        preemption,
        steering: Steering { to: Steer::Hash { flows: 1_024 }, binds: true },
        requests: study.requests(500_000),
        ..Scenario::ideal(&policy, 24, mix, 0.5)
    }
}

fn without(study: &Study<'_>) -> Scenario {
    let mut scenario = rocksdb(study, 5, Preemption::named("none").expect("it is in the table"));
    scenario.machine.cpus = 25;
    scenario.policy = "work-stealing".into();
    scenario
}

/// Returns the GETs per second at which `scenario` keeps the objective.
fn gets(study: &Study<'_>, scenario: &Scenario) -> Result<f64, SimError> {
    Ok(study.highest(scenario, SLO)? * 0.95)
}

/// Fig. 5 and 9.
pub(super) fn mechanisms(study: &Study<'_>) -> Result<Vec<Finding>, SimError> {
    let value = |system: &str, paper, value, note: &str| {
        Finding::value("aspen-5", system, "get_throughput", "1/s", paper, value, note)
    };
    let none = gets(study, &without(study))?;
    let mechanisms = mechanisms_of_paper();
    let quanta: Vec<u64> = QUANTA.into_iter().step_by(if study.quick { 3 } else { 1 }).collect();
    let runs: Vec<(usize, u64)> = (0..mechanisms.len())
        .flat_map(|m| quanta.iter().map(move |&quantum| (m, quantum)))
        .collect();
    let points = study.each(&runs, |&(m, quantum)| {
        let (name, preemption, _) = mechanisms[m];
        let found = gets(study, &rocksdb(study, quantum, preemption))?;
        let system = format!("{name} {quantum}us");
        Ok(vec![Finding { figure: "aspen-9", ..value(&system, None, found, SLO) }])
    })?;
    let mut findings = vec![value("none", None, none, SLO)];
    for (m, &(name, _, best)) in mechanisms.iter().enumerate() {
        let own = runs.iter().zip(&points).filter(|((of, _), _)| *of == m);
        // Of equals the last, which is the shortest counted from the end.
        let found = own.rev().max_by(|a, b| a.1.value.total_cmp(&b.1.value));
        let Some((&(_, quantum), top)) = found else { continue };
        let paper = (name == "uintr").then_some(1.582);
        let note = "GETs at a tail of 50 us against no preemption";
        findings.push(Finding {
            metric: "ratio",
            unit: "x",
            ..value(name, paper, top.value / none, note)
        });
        let best = (name != "concord").then_some(best as f64);
        let value = Finding::value("aspen-9", name, "best_quantum", "us", best, quantum as f64, "");
        findings.push(value);
    }
    findings.extend(points);
    Ok(findings)
}

/// Fig. 10: GETs per second at the objective, and how often a quantum ended in a preemption, with two
/// queues and skipping each on and off; uintr, 5 us.
pub(super) fn policies(study: &Study<'_>) -> Result<Vec<Finding>, SimError> {
    let uintr = aspen(200, 606, 400);
    let full = rocksdb(study, 5, uintr);
    let one_queue = Scenario { policy: "work-stealing:quantum=5us".into(), ..full.clone() };
    let no_skip = Scenario { preemption: Preemption { skip: false, ..uintr }, ..full.clone() };
    let variants = [("aspen", &full), ("w/o 2queues", &one_queue), ("w/o skip", &no_skip)];
    let mut findings = study.each(&variants, |&(name, scenario)| {
        let found = gets(study, scenario)?;
        Ok(vec![Finding::value("aspen-10", name, "get_throughput", "1/s", None, found, SLO)])
    })?;
    // Preemptions of the two at the same loads; the paper names no load for its 70 %.
    for load in [0.3, 0.5, 0.7] {
        let at = |scenario: &Scenario| {
            run(&Scenario { load: Load::Share(load), ..scenario.clone() })
                .map(|o| o.counts.preemptions)
        };
        let (with, without) = (at(&full)? as f64, at(&no_skip)? as f64);
        let note = format!("share of preemptions that skipping saves at load {load}");
        let saved = 1.0 - with / without;
        let rate = load * full.capacity();
        let found = Finding::value("aspen-10", "skip", "saved", "x", Some(0.7), saved, &note);
        findings.push(Finding { load: Some(rate), ..found });
    }
    Ok(findings)
}

/// Fig. 11: endless tasks, two for each CPU, so that every quantum must end in a preemption. Measures
/// how many CPUs, at most 24, have 99 % of them; the values at 5 us are in the text.
pub(super) fn timer_core(study: &Study<'_>) -> Result<Vec<Finding>, SimError> {
    let [(_, uintr, _), (_, signal, _), (_, probe, _), _] = mechanisms_of_paper();
    let papers = [("uintr", uintr, 22.0), ("signal", signal, 2.0), ("concord-tuned", probe, 24.0)];
    study.each(&papers, |&(name, preemption, paper)| {
        let mut findings = Vec::new();
        for quantum in [5, 10, 20, 50] {
            let served = cpus_served(Ns::from_us(quantum), preemption)?;
            let (system, paper) = (format!("{name} {quantum}us"), (quantum == 5).then_some(paper));
            let note = "CPUs with 99 % of their preemptions, of 24";
            findings.push(Finding::value(
                "aspen-11",
                &system,
                "cpus",
                "1",
                paper,
                served as f64,
                note,
            ));
        }
        Ok(findings)
    })
}

/// Returns the largest number of CPUs, at most 24, to which a timer core delivers 99 % of what it would
/// to one.
fn cpus_served(quantum: Ns, preemption: Preemption) -> Result<usize, SimError> {
    let alone = preemptions_per_cpu(1, quantum, preemption)?;
    for cpus in 2..=24 {
        if preemptions_per_cpu(cpus, quantum, preemption)? < 0.99 * alone {
            return Ok(cpus - 1);
        }
    }
    Ok(24)
}

/// Returns the preemptions per CPU and second. Aspen's timer looks at fixed intervals, whatever a
/// message costs its receiver: so only sending is simulated, and the quantum is shorter by it, so that
/// a CPU alone is preempted at every interval. The requests only mark the time: one of 1 us every 100
/// us.
fn preemptions_per_cpu(cpus: usize, quantum: Ns, preemption: Preemption) -> Result<f64, SimError> {
    let policy = format!("round-robin:quantum={}", quantum - preemption.send);
    let preemption = Preemption { deliver: Ns::ZERO, receive: Ns::ZERO, ..preemption };
    let scenario = Scenario {
        preemption,
        costs: Costs::default(),
        batch: 2 * cpus,
        arrivals: Arrivals::Periodic,
        load: Load::PerSecond(10_000.0),
        requests: 100,
        ..Scenario::ideal(&policy, cpus, "1us".parse().expect("a time"), 0.5)
    };
    let outcome = run(&scenario)?;
    Ok(outcome.counts.preemptions as f64 / outcome.time.as_secs_f64() / cpus as f64)
}
