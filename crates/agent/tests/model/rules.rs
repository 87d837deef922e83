//! Transactions, rule by rule.

use crate::{commit, enclave_of, enclave_on, older, run, transaction};
use heddle_agent::Backend;
use heddle_agent::model::machine::{Arrival, Machine, ModelEnclave, Spec};
use heddle_agent::model::{CpuOccupant, Group, Kind, Outcome, Seq, State, Transaction};
use heddle_core::{CpuId, CpuSet, Ns, TaskId};

fn state(enclave: &ModelEnclave, thread: TaskId) -> State {
    enclave.thread(thread).state
}

/// Reads all messages and returns the last one.
fn last_message(enclave: &ModelEnclave) -> (Kind, TaskId, u64) {
    let queue = enclave.default_queue();
    let all: Vec<_> = std::iter::from_fn(|| enclave.next(queue)).collect();
    all.last().map(|message| (message.kind, message.thread, message.info)).expect("a message")
}

#[test]
fn old_numbers_fail() {
    let (machine, enclave) = enclave_of(2);
    let thread = machine.spawn(enclave.id(), true);
    let good = transaction(&enclave, thread, 0);
    assert_eq!(
        commit(&enclave, Transaction { tseq: Some(older(good.tseq.unwrap())), ..good }),
        Outcome::Stale
    );
    let queue = enclave.default_queue();
    let aseq = enclave.queue(queue).aseq;
    assert_eq!(
        commit(&enclave, Transaction { aseq: Some((queue, older(aseq))), ..good }),
        Outcome::AgentStale
    );
    assert_eq!(
        commit(&enclave, Transaction { aseq: Some((queue, aseq)), ..good }),
        Outcome::Committed
    );
    assert_eq!((enclave.enclave().committed, enclave.enclave().failed), (1, 2));
}

#[test]
fn impossible_transactions_report_the_reason() {
    let (machine, enclave) = enclave_of(2);
    let other = machine.spawn(enclave.id(), false);
    assert_eq!(commit(&enclave, transaction(&enclave, other, 0)), Outcome::NotRunnable);
    machine.wake(other);
    let good = transaction(&enclave, other, 0);
    assert_eq!(commit(&enclave, Transaction { tid: 1, ..good }), Outcome::NoThread);
    assert_eq!(commit(&enclave, Transaction { thread: TaskId(99), ..good }), Outcome::NoThread);
    assert_eq!(commit(&enclave, Transaction { cpu: CpuId(2), ..good }), Outcome::Invalid);
    machine.set_affinity(other, CpuSet::first(1));
    assert_eq!(commit(&enclave, transaction(&enclave, other, 1)), Outcome::Affinity);
    machine.set_online(CpuId(0), false);
    assert_eq!(commit(&enclave, transaction(&enclave, other, 0)), Outcome::CpuOffline);
    machine.set_online(CpuId(0), true);
    run(&enclave, other, 0);
    assert_eq!(commit(&enclave, transaction(&enclave, other, 0)), Outcome::OnCpu);
}

#[test]
fn enclaves_cannot_touch_each_other() {
    let machine = Machine::flat(2);
    let [one, two] = [0, 1].map(|cpu| machine.enclave(Spec::of([CpuId(cpu)])).unwrap());
    let thread = machine.spawn(one.id(), true);
    let foreign = Transaction { tseq: None, ..transaction(&one, thread, 0) };
    assert_eq!(commit(&one, foreign), Outcome::NotYours, "no agent is attached");
    two.attach().unwrap();
    assert_eq!(commit(&two, foreign), Outcome::NotYours);
    assert_eq!(two.thread(thread), Default::default());
    assert!(two.threads().is_empty() && two.affinity(thread).len() == 1);
    assert!(machine.enclave(Spec::of([CpuId(1)])).is_err(), "the CPU is taken");
}

