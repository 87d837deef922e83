//! Any policy of the library, on any sequence of events that an enclave can see.

use super::thread::{KernelState, PolicyState};
use super::{Scheduler, Settings};
use crate::Backend;
use crate::model::machine::{Arrival, Machine, ModelEnclave, Spec};
use crate::model::{CpuOccupant, State};
use heddle_core::{CpuId, CpuSet, Ns, Policy, TaskId};
use heddle_policies::Visitor;
use proptest::prelude::*;

const CPUS: u16 = 4;
const THREADS: u32 = 12;

/// Events. Numbers of threads and CPUs are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
enum Event {
    Spawn {
        runnable: bool,
    },
    Wake(u8),
    Block(u8),
    Yield(u8),
    Exit(u8),
    Depart(u8),
    Affinity(u8, u8),
    Weight(u8, bool),
    Occupy(u8, bool),
    Release(u8),
    Offline(u8),
    Online(u8),
    Pass(u16),
    Arrive(u8),
    Preempt(u8),
    /// The agent runs a round.
    Round,
    /// Another agent replaces it.
    Upgrade,
    /// The enclave has these CPUs from now on, and another agent.
    Resize(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let n = any::<u8>;
    prop_oneof![
        4 => any::<bool>().prop_map(|runnable| Event::Spawn { runnable }),
        6 => n().prop_map(Event::Wake),
        6 => n().prop_map(Event::Block),
        2 => n().prop_map(Event::Yield),
        2 => n().prop_map(Event::Exit),
        1 => n().prop_map(Event::Depart),
        2 => (n(), n()).prop_map(|(thread, cpus)| Event::Affinity(thread, cpus)),
        1 => (n(), any::<bool>()).prop_map(|(thread, low)| Event::Weight(thread, low)),
        2 => (n(), any::<bool>()).prop_map(|(cpu, real)| Event::Occupy(cpu, real)),
        2 => n().prop_map(Event::Release),
        1 => n().prop_map(Event::Offline),
        1 => n().prop_map(Event::Online),
        4 => (0..2000u16).prop_map(Event::Pass),
        4 => n().prop_map(Event::Arrive),
        1 => n().prop_map(Event::Preempt),
        8 => Just(Event::Round),
        1 => Just(Event::Upgrade),
        1 => n().prop_map(Event::Resize),
    ]
}

#[derive(Clone, Debug)]
struct Scenario {
    cpus: u16,
    /// Room for messages: few make for losses.
    ring: usize,
    by_hand: bool,
    /// Whether CPUs take the last of the threads that are offered, and not the first.
    picks: bool,
    events: Vec<Event>,
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let ring = prop_oneof![2 => Just(4096usize), 1 => 2..8usize];
    (1..=CPUS, ring, any::<[bool; 2]>(), prop::collection::vec(event(), 0..120)).prop_map(
        |(cpus, ring, [by_hand, picks], events)| Scenario { cpus, ring, by_hand, picks, events },
    )
}

/// A machine and its agent.
struct Play<'a, P: Policy> {
    machine: &'a Machine,
    enclave: &'a ModelEnclave,
    text: &'a str,
    agent: Scheduler<'a, P>,
    /// Of the machine; the enclave may have fewer.
    cpus: u16,
}

impl<'a, P: Policy> Play<'a, P> {
    fn start(text: &'a str, machine: &'a Machine, enclave: &'a ModelEnclave, cpus: u16) -> Self {
        Play { machine, enclave, text, agent: Self::agent(text, enclave), cpus }
    }

