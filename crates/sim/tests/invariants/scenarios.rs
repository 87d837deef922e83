//! Random small scenarios: any policy, machine, mechanism, cost and load.

use crate::log::Log;
use crate::policies;
use heddle_core::Ns;
use heddle_sim::costs::{Costs, Dispatcher, MECHANISMS, Preemption};
use heddle_sim::workload::Arrivals;
use heddle_sim::{
    Connections, Load, Machine, Outcome, Scenario, Steer, Steering, Unstable, run_watched,
};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngSeed};

const MIXES: [&str; 4] =
    ["5us", "exp(10us)", "short: 90% 2us, long(class=1): 10% 50us", "uniform(1us, 20us)"];

const ARRIVALS: [&str; 5] = [
    "poisson",
    "periodic",
    "mmpp(factor=5, share=10%, length=1ms)",
    "closed(tasks=12, think=exp(5us))",
    "closed(tasks=1, think=1ns)",
];

fn machine() -> impl Strategy<Value = Machine> {
    let of = |cpus, smt, llc, node| Machine { cpus, smt, llc, node };
    prop_oneof![
        (1..10usize).prop_map(Machine::flat),
        Just(of(8, 2, 4, 8)),
        Just(of(8, 1, 2, 4)),
        Just(of(70, 2, 14, 70)),
    ]
}

fn ns(up_to: u64) -> impl Strategy<Value = Ns> {
    prop_oneof![Just(Ns::ZERO), (1..=up_to).prop_map(Ns)]
}

fn costs() -> impl Strategy<Value = Costs> {
    let migration = (ns(500), ns(3_000)).prop_map(|(near, far)| [Ns::ZERO, near, near, far, far]);
    (ns(1_000), ns(2_000), ns(5_000), ns(500), ns(500), migration).prop_map(
        |(switch, app_switch, wake, steal, central_lock, migration)| Costs {
            switch,
            app_switch,
            wake,
            steal,
            central_lock,
            migration,
        },
    )
}

fn dispatcher() -> impl Strategy<Value = Option<Dispatcher>> {
    let dispatcher = (ns(300), ns(300), ns(300), ns(2_000));
    let dispatcher = dispatcher.prop_map(|(admit, notice, dispatch, handoff)| Dispatcher {
        admit,
        notice,
        dispatch,
        handoff,
    });
    prop::option::of(dispatcher)
}

fn preemption() -> impl Strategy<Value = Preemption> {
    let mechanisms: Vec<Preemption> = MECHANISMS.iter().map(|m| m.preemption).collect();
    (select(mechanisms), any::<bool>(), prop_oneof![Just(Ns::ZERO), ns(20_000)])
        .prop_map(|(preemption, skip, interval)| Preemption { skip, interval, ..preemption })
}

fn steering() -> impl Strategy<Value = Steering> {
    let to = prop_oneof![
        Just(Steer::RoundRobin),
        Just(Steer::Random),
        Just(Steer::Hash { flows: 3 }),
        Just(Steer::Fewest { choices: 2 }),
        Just(Steer::ByPart),
    ];
    (to, any::<bool>()).prop_map(|(to, binds)| Steering { to, binds })
}

fn connections() -> impl Strategy<Value = Connections> {
    let some = (2..40u32, any::<bool>());
    prop_oneof![
        Just(Connections::default()),
        some.prop_map(|(count, dealt)| Connections { count, dealt }),
    ]
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let what = (select(policies()), select(MIXES.to_vec()), select(ARRIVALS.to_vec()), 0.05..0.95);
    let how = (machine(), costs(), preemption(), dispatcher(), steering(), connections());
    (what, how, 0..3usize, any::<u64>()).prop_map(|(what, how, batch, seed)| {
        let (policy, mix, arrivals, load) = what;
        let (machine, costs, preemption, dispatcher, steering, connections) = how;
        let arrivals: Arrivals = arrivals.parse().unwrap();
        Scenario {
            connections: if arrivals.is_open() { connections } else { Connections::default() },
            machine,
            costs,
            preemption,
            dispatcher,
            steering,
            arrivals,
            load: Load::Share(load),
            batch,
            requests: 500,
            warmup: 0.2,
            seed,
            ..Scenario::ideal(&policy, 1, mix.parse().unwrap(), 0.5)
        }
    })
}

