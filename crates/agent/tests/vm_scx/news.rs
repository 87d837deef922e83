//! Messages and queues.

use super::bench::{Bench, Holder, Worker, expect, next, until};
use super::fifo::Fifo;
use heddle_agent::model::{Kind, QueueId, Seq, State};
use heddle_agent::scx::News;
use heddle_agent::{Backend as _, BackendError};
use heddle_core::{CpuId, Ns};
use heddle_sys::scheduling;
use std::sync::mpsc::channel;

#[test]
fn a_thread_that_sleeps_and_wakes_tells_so() {
    let Some(bench) = Bench::new("sleep", &[1]) else { return };
    let (wake, asleep) = channel::<()>();
    let worker = Worker::doing(move || {
        let _ = asleep.recv();
    });
    until("it sleeps", || heddle_sys::thread::is_asleep(worker.tid));
    bench.scx.join(worker.tid).unwrap();
    let created = expect(&bench.scx, Kind::ThreadCreated);
    assert_eq!(created.info, 0, "it cannot run");
    let task = created.thread;
    assert_eq!(bench.state(task), State::Blocked);
    assert_eq!(bench.try_one(bench.txn(task, 0)), heddle_agent::model::Outcome::NotRunnable);

    for _ in 0..3 {
        wake.send(()).unwrap();
        let woken = expect(&bench.scx, Kind::ThreadWakeup);
        assert_eq!((woken.thread, woken.tseq), (task, bench.scx.thread(task).tseq));
        assert_eq!(bench.state(task), State::Parked);
        bench.commit(task, 0);
        let blocked = expect(&bench.scx, Kind::ThreadBlocked);
        assert_eq!((blocked.thread, blocked.tseq), (task, woken.tseq.next()));
        assert_eq!(blocked.aseq, bench.scx.queue(bench.scx.default_queue()).aseq);
        assert_eq!(bench.state(task), State::Blocked);
        assert_eq!(bench.scx.cpu(CpuId(0)).current, None);
    }
    drop(wake);
}

#[test]
fn a_thread_that_yields_tells_so() {
    let Some(bench) = Bench::new("yield", &[1]) else { return };
    let worker = Worker::doing(std::thread::yield_now);
    let task = bench.join(&worker);
    bench.commit(task, 0);
    assert_eq!(expect(&bench.scx, Kind::ThreadYield).thread, task);
    assert_eq!(bench.state(task), State::Parked);
}

#[test]
fn a_thread_whose_weight_or_affinity_changes_tells_so_and_stays_where_it_is() {
    let Some(bench) = Bench::new("change", &[1]) else { return };
    let worker = Worker::spinning();
    let task = bench.join(&worker);
    let before = bench.scx.thread(task);
    scheduling::set_nice(worker.tid, 10).unwrap();
    let message = expect(&bench.scx, Kind::ThreadPriority);
    assert!(message.info < 100, "{message:?}");
    worker.pin(1);
    let message = expect(&bench.scx, Kind::ThreadAffinity);
    assert_eq!(message.tseq, Seq(before.tseq.0 + 2));
    bench.is_silent();
    assert_eq!(bench.state(task), State::Parked);
    bench.run(task, 0, &worker);
    scheduling::set_nice(worker.tid, 0).unwrap();
    assert_eq!(expect(&bench.scx, Kind::ThreadPriority).info, 100);
    bench.run(task, 0, &worker);
}

#[test]
fn what_has_no_room_is_counted_and_the_status_words_know_it() {
    let Some(bench) = Bench::new("full", &[1]) else { return };
    let worker = Worker::spinning();
    let task = bench.join(&worker);
    let queue = bench.scx.default_queue();
    let before = bench.scx.thread(task).tseq.0;
    for turn in 0..6000 {
        scheduling::set_nice(worker.tid, 1 + turn % 2).unwrap();
    }
    let word = bench.scx.queue(queue);
    assert!(word.lost > 0, "{word:?}");
    let read = std::iter::from_fn(|| bench.scx.next(queue)).count() as u64;
    assert_eq!(read + word.lost, 6000);
    assert_eq!(bench.scx.thread(task).tseq, Seq(before + 6000));
    // There is room again, and the words are enough to go on.
    bench.run(task, 0, &worker);
    bench.park(task, 0);
    assert_eq!(next(&bench.scx).kind, Kind::ThreadPreempted);
}

#[test]
fn a_thread_moves_to_another_queue_when_all_its_news_are_read() {
    let Some(bench) = Bench::new("queues", &[1]) else { return };
    let worker = Worker::spinning();
    let scx = &bench.scx;
    let other = scx.create_queue(true).unwrap();
    scx.join(worker.tid).unwrap();
    until("it is told of", || scx.queue(scx.default_queue()).aseq == Seq(1));
    let task = scx.threads()[0];
    assert!(matches!(scx.associate(task, other), Err(BackendError::Pending(t)) if t == task));
    expect(scx, Kind::ThreadCreated);
    assert!(matches!(scx.associate(task, QueueId(999)), Err(BackendError::NoQueue(_))));
    scx.associate(task, other).unwrap();
    assert_eq!((scx.queue(other).associated, scx.queue(scx.default_queue()).associated), (1, 0));
    assert!(matches!(scx.destroy_queue(other), Err(BackendError::InUse(_, 1))));

    bench.run(task, 0, &worker);
    bench.park(task, 0);
    let mut message = None;
    until("the other queue has the message", || {
        message = message.or_else(|| scx.next(other));
        message.is_some()
    });
    assert_eq!(message.unwrap().kind, Kind::ThreadPreempted);
    bench.is_silent();
    scx.associate(task, scx.default_queue()).unwrap();
    scx.destroy_queue(other).unwrap();
    assert!(matches!(scx.destroy_queue(other), Err(BackendError::NoQueue(_))));
}

#[test]
fn a_sleeper_is_woken_by_a_message_and_by_another_thread() {
    let Some(bench) = Bench::new("wait", &[1]) else { return };
    let worker = Worker::spinning();
    let queue = bench.scx.default_queue();
    std::thread::scope(|scope| {
        scope.spawn(|| bench.scx.join(worker.tid).unwrap());
        while bench.scx.next(queue).is_none() {
            bench.scx.wait(queue, None);
        }
        let sleeper = scope.spawn(|| bench.scx.wait(queue, None));
        bench.scx.wake(queue);
        sleeper.join().unwrap();
    });
    let before = bench.scx.now();
    bench.scx.wait(queue, Some(before + Ns(1_000_000)));
    assert!(bench.scx.now() > before);
}

#[test]
fn ticks_and_other_occupants_are_told_where_wanted() {
    let Some(bench) = Bench::new("ticks", &[1]) else { return };
    let worker = Worker::spinning();
    let task = bench.join(&worker);
    bench.scx.tell(News { ticks: true, cpus: true, fast_path: false });
    bench.commit(task, 0);
    let mut fifo = Fifo::default();
    let mut await_kind = |kind: &str| {
        until(kind, || {
            fifo.step(&bench);
            fifo.kinds.contains_key(kind)
        });
    };
    await_kind("TimerTick");
    let holder = Holder::ordinary(1);
    await_kind("CpuBusy");
    drop(holder);
    await_kind("CpuAvailable");
}
