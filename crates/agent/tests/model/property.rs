//! Random sequences of events of the kernel and agents, against invariants.

use crate::mirror::{Mirror, truth};
use heddle_agent::Backend;
use heddle_agent::model::machine::{Arrival, Machine, ModelEnclave, Spec};
use heddle_agent::model::{
    CpuOccupant, CpuWord, Group, Outcome, Phase, QueueId, QueueWord, Seq, State, ThreadWord,
    Transaction,
};
use heddle_core::{CpuId, CpuSet, Ns, TaskId};
use proptest::prelude::*;
use std::collections::BTreeMap;

const CPUS: u16 = 4;

/// Events of the kernel. Threads are named by their position among those alive, modulo their number.
#[derive(Clone, Debug)]
enum Event {
    Spawn(bool),
    Block(usize),
    Wake(usize),
    Yield(usize),
    Exit(usize),
    Depart(usize),
    Affinity(usize, u8),
    Weight(usize, u32),
    Occupy(u16, CpuOccupant),
    Release(u16),
    Tick(u16),
    Online(u16, bool),
    Arrive(u16),
    Time(u64),
    /// The enclave has these CPUs from now on.
    Resize(u8),
}

/// A transaction: which thread, which CPU, and how much of the agent's knowledge is old.
#[derive(Clone, Debug)]
struct Wish {
    thread: usize,
    cpu: u16,
    behind: u64,
    aseq: Option<u64>,
    flags: u8,
    slice: Option<u64>,
}

/// Actions of an agent.
#[derive(Clone, Debug)]
enum Act {
    Drain(usize),
    Commit(Vec<Wish>, bool),
    Recall(u16),
    Preempt(u16),
    Associate(usize, usize),
    AssociateCpu(u16, usize),
    Reattach,
}

#[derive(Clone, Debug)]
enum Op {
    Kernel(Event),
    Agent(Act),
}

fn events() -> impl Strategy<Value = Event> {
    let who = prop_oneof![
        Just(CpuOccupant::Ordinary),
        Just(CpuOccupant::Realtime),
        Just(CpuOccupant::Agent)
    ];
    prop_oneof![
        4 => any::<bool>().prop_map(Event::Spawn),
        4 => any::<usize>().prop_map(Event::Block),
        6 => any::<usize>().prop_map(Event::Wake),
        2 => any::<usize>().prop_map(Event::Yield),
        1 => any::<usize>().prop_map(Event::Exit),
        1 => any::<usize>().prop_map(Event::Depart),
        2 => (any::<usize>(), any::<u8>()).prop_map(|(i, mask)| Event::Affinity(i, mask)),
        1 => (any::<usize>(), 1u32..10_000).prop_map(|(i, weight)| Event::Weight(i, weight)),
        2 => (0..CPUS, who).prop_map(|(cpu, who)| Event::Occupy(cpu, who)),
        3 => (0..CPUS).prop_map(Event::Release),
        1 => (0..CPUS).prop_map(Event::Tick),
        1 => (0..CPUS, any::<bool>()).prop_map(|(cpu, on)| Event::Online(cpu, on)),
        4 => (0..CPUS).prop_map(Event::Arrive),
        2 => (1u64..1000).prop_map(Event::Time),
        1 => any::<u8>().prop_map(Event::Resize),
    ]
}

fn wishes() -> impl Strategy<Value = Wish> {
    let behind = prop_oneof![4 => Just(0u64), 1 => 1u64..3];
    let aseq = prop::option::weighted(0.2, 0u64..2);
    let slice = prop::option::weighted(0.2, 1u64..500);
    (any::<usize>(), 0..CPUS + 1, behind, aseq, 0u8..16, slice).prop_map(
        |(thread, cpu, behind, aseq, flags, slice)| Wish {
            thread,
            cpu,
            behind,
            aseq,
            flags,
            slice,
        },
    )
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1usize..20).prop_map(Act::Drain),
        8 => (prop::collection::vec(wishes(), 1..5), any::<bool>()).prop_map(|(all, group)| Act::Commit(all, group)),
        1 => (0..CPUS).prop_map(Act::Recall),
        1 => (0..CPUS).prop_map(Act::Preempt),
        1 => (any::<usize>(), 0usize..2).prop_map(|(i, queue)| Act::Associate(i, queue)),
        1 => (0..CPUS, 0usize..2).prop_map(|(cpu, queue)| Act::AssociateCpu(cpu, queue)),
        1 => Just(Act::Reattach),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![events().prop_map(Op::Kernel), acts().prop_map(Op::Agent)];
    prop::collection::vec(op, 1..120)
}