/// Fixed, so that a test that passes once always passes.
fn fixed(cases: u32) -> Config {
    Config { cases, rng_seed: RngSeed::Fixed(20), failure_persistence: None, ..Config::default() }
}

/// The time that requests had is the work of the finished ones plus at most that of the others.
fn check_work(scenario: &Scenario, outcome: &Outcome, each: Ns) -> Result<(), TestCaseError> {
    let each = each + each * u64::from(scenario.preemption.slowdown_permille) / 1000;
    let time = outcome.time.0 as f64 * scenario.machine.cpus as f64;
    let worked = outcome.shares.requests * time / each.0 as f64;
    let (done, came) = (outcome.counts.done as f64, outcome.counts.arrivals as f64);
    prop_assert!((done - 0.01..=came + 0.01).contains(&worked), "{worked} of {done} to {came}");
    Ok(())
}

/// The shares are those of the elapsed time.
fn check_time(outcome: &Outcome) -> Result<(), TestCaseError> {
    let shares = outcome.shares;
    let spent = shares.requests + shares.batch + shares.overhead;
    prop_assert!(spent <= 1.0 + 1e-9, "{shares:?}");
    prop_assert!((spent + shares.idle - 1.0).abs() < 1e-9, "{shares:?}");
    Ok(())
}

proptest! {
    #![proptest_config(fixed(400))]

    /// In addition, [`Log`] refuses impossible steps: two tasks on a CPU, a task on two, time that goes
    /// back.
    #[test]
    fn no_scenario_breaks_the_engine(scenario in scenario()) {
        let (outcome, _) = run_watched(&scenario, Log::default()).unwrap();
        check_time(&outcome)?;
        // Batch work that is never preempted may keep the clients of a closed loop waiting behind it
        // forever.
        let may_stick = scenario.batch > 0;
        prop_assert!(outcome.unstable != Some(Unstable::Stuck) || may_stick);
        if outcome.unstable.is_none() {
            prop_assert_eq!(outcome.all.response.count(), 500);
            prop_assert_eq!(outcome.parts.iter().map(|part| part.response.count()).sum::<u64>(), 500);
            prop_assert_eq!(outcome.wait.count(), 500);
        }
        if outcome.all.slowdown.count() > 0 {
            prop_assert!(outcome.all.slowdown.percentile(0.0) >= 0.999, "a response below its service");
        }
    }

    /// Whatever interrupts it, a request gets what it needs of its CPUs and no more.
    #[test]
    fn costs_take_nothing_from_the_work(scenario in scenario()) {
        let scenario = Scenario { mix: "5us".parse().unwrap(), ..scenario };
        let (outcome, _) = run_watched(&scenario, Log::default()).unwrap();
        check_time(&outcome)?;
        check_work(&scenario, &outcome, Ns::from_us(5))?;
    }

    /// The same for each request, if nothing costs anything.
    #[test]
    fn work_is_neither_lost_nor_done_twice(scenario in scenario()) {
        let free = Preemption { by: scenario.preemption.by, ..Preemption::named("ideal").unwrap() };
        let scenario = Scenario {
            costs: Costs::default(),
            preemption: free,
            dispatcher: scenario.dispatcher.map(|_| Dispatcher::default()),
            mix: "5us".parse().unwrap(),
            ..scenario
        };
        let (outcome, log) = run_watched(&scenario, Log::default()).unwrap();
        check_time(&outcome)?;
        for (number, task) in log.tasks.iter().enumerate().filter(|(_, task)| task.left.is_some()) {
            prop_assert_eq!(task.on_cpu, Ns::from_us(5), "task {}", number);
        }
    }
}
