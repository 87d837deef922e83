//! The same schedule everywhere: on one, two and four CPUs the policy agent schedules the threads of the model
//! machine as the simulator schedules the same requests, step by step and to the nanosecond, under every policy.
//! That includes placing, stealing and preemption.
#![allow(missing_docs)]

use heddle_agent::Backend;
use heddle_agent::model::machine::{Machine, ModelEnclave, Spec};
use heddle_agent::policy::{Scheduler, Settings};
use heddle_core::{CpuId, Event, EventKind, Layer, Ns, Policy, Rng, TaskId};
use heddle_policies::Visitor;
use heddle_sim::costs::Dispatcher;
use heddle_sim::workload::Arrivals;
use heddle_sim::{Recorder, Scenario, run_watched};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::PathBuf;

const REQUESTS: u64 = 300;

/// Policies whose schedules differ, from which number of CPUs on, and why.
const UNEQUAL: [(&str, u16, &str); 3] = [
    ("sjf", 1, "the simulator knows how long requests take, an agent does not"),
    ("srpt", 1, "the simulator knows how long requests take, an agent does not"),
    (
        "shinjuku-shenango",
        4,
        "where three quanta end in one instant, the simulator goes from CPU to CPU \
         and an agent decides for all at once",
    ),
];

fn is_comparable(policy: &str, cpus: u16) -> bool {
    let differs = |&(name, from, _): &(&str, u16, &str)| policy.starts_with(name) && cpus >= from;
    !UNEQUAL.iter().any(differs)
}

/// A request: a thread that arrives at some time and ends when it has run for long enough.
#[derive(Clone, Copy, Debug)]
struct Request {
    at: Ns,
    service: Ns,
}

/// Generates requests of three sizes that keep `cpus` CPUs busy for most of the time.
fn workload(seed: u64, cpus: u64) -> Vec<Request> {
    let random = Rng::new(seed);
    let below = |bound: u64| random.below(bound as usize) as u64;
    let mut at = 0;
    let mut request = |_| {
        let scale = match below(20) {
            0 => 900_000,
            1..=4 => 130_000,
            _ => 17_000,
        };
        // On average 85 us of work every 100 us for each CPU; sometimes a burst.
        let gap = if below(8) == 0 { below(2_000) } else { below(228_000) / cpus };
        at += gap + 1;
        Request { at: Ns(at), service: Ns(scale / 2 + below(scale)) }
    };
    (0..REQUESTS).map(&mut request).collect()
}

/// Writes a trace of the requests for the simulator.
fn write_trace(name: &str, requests: &[Request]) -> PathBuf {
    let mut text = String::from("arrival,service,class\n");
    requests.iter().for_each(|r| writeln!(text, "{},{},0", r.at.0, r.service.0).unwrap());
    let path = std::env::temp_dir().join(format!("heddle-agent-{name}-{}.csv", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

/// Computes the agent's schedule of `requests` on `cpus` CPUs.
struct Schedule<'a> {
    requests: &'a [Request],
    cpus: u16,
    text: &'a str,
}

impl Visitor for Schedule<'_> {
    type Out = Vec<Event>;

    fn visit<P: Policy>(self, policy: P) -> Vec<Event> {
        let machine = Machine::flat(self.cpus.into());
        let enclave = machine.enclave(Spec::of((0..self.cpus).map(CpuId))).unwrap();
        enclave.attach().unwrap();
        let settings = Settings { threads: 1024, ..Settings::default() };
        let mut agent = Scheduler::new(policy, &enclave as &dyn Backend, settings);
        agent.adopt();
        agent.record();
        let mut play =
            Play { machine, enclave: &enclave, agent, cpus: self.cpus, left: HashMap::new() };
        play.play(self.requests, self.text);
        without_last_sleep(numbered(play.agent.recorded()))
    }
}

/// A machine in virtual time: threads end when they have run for long enough.
struct Play<'a, P: Policy> {
    machine: Machine,
    enclave: &'a ModelEnclave,
    agent: Scheduler<'a, P>,
    cpus: u16,
    /// The remaining run time of each thread.
    left: HashMap<TaskId, Ns>,
}

