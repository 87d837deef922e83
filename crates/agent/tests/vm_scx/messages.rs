//! Messages and queues.

use super::fifo::Fifo;
use super::testbed::{Holder, Testbed, Worker, expect, next, until};
use heddle_agent::model::{Kind, QueueId, Seq, State};
use heddle_agent::scx::EnclaveFlags;
use heddle_agent::{Backend as _, BackendError};
use heddle_core::{CpuId, Ns};
use heddle_sys::scheduling;
use std::sync::mpsc::channel;

#[test]
fn sleeping_and_waking_send_messages() {
    let Some(testbed) = Testbed::new("sleep", &[1]) else { return };
    let (wake, asleep) = channel::<()>();
    let worker = Worker::doing(move || {
        let _ = asleep.recv();
    });
    until("it sleeps", || heddle_sys::thread::is_asleep(worker.tid));
    testbed.scx.join(worker.tid).unwrap();
    let created = expect(&testbed.scx, Kind::ThreadCreated);
    assert_eq!(created.info, 0, "it cannot run");
    let task = created.thread;
    assert_eq!(testbed.state(task), State::Blocked);
    assert_eq!(testbed.try_one(testbed.txn(task, 0)), heddle_agent::model::Outcome::NotRunnable);

    for _ in 0..3 {
        wake.send(()).unwrap();
        let woken = expect(&testbed.scx, Kind::ThreadWakeup);
        assert_eq!((woken.thread, woken.tseq), (task, testbed.scx.thread(task).tseq));
        assert_eq!(testbed.state(task), State::Parked);
        testbed.commit(task, 0);
        let blocked = expect(&testbed.scx, Kind::ThreadBlocked);
        assert_eq!((blocked.thread, blocked.tseq), (task, woken.tseq.next()));
        assert_eq!(blocked.aseq, testbed.scx.queue(testbed.scx.default_queue()).aseq);
        assert_eq!(testbed.state(task), State::Blocked);
        assert_eq!(testbed.scx.cpu(CpuId(0)).current, None);
    }
    drop(wake);
}

#[test]
fn a_yield_sends_a_message() {
    let Some(testbed) = Testbed::new("yield", &[1]) else { return };
    let worker = Worker::doing(std::thread::yield_now);
    let task = testbed.join(&worker);
    testbed.commit(task, 0);
    assert_eq!(expect(&testbed.scx, Kind::ThreadYield).thread, task);
    assert_eq!(testbed.state(task), State::Parked);
}

#[test]
fn changes_of_weight_and_affinity_send_messages_and_move_no_thread() {
    let Some(testbed) = Testbed::new("change", &[1]) else { return };
    let worker = Worker::spinning();
    let task = testbed.join(&worker);
    let before = testbed.scx.thread(task);
    scheduling::set_nice(worker.tid, 10).unwrap();
    let message = expect(&testbed.scx, Kind::ThreadPriority);
    assert!(message.info < 100, "{message:?}");
    worker.pin(1);
    let message = expect(&testbed.scx, Kind::ThreadAffinity);
    assert_eq!(message.tseq, Seq(before.tseq.0 + 2));
    testbed.is_silent();
    assert_eq!(testbed.state(task), State::Parked);
    testbed.run(task, 0, &worker);
    scheduling::set_nice(worker.tid, 0).unwrap();
    assert_eq!(expect(&testbed.scx, Kind::ThreadPriority).info, 100);
    testbed.run(task, 0, &worker);
}

#[test]
fn messages_without_room_are_counted_and_found_in_the_status_words() {
    let Some(testbed) = Testbed::new("full", &[1]) else { return };
    let worker = Worker::spinning();
    let task = testbed.join(&worker);
    let queue = testbed.scx.default_queue();
    let before = testbed.scx.thread(task).tseq.0;
    for turn in 0..6000 {
        scheduling::set_nice(worker.tid, 1 + turn % 2).unwrap();
    }
    let word = testbed.scx.queue(queue);
    assert!(word.lost > 0, "{word:?}");
    let read = std::iter::from_fn(|| testbed.scx.next(queue)).count() as u64;
    assert_eq!(read + word.lost, 6000);
    assert_eq!(testbed.scx.thread(task).tseq, Seq(before + 6000));
    // There is room again, and the words suffice to go on.
    testbed.run(task, 0, &worker);
    testbed.park(task, 0);
    assert_eq!(next(&testbed.scx).kind, Kind::ThreadPreempted);
}

#[test]
fn a_thread_moves_to_another_queue_when_all_its_messages_are_read() {
    let Some(testbed) = Testbed::new("queues", &[1]) else { return };
    let worker = Worker::spinning();
    let scx = &testbed.scx;
    let other = scx.create_queue(true).unwrap();
    scx.join(worker.tid).unwrap();
    until("it is reported", || scx.queue(scx.default_queue()).aseq == Seq(1));
    let task = scx.threads()[0];
    assert!(matches!(scx.associate(task, other), Err(BackendError::Pending(t)) if t == task));
    expect(scx, Kind::ThreadCreated);
    assert!(matches!(scx.associate(task, QueueId(999)), Err(BackendError::NoQueue(_))));
    scx.associate(task, other).unwrap();
    assert_eq!((scx.queue(other).associated, scx.queue(scx.default_queue()).associated), (1, 0));
    assert!(matches!(scx.destroy_queue(other), Err(BackendError::InUse(_, 1))));

    testbed.run(task, 0, &worker);
    testbed.park(task, 0);
    let mut message = None;
    until("the other queue has the message", || {
        message = message.or_else(|| scx.next(other));
        message.is_some()
    });
    assert_eq!(message.unwrap().kind, Kind::ThreadPreempted);
    testbed.is_silent();
    scx.associate(task, scx.default_queue()).unwrap();
    scx.destroy_queue(other).unwrap();
    assert!(matches!(scx.destroy_queue(other), Err(BackendError::NoQueue(_))));
}

#[test]
fn a_sleeper_is_woken_by_a_message_and_by_another_thread() {
    let Some(testbed) = Testbed::new("wait", &[1]) else { return };
    let worker = Worker::spinning();
    let queue = testbed.scx.default_queue();
    std::thread::scope(|scope| {
        scope.spawn(|| testbed.scx.join(worker.tid).unwrap());
        while testbed.scx.next(queue).is_none() {
            testbed.scx.wait(queue, None);
        }
        let sleeper = scope.spawn(|| testbed.scx.wait(queue, None));
        testbed.scx.wake(queue);
        sleeper.join().unwrap();
    });
    let before = testbed.scx.now();
    testbed.scx.wait(queue, Some(before + Ns(1_000_000)));
    assert!(testbed.scx.now() > before);
}

#[test]
fn ticks_and_other_occupants_are_reported_if_requested() {
    let Some(testbed) = Testbed::new("ticks", &[1]) else { return };
    let worker = Worker::spinning();
    let task = testbed.join(&worker);
    testbed.scx.set_flags(EnclaveFlags { ticks: true, cpus: true });
    testbed.commit(task, 0);
    let mut fifo = Fifo::default();
    let mut await_kind = |kind: &str| {
        until(kind, || {
            fifo.step(&testbed);
            fifo.kinds.contains_key(kind)
        });
    };
    await_kind("TimerTick");
    let holder = Holder::ordinary(1);
    await_kind("CpuBusy");
    drop(holder);
    await_kind("CpuAvailable");
}
