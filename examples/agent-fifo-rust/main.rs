//! First in, first out, as an agent on messages and transactions: `agent-fifo CPU[,CPU...] PID`.
//!
//! Without arguments it runs against a simulated enclave, which is also how an agent is tested.

use heddle_agent::guardian::{Backends as _, KernelBackends, Kind, open};
use heddle_agent::model::machine::{Machine, Spec};
use heddle_agent::model::{Group, Kind as MessageKind, Message, Outcome, State, Transaction};
use heddle_agent::{Backend, EnclaveSpec};
use heddle_core::{CpuId, Ns, TaskId};
use std::collections::VecDeque;
use std::error::Error;

/// Delay before retrying what a backend refused.
const RETRY: Ns = Ns::from_ms(1);

/// The waiting threads, oldest first. An entry can be stale (blocked or exited): only its commit then fails.
struct Fifo<'a> {
    enclave: &'a dyn Backend,
    waiting: VecDeque<TaskId>,
    lost: u64,
}

impl<'a> Fifo<'a> {
    fn new(enclave: &'a dyn Backend) -> Fifo<'a> {
        let mut agent = Fifo { enclave, waiting: VecDeque::new(), lost: 0 };
        agent.look();
        agent
    }

    /// Status words are the truth: read at the start, and when messages were lost.
    fn look(&mut self) {
        let is_parked = |&task: &TaskId| self.enclave.thread(task).state == State::Parked;
        self.waiting = self.enclave.threads().into_iter().filter(is_parked).collect();
    }

    fn hear(&mut self, message: &Message) {
        let could_run = match message.kind {
            MessageKind::ThreadCreated => message.info == 1,
            MessageKind::ThreadWakeup | MessageKind::ThreadPreempted | MessageKind::ThreadYield => {
                true
            }
            _ => false,
        };
        if could_run && !self.waiting.contains(&message.thread) {
            self.waiting.push_back(message.thread);
        }
    }

    /// Builds "run the oldest here", with the last known sequence number: it fails if there is a newer message.
    fn transaction(&mut self, cpu: CpuId) -> Option<Transaction> {
        let word = self.enclave.cpu(cpu);
        if !word.online || word.current.is_some() || word.latched.is_some() {
            return None;
        }
        let task = self.waiting.pop_front()?;
        let word = self.enclave.thread(task);
        Some(Transaction::new(task, word.tid, cpu, word.tseq))
    }

    /// Reads, decides, commits. Returns when to come back if no message arrives before.
    fn round(&mut self) -> Option<Ns> {
        let queue = self.enclave.default_queue();
        while let Some(message) = self.enclave.next(queue) {
            self.hear(&message);
        }
        let lost = self.enclave.queue(queue).lost;
        if std::mem::replace(&mut self.lost, lost) != lost {
            self.look();
        }
        let cpus = (0..self.enclave.cpus().len() as u16).map(CpuId);
        let mut group: Vec<Transaction> = cpus.filter_map(|cpu| self.transaction(cpu)).collect();
        self.enclave.commit(&mut group, Group::Each);
        let again = |one: &&Transaction| {
            use Outcome::{Committed, NoThread, NotRunnable, OnCpu};
            !matches!(one.outcome, Committed | NoThread | NotRunnable | OnCpu)
        };
        let failed: Vec<_> = group.iter().filter(again).map(|one| one.thread).collect();
        self.waiting.extend(&failed);
        (!failed.is_empty()).then(|| self.enclave.now() + RETRY)
    }
}

/// An agent of a simulated enclave: three threads on two CPUs.
fn simulate() -> Result<(), Box<dyn Error>> {
    let machine = Machine::flat(2);
    let enclave = machine.enclave(Spec::of([CpuId(0), CpuId(1)]))?;
    enclave.attach()?;
    let threads = [0; 3].map(|_| machine.spawn(enclave.id(), true));
    let mut agent = Fifo::new(&enclave);
    agent.round();
    machine.block(threads[0]);
    agent.round();
    let on = |cpu| machine.running(CpuId(cpu)).map_or("nobody".into(), |task| task.to_string());
    println!("cpu0 runs {}, cpu1 runs {}", on(0), on(1));
    Ok(())
}

/// An agent of a process, until its last thread exits. A real one makes itself real-time (`heddle_agent::agent`).
fn schedule(cpus: &str, pid: &str) -> Result<(), Box<dyn Error>> {
    let cpus: Vec<u32> = cpus.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let kind = if KernelBackends.probe(Kind::Scx).is_ok() { Kind::Scx } else { Kind::Rt };
    let spec = EnclaveSpec::new("fifo-rust", &cpus);
    let keeper = KernelBackends.create(kind, &spec)?;
    let enclave = open(kind, &spec.name)?;
    enclave.attach()?;
    keeper.join_process(pid.parse()?)?;
    let mut agent = Fifo::new(&*enclave);
    while !enclave.threads().is_empty() {
        let until = agent.round();
        enclave.wait(enclave.default_queue(), until);
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => simulate(),
        [cpus, pid] => schedule(cpus, pid),
        _ => Err("usage: agent-fifo [CPU[,CPU...] PID]".into()),
    }
}