/// The machine, the events from outside, and an agent that relies on messages.
struct Trial {
    machine: Machine,
    enclave: ModelEnclave,
    queues: [QueueId; 2],
    alive: Vec<TaskId>,
    mirror: Mirror,
    tseqs: BTreeMap<u32, Seq>,
}

/// Threads, CPUs, and queues.
type Snapshot = (Vec<ThreadWord>, Vec<CpuWord>, Vec<QueueWord>);

impl Trial {
    fn new(ring: usize, arrival: Arrival) -> Trial {
        let machine = Machine::flat(usize::from(CPUS)).arriving(arrival);
        let spec = Spec { ring, ticks: true, cpu_messages: true, ..Spec::of((0..CPUS).map(CpuId)) };
        let enclave = machine.enclave(spec).unwrap();
        enclave.attach().unwrap();
        let queues = [enclave.default_queue(), enclave.create_queue(true).unwrap()];
        let (mirror, tseqs) = (Mirror::default(), BTreeMap::new());
        Trial { machine, enclave, queues, alive: Vec::new(), mirror, tseqs }
    }

    fn thread(&self, i: usize) -> Option<TaskId> {
        self.alive.get(i.checked_rem(self.alive.len())?).copied()
    }

    fn with(&self, i: usize, what: impl FnOnce(TaskId) -> bool) {
        self.thread(i).map(what);
    }

    fn kernel(&mut self, event: &Event) {
        let machine = self.machine.clone();
        match *event {
            Event::Spawn(runnable) => self.alive.push(machine.spawn(self.enclave.id(), runnable)),
            Event::Block(i) => self.with(i, |thread| machine.block(thread)),
            Event::Wake(i) => self.with(i, |thread| machine.wake(thread)),
            Event::Yield(i) => self.with(i, |thread| machine.yield_now(thread)),
            Event::Exit(i) => self.goes(i, |thread| machine.exit(thread)),
            Event::Depart(i) => self.goes(i, |thread| machine.depart(thread)),
            Event::Affinity(i, mask) => {
                self.with(i, |thread| machine.set_affinity(thread, cpus(mask)))
            }
            Event::Weight(i, weight) => self.with(i, |thread| machine.set_weight(thread, weight)),
            Event::Occupy(cpu, who) => machine.occupy(CpuId(cpu), who),
            Event::Release(cpu) => machine.release(CpuId(cpu)),
            Event::Tick(cpu) => machine.tick(CpuId(cpu)),
            Event::Online(cpu, online) => machine.set_online(CpuId(cpu), online),
            Event::Arrive(cpu) => machine.arrive(CpuId(cpu)),
            Event::Time(more) => machine.set_time(machine.time() + Ns(more)),
            Event::Resize(mask) => self.resize(cpus(mask)),
        }
    }

    /// The agent keeps its first handle, by which positions are the machine's numbers.
    fn resize(&self, to: CpuSet) {
        let resized = self.machine.resize(&self.enclave, to.iter());
        assert_eq!(resized.is_err(), to.is_empty());
        for cpu in (0..CPUS).map(CpuId).filter(|&cpu| !to.is_empty() && !to.contains(cpu)) {
            assert_eq!(
                (self.machine.running(cpu), self.enclave.cpu(cpu)),
                (None, CpuWord::default())
            );
        }
    }

    fn goes(&mut self, i: usize, how: impl FnOnce(TaskId) -> bool) {
        if let Some(thread) = self.thread(i) {
            assert!(how(thread));
            self.alive.retain(|&other| other != thread);
        }
    }

    fn agent(&mut self, act: &Act) {
        match act {
            Act::Drain(most) => self.mirror.drain(&self.enclave, &self.queues, *most),
            Act::Commit(wishes, group) => self.commit(wishes, *group),
            Act::Recall(cpu) => {
                let latched = self.enclave.cpu(CpuId(*cpu)).latched;
                let back = self.enclave.recall(CpuId(*cpu));
                assert!(back.is_none() || back == latched);
            }
            Act::Preempt(cpu) => {
                let runs = self.enclave.cpu(CpuId(*cpu)).current.is_some();
                assert_eq!(self.enclave.preempt(CpuId(*cpu)), runs);
            }
            Act::Associate(i, queue) => self.associate(*i, self.queues[*queue]),
            Act::AssociateCpu(cpu, queue) => {
                self.enclave.associate_cpu(CpuId(*cpu), self.queues[*queue]).unwrap();
            }
            Act::Reattach => {
                self.enclave.detach();
                self.enclave.attach().unwrap();
            }
        }
    }

