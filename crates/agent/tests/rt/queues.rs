//! Queues: association, waiting, and rings that are full.

use crate::support::{Bench, Worker, until};
use heddle_agent::model::{Kind, QueueId, State};
use heddle_agent::{Backend as _, BackendError};
use heddle_core::Ns;
use std::time::Duration;

#[test]
fn messages_go_where_a_thread_is_associated() {
    let Some(bench) = Bench::on(&[1]) else { return };
    let worker = Worker::start();
    let thread = bench.with(&worker);
    let (default, queue) = (bench.rt.default_queue(), bench.rt.create_queue(true).unwrap());
    assert_ne!(default, queue);
    bench.rt.associate(thread, queue).unwrap();
    assert_eq!(bench.rt.queue(queue).associated, 1);
    assert_eq!(bench.rt.queue(default).associated, 0);
    worker.order(b'n');
    until("it has woken up", || bench.rt.queue(queue).aseq.0 == 2);
    assert_eq!(bench.rt.next(default), None);
    assert!(matches!(bench.rt.associate(thread, default), Err(BackendError::Pending(_))));
    assert_eq!(bench.rt.next(queue).map(|message| message.kind), Some(Kind::ThreadWakeup));
    assert!(matches!(bench.rt.destroy_queue(queue), Err(BackendError::InUse(_, 1))));
    assert_eq!(bench.rt.next(queue).map(|message| message.kind), Some(Kind::ThreadBlocked));
    bench.rt.associate(thread, default).unwrap();
    bench.rt.destroy_queue(queue).unwrap();
    assert!(matches!(bench.rt.destroy_queue(queue), Err(BackendError::NoQueue(_))));
    assert!(matches!(bench.rt.associate(thread, queue), Err(BackendError::NoQueue(_))));
    assert!(matches!(bench.rt.destroy_queue(default), Err(BackendError::InUse(..))));
    assert!(matches!(bench.rt.configure_queue(QueueId(9999), true), Err(BackendError::NoQueue(_))));
}

#[test]
fn who_waits_is_woken_by_a_message_and_by_a_colleague() {
    let Some(bench) = Bench::on(&[1]) else { return };
    let worker = Worker::start();
    let thread = bench.with(&worker);
    let queue = bench.rt.default_queue();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let tid = heddle_sys::thread::id();
            while bench.rt.next(queue).is_none() {
                bench.rt.wait(queue, None);
            }
            tid
        });
        std::thread::sleep(Duration::from_millis(20));
        worker.order(b'n');
        waits.join().unwrap();
    });
    until("its sleep is told", || bench.rt.thread(thread).state == State::Blocked);
    bench.drain();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| bench.rt.wait(queue, None));
        bench.rt.wake(queue);
        waits.join().unwrap();
    });
    let start = bench.rt.now();
    bench.rt.wait(queue, Some(start + Ns::from_ms(5)));
    bench.rt.wait(queue, Some(start + Ns::from_ms(5)));
    assert_eq!(bench.rt.next(queue), None);
}

#[test]
fn what_a_full_ring_has_lost_is_counted_and_found_in_the_status_words() {
    let Some(bench) = Bench::on(&[1]) else { return };
    let (worker, witness) = (Worker::start(), Worker::start());
    bench.with(&worker);
    let thread = bench.with(&witness);
    let queue = bench.rt.default_queue();
    assert_eq!(bench.rt.queue(queue).lost, 0);
    until("the ring is full", || {
        for _ in 0..100 {
            worker.order(b'n');
        }
        worker.await_sleep();
        worker.order(b'n');
        bench.rt.queue(queue).lost > 0
    });
    witness.spin();
    until("it is awake", || bench.rt.thread(thread).state == State::Parked);
    let word = bench.rt.thread(thread);
    assert_eq!(word.tseq.0, 2);
    let seen = bench.drain();
    assert!(seen.iter().all(|message| message.tid == worker.tid), "the news itself is lost");
    assert!(seen.windows(2).all(|pair| pair[0].aseq < pair[1].aseq));
    assert_eq!(bench.rt.threads().len(), 2);
    assert!(bench.commit(thread, 0).is_committed(), "the word says what the message would have");
    until("it runs", || bench.rt.thread(thread).state == State::OnCpu);
    witness.rest();
    assert_eq!(bench.next(witness.tid).kind, Kind::ThreadBlocked, "there is room again");
}
