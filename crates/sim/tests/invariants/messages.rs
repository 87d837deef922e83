//! Limits of batch work, messages and a dispatcher, computed by hand.

use heddle_core::Ns;
use heddle_sim::costs::Dispatcher;
use heddle_sim::{Load, Scenario, Unstable, run};

/// Requests of `mix` every 100 us.
fn every_100us(policy: &str, cpus: usize, mix: &str) -> Scenario {
    Scenario {
        arrivals: "periodic".parse().unwrap(),
        load: Load::PerSecond(1e4),
        requests: 1_000,
        warmup: 0.0,
        ..Scenario::ideal(policy, cpus, mix.parse().unwrap(), 0.5)
    }
}

#[test]
fn endless_work_that_is_never_preempted_has_no_steady_state() {
    let base = every_100us("fifo", 1, "5us");
    let arrivals = "closed(tasks=2, think=1ms)".parse().unwrap();
    let outcome = run(&Scenario { arrivals, batch: 1, ..base }).unwrap();
    assert_eq!((outcome.unstable, outcome.counts.done), (Some(Unstable::Stuck), 0));
}

/// The endless task has outlived its quantum, but three CPUs are free for new requests.
#[test]
fn no_task_is_preempted_while_the_dispatcher_has_free_cpus() {
    let costly =
        Dispatcher { admit: Ns(100), notice: Ns(100), dispatch: Ns(100), handoff: Ns(100) };
    for dispatcher in [None, Some(Dispatcher::default()), Some(costly)] {
        let base = every_100us("shinjuku:quantum=10us", 4, "5us");
        let outcome = run(&Scenario { dispatcher, batch: 1, ..base }).unwrap();
        assert_eq!((outcome.unstable, outcome.counts.preemptions), (None, 0), "{dispatcher:?}");
    }
}

/// Three tasks of a ms on two CPUs: each has two thirds of one, though the second CPU's had outlived its quantum alone.
#[test]
fn a_task_that_made_way_is_not_left_to_one_cpu() {
    let base = every_100us("shinjuku:quantum=10us", 2, "1ms");
    let arrivals = "closed(tasks=3, think=1ns)".parse().unwrap();
    let outcome = run(&Scenario { arrivals, ..base }).unwrap();
    let (least, most) = (outcome.all.response.percentile(2.0), outcome.all.response.max());
    assert!(least >= Ns::from_us(1_450) && most <= Ns::from_us(1_550), "{least} to {most}");
}
