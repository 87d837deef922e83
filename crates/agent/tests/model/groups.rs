//! All-or-nothing groups with a fault at each step: nothing changes.

use crate::{enclave_on, older, run, transaction};
use heddle_agent::Backend;
use heddle_agent::model::machine::{Arrival, Machine, ModelEnclave};
use heddle_agent::model::{
    CpuOccupant, CpuWord, Group, Kind, Outcome, QueueWord, ThreadWord, Transaction,
};
use heddle_core::{CpuId, CpuSet, TaskId};
use proptest::prelude::*;

/// The CPUs of the groups.
const CPUS: u16 = 4;
/// Of the machine's other CPUs, one is offline, one belongs to another enclave, and one has a thread on its way
/// that is past recall.
const OFFLINE: u16 = CPUS;
const TAKEN: u16 = CPUS + 1;
const DIRECT: u16 = CPUS + 2;

/// Faults of a transaction.
#[derive(Clone, Copy, Debug)]
enum Fault {
    OldThread,
    OldAgent,
    AnotherThread,
    NoSuchCpu,
    Asleep,
    Running,
    Confined,
    Offline,
    Taken,
    PastRecall,
    SameThread,
    SameCpu,
}

const FAULTS: [(Fault, Outcome); 12] = [
    (Fault::OldThread, Outcome::Stale),
    (Fault::OldAgent, Outcome::AgentStale),
    (Fault::AnotherThread, Outcome::NoThread),
    (Fault::NoSuchCpu, Outcome::Invalid),
    (Fault::Asleep, Outcome::NotRunnable),
    (Fault::Running, Outcome::OnCpu),
    (Fault::Confined, Outcome::Affinity),
    (Fault::Offline, Outcome::CpuOffline),
    (Fault::Taken, Outcome::CpuBusy),
    (Fault::PastRecall, Outcome::Again),
    (Fault::SameThread, Outcome::OnCpu),
    (Fault::SameCpu, Outcome::Invalid),
];

/// The state of a CPU before the group.
#[derive(Clone, Copy, Debug)]
enum Before {
    Nothing,
    Latched,
    Runs,
    RunsAndLatched,
}

fn before() -> impl Strategy<Value = Before> {
    prop_oneof![
        Just(Before::Nothing),
        Just(Before::Latched),
        Just(Before::Runs),
        Just(Before::RunsAndLatched)
    ]
}

struct Scene {
    machine: Machine,
    enclave: ModelEnclave,
    /// Parked threads, one for each CPU.
    parked: Vec<TaskId>,
    /// Latched threads, by CPU.
    latched: Vec<Option<TaskId>>,
    asleep: TaskId,
    running: TaskId,
    confined: TaskId,
}

impl Scene {
    fn new(before: &[Before]) -> Scene {
        let machine = Machine::flat(usize::from(CPUS) + 4).arriving(Arrival::ByHand);
        let (machine, enclave) = enclave_on(machine, CPUS + 4);
        let spawn = || machine.spawn(enclave.id(), true);
        let runs = |cpu: u16| {
            let thread = spawn();
            run(&enclave, thread, cpu);
            machine.arrive(CpuId(cpu));
            thread
        };
        let running = runs(CPUS + 3);
        machine.set_online(CpuId(OFFLINE), false);
        machine.occupy(CpuId(TAKEN), CpuOccupant::Ordinary);
        let direct = Transaction { direct: true, ..transaction(&enclave, spawn(), DIRECT) };
        assert_eq!(enclave.commit(&mut [direct], Group::Each), 1);
        let confined = spawn();
        machine.set_affinity(
            confined,
            CpuSet::first(usize::from(CPUS) + 4).minus(&CpuSet::first(usize::from(CPUS))),
        );
        let latched = before.iter().zip(0..).map(|(before, cpu)| {
            if matches!(before, Before::Runs | Before::RunsAndLatched) {
                runs(cpu);
            }
            let latched = matches!(before, Before::Latched | Before::RunsAndLatched);
            latched.then(|| {
                let thread = spawn();
                run(&enclave, thread, cpu);
                thread
            })
        });
        let latched = latched.collect();
        let parked = before.iter().map(|_| spawn()).collect();
        let asleep = machine.spawn(enclave.id(), false);
        Scene { machine, enclave, parked, latched, asleep, running, confined }
    }

