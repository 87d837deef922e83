//! Examples, one thing each, on the model.

use super::{Reader, Scheduler, Settings};
use crate::Backend;
use crate::model::machine::{Machine, ModelEnclave, Spec};
use crate::model::{EnclaveWord, QueueWord, Seq, State};
use heddle_core::{CpuId, CpuSet, Ns, Policy};
use heddle_policies::{Fifo, Hybrid, Shinjuku, WorkStealing};

fn settings() -> Settings {
    Settings { threads: 64, ..Settings::default() }
}

fn machine_of(cpus: usize) -> (Machine, ModelEnclave) {
    let machine = Machine::flat(cpus);
    let enclave = machine.enclave(Spec::of((0..cpus as u16).map(CpuId))).unwrap();
    enclave.attach().unwrap();
    (machine, enclave)
}

fn scheduler<'a, P: Policy>(text: &str, enclave: &'a ModelEnclave) -> Scheduler<'a, P> {
    let mut scheduler = Scheduler::new(heddle_policies::build(text).unwrap(), enclave, settings());
    scheduler.adopt();
    scheduler
}

fn running(machine: &Machine, cpus: u16) -> Vec<Option<u32>> {
    (0..cpus).map(|cpu| machine.running(CpuId(cpu)).map(|task| task.0)).collect()
}

#[test]
fn threads_get_the_cpus_in_turn() {
    let (machine, enclave) = machine_of(2);
    let mut agent = scheduler::<Fifo>("fifo", &enclave);
    let threads: Vec<_> = (0..3).map(|_| machine.spawn(1, true)).collect();
    let round = agent.round();
    assert_eq!((round.messages, round.committed, round.next), (3, 2, None));
    assert_eq!(running(&machine, 2), [Some(0), Some(1)]);
    machine.block(threads[0]);
    agent.round();
    assert_eq!(running(&machine, 2), [Some(2), Some(1)]);
    machine.wake(threads[0]);
    machine.exit(threads[1]);
    agent.round();
    assert_eq!(running(&machine, 2), [Some(2), Some(0)]);
}

#[test]
fn a_quantum_ends_for_a_thread_that_waits_and_the_cpu_is_never_without_one() {
    let (machine, enclave) = machine_of(1);
    let mut agent = scheduler::<Shinjuku>("shinjuku:quantum=30us", &enclave);
    machine.spawn(1, true);
    assert_eq!(agent.round().next, Some(Ns::from_us(30)));
    machine.set_time(Ns::from_us(30));
    assert_eq!(agent.round().next, None, "no thread waits");
    machine.spawn(1, true);
    let round = agent.round();
    assert_eq!((round.committed, round.next), (1, Some(Ns::from_us(60))));
    assert_eq!(running(&machine, 1), [Some(1)]);
    machine.set_time(Ns::from_us(60));
    agent.round();
    assert_eq!(running(&machine, 1), [Some(0)]);
}

#[test]
fn a_queue_for_each_cpu_is_balanced() {
    let (machine, enclave) = machine_of(2);
    let mut agent = scheduler::<WorkStealing>("work-stealing", &enclave);
    let threads: Vec<_> = (0..4).map(|_| machine.spawn(1, true)).collect();
    agent.round();
    machine.block(threads[0]);
    machine.block(threads[1]);
    agent.round();
    assert!(running(&machine, 2).iter().all(Option::is_some));
    assert_eq!(threads.iter().filter(|&&t| machine.thread(t).state == State::OnCpu).count(), 2);
}

/// An agent whose next round is always due never sleeps.
#[test]
fn a_search_that_has_become_needless_does_not_stay_due() {
    let (machine, enclave) = machine_of(2);
    let mut agent = scheduler::<Hybrid>("hybrid:retry=100us", &enclave);
    let threads: Vec<_> = (0..2).map(|_| machine.spawn(1, true)).collect();
    for &thread in &threads {
        machine.set_affinity(thread, CpuSet::first(1));
    }
    assert_eq!(agent.round().next, Some(Ns::from_us(100)), "CPU 1 looks for the one that waits");
    let first = machine.running(CpuId(0)).unwrap();
    machine.block(first);
    machine.set_time(Ns::from_us(200));
    agent.round();
    assert_eq!(agent.round().next, None, "none waits");
}

/// Without a pick_next one thread is offered, as one CPU runs a thread.
#[test]
fn a_pick_next_chooses_among_more_threads_than_there_are_cpus() {
    for (pick_next, order) in [(None, [1, 2]), (Some(2), [3, 1]), (Some(9), [1, 2])] {
        let (machine, enclave) = machine_of(1);
        match pick_next {
            Some(2) => enclave.set_pick_next(|_| 2),
            Some(_) => enclave.set_pick_next(|_| usize::MAX),
            None => {}
        }
        let mut agent = scheduler::<Fifo>("fifo", &enclave);
        let threads: Vec<_> = (0..4).map(|_| machine.spawn(1, true)).collect();
        // The first commits, and the next offers.
        agent.round();
        agent.round();
        let offered = threads.iter().filter(|&&thread| machine.thread(thread).is_offered()).count();
        assert_eq!(offered, if pick_next.is_some() { 3 } else { 1 });
        let taken = order.map(|_| {
            let before = machine.running(CpuId(0)).unwrap();
            machine.block(before);
            agent.round();
            agent.round();
            machine.running(CpuId(0)).unwrap().0
        });
        assert_eq!(taken, order, "{pick_next:?}");
        assert_eq!(agent.tally().counts.taken, 2);
        assert_eq!(agent.waiting().sum::<usize>(), 1, "the policy knows");
    }
}

/// A CPU that is back sends no message: the agents look.
#[test]
fn agents_look_for_offline_cpus_while_threads_wait() {
    let (machine, enclave) = machine_of(2);
    let mut agent = scheduler::<WorkStealing>("work-stealing", &enclave);
    let rest = Some(Ns::from_ms(100));
    machine.set_online(CpuId(1), false);
    machine.spawn(1, true);
    assert_eq!((agent.round().next, running(&machine, 2)), (None, vec![Some(0), None]));
    machine.spawn(1, true);
    machine.spawn(1, true);
    assert_eq!((agent.round().next, running(&machine, 2)), (rest, vec![Some(0), None]));
    assert_eq!(agent.waiting().collect::<Vec<_>>(), [2, 0], "none waits for it");
    machine.set_online(CpuId(1), true);
    machine.set_time(Ns::from_ms(100));
    assert_eq!((agent.round().next, running(&machine, 2)), (None, vec![Some(0), Some(1)]));
}

#[test]
fn a_forged_sequence_number_of_a_queue_does_not_stick() {
    let (mut read, at) =
        (Reader::default(), |aseq| QueueWord { aseq: Seq(aseq), ..QueueWord::default() });
    read.advance(Seq(3), &at(4));
    assert_eq!(read.aseq, Seq(3), "one is not read yet");
    for made_up in [Seq(u64::MAX), Seq(u64::MAX - 1), Seq(6)] {
        read.advance(read.aseq.max(made_up), &at(5));
        assert_eq!(read.aseq, Seq(5));
    }
    // The word was forged too, and is right again.
    read.advance(Seq(u64::MAX), &at(u64::MAX));
    read.advance(read.aseq.max(Seq(6)), &at(7));
    assert_eq!(read.aseq, Seq(7));
}

#[test]
fn a_count_that_goes_back_is_no_failure() {
    let at = |failed| EnclaveWord { failed, ..EnclaveWord::default() };
    assert_eq!((at(7).failed_since(&at(4)), at(0).failed_since(&at(u64::MAX))), (3, 0));
}
