//! Agents and guardians that come, go, hang and die.

use crate::{commit, enclave_of, run, transaction};
use heddle_agent::model::machine::{Machine, MachineError, Spec};
use heddle_agent::model::{CpuOccupant, Outcome, Phase, State, Transaction};
use heddle_agent::{Backend, BackendError};
use heddle_core::{CpuId, Ns};

#[test]
fn one_agent_at_a_time() {
    let (_, enclave) = enclave_of(1);
    assert!(matches!(enclave.attach(), Err(BackendError::WrongPhase(Phase::Active))));
    enclave.detach();
    assert_eq!((enclave.enclave().phase, enclave.enclave().agent), (Phase::Waiting, None));
    enclave.attach().unwrap();
    assert_eq!(enclave.enclave().generation, 2);
}

#[test]
fn parked_threads_wait_for_a_successor_and_running_ones_stay() {
    let (machine, enclave) = enclave_of(1);
    let [running, parked] = [(); 2].map(|()| machine.spawn(enclave.id(), true));
    run(&enclave, running, 0);
    enclave.detach();
    machine.set_time(Ns::from_secs(100));
    let states = [running, parked].map(|thread| machine.thread(thread).state);
    assert_eq!(states, [State::OnCpu, State::Parked]);
    enclave.attach().unwrap();
    run(&enclave, parked, 0);
}

#[test]
fn an_enclave_waits_only_for_its_grace_time() {
    let machine = Machine::flat(1);
    let enclave = machine.enclave(Spec { grace: Ns(50), ..Spec::of([CpuId(0)]) }).unwrap();
    let thread = machine.spawn(enclave.id(), true);
    machine.set_time(Ns(49));
    assert_eq!(enclave.thread(thread).state, State::Parked);
    machine.set_time(Ns(50));
    assert_eq!((enclave.enclave().phase, machine.running(CpuId(0))), (Phase::Orphan, Some(thread)));
    assert!(enclave.attach().is_err());
}

#[test]
fn an_agent_that_dies_leaves_threads_that_take_turns() {
    let (machine, enclave) = enclave_of(1);
    let threads = [(); 3].map(|()| machine.spawn(enclave.id(), true));
    run(&enclave, threads[0], 0);
    machine.kill_agent(enclave.id());
    machine.set_time(Ns::from_secs(3));
    for thread in threads {
        assert!(machine.thread(thread).runtime >= Ns::from_ms(900), "{:?}", machine.thread(thread));
    }
    machine.audit().unwrap();
    machine.give_back(enclave.id());
    assert_eq!((enclave.threads().len(), enclave.enclave().phase), (0, Phase::Free));
}

#[test]
fn an_agent_that_hangs_is_replaced_by_the_order_of_arrival() {
    let machine = Machine::flat(1);
    let spec = Spec { patience: Some(Ns::from_ms(10)), ..Spec::of([CpuId(0)]) };
    let enclave = machine.enclave(spec).unwrap();
    enclave.attach().unwrap();
    let [first, second] = [(); 2].map(|()| machine.spawn(enclave.id(), true));
    machine.set_time(Ns::from_ms(9));
    run(&enclave, first, 0);
    assert_eq!(enclave.enclave().phase, Phase::Active);
    machine.set_time(Ns::from_ms(10));
    assert_eq!(enclave.enclave().phase, Phase::Orphan, "{second} has waited for ten milliseconds");
}

/// A commit behind an occupant that does not leave gives no CPU. Recalling and repeating it does not restart the
/// wait.
#[test]
fn a_thread_that_is_committed_and_gets_no_cpu_waits() {
    let machine = Machine::flat(1);
    let spec = Spec { patience: Some(Ns::from_ms(10)), ..Spec::of([CpuId(0)]) };
    let enclave = machine.enclave(spec).unwrap();
    enclave.attach().unwrap();
    machine.occupy(CpuId(0), CpuOccupant::Ordinary);
    let thread = machine.spawn(enclave.id(), true);
    for ms in 1..10 {
        run(&enclave, thread, 0);
        machine.set_time(Ns::from_ms(ms));
        assert_eq!(enclave.recall(CpuId(0)), Some(thread));
    }
    run(&enclave, thread, 0);
    assert_eq!(enclave.enclave().phase, Phase::Active);
    machine.set_time(Ns::from_ms(10));
    assert_eq!(enclave.enclave().phase, Phase::Orphan);
}

#[test]
fn a_thread_latched_when_the_agent_died_runs() {
    let (machine, enclave) = enclave_of(1);
    let [first, second] = [(); 2].map(|()| machine.spawn(enclave.id(), true));
    run(&enclave, first, 0);
    let patient = Transaction { preempt: false, ..transaction(&enclave, second, 0) };
    assert_eq!(commit(&enclave, patient), Outcome::Committed);
    machine.kill_agent(enclave.id());
    machine.block(first);
    assert_eq!(machine.running(CpuId(0)), Some(second));
}

#[test]
fn one_enclave_that_dies_does_not_touch_the_other() {
    let machine = Machine::flat(2);
    let [one, two] = [0, 1].map(|cpu| machine.enclave(Spec::of([CpuId(cpu)])).unwrap());
    one.attach().unwrap();
    two.attach().unwrap();
    let [dying, staying] = [&one, &two].map(|enclave| machine.spawn(enclave.id(), true));
    let before = (two.thread(staying), two.enclave());
    machine.kill_guardian(one.id());
    machine.give_back(one.id());
    assert_eq!((two.thread(staying), two.enclave()), before);
    assert_eq!(machine.thread(dying).state, State::Free);
    run(&two, staying, 0);
}

#[test]
fn threads_on_cpus_that_an_enclave_loses_are_parked_and_commits_there_fail() {
    let machine = Machine::flat(3);
    let old = machine.enclave(Spec::of([CpuId(0), CpuId(1)])).unwrap();
    old.attach().unwrap();
    let [stays, moves] = [(); 2].map(|()| machine.spawn(old.id(), true));
    run(&old, stays, 1);
    run(&old, moves, 0);
    old.detach();
    let new = machine.resize(&old, [CpuId(1), CpuId(2)]).unwrap();
    assert_eq!(new.cpus().iter().map(|cpu| cpu.os_id).collect::<Vec<_>>(), [1, 2]);
    let states = [stays, moves].map(|thread| machine.thread(thread).state);
    assert_eq!(states, [State::OnCpu, State::Parked]);
    new.attach().unwrap();
    assert_eq!(commit(&old, transaction(&old, moves, 0)), Outcome::NotYours);
    assert_eq!(commit(&new, transaction(&new, moves, 2)), Outcome::Invalid);
    run(&new, moves, 1);
    assert_eq!(machine.running(CpuId(2)), Some(moves));
    machine.audit().unwrap();
}

#[test]
fn an_enclave_cannot_get_cpus_of_another_or_none() {
    let machine = Machine::flat(2);
    let [one, other] = [0, 1].map(|cpu| machine.enclave(Spec::of([CpuId(cpu)])).unwrap());
    let refused = |cpus: &[u16]| machine.resize(&one, cpus.iter().map(|&cpu| CpuId(cpu))).err();
    assert_eq!(refused(&[0, 1]), Some(MachineError::Taken(CpuId(1))));
    assert_eq!(refused(&[2]), Some(MachineError::NoCpu(CpuId(2))));
    assert_eq!(refused(&[]), Some(MachineError::Empty));
    machine.give_back(other.id());
    assert_eq!(machine.resize(&other, [CpuId(1)]).err(), Some(MachineError::Gone));
    assert_eq!(refused(&[0, 1]), None);
}
