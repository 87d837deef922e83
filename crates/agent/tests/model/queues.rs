//! Queues: bounded, counted, ordered, and waited for.

use crate::{enclave_of, run};
use heddle_agent::model::machine::{Machine, Spec};
use heddle_agent::model::{CpuOccupant, Kind, QueueId, Seq};
use heddle_agent::{Backend, BackendError};
use heddle_core::{CpuId, Ns};

#[test]
fn a_full_queue_counts_what_it_lost() {
    let machine = Machine::flat(1);
    let enclave = machine.enclave(Spec { ring: 2, ..Spec::of([CpuId(0)]) }).unwrap();
    let threads = [(); 5].map(|()| machine.spawn(enclave.id(), true));
    let queue = enclave.default_queue();
    let word = enclave.queue(queue);
    assert_eq!((word.aseq, word.lost, word.associated), (Seq(5), 3, 5));
    let read: Vec<_> = std::iter::from_fn(|| enclave.next(queue)).collect();
    assert_eq!(read.iter().map(|message| message.thread).collect::<Vec<_>>(), threads[..2]);
    assert_eq!(enclave.threads(), threads, "the status words have lost nothing");
}

#[test]
fn a_thread_moves_to_another_queue_once_its_messages_are_read() {
    let (machine, enclave) = enclave_of(1);
    let thread = machine.spawn(enclave.id(), true);
    let (old, new) = (enclave.default_queue(), enclave.create_queue(true).unwrap());
    assert!(
        matches!(enclave.associate(thread, new), Err(BackendError::Pending(who)) if who == thread)
    );
    enclave.next(old);
    enclave.associate(thread, new).unwrap();
    run(&enclave, thread, 0);
    machine.block(thread);
    assert!(enclave.next(old).is_none());
    assert_eq!(enclave.next(new).unwrap().kind, Kind::ThreadBlocked);
    assert!(matches!(enclave.destroy_queue(new), Err(BackendError::InUse(_, 1))));
    machine.depart(thread);
    enclave.destroy_queue(new).unwrap();
    assert!(matches!(enclave.destroy_queue(new), Err(BackendError::NoQueue(_))));
    assert!(matches!(enclave.destroy_queue(old), Err(BackendError::InUse(..))), "the default one");
}

#[test]
fn queues_of_other_enclaves_are_refused() {
    let machine = Machine::flat(2);
    let [one, two] = [0, 1].map(|cpu| machine.enclave(Spec::of([CpuId(cpu)])).unwrap());
    let foreign = two.default_queue();
    machine.spawn(two.id(), true);
    assert!(one.next(foreign).is_none());
    assert!(
        one.configure_queue(foreign, true).is_err()
            && one.configure_queue(QueueId(77), true).is_err()
    );
    assert!(one.associate_cpu(CpuId(0), foreign).is_err());
}

#[test]
fn cpu_messages_go_to_the_cpus_queue_if_requested() {
    let machine = Machine::flat(2);
    let spec = Spec { ticks: true, cpu_messages: true, ..Spec::of([CpuId(0), CpuId(1)]) };
    let enclave = machine.enclave(spec).unwrap();
    let queue = enclave.create_queue(true).unwrap();
    enclave.associate_cpu(CpuId(1), queue).unwrap();
    machine.tick(CpuId(0));
    machine.tick(CpuId(1));
    machine.occupy(CpuId(1), CpuOccupant::Ordinary);
    machine.occupy(CpuId(1), CpuOccupant::Realtime);
    machine.release(CpuId(1));
    machine.release(CpuId(1));
    let kinds = |queue| {
        std::iter::from_fn(|| enclave.next(queue)).map(|message| message.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(enclave.default_queue()), [Kind::TimerTick]);
    assert_eq!(kinds(queue), [Kind::TimerTick, Kind::CpuBusy, Kind::CpuAvailable]);
}

#[test]
fn a_waiting_reader_is_woken_by_messages_by_calls_and_by_time() {
    let (machine, enclave) = enclave_of(1);
    let queue = enclave.default_queue();
    enclave.wake(queue);
    enclave.wait(queue, None);
    enclave.wait(queue, Some(Ns::ZERO));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| enclave.wait(queue, None));
        machine.spawn(enclave.id(), true);
        waiter.join().unwrap();
        enclave.next(queue);
        let waiter = scope.spawn(|| enclave.wait(queue, Some(Ns(5))));
        machine.set_time(Ns(5));
        waiter.join().unwrap();
    });
}