impl<P: Policy> Play<'_, P> {
    fn play(&mut self, requests: &[Request], text: &str) {
        let mut coming = requests.iter().enumerate();
        let mut arrival = coming.next();
        let mut due = self.settle();
        for _ in 0..1_000_000 {
            let comes = arrival.map_or(Ns::MAX, |(_, request)| request.at);
            let ends = self.next_end();
            let now = comes.min(ends).min(due.unwrap_or(Ns::MAX));
            if now == Ns::MAX {
                assert!(self.left.is_empty(), "{text}: threads wait and nothing happens");
                return;
            }
            self.pass(now);
            if now == comes
                && let Some((number, request)) = arrival
            {
                // The simulator's round robin begins with the second CPU.
                let cpu = CpuId(((number + 1) % usize::from(self.cpus)) as u16);
                let thread = self.machine.spawn_on(self.enclave.id(), cpu, true);
                self.left.insert(thread, request.service);
                arrival = coming.next();
            } else if now == ends {
                let done = self.running().find(|&task| self.left[&task] == Ns::ZERO);
                let done = done.expect("a thread that ends now");
                self.left.remove(&done);
                self.machine.exit(done);
            }
            due = self.settle();
        }
        panic!("{text}: the schedule does not end");
    }

    fn running(&self) -> impl Iterator<Item = TaskId> {
        (0..self.cpus).filter_map(|cpu| self.machine.running(CpuId(cpu)))
    }

    fn next_end(&self) -> Ns {
        let now = self.machine.time();
        self.running().map(|task| now + self.left[&task]).min().unwrap_or(Ns::MAX)
    }

    /// Advances the time to `to`, and the running threads with it.
    fn pass(&mut self, to: Ns) {
        let time = to - self.machine.time();
        let running: Vec<_> = self.running().collect();
        for task in running {
            *self.left.get_mut(&task).expect("every thread has work") -= time;
        }
        self.machine.set_time(to);
    }

    /// Runs the agent until it has nothing more to do. Returns when it is due again.
    fn settle(&mut self) -> Option<Ns> {
        loop {
            let round = self.agent.round();
            let again = round.next.is_some_and(|next| next <= self.machine.time());
            if !again && !round.is_unfinished && round.messages == 0 && round.committed == 0 {
                return round.next;
            }
        }
    }
}

/// Numbers threads in the order of their arrival, as the simulator does, and states its layer. Slots are reused.
fn numbered(mut steps: Vec<Event>) -> Vec<Event> {
    let (mut born, mut numbers) = (0, HashMap::new());
    for step in &mut steps {
        if step.kind == EventKind::New {
            numbers.insert(step.who, born);
            born += 1;
        }
        *step = Event { who: numbers[&step.who], ..step.of(Layer::Sim) };
    }
    steps
}

/// Removes the steps by which an ending thread goes to sleep first, as the kernel reports it.
fn without_last_sleep(steps: Vec<Event>) -> Vec<Event> {
    let ends = |at: usize| {
        let (step, next) = (&steps[at], steps.get(at + 1));
        let dies = next.is_some_and(|next| next.who == step.who && next.kind == EventKind::Exit);
        step.kind == EventKind::Block && dies
    };
    (0..steps.len()).filter(|&at| !ends(at)).map(|at| steps[at]).collect()
}

/// Sorts the steps of each instant by CPU: an agent commits its decisions for several CPUs at once, the simulator
/// goes from one to the next.
fn by_cpu(mut steps: Vec<Event>) -> Vec<Event> {
    steps.sort_by_key(|step| (step.at, step.cpu));
    steps
}

/// Returns the first difference, with the steps before it.
fn difference(simulated: &[Event], scheduled: &[Event]) -> Option<String> {
    let steps = simulated.len().max(scheduled.len());
    let at = (0..steps).find(|&i| simulated.get(i) != scheduled.get(i))?;
    let mut text = format!("step {at} of {} simulated and {}:\n", simulated.len(), scheduled.len());
    for i in at.saturating_sub(8)..(at + 4).min(steps) {
        let show = |step: Option<&Event>| {
            step.map_or("-".into(), |s| format!("{:>9} {} {:>3} {}", s.at.0, s.cpu, s.who, s.kind))
        };
        let mark = if i == at { '>' } else { ' ' };
        writeln!(text, "{mark} {:<32} {}", show(simulated.get(i)), show(scheduled.get(i))).unwrap();
    }
    Some(text)
}

fn check(cpus: u16, seed: u64) {
    let requests = workload(seed, cpus.into());
    let trace = write_trace(&format!("{cpus}-{seed}"), &requests);
    let complain = |policy: &str| {
        let base = Scenario::ideal(policy, cpus.into(), "1us".parse().unwrap(), 0.5);
        let arrivals = Arrivals::Trace(trace.clone());
        // An agent is a dispatcher: with a central queue, it hands out the threads.
        let dispatcher = Some(Dispatcher::default());
        let scenario = Scenario { arrivals, dispatcher, warmup: 0.0, ..base };
        let simulated = run_watched(&scenario, Recorder::new(1 << 20)).unwrap().1.steps;
        let schedule = Schedule { requests: &requests, cpus, text: policy };
        let scheduled = heddle_policies::with_policy(policy, schedule).unwrap();
        difference(&by_cpu(simulated), &by_cpu(scheduled)).map(|text| format!("{policy}: {text}"))
    };
    let all = heddle_policies::list().iter();
    let texts = all.flat_map(|info| [info.name.to_owned(), info.example()]);
    let policies: Vec<_> = texts.filter(|policy| is_comparable(policy, cpus)).collect();
    let wrong: Vec<_> = policies.iter().filter_map(|policy| complain(policy)).collect();
    std::fs::remove_file(&trace).unwrap();
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), policies.len(), wrong.join("\n"));
}

#[test]
fn on_one_cpu() {
    (1..=3).for_each(|seed| check(1, seed));
}

#[test]
fn on_two_cpus() {
    (1..=3).for_each(|seed| check(2, seed));
}

#[test]
fn on_four_cpus() {
    (1..=3).for_each(|seed| check(4, seed));
}
