//! Trace equivalence: if scheduling costs nothing, the simulator's schedule of a workload equals the
//! runtime's, step by step and to the nanosecond, under every policy, on one, two and four CPUs:
//! placing, stealing and preemption included. The runtime is the real one, with a clock that only the
//! workload advances (`heddle_rt::virtual_time`); built by `scripts/test-virtual` only.
#![cfg(virtual_time)]

use heddle_core::{Class, Event, EventKind, Layer, Ns, Rng, TaskAttrs};
use heddle_rt::virtual_time::{Job, Kind, Step as Does, schedule};
use heddle_sim::workload::Arrivals;
use heddle_sim::{Recorder, Scenario, run_watched};
use std::fmt::Write;
use std::path::PathBuf;

/// The maximum number of simulator steps recorded: more than a workload has.
const STEPS: usize = 1 << 20;

const REQUESTS: u64 = 400;

/// Sizes of the machine.
const CPUS: [u16; 3] = [1, 2, 4];

/// Policies whose schedules differ, from how many CPUs on, and why.
const UNEQUAL: [(&str, u16, &str); 1] = [(
    "priority",
    4,
    "if a quantum ends in the instant in which another task was asked to yield, the simulator's timer \
     counts waiting tasks as served and asks again when more arrive; in the runtime that task checks, too",
)];

fn is_comparable(policy: &str, cpus: u16) -> bool {
    let differs = |&(name, from, _): &(&str, u16, &str)| policy.starts_with(name) && cpus >= from;
    !UNEQUAL.iter().any(differs)
}

/// Requests that keep `cpus` CPUs busy most of the time, of three sizes and as many classes. All times
/// are multiples of `grain`.
fn workload(seed: u64, cpus: u16, grain: u64) -> Vec<Job> {
    let random = Rng::new(seed);
    let below = |bound: u64| random.below(bound as usize) as u64;
    let mut at = 0;
    let mut request = |_| {
        let (class, scale) = match below(20) {
            0 => (2, 900_000),
            1..=4 => (1, 130_000),
            _ => (0, 17_000),
        };
        let service = Ns((scale / 2 + below(scale)).next_multiple_of(grain));
        // 85 us of work on average, every 100 us per CPU; occasionally a burst.
        let gap = if below(8) == 0 { below(2_000) } else { below(228_000) / u64::from(cpus) };
        at += (gap + 1).next_multiple_of(grain);
        let attrs =
            TaskAttrs { class: Class(class), expected: Some(service), ..TaskAttrs::default() };
        Job { at: Ns(at), attrs, steps: vec![Does::Run(service)] }
    };
    (0..REQUESTS).map(&mut request).collect()
}

/// Returns the service of a job that only computes.
fn service(job: &Job) -> Ns {
    job.steps
        .iter()
        .map(|step| if let Does::Run(time) = step { *time } else { Ns::ZERO })
        .fold(Ns::ZERO, |a, b| a + b)
}