#[test]
fn a_second_commit_unlatches_the_first() {
    let (machine, enclave) = enclave_of(1);
    let [first, second] = [(); 2].map(|()| machine.spawn(enclave.id(), true));
    machine.occupy(CpuId(0), CpuOccupant::Ordinary);
    run(&enclave, first, 0);
    assert_eq!(state(&enclave, first), State::Latched);
    run(&enclave, second, 0);
    assert_eq!(last_message(&enclave), (Kind::ThreadPreempted, first, 1));
    assert_eq!((state(&enclave, first), state(&enclave, second)), (State::Parked, State::Latched));
    machine.release(CpuId(0));
    assert_eq!(machine.running(CpuId(0)), Some(second));
}

#[test]
fn a_transaction_that_may_not_wait_fails_on_an_occupied_cpu() {
    let (machine, enclave) = enclave_of(1);
    let thread = machine.spawn(enclave.id(), true);
    let now = |enclave| Transaction { only_free: true, ..transaction(enclave, thread, 0) };
    for who in [CpuOccupant::Ordinary, CpuOccupant::Realtime] {
        machine.occupy(CpuId(0), who);
        assert_eq!(commit(&enclave, now(&enclave)), Outcome::CpuBusy);
    }
    // A local agent gives its own CPU away: it is not in its own way.
    machine.occupy(CpuId(0), CpuOccupant::Agent);
    assert_eq!(commit(&enclave, now(&enclave)), Outcome::Committed);
}

#[test]
fn without_preemption_a_commit_waits_behind_the_running_thread() {
    let (machine, enclave) = enclave_of(1);
    let [first, second, third] = [(); 3].map(|()| machine.spawn(enclave.id(), true));
    run(&enclave, first, 0);
    let patient = Transaction { preempt: false, ..transaction(&enclave, second, 0) };
    assert_eq!(commit(&enclave, patient), Outcome::Committed);
    assert_eq!((state(&enclave, first), state(&enclave, second)), (State::OnCpu, State::Latched));
    machine.block(first);
    assert_eq!(state(&enclave, second), State::OnCpu);
    run(&enclave, third, 0);
    assert_eq!(last_message(&enclave), (Kind::ThreadPreempted, second, 0));
    assert_eq!(machine.running(CpuId(0)), Some(third));
}

#[test]
fn a_commit_can_be_taken_back_until_it_arrives() {
    let (machine, enclave) = enclave_on(Machine::flat(1).arriving(Arrival::ByHand), 1);
    let thread = machine.spawn(enclave.id(), true);
    run(&enclave, thread, 0);
    assert_eq!(enclave.recall(CpuId(0)), Some(thread));
    assert_eq!(last_message(&enclave), (Kind::ThreadPreempted, thread, 1));
    assert_eq!(enclave.recall(CpuId(0)), None);
    run(&enclave, thread, 0);
    machine.arrive(CpuId(0));
    assert_eq!((enclave.recall(CpuId(0)), state(&enclave, thread)), (None, State::OnCpu));
}

#[test]
fn a_direct_commit_is_past_recall() {
    let (machine, enclave) = enclave_on(Machine::flat(1).arriving(Arrival::ByHand), 1);
    let [first, second] = [(); 2].map(|()| machine.spawn(enclave.id(), true));
    let direct = Transaction { direct: true, ..transaction(&enclave, first, 0) };
    assert_eq!(commit(&enclave, direct), Outcome::Committed);
    assert_eq!(enclave.recall(CpuId(0)), None);
    assert_eq!(commit(&enclave, transaction(&enclave, second, 0)), Outcome::Again);
    machine.arrive(CpuId(0));
    assert_eq!(state(&enclave, first), State::OnCpu);
}

