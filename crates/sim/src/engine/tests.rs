//! Schedules that can be computed by hand.

use crate::costs::{Costs, Dispatcher, Preemption, PreemptionSource};
use crate::workload::Arrivals;
use crate::{
    Event, EventKind, Load, Machine, Outcome, Recorder, Scenario, Steer, Steering, run,
    run_steered, run_watched,
};
use heddle_core::{Arrival, Choice, CpuId, Executors, Layer, Ns, SteeringPolicy};

/// Requests of `mix` every `gap` on `cpus` CPUs.
fn every(gap: Ns, mix: &str, policy: &str, cpus: usize) -> Scenario {
    Scenario {
        arrivals: Arrivals::Periodic,
        load: Load::PerSecond(1e9 / gap.0 as f64),
        requests: 1000,
        warmup: 0.0,
        ..Scenario::ideal(policy, cpus, mix.parse().unwrap(), 0.5)
    }
}

fn us(n: u64) -> Ns {
    Ns::from_us(n)
}

/// The percentile as whole microseconds.
fn p(outcome: &Outcome, percent: f64) -> u64 {
    outcome.all.response.percentile(percent).0 / 1000
}

fn first_steps(scenario: &Scenario, n: usize) -> Vec<Event> {
    run_watched(scenario, Recorder::new(n)).unwrap().1.steps
}

fn near(value: f64, expected: f64, by: f64) {
    assert!((value - expected).abs() <= by * expected, "{value} for {expected}");
}

#[test]
fn steps_come_in_order_with_their_times() {
    let steps = first_steps(&every(us(10), "4us", "fifo", 1), 6);
    let step = |at, task, kind| Event::task(us(at), CpuId(0), task, kind).of(Layer::Sim);
    let expected = [
        step(10, 0, EventKind::New),
        step(10, 0, EventKind::Start),
        step(14, 0, EventKind::Exit),
        step(20, 1, EventKind::New),
        step(20, 1, EventKind::Start),
        step(24, 1, EventKind::Exit),
    ];
    assert_eq!(steps, expected);
}

#[test]
fn a_switch_is_paid_by_every_task_and_a_wake_up_by_those_that_find_the_cpu_idle() {
    let costs = Costs { switch: us(1), wake: us(2), ..Costs::default() };
    let idle = run(&Scenario { costs, ..every(us(10), "4us", "fifo", 1) }).unwrap();
    assert_eq!((p(&idle, 1.0), p(&idle, 100.0)), (7, 7));
    near(idle.shares.overhead, 0.3, 0.01);
    near(idle.shares.requests, 0.4, 0.01);
}

#[test]
fn a_preemption_costs_its_delivery_its_receipt_and_a_switch() {
    // Two clients of 25 us from the start. The first begins at 1, is asked after 10 and notified 1
    // later, at 12; the second begins 2 + 1 later at 15, is notified at 26; and so on by turns of 11
    // until the first has its last 3 from 57 to 60.
    let preemption = Preemption { send: us(0), deliver: us(1), receive: us(2), ..ideal() };
    let costs = Costs { switch: us(1), ..Costs::default() };
    let arrivals: Arrivals = "closed(tasks=2, think=1ms)".parse().unwrap();
    let base = every(us(100), "25us", "round-robin:quantum=10us", 1);
    let steps = first_steps(&Scenario { preemption, costs, arrivals, ..base }, 12);
    let times = |what| -> Vec<u64> {
        steps.iter().filter(|s| s.kind == what).map(|s| s.at.0 / 1000).collect()
    };
    assert_eq!(times(EventKind::Preempted), [12, 26, 40, 54], "{steps:?}");
    assert_eq!(times(EventKind::Start), [0, 12, 26, 40, 54]);
    assert_eq!(times(EventKind::Block), [60]);
}

fn ideal() -> Preemption {
    Preemption::named("ideal").unwrap()
}

#[test]
fn an_overdue_task_is_preempted_only_once_another_arrives() {
    let alone = run(&every(us(30), "25us", "round-robin:quantum=10us", 1)).unwrap();
    assert_eq!((alone.counts.preemptions, p(&alone, 100.0)), (0, 25));
    // Batch work outlives its quantum alone and yields in the instant in which a request arrives.
    let batch = Scenario { batch: 1, ..every(us(100), "5us", "round-robin:quantum=10us", 1) };
    let outcome = run(&batch).unwrap();
    assert_eq!((p(&outcome, 100.0), outcome.counts.preemptions), (5, outcome.counts.done));
}

#[test]
fn a_source_with_an_interval_notices_an_overdue_task_at_its_next_look() {
    // It looks at 120, 210 and 300 us at what arrived at 100, 200 and 300.
    let preemption = Preemption { interval: us(30), ..ideal() };
    let base = every(us(100), "5us", "round-robin:quantum=10us", 1);
    let outcome = run(&Scenario { preemption, batch: 1, ..base }).unwrap();
    assert_eq!([30.0, 60.0, 100.0].map(|percent| p(&outcome, percent)), [5, 15, 25]);
    assert_eq!(outcome.counts.preemptions, outcome.counts.done);
}

