//! Changes that the program or its user makes to a managed thread.

use crate::support::{Testbed, Worker, mask};
use heddle_agent::Backend as _;
use heddle_agent::model::{Kind, State};
use heddle_core::CpuId;
use heddle_sys::scheduling::{self, Scheduling};

#[test]
fn a_nice_value_is_reported_as_a_weight() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let worker = Worker::start();
    let thread = testbed.with(&worker);
    assert_eq!(testbed.rt.thread(thread).weight, 100);
    worker.order(b'p');
    // Noticed when it next gets a CPU.
    worker.await_sleep();
    worker.order(b'n');
    let changed = testbed.expect(|message| message.kind == Kind::ThreadPriority);
    assert_eq!((changed.tid, changed.info), (worker.tid, 11), "nice 10");
    assert_eq!(testbed.rt.thread(thread).weight, 11);
    worker.await_sleep();
    testbed.drain();
    testbed.rt.leave(worker.tid).unwrap();
    assert_eq!(scheduling::nice(worker.tid).unwrap(), 10, "what it has set itself stays");
}

#[test]
fn an_affinity_that_the_program_sets_is_reported_and_kept() {
    let Some(testbed) = Testbed::on(&[0, 1]) else { return };
    let worker = Worker::start();
    let thread = testbed.with(&worker);
    assert_eq!(testbed.rt.affinity(thread).len(), 2);
    worker.order(b'm');
    worker.await_sleep();
    worker.order(b'n');
    let changed = testbed.expect(|message| message.kind == Kind::ThreadAffinity);
    assert_eq!(changed.thread, thread);
    assert!(testbed.rt.affinity(thread).iter().eq([CpuId(1)]));
    worker.await_sleep();
    testbed.rt.leave(worker.tid).unwrap();
    assert_eq!(scheduling::mask(worker.tid).unwrap(), mask(&[1]));
}

#[test]
fn changes_by_this_backend_send_no_message() {
    let Some(testbed) = Testbed::on(&[0, 1]) else { return };
    let worker = Worker::start();
    let thread = testbed.with(&worker);
    for round in 0..20 {
        worker.spin();
        assert_eq!(testbed.next(worker.tid).kind, Kind::ThreadWakeup);
        assert!(testbed.commit(thread, round % 2).is_committed());
        crate::support::until("it runs", || testbed.rt.thread(thread).state == State::OnCpu);
        worker.rest();
        assert_eq!(testbed.next(worker.tid).kind, Kind::ThreadBlocked);
    }
    assert_eq!(testbed.rt.affinity(thread).len(), 2);
}

#[test]
fn a_thread_that_chooses_another_policy_has_left() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let worker = Worker::start();
    let before = scheduling::mask(worker.tid).unwrap();
    let thread = testbed.with(&worker);
    worker.order(b'i');
    worker.await_sleep();
    worker.order(b'n');
    let left = testbed.expect(|message| message.kind == Kind::ThreadDeparted);
    assert_eq!(left.thread, thread);
    assert_eq!(testbed.rt.thread(thread).state, State::Free);
    assert_eq!(scheduling::of(worker.tid).unwrap(), Scheduling::ORDINARY);
    assert_eq!(scheduling::mask(worker.tid).unwrap(), before, "it is confined no more");
    worker.await_sleep();
    assert!(testbed.rt.leave(worker.tid).is_err());
    testbed.rt.join(worker.tid).unwrap();
}

#[test]
fn a_thread_gets_its_original_settings_back() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let before = [
        Scheduling::ORDINARY,
        Scheduling { class: scheduling::Class::Batch, ..Scheduling::ORDINARY },
        Scheduling { reset_on_fork: true, ..Scheduling::ORDINARY },
        Scheduling { class: scheduling::Class::RoundRobin, priority: 1, reset_on_fork: false },
        Scheduling::IDLE,
    ];
    let workers: Vec<Worker> = before.iter().map(|_| Worker::start()).collect();
    for (nice, (worker, scheduling)) in (-2..).zip(workers.iter().zip(before)) {
        scheduling::set_nice(worker.tid, nice).unwrap();
        scheduling::set(worker.tid, scheduling).unwrap();
    }
    let is = |worker: &Worker| {
        let (of, nice) = (scheduling::of(worker.tid), scheduling::nice(worker.tid));
        (of.unwrap(), nice.unwrap(), scheduling::mask(worker.tid).unwrap())
    };
    let was: Vec<_> = workers.iter().map(is).collect();
    for worker in &workers {
        let thread = testbed.with(worker);
        worker.spin();
        assert_eq!(testbed.next(worker.tid).kind, Kind::ThreadWakeup);
        assert!(testbed.commit(thread, 0).is_committed());
    }
    assert!(workers.iter().map(is).ne(was.iter().copied()));
    for worker in &workers {
        worker.rest();
    }
    assert_eq!(testbed.rt.give_back().unwrap(), workers.len());
    assert!(workers.iter().map(is).eq(was.iter().copied()));
    assert_eq!(testbed.rt.give_back().unwrap(), 0);
    assert_eq!(testbed.rt.enclave().threads, 0);
    let departed = testbed.drain().iter().filter(|m| m.kind == Kind::ThreadDeparted).count();
    assert_eq!(departed, workers.len());
}