    fn agent(text: &str, enclave: &'a ModelEnclave) -> Scheduler<'a, P> {
        enclave.attach().unwrap();
        let settings = Settings { threads: 64, messages: 64, ..Settings::default() };
        let mut agent = Scheduler::new(
            heddle_policies::build(text).unwrap(),
            enclave as &dyn Backend,
            settings,
        );
        agent.adopt();
        agent
    }

    fn threads(&self) -> Vec<TaskId> {
        self.enclave.threads()
    }

    fn nth(&self, n: u8) -> TaskId {
        let all = self.threads();
        all.get(usize::from(n) % all.len().max(1)).copied().unwrap_or(TaskId(0))
    }

    fn cpu(&self, n: u8) -> CpuId {
        CpuId(u16::from(n) % self.cpus)
    }

    /// Returns the machine's CPUs.
    fn all_cpus(&self) -> impl Iterator<Item = CpuId> + use<P> {
        (0..self.cpus).map(CpuId)
    }

    /// Returns the enclave's CPUs.
    fn own_cpus(&self) -> impl Iterator<Item = CpuId> + use<P> {
        (0..self.enclave.cpus().len() as u16).map(CpuId)
    }

    fn events(&mut self, events: &[Event]) {
        for &event in events {
            self.event(event);
            self.check();
        }
    }

    fn event(&mut self, event: Event) {
        let machine = self.machine;
        match event {
            Event::Spawn { runnable } if self.threads().len() < THREADS as usize => {
                machine.spawn(1, runnable);
            }
            Event::Spawn { .. } => {}
            Event::Wake(n) => drop(machine.wake(self.nth(n))),
            Event::Block(n) => drop(machine.block(self.nth(n))),
            Event::Yield(n) => drop(machine.yield_now(self.nth(n))),
            Event::Exit(n) => drop(machine.exit(self.nth(n))),
            Event::Depart(n) => drop(machine.depart(self.nth(n))),
            Event::Affinity(n, cpus) => self.set_affinity(n, cpus),
            Event::Weight(n, low) => {
                machine.set_weight(self.nth(n), if low { 15 } else { 100 });
            }
            Event::Occupy(n, true) => machine.occupy(self.cpu(n), CpuOccupant::Realtime),
            Event::Occupy(n, false) => machine.occupy(self.cpu(n), CpuOccupant::Ordinary),
            Event::Release(n) => machine.release(self.cpu(n)),
            Event::Offline(n) => machine.set_online(self.cpu(n), false),
            Event::Online(n) => machine.set_online(self.cpu(n), true),
            Event::Pass(us) => self.pass(Ns::from_us(us.into())),
            Event::Arrive(n) => machine.arrive(self.cpu(n)),
            Event::Preempt(n) => {
                let own = u16::from(n) % self.enclave.cpus().len() as u16;
                self.enclave.preempt(CpuId(own));
            }
            Event::Round => {
                self.agent.round();
            }
            Event::Upgrade => self.upgrade(),
            Event::Resize(_) => unreachable!("the end of a part of the scenario"),
        }
    }

    fn set_affinity(&mut self, n: u8, cpus: u8) {
        let mut set = CpuSet::EMPTY;
        self.all_cpus().filter(|cpu| cpus >> cpu.0 & 1 == 1).for_each(|cpu| set.insert(cpu));
        self.machine.set_affinity(self.nth(n), set);
    }

    fn pass(&mut self, time: Ns) {
        self.machine.set_time(self.machine.time() + time);
    }

    fn upgrade(&mut self) {
        self.enclave.detach();
        self.agent = Self::agent(self.text, self.enclave);
    }

    /// Runs the agent until nothing changes.
    fn settle(&mut self) {
        let mut calm = 0;
        for _ in 0..1000 {
            self.all_cpus().for_each(|cpu| self.machine.arrive(cpu));
            let round = self.agent.round();
            self.check();
            let is_calm = round.messages == 0 && round.committed == 0 && !round.is_unfinished;
            calm = if is_calm { calm + 1 } else { 0 };
            if calm == 2
                && self.enclave.queue(self.enclave.default_queue()).lost
                    == self.agent.readers[0].lost
            {
                return;
            }
            if is_calm && let Some(next) = round.next {
                self.machine.set_time(self.machine.time().max(next));
            }
        }
        // Threads whose quanta end keep an agent busy forever, legitimately.
    }

    /// Checks P1 and P2 after every round.
    fn check(&self) {
        self.machine.audit().unwrap();
        let agent = &self.agent;
        let queued = agent
            .threads
            .iter()
            .filter(|known| known.policy_state() == PolicyState::Queued)
            .count();
        assert_eq!(
            agent.waiting().sum::<usize>(),
            queued,
            "the policy's queues have all queued threads"
        );
        assert_eq!(agent.view.total(), queued, "the hints are right");
        for cpu in self.own_cpus() {
            if let Some(task) = agent.cpus[cpu.index()].task {
                let known = &agent.threads[task.index()];
                assert!(known.is_assigned() && known.home == cpu, "{cpu}: {task} {known:?}");
            }
            assert_eq!(agent.cpus[cpu.index()].task.is_none(), agent.free.contains(cpu));
        }
        for (at, known) in agent.threads.iter().enumerate().filter(|(_, known)| known.is_assigned())
        {
            assert_eq!(agent.cpus[known.home.index()].task, Some(TaskId(at as u32)), "{known:?}");
        }
    }

    /// Checks that the agent's knowledge is true.
    fn knows(&self, scenario: &Scenario) {
        for task in self.threads() {
            let (word, known) = (self.enclave.thread(task), &self.agent.threads[task.index()]);
            if word.tseq != known.tseq {
                // A message has just been sent: quanta end all the time.
                continue;
            }
            let fits = match word.state {
                State::Free => known.kernel_state() == KernelState::Gone,
                State::Blocked => known.kernel_state() == KernelState::Blocked,
                State::Parked => known.kernel_state() == KernelState::Parked,
                State::Latched if word.is_offered() => {
                    known.kernel_state() == KernelState::Offered
                        && known.policy_state() == PolicyState::Queued
                }
                State::Latched | State::OnCpu if known.kernel_state() == KernelState::Leaving => {
                    scenario.by_hand
                }
                State::Latched | State::OnCpu => {
                    let stays = self.agent.cpus[known.on.index()].before == Some(task);
                    known.kernel_state() == KernelState::Committed && (known.is_assigned() || stays)
                }
            };
            assert!(fits && known.tid == word.tid, "{task} {word:?} {known:?}");
        }
    }

    /// Checks that no thread waits while a CPU that it may use is free.
    fn conserves_work(&self) {
        let free = |cpu: &CpuId| {
            let word = self.enclave.cpu(*cpu);
            word.online && word.current.is_none() && word.latched.is_none()
        };
        for task in self.threads() {
            let parked = self.enclave.thread(task).state == State::Parked;
            let cpus = self.enclave.affinity(task);
            if let Some(cpu) =
                self.own_cpus().filter(free).find(|&cpu| parked && cpus.contains(cpu))
            {
                let known = self.agent.threads[task.index()];
                panic!(
                    "{task} waits ({known:?}) and {cpu} is free: {:?} {:?}",
                    self.enclave.cpu(cpu),
                    self.agent.cpus[cpu.index()]
                );
            }
        }
    }

    /// Puts everything right, wakes all threads, and ends each that gets a CPU: all must end.
    fn drain(&mut self) {
        for cpu in self.all_cpus() {
            self.machine.set_online(cpu, true);
            self.machine.release(cpu);
        }
        for task in self.threads() {
            if self.enclave.affinity(task).is_empty() {
                self.machine.set_affinity(task, CpuSet::first(self.cpus.into()));
            }
            self.machine.wake(task);
        }
        for _ in 0..2000 {
            if self.threads().is_empty() {
                return;
            }
            self.all_cpus().for_each(|cpu| self.machine.arrive(cpu));
            let round = self.agent.round();
            self.check();
            let running: Vec<_> =
                self.all_cpus().filter_map(|cpu| self.machine.running(cpu)).collect();
            running.into_iter().for_each(|task| {
                self.machine.exit(task);
            });
            if let Some(next) = round.next {
                self.machine.set_time(self.machine.time().max(next));
            }
            self.pass(Ns::from_us(100));
        }
        let rest: Vec<_> = self
            .threads()
            .iter()
            .map(|t| (*t, self.agent.threads[t.index()], self.enclave.thread(*t)))
            .collect();
        panic!("lost: {rest:?} {:?}", self.agent.cpus);
    }
}

/// Ends the agent and gives the enclave other CPUs of the machine: those in `mask`, or all.
fn resized(machine: &Machine, enclave: &ModelEnclave, mask: u8, cpus: u16) -> ModelEnclave {
    enclave.detach();
    let all = || (0..cpus).map(CpuId);
    let mut chosen: Vec<CpuId> = all().filter(|cpu| mask >> cpu.0 & 1 == 1).collect();
    if chosen.is_empty() {
        chosen = all().collect();
    }
    machine.resize(enclave, chosen).unwrap()
}

struct Run<'a>(&'a Scenario, &'a str);

impl Visitor for Run<'_> {
    type Out = ();