#[test]
fn a_local_timer_interrupts_at_every_quantum_even_if_no_task_waits() {
    let preemption =
        Preemption { by: PreemptionSource::LocalTimer, receive: us(1), skip: false, ..ideal() };
    let scenario = Scenario { preemption, ..every(us(50), "35us", "round-robin:quantum=10us", 1) };
    let outcome = run(&scenario).unwrap();
    // 35 us hold three whole quanta of 10 us.
    assert_eq!((p(&outcome, 100.0), outcome.counts.preemptions), (38, 0));
    near(outcome.counts.interrupts as f64, 3000.0, 0.01);
}

#[test]
fn a_timer_core_that_is_busy_sends_late() {
    // Sixteen clients on four CPUs, endless work; at 4 us a message, the timer serves 2.5 CPUs at a
    // quantum of 10 us.
    let of = |send| {
        let arrivals: Arrivals = "closed(tasks=16, think=1ms)".parse().unwrap();
        let preemption = Preemption { send, ..ideal() };
        let base = every(us(50), "10ms", "round-robin:quantum=10us", 4);
        let outcome = run(&Scenario { preemption, arrivals, ..base }).unwrap();
        outcome.counts.preemptions as f64 / outcome.time.as_secs_f64()
    };
    near(of(us(0)), 4.0 / 10e-6, 0.2);
    near(of(us(4)), 1.0 / 4e-6, 0.02);
}

#[test]
fn an_overload_that_is_too_slow_for_the_queues_to_show_is_seen_in_the_cpus() {
    // 0.98 of work and 0.03 of switches.
    let costs = Costs { switch: Ns(300), ..Costs::default() };
    let base = Scenario::ideal("fifo", 24, "10us".parse().unwrap(), 0.98);
    let arrivals = Arrivals::Periodic;
    let scenario = Scenario { costs, arrivals, requests: 30_000, ..base };
    assert_eq!(run(&scenario).unwrap().unstable, Some(crate::Unstable::Saturated));
}

#[test]
fn a_dispatcher_saturates_before_the_cpus_do() {
    let dispatcher = Dispatcher { admit: us(1), notice: us(1), dispatch: us(2), handoff: us(3) };
    let at = |gap| {
        let base = every(us(gap), "10us", "fifo", 8);
        run(&Scenario { dispatcher: Some(dispatcher), requests: 20_000, ..base }).unwrap()
    };
    let light = at(20);
    // 1 to admit, 2 to dispatch, 3 until the CPU has it, 10 to run.
    assert_eq!((p(&light, 100.0), light.unstable), (16, None));
    let heavy = at(3);
    assert!(heavy.unstable.is_some());
    near(heavy.throughput, 1e6 / 4.0, 0.02);
}

#[test]
fn batch_work_takes_what_requests_leave_and_pays_for_the_change() {
    let costs = Costs { app_switch: us(1), ..Costs::default() };
    let scenario =
        Scenario { batch: 1, costs, ..every(us(100), "20us", "round-robin:quantum=10us", 1) };
    let outcome = run(&scenario).unwrap();
    near(outcome.shares.requests, 0.2, 0.02);
    near(outcome.shares.batch, 0.76, 0.03);
    assert!(outcome.counts.app_switches > 2000);
    let sum = outcome.shares.requests
        + outcome.shares.batch
        + outcome.shares.overhead
        + outcome.shares.idle;
    near(sum, 1.0, 1e-4);
}

#[test]
fn a_migration_costs_more_the_farther_it_goes() {
    // Three clients on two CPUs: one of them is always moved. A microsecond within a cache, ten to the
    // other node.
    let migration = [Ns::ZERO, Ns::ZERO, us(1), Ns::ZERO, us(10)];
    let arrivals: Arrivals = "closed(tasks=3, think=1ms)".parse().unwrap();
    let base = every(us(100), "1ms", "work-stealing:quantum=50us", 2);
    let close = Scenario { costs: Costs { migration, ..Costs::default() }, arrivals, ..base };
    let far = Scenario { machine: Machine { cpus: 2, smt: 1, llc: 1, node: 1 }, ..close.clone() };
    let cost = |scenario| {
        let outcome = run(scenario).unwrap();
        let time = outcome.shares.overhead * 2.0 * outcome.time.0 as f64;
        time / outcome.counts.migrations as f64
    };
    near(cost(&close), 1000.0, 0.01);
    near(cost(&far), 10_000.0, 0.01);
}

#[test]
fn early_binding_keeps_a_request_where_it_arrived() {
    let mut scenario = every(us(10), "15us", "best-of-two", 2);
    scenario.steering = Steering { to: Steer::Hash { flows: 1 }, binds: true };
    scenario.load = Load::PerSecond(50_000.0);
    let outcome = run(&scenario).unwrap();
    near(outcome.shares.idle, 1.0 - 0.375, 0.05);
    scenario.load = Load::PerSecond(80_000.0);
    scenario.requests = 20_000;
    assert!(run(&scenario).unwrap().unstable.is_some(), "one CPU has it all");
}

