//! Queues: association, waiting, and full rings.

use crate::support::{Testbed, Worker, until};
use heddle_agent::model::{Kind, QueueId, State};
use heddle_agent::{Backend as _, BackendError};
use heddle_core::Ns;
use std::time::Duration;

#[test]
fn messages_go_where_a_thread_is_associated() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let worker = Worker::start();
    let thread = testbed.with(&worker);
    let (default, queue) = (testbed.rt.default_queue(), testbed.rt.create_queue(true).unwrap());
    assert_ne!(default, queue);
    testbed.rt.associate(thread, queue).unwrap();
    assert_eq!(testbed.rt.queue(queue).associated, 1);
    assert_eq!(testbed.rt.queue(default).associated, 0);
    worker.order(b'n');
    until("it has woken up", || testbed.rt.queue(queue).aseq.0 == 2);
    assert_eq!(testbed.rt.next(default), None);
    assert!(matches!(testbed.rt.associate(thread, default), Err(BackendError::Pending(_))));
    assert_eq!(testbed.rt.next(queue).map(|message| message.kind), Some(Kind::ThreadWakeup));
    assert!(matches!(testbed.rt.destroy_queue(queue), Err(BackendError::InUse(_, 1))));
    assert_eq!(testbed.rt.next(queue).map(|message| message.kind), Some(Kind::ThreadBlocked));
    testbed.rt.associate(thread, default).unwrap();
    testbed.rt.destroy_queue(queue).unwrap();
    assert!(matches!(testbed.rt.destroy_queue(queue), Err(BackendError::NoQueue(_))));
    assert!(matches!(testbed.rt.associate(thread, queue), Err(BackendError::NoQueue(_))));
    assert!(matches!(testbed.rt.destroy_queue(default), Err(BackendError::InUse(..))));
    assert!(matches!(
        testbed.rt.configure_queue(QueueId(9999), true),
        Err(BackendError::NoQueue(_))
    ));
}

#[test]
fn a_waiting_reader_is_woken_by_a_message_and_by_a_call() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let worker = Worker::start();
    let thread = testbed.with(&worker);
    let queue = testbed.rt.default_queue();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let tid = heddle_sys::thread::id();
            while testbed.rt.next(queue).is_none() {
                testbed.rt.wait(queue, None);
            }
            tid
        });
        std::thread::sleep(Duration::from_millis(20));
        worker.order(b'n');
        waits.join().unwrap();
    });
    until("its sleep is reported", || testbed.rt.thread(thread).state == State::Blocked);
    testbed.drain();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| testbed.rt.wait(queue, None));
        testbed.rt.wake(queue);
        waits.join().unwrap();
    });
    let start = testbed.rt.now();
    testbed.rt.wait(queue, Some(start + Ns::from_ms(5)));
    testbed.rt.wait(queue, Some(start + Ns::from_ms(5)));
    assert_eq!(testbed.rt.next(queue), None);
}

#[test]
fn losses_of_a_full_ring_are_counted_and_found_in_the_status_words() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let (worker, witness) = (Worker::start(), Worker::start());
    let (busy, thread) = (testbed.with(&worker), testbed.with(&witness));
    let queue = testbed.rt.default_queue();
    assert_eq!(testbed.rt.queue(queue).lost, 0);
    // Far more messages than a ring holds.
    for _ in 0..100_000 {
        worker.order(b'n');
        // On a busy machine a parked thread waits long for the CPU.
        while !heddle_sys::thread::is_asleep(worker.tid) {
            if testbed.rt.thread(busy).state == State::Parked {
                testbed.commit(busy, 0);
            }
        }
        if testbed.rt.queue(queue).lost > 0 {
            break;
        }
    }
    assert!(testbed.rt.queue(queue).lost > 0);
    witness.spin();
    until("it is awake", || testbed.rt.thread(thread).state == State::Parked);
    let word = testbed.rt.thread(thread);
    assert_eq!(word.tseq.0, 2);
    let seen = testbed.drain();
    assert!(seen.iter().all(|message| message.tid == worker.tid), "the message itself is lost");
    assert!(seen.windows(2).all(|pair| pair[0].aseq < pair[1].aseq));
    assert_eq!(testbed.rt.threads().len(), 2);
    assert!(testbed.commit(thread, 0).is_committed(), "the word says what the message would have");
    until("it runs", || testbed.rt.thread(thread).state == State::OnCpu);
    witness.rest();
    assert_eq!(testbed.next(witness.tid).kind, Kind::ThreadBlocked, "there is room again");
}