    fn visit<P: Policy>(self, _: P) {
        let Run(scenario, text) = self;
        let arrival = if scenario.by_hand { Arrival::ByHand } else { Arrival::AtOnce };
        let machine = Machine::flat(scenario.cpus.into()).arriving(arrival);
        let spec = Spec { ring: scenario.ring, ..Spec::of((0..scenario.cpus).map(CpuId)) };
        let mut enclave = machine.enclave(spec).unwrap();
        if scenario.picks {
            enclave.set_pick_next(|threads| threads.len() - 1);
        }
        let cpus = scenario.cpus;
        let mut rest = &scenario.events[..];
        while let Some(at) = rest.iter().position(|event| matches!(event, Event::Resize(_))) {
            Play::<P>::start(text, &machine, &enclave, cpus).events(&rest[..at]);
            if let Event::Resize(mask) = rest[at] {
                enclave = resized(&machine, &enclave, mask, cpus);
            }
            rest = &rest[at + 1..];
        }
        let mut play = Play::<P>::start(text, &machine, &enclave, cpus);
        play.events(rest);
        play.settle();
        if P::WORK_CONSERVING && P::NAME != "nobody" {
            play.conserves_work();
        }
        play.knows(scenario);
        play.drain();
    }
}

fn every_policy(scenario: &Scenario) {
    for info in heddle_policies::list() {
        let run = || heddle_policies::with_policy(info.name, Run(scenario, info.name)).unwrap();
        if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
            eprintln!("policy {}", info.name);
            std::panic::resume_unwind(panic);
        }
    }
}

proptest! {
    #[test]
    fn no_thread_is_lost_and_no_cpu_idles_needlessly(scenario in scenario()) {
        every_policy(&scenario);
    }
}