/// Sends the first part of `mix` to CPU 1 and drops every second request of the others.
struct Picky(u64);

impl SteeringPolicy for Picky {
    fn choose(&mut self, arrival: &Arrival, executors: &dyn Executors) -> Choice {
        assert_eq!(executors.count(), 2);
        assert!(arrival.cpu < 2 && executors.serves(0).is_none_or(|kind| kind == 1));
        if arrival.kind == 0 {
            return Choice::Executor(1);
        }
        self.0 += 1;
        if self.0.is_multiple_of(2) { Choice::Drop } else { Choice::Executor(0) }
    }
}

#[test]
fn a_policy_from_outside_binds_requests_and_drops_them() {
    let mix = "get: 99.5% 1us, scan: 0.5% 100us";
    let mut scenario = Scenario::ideal("best-of-two", 2, mix.parse().unwrap(), 0.3);
    scenario.requests = 50_000;
    let mut picky = Picky(0);
    let outcome = run_steered(&scenario, &mut picky).unwrap();
    assert_eq!(outcome.counts.dropped, picky.0 / 2);
    near(outcome.counts.dropped as f64, 55_000.0 * 0.0025, 0.3);
    assert_eq!(outcome.unstable, None);
    let short = outcome.parts[0].response.percentile(99.9);
    assert!(short < us(50), "no short one waits for a long one: {short}");
}

struct Never;

impl SteeringPolicy for Never {
    fn choose(&mut self, _: &Arrival, _: &dyn Executors) -> Choice {
        Choice::Drop
    }
}

#[test]
fn a_policy_that_drops_everything_is_given_up() {
    let mut scenario = every(us(10), "15us", "best-of-two", 2);
    scenario.requests = 1000;
    assert!(run_steered(&scenario, &mut Never).unwrap().unstable.is_some());
}

#[test]
fn equal_scenarios_give_equal_outcomes() {
    let scenario =
        Scenario::ideal("two-queue:quantum=5us", 4, "aspen-rocksdb".parse().unwrap(), 0.7);
    let scenario = Scenario { requests: 20_000, ..scenario };
    assert_eq!(run(&scenario).unwrap(), run(&scenario).unwrap());
    let other = run(&Scenario { seed: 2, ..scenario.clone() }).unwrap();
    assert_ne!(run(&scenario).unwrap().mean, other.mean);
}

/// A scenario whose arrivals are this trace.
fn traced(name: &str, text: &str, policy: &str) -> (Scenario, std::path::PathBuf) {
    let file =
        std::env::temp_dir().join(format!("heddle-traced-{name}-{}.csv", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let mut scenario = every(us(1), "1us", policy, 4);
    scenario.arrivals = Arrivals::Trace(file.clone());
    (scenario, file)
}

#[test]
fn a_recorded_connection_is_the_flow_that_is_hashed() {
    // Two connections with two requests each at once: those of one wait for each other, wherever they are hashed to.
    let rows: String =
        (0..200).map(|i| format!("{},5us,{}\n", 100_000 * (i / 2), i / 2 % 7)).collect();
    let trace = format!("arrival,service,connection\n{rows}");
    let (mut scenario, file) = traced("flow", &trace, "best-of-two");
    scenario.steering = Steering { to: Steer::Hash { flows: 64 }, binds: true };
    let bound = run(&scenario).unwrap();
    let steered = run_steered(&scenario, &mut Flows).unwrap();
    std::fs::remove_file(file).unwrap();
    for outcome in [bound, steered] {
        assert_eq!((p(&outcome, 49.0), p(&outcome, 51.0)), (5, 10));
    }
}

struct Flows;

impl SteeringPolicy for Flows {
    fn choose(&mut self, arrival: &Arrival, _: &dyn Executors) -> Choice {
        Choice::Executor(arrival.flow as usize % 4)
    }
}

#[test]
fn what_a_trace_says_and_cpus_do_not_do_is_refused() {
    let said = |name, text: &str| {
        let (scenario, file) = traced(name, text, "fifo");
        let said = run(&scenario).unwrap_err().to_string();
        std::fs::remove_file(file).unwrap();
        said
    };
    let wait = said("wait", "arrival,service,wait\n0,1us,\n5,1us,3us\n");
    assert!(wait.contains("column `wait`: a CPU does not hold a request that sleeps"), "{wait}");
    let executor = said("executor", "arrival,service,executor\n0,1us,2\n");
    assert!(executor.contains("column `executor`: the policy decides"), "{executor}");
    let (nothing, file) = traced("nothing", "arrival,service,wait,executor\n0,1us,0,\n", "fifo");
    assert_eq!(run(&nothing).unwrap().counts.done, 1);
    std::fs::remove_file(file).unwrap();
}