/// Writes a trace of the jobs for the simulator.
fn write_trace(name: &str, jobs: &[Job]) -> PathBuf {
    let mut text = String::from("arrival,service,class\n");
    for job in jobs {
        writeln!(text, "{},{},{}", job.at.0, service(job).0, job.attrs.class.0).unwrap();
    }
    let path = std::env::temp_dir().join(format!("heddle-{name}-{}.csv", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

/// Returns the simulator's schedule. Whether so few requests look stable does not matter here.
fn simulated(scenario: &Scenario) -> Vec<Event> {
    run_watched(scenario, Recorder::new(STEPS)).unwrap().1.steps
}

/// Asserts that futures are scheduled as threads are, and returns that schedule.
fn ran(policy: &str, cpus: u16, jobs: &[Job]) -> Vec<Event> {
    let of = |kind| schedule(kind, policy, cpus, jobs).unwrap_or_else(|error| panic!("{error}"));
    let (threads, futures) = (of(Kind::Threads), of(Kind::Futures));
    if let Some(text) = difference(&threads, &futures) {
        panic!("{policy}, {cpus} CPUs, threads and not the simulator, and futures: {text}");
    }
    // The layers differ, and nothing else should.
    threads.into_iter().map(|step| step.of(Layer::Sim)).collect()
}

/// Returns the first difference with its context, if there is one.
fn difference(simulated: &[Event], ran: &[Event]) -> Option<String> {
    let steps = simulated.len().max(ran.len());
    let at = (0..steps).find(|&i| simulated.get(i) != ran.get(i))?;
    let mut text = format!("step {at} of {} simulated and {} run:\n", simulated.len(), ran.len());
    for i in at.saturating_sub(8)..(at + 4).min(steps) {
        let show = |step: Option<&Event>| {
            step.map_or("-".into(), |s| format!("{:>9} {} {:>3} {}", s.at.0, s.cpu, s.who, s.kind))
        };
        let mark = if i == at { '>' } else { ' ' };
        writeln!(text, "{mark} {:<32} {}", show(simulated.get(i)), show(ran.get(i))).unwrap();
    }
    Some(text)
}

/// Returns every policy that can be compared on `cpus` CPUs, bare and with every parameter given.
fn policies(cpus: u16) -> impl Iterator<Item = String> {
    let all = heddle_policies::list().iter();
    let texts = all.flat_map(|info| [info.name.to_owned(), info.example()]);
    texts.filter(move |policy| is_comparable(policy, cpus))
}

/// Asserts that `check` finds no difference under any policy on `cpus` CPUs.
fn over_all_policies(cpus: u16, check: impl Fn(&str) -> Option<String>) {
    let complain =
        |policy: String| check(&policy).map(|text| format!("{policy}, {cpus} CPUs: {text}"));
    let complaints: Vec<String> = policies(cpus).filter_map(complain).collect();
    assert!(
        complaints.is_empty(),
        "{} of {}\n{}",
        complaints.len(),
        policies(cpus).count(),
        complaints.join("\n")
    );
}

/// Returns the simulated machine, which counts all requests.
fn machine(policy: &str, cpus: u16, mix: &str) -> Scenario {
    let base = Scenario::ideal(policy, cpus.into(), mix.parse().unwrap(), 0.5);
    Scenario { warmup: 0.0, ..base }
}

/// Asserts that the schedules of `jobs` on `cpus` CPUs are equal under every policy.
fn check(name: &str, cpus: u16, jobs: &[Job]) {
    let trace = write_trace(name, jobs);
    over_all_policies(cpus, |policy| {
        let arrivals = Arrivals::Trace(trace.clone());
        let simulated = simulated(&Scenario { arrivals, ..machine(policy, cpus, "1us") });
        assert_eq!(simulated.iter().filter(|s| s.kind == EventKind::Exit).count(), jobs.len());
        difference(&simulated, &ran(policy, cpus, jobs))
    });
    std::fs::remove_file(trace).unwrap();
}

/// Asserts that five workloads whose times are multiples of `grain` have equal schedules on machines of
/// every size.
fn check_workloads(name: &str, grain: u64) {
    for (cpus, seed) in CPUS.into_iter().flat_map(|cpus| (1..=5).map(move |seed| (cpus, seed))) {
        check(&format!("{name}-{cpus}-{seed}"), cpus, &workload(seed, cpus, grain));
    }
}

#[test]
fn open_workloads_have_the_same_schedule() {
    check_workloads("open", 1);
}

/// Arrivals, ends and quanta of 50 and 100 us coincide again and again.
#[test]
fn simultaneous_events_happen_in_the_same_order() {
    check_workloads("instants", 25_000);
}

/// Returns what the clients of a closed loop did, so that the runtime's tasks do the same; clients
/// still active at the end continue for a while.
fn clients(steps: &[Event]) -> Vec<Job> {
    const A_WHILE: Ns = Ns::from_ms(10);
    let mut jobs: Vec<Job> = Vec::new();
    // Work since the last sleep, and since when the task runs or sleeps.
    let mut states: Vec<(Ns, Ns)> = Vec::new();
    for step in steps {
        let task = step.who as usize;
        if step.kind == EventKind::New {
            jobs.push(Job { at: step.at, ..Job::default() });
            states.push((Ns::ZERO, step.at));
        }
        let (worked, since) = &mut states[task];
        match step.kind {
            EventKind::Preempted | EventKind::Block => *worked += step.at - *since,
            EventKind::Wakeup => jobs[task].steps.push(Does::Block(step.at - *since)),
            _ => {}
        }
        if step.kind == EventKind::Block {
            jobs[task].steps.push(Does::Run(std::mem::take(worked)));
        }
        *since = step.at;
    }
    for (job, (worked, _)) in jobs.iter_mut().zip(states) {
        let sleeps = matches!(job.steps.last(), Some(Does::Run(_)));
        job.steps.push(if sleeps { Does::Block(A_WHILE) } else { Does::Run(worked + A_WHILE) });
    }
    jobs
}

/// Six clients per CPU that wait for their answer, think and ask again: tasks that sleep and wake, more
/// than can be served.
fn check_closed(cpus: u16) {
    over_all_policies(cpus, |policy| {
        // Attributes cannot change during a task's life here: all requests are of one size.
        let service = Ns(137_300);
        let arrivals = format!("closed(tasks={}, think=exp(400us))", 6 * cpus).parse().unwrap();
        let scenario = Scenario { arrivals, requests: 500, ..machine(policy, cpus, "137.3us") };
        let simulated = simulated(&scenario);
        let attrs = TaskAttrs { expected: Some(service), ..TaskAttrs::default() };
        let jobs: Vec<Job> = clients(&simulated).into_iter().map(|j| Job { attrs, ..j }).collect();
        let ran = ran(policy, cpus, &jobs);
        difference(&simulated, &ran[..simulated.len().min(ran.len())])
    });
}

#[test]
fn closed_loops_have_the_same_schedule() {
    CPUS.into_iter().for_each(check_closed);
}