    /// A thread with an unread message stays with its queue.
    fn associate(&mut self, i: usize, queue: QueueId) {
        let Some(thread) = self.thread(i) else { return };
        let word = self.enclave.thread(thread);
        let known = self.mirror.threads.get(&word.tid).map(|known| known.tseq);
        let done = self.enclave.associate(thread, queue).is_ok();
        if self.queues.iter().all(|&queue| self.enclave.queue(queue).lost == 0) {
            assert_eq!(done, known == Some(word.tseq), "{word:?} known as of {known:?}");
        }
    }

    fn transaction(&self, wish: &Wish) -> Option<Transaction> {
        let thread = self.thread(wish.thread)?;
        let word = self.enclave.thread(thread);
        let aseq = self.enclave.queue(self.queues[0]).aseq;
        let behind = |seq: Seq, by| Seq(seq.0.saturating_sub(by));
        Some(Transaction {
            tseq: (wish.flags & 8 == 0).then(|| behind(word.tseq, wish.behind)),
            aseq: wish.aseq.map(|by| (self.queues[0], behind(aseq, by))),
            preempt: wish.flags & 1 != 0,
            direct: wish.flags & 2 != 0,
            only_free: wish.flags & 4 != 0,
            slice: wish.slice.map(Ns),
            ..Transaction::new(thread, word.tid, CpuId(wish.cpu), word.tseq)
        })
    }

    fn commit(&mut self, wishes: &[Wish], group: bool) {
        let mut all: Vec<Transaction> =
            wishes.iter().filter_map(|wish| self.transaction(wish)).collect();
        let (before, tseqs) = (self.snapshot(), self.tseqs());
        let how = if group { Group::AllOrNothing } else { Group::Each };
        let done = self.enclave.commit(&mut all, how);
        assert_eq!(done, all.iter().filter(|one| one.outcome.is_committed()).count());
        for one in all.iter().filter(|one| one.outcome.is_committed()) {
            self.check_success(one, tseqs[&one.tid]);
        }
        assert!(all.iter().all(|one| one.outcome != Outcome::Open));
        if group && done != all.len() {
            assert_eq!(done, 0, "all or nothing: {all:?}");
            assert_eq!(self.snapshot(), before, "nothing is nothing: {all:?}");
        }
    }

    /// A successful transaction rested on the newest message, and on a CPU that was possible.
    fn check_success(&mut self, one: &Transaction, tseq: Seq) {
        assert!(one.tseq.is_none_or(|asked| asked == tseq), "{one:?} with {tseq}");
        assert!(self.enclave.affinity(one.thread).contains(one.cpu), "{one:?}");
        // A later transaction of the same commit may have unlatched or preempted it again.
        let word = self.enclave.thread(one.thread);
        if matches!(word.state, State::Latched | State::OnCpu) {
            self.mirror.committed(one, word.tseq);
        }
        if word.tseq == tseq {
            let cpu = self.enclave.cpu(one.cpu);
            assert!([cpu.current, cpu.latched].contains(&Some(one.thread)), "{one:?} {cpu:?}");
        }
    }

    fn snapshot(&self) -> Snapshot {
        let threads = self.alive.iter().map(|&thread| self.enclave.thread(thread)).collect();
        let cpus = (0..CPUS).map(|cpu| self.enclave.cpu(CpuId(cpu))).collect();
        (threads, cpus, self.queues.iter().map(|&queue| self.enclave.queue(queue)).collect())
    }

    fn tseqs(&self) -> BTreeMap<u32, Seq> {
        let words = self.alive.iter().map(|&thread| self.enclave.thread(thread));
        words.map(|word| (word.tid, word.tseq)).collect()
    }

    /// Checks the invariants.
    fn check(&mut self) {
        self.machine.audit().unwrap();
        let mut alive = self.alive.clone();
        alive.sort_unstable();
        assert_eq!(self.enclave.threads(), alive, "a thread is lost");
        let tseqs = self.tseqs();
        for (tid, &now) in &tseqs {
            assert!(self.tseqs.get(tid).is_none_or(|&before| before <= now), "{tid}");
        }
        self.tseqs = tseqs;
        self.check_no_cpu_rests();
    }

