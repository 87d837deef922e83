//! Long ones: what only shows when it happens thousands of times.

use super::bench::{Bench, Worker};
use super::fifo::Fifo;
use heddle_agent::Backend as _;
use heddle_agent::model::State;
use heddle_core::{Ns, TaskId};
use heddle_sys::scheduling;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A thread is lost that was parked for this long while its agent looked this often: on a starved host time alone says nothing, for the
/// CPUs of the guest may stand still.
const STALLED: Duration = Duration::from_secs(2);
const LOOKS: u32 = 500;

/// Watches that no thread stays parked while the agent has read all news.
struct Watch<'a> {
    bench: &'a Bench,
    worst: Duration,
    /// Since when each thread is parked, and how often it was seen so.
    seen: BTreeMap<TaskId, (Ns, u32)>,
}

/// Ends what runs beside a test, also where the test fails: a scope waits for its threads.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl Watch<'_> {
    fn look(&mut self, fifo: &Fifo) {
        let now = self.bench.scx.now();
        for task in self.bench.scx.threads() {
            let word = self.bench.scx.thread(task);
            if word.state != State::Parked {
                continue;
            }
            let seen = self.seen.entry(task).or_default();
            *seen = (word.runnable_at, if seen.0 == word.runnable_at { seen.1 + 1 } else { 1 });
            let looks = seen.1;
            let waited = Duration::from_nanos(now.0.saturating_sub(word.runnable_at.0));
            self.worst = self.worst.max(waited);
            let backlog = self.bench.scx.queue(self.bench.scx.default_queue());
            let is_lost = waited >= STALLED && looks >= LOOKS;
            assert!(!is_lost, "{word:?} {backlog:?} {:?} {:?}", fifo.outcomes, fifo.kinds);
        }
    }
}

fn storm(bench: &Bench, fifo: &mut Fifo, time: Duration) -> Duration {
    let mut watch = Watch { bench, worst: Duration::ZERO, seen: BTreeMap::new() };
    let end = Instant::now() + time;
    while Instant::now() < end {
        fifo.step(bench);
        watch.look(fifo);
        bench.scx.wait(bench.scx.default_queue(), Some(bench.scx.now() + Ns(1_000_000)));
    }
    watch.worst
}

#[test]
fn affinities_that_change_all_the_time_end_neither_the_scheduler_nor_a_thread() {
    let Some(bench) = Bench::new("storm", &[1, 2, 3]) else { return };
    let workers: Vec<Worker> = (0..4).map(|_| Worker::doing(std::thread::yield_now)).collect();
    for worker in &workers {
        bench.scx.join(worker.tid).unwrap();
    }
    let stop = AtomicBool::new(false);
    let (mut fifo, mut toggles) = (Fifo::default(), 0_u64);
    std::thread::scope(|scope| {
        let toggler = scope.spawn(|| {
            let mut count = 0;
            while !stop.load(Relaxed) {
                for worker in &workers {
                    let mut mask = [0; 16];
                    mask[0] = [0b0010, 0b1100, 0b0100, 0b1110][count as usize % 4];
                    scheduling::set_mask(worker.tid, &mask).unwrap();
                    count += 1;
                }
            }
            count
        });
        let ends = Stop(&stop);
        storm(&bench, &mut fifo, Duration::from_secs(10));
        drop(ends);
        toggles = toggler.join().unwrap();
    });
    eprintln!("{toggles} changes, {:?}", fifo.outcomes);
    assert!(bench.scx.is_loaded(), "the kernel has ended the scheduler");
    assert_eq!(bench.scx.threads().len(), workers.len());
    let before: Vec<u64> = workers.iter().map(Worker::turns).collect();
    fifo.run(&bench, "all go on", || workers.iter().zip(&before).all(|(w, b)| w.turns() > *b));
}

/// In trials a thread once stayed parked for seconds, with its message unread in the ring.
#[test]
fn no_thread_stays_parked_in_a_minute_of_sleeping_and_running() {
    let Some(bench) = Bench::new("minute", &[1, 2]) else { return };
    let nap = || std::thread::sleep(Duration::from_micros(300));
    let mut workers: Vec<Worker> = (0..4).map(|_| Worker::spinning()).collect();
    workers.extend((0..4).map(|_| Worker::doing(nap)));
    for worker in &workers {
        bench.scx.join(worker.tid).unwrap();
    }
    let mut fifo = Fifo::default();
    let worst = storm(&bench, &mut fifo, Duration::from_secs(60));
    eprintln!("longest parked {worst:?}, {:?} {:?}", fifo.outcomes, fifo.kinds);
    let before: Vec<u64> = workers.iter().map(Worker::turns).collect();
    fifo.run(&bench, "all go on", || workers.iter().zip(&before).all(|(w, b)| w.turns() > *b));
}