#[test]
fn a_group_is_all_or_nothing() {
    let (machine, enclave) = enclave_of(2);
    let [first, second] = [(); 2].map(|()| machine.spawn(enclave.id(), true));
    let good = transaction(&enclave, first, 0);
    let stale = Transaction { tseq: Some(Seq(9)), ..transaction(&enclave, second, 1) };
    let mut pair = [good, stale];
    assert_eq!(enclave.commit(&mut pair, Group::AllOrNothing), 0);
    assert_eq!(pair.map(|one| one.outcome), [Outcome::Poisoned, Outcome::Stale]);
    assert_eq!((state(&enclave, first), state(&enclave, second)), (State::Parked, State::Parked));
    let mut pair = [good, transaction(&enclave, second, 1)];
    assert_eq!(enclave.commit(&mut pair, Group::AllOrNothing), 2);
    assert_eq!((state(&enclave, first), state(&enclave, second)), (State::OnCpu, State::OnCpu));
}

#[test]
fn a_group_that_contradicts_itself_fails() {
    let (machine, enclave) = enclave_of(2);
    let [first, second] = [(); 2].map(|()| machine.spawn(enclave.id(), true));
    let at = |thread, cpu| transaction(&enclave, thread, cpu);
    for (mut pair, why) in [
        ([at(first, 0), at(first, 1)], Outcome::OnCpu),
        ([at(first, 0), at(second, 0)], Outcome::Invalid),
    ] {
        assert_eq!(enclave.commit(&mut pair, Group::AllOrNothing), 0);
        assert_eq!(pair.map(|one| one.outcome), [Outcome::Poisoned, why]);
    }
}

#[test]
fn a_slice_ends_by_itself() {
    let (machine, enclave) = enclave_of(1);
    let thread = machine.spawn(enclave.id(), true);
    let short = Transaction { slice: Some(Ns(100)), ..transaction(&enclave, thread, 0) };
    assert_eq!(commit(&enclave, short), Outcome::Committed);
    machine.set_time(Ns(99));
    assert_eq!(state(&enclave, thread), State::OnCpu);
    machine.set_time(Ns(500));
    let word = enclave.thread(thread);
    assert_eq!((word.state, word.runtime, word.runnable_at), (State::Parked, Ns(100), Ns(100)));
    assert_eq!(last_message(&enclave), (Kind::ThreadPreempted, thread, 0));
}

#[test]
fn a_thread_that_may_not_stay_loses_its_cpu() {
    let (machine, enclave) = enclave_of(2);
    let thread = machine.spawn(enclave.id(), true);
    run(&enclave, thread, 0);
    assert!(!machine.set_affinity(thread, CpuSet::EMPTY));
    machine.set_affinity(thread, CpuSet::first(1));
    assert_eq!(last_message(&enclave), (Kind::ThreadAffinity, thread, 0));
    assert_eq!(state(&enclave, thread), State::OnCpu);
    machine.set_affinity(thread, CpuSet::first(2).minus(&CpuSet::first(1)));
    assert_eq!(last_message(&enclave), (Kind::ThreadPreempted, thread, 0));
    run(&enclave, thread, 1);
}

#[test]
fn a_slot_that_was_reused_is_noticed() {
    let (machine, enclave) = enclave_of(1);
    let old = machine.spawn(enclave.id(), true);
    let stale = Transaction { tseq: None, ..transaction(&enclave, old, 0) };
    machine.exit(old);
    let new = machine.spawn(enclave.id(), true);
    assert_eq!(old, new, "slots are reused at once");
    assert_eq!(commit(&enclave, stale), Outcome::NoThread);
}

#[test]
fn an_offline_cpu_gives_up_its_threads() {
    let (machine, enclave) = enclave_of(1);
    let [first, second] = [(); 2].map(|()| machine.spawn(enclave.id(), true));
    run(&enclave, first, 0);
    let patient = Transaction { preempt: false, ..transaction(&enclave, second, 0) };
    assert_eq!(commit(&enclave, patient), Outcome::Committed);
    machine.set_online(CpuId(0), false);
    assert_eq!((state(&enclave, first), state(&enclave, second)), (State::Parked, State::Parked));
    machine.audit().unwrap();
}