    /// A free CPU does not leave a thread latched to it, once interrupts have arrived.
    fn check_no_cpu_rests(&self) {
        for cpu in (0..CPUS).map(CpuId) {
            let word = self.enclave.cpu(cpu);
            let rests = word.occupant == CpuOccupant::Idle && word.latched.is_some();
            assert!(!rests || self.machine.is_awaited(cpu), "{cpu} {word:?}");
        }
    }

    /// An agent that has read everything knows the truth.
    fn check_mirror(&mut self) {
        assert_eq!(self.enclave.enclave().phase, Phase::Active);
        self.mirror.drain(&self.enclave, &self.queues, usize::MAX);
        self.mirror.check_losses(&self.enclave, &self.queues);
        assert_eq!(self.mirror.threads, truth(&self.enclave));
    }

    /// Every thread can be made to run: none is stuck between two states.
    fn check_progress(&mut self) {
        self.resize(CpuSet::first(usize::from(CPUS)));
        for cpu in (0..CPUS).map(CpuId) {
            self.machine.set_online(cpu, true);
            self.machine.release(cpu);
            // A thread past recall goes before anything else.
            self.enclave.preempt(cpu);
            self.machine.arrive(cpu);
        }
        for thread in self.alive.clone() {
            self.machine.wake(thread);
            if self.enclave.thread(thread).state != State::Parked {
                continue;
            }
            let cpu = self.enclave.affinity(thread).iter().next().expect("a CPU where it may run");
            let word = self.enclave.thread(thread);
            let mut one = [Transaction::new(thread, word.tid, cpu, word.tseq)];
            assert_eq!(self.enclave.commit(&mut one, Group::Each), 1, "{one:?}");
            self.machine.arrive(cpu);
            assert_eq!(self.machine.running(cpu), Some(thread));
        }
    }
}

fn cpus(mask: u8) -> CpuSet {
    let mut set = CpuSet::EMPTY;
    (0..CPUS).filter(|cpu| mask >> cpu & 1 == 1).for_each(|cpu| set.insert(CpuId(cpu)));
    set
}

fn try_out(ring: usize, arrival: Arrival, ops: &[Op]) {
    let mut trial = Trial::new(ring, arrival);
    for op in ops {
        match op {
            Op::Kernel(event) => trial.kernel(event),
            Op::Agent(act) => trial.agent(act),
        }
        trial.check();
    }
    trial.check_mirror();
    trial.check_progress();
    trial.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_rules_hold_whatever_happens(ops in ops(), by_hand in any::<bool>()) {
        let arrival = if by_hand { Arrival::ByHand } else { Arrival::AtOnce };
        try_out(1 << 16, arrival, &ops);
    }

    #[test]
    fn the_status_words_heal_what_a_small_queue_lost(ops in ops(), ring in 1usize..6) {
        try_out(ring, Arrival::AtOnce, &ops);
    }

    #[test]
    fn after_its_agent_died_every_thread_that_can_run_does(ops in ops()) {
        let mut trial = Trial::new(1 << 16, Arrival::AtOnce);
        let kernel = ops.iter().filter_map(|op| match op {
            Op::Kernel(event) => Some(event),
            Op::Agent(_) => None,
        });
        for (at, event) in kernel.enumerate() {
            if at == 5 {
                trial.machine.kill_agent(trial.enclave.id());
            }
            trial.kernel(event);
            trial.machine.audit().unwrap();
        }
        trial.machine.kill_agent(trial.enclave.id());
        trial.resize(CpuSet::first(usize::from(CPUS)));
        (0..CPUS).map(CpuId).for_each(|cpu| {
            trial.machine.set_online(cpu, true);
            trial.machine.release(cpu);
        });
        let before: Vec<Ns> = trial.snapshot().0.iter().map(|word| word.runtime).collect();
        trial.machine.set_time(trial.machine.time() + Ns::from_secs(60));
        for (word, before) in trial.snapshot().0.iter().zip(before) {
            let may_stand = matches!(word.state, State::Blocked | State::OnCpu);
            prop_assert!(may_stand || word.runtime > before, "{word:?}");
        }
    }
}
