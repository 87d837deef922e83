//! The state machine against the rules of `Backend`, one by one and under random sequences of events of kernel and
//! agents.

mod groups;
mod life;
mod mirror;
mod property;
mod queues;
mod rules;

use heddle_agent::Backend;
use heddle_agent::model::machine::{Machine, ModelEnclave, Spec};
use heddle_agent::model::{Group, Outcome, Seq, Transaction};
use heddle_core::{CpuId, TaskId};

/// Makes a machine whose first `n` CPUs are one enclave with an agent.
fn enclave_of(n: u16) -> (Machine, ModelEnclave) {
    enclave_on(Machine::flat(usize::from(n)), n)
}

fn enclave_on(machine: Machine, n: u16) -> (Machine, ModelEnclave) {
    let enclave = machine.enclave(Spec::of((0..n).map(CpuId))).unwrap();
    enclave.attach().unwrap();
    (machine, enclave)
}

/// Returns the transaction of an agent that has read everything.
fn transaction(enclave: &ModelEnclave, thread: TaskId, cpu: u16) -> Transaction {
    let word = enclave.thread(thread);
    Transaction::new(thread, word.tid, CpuId(cpu), word.tseq)
}

/// Commits one transaction and returns the outcome.
fn commit(enclave: &ModelEnclave, one: Transaction) -> Outcome {
    let mut all = [one];
    let done = enclave.commit(&mut all, Group::Each);
    assert_eq!(done == 1, all[0].outcome.is_committed());
    all[0].outcome
}

/// Commits `thread` to `cpu`, which must succeed.
fn run(enclave: &ModelEnclave, thread: TaskId, cpu: u16) {
    assert_eq!(commit(enclave, transaction(enclave, thread, cpu)), Outcome::Committed);
}

/// Returns the number before this one.
fn older(seq: Seq) -> Seq {
    Seq(seq.0 - 1)
}