    fn group(&self) -> Vec<Transaction> {
        let all = self.parked.iter().zip(0..);
        all.map(|(&thread, cpu)| transaction(&self.enclave, thread, cpu)).collect()
    }

    /// Makes the transaction at this position of a group impossible. Returns false if that needs an earlier
    /// transaction.
    fn spoil(&self, group: &mut [Transaction], at: usize, fault: Fault) -> bool {
        let of = |thread| transaction(&self.enclave, thread, group[at].cpu.0);
        let (queue, good) = (self.enclave.default_queue(), group[at]);
        let to = |cpu| Transaction { cpu: CpuId(cpu), ..good };
        group[at] = match fault {
            Fault::OldThread => Transaction { tseq: good.tseq.map(older), ..good },
            Fault::OldAgent => {
                let aseq = older(self.enclave.queue(queue).aseq);
                Transaction { aseq: Some((queue, aseq)), ..good }
            }
            Fault::AnotherThread => Transaction { tid: 1, ..good },
            Fault::NoSuchCpu => to(CPUS + 4),
            Fault::Asleep => of(self.asleep),
            Fault::Running => of(self.running),
            Fault::Confined => of(self.confined),
            Fault::Offline => to(OFFLINE),
            Fault::Taken => Transaction { only_free: true, ..to(TAKEN) },
            Fault::PastRecall => to(DIRECT),
            Fault::SameThread | Fault::SameCpu if at == 0 => return false,
            Fault::SameThread => Transaction { cpu: good.cpu, ..group[at - 1] },
            Fault::SameCpu => to(group[at - 1].cpu.0),
        };
        true
    }

    fn snapshot(&self) -> (Vec<ThreadWord>, Vec<CpuWord>, QueueWord) {
        let threads =
            self.enclave.threads().iter().map(|&task| self.enclave.thread(task)).collect();
        let cpus = (0..CPUS + 4).map(|cpu| self.enclave.cpu(CpuId(cpu))).collect();
        (threads, cpus, self.enclave.queue(self.enclave.default_queue()))
    }

    /// Commits a group with a fault at `at`, and checks everything.
    fn fails(&self, at: usize, fault: Fault, why: Outcome) {
        let (mut group, before) = (self.group(), self.snapshot());
        if !self.spoil(&mut group, at, fault) {
            return;
        }
        assert_eq!(self.enclave.commit(&mut group, Group::AllOrNothing), 0, "{fault:?}");
        for (place, one) in group.iter().enumerate() {
            let expected = if place == at { why } else { Outcome::Poisoned };
            assert_eq!(one.outcome, expected, "{fault:?} at {at}, and {place}");
        }
        assert_eq!(self.snapshot(), before, "{fault:?} at {at}");
        self.machine.audit().unwrap();
    }

    /// Commits the group without a fault: displaced threads get a message.
    fn succeeds(&self) {
        while self.enclave.next(self.enclave.default_queue()).is_some() {}
        let mut group = self.group();
        assert_eq!(self.enclave.commit(&mut group, Group::AllOrNothing), group.len());
        let sent = std::iter::from_fn(|| self.enclave.next(self.enclave.default_queue()));
        let sent: Vec<_> =
            sent.map(|message| (message.kind, message.thread, message.info)).collect();
        let made_room = self.latched.iter().flatten();
        let expected: Vec<_> = made_room.map(|&t| (Kind::ThreadPreempted, t, 1)).collect();
        assert_eq!(sent, expected);
        for (&thread, cpu) in self.parked.iter().zip(0..) {
            assert_eq!(self.enclave.cpu(CpuId(cpu)).latched, Some(thread));
        }
        self.machine.audit().unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_group_is_committed_or_leaves_everything_as_it_was(
        before in prop::collection::vec(before(), 1..=usize::from(CPUS)),
    ) {
        let scene = Scene::new(&before);
        for at in 0..before.len() {
            for (fault, why) in FAULTS {
                scene.fails(at, fault, why);
            }
        }
        scene.succeeds();
    }
}
