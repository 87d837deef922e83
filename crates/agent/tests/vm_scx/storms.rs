//! Long tests: what shows only when it happens thousands of times.

use super::fifo::Fifo;
use super::testbed::{Testbed, Worker};
use heddle_agent::Backend as _;
use heddle_agent::model::State;
use heddle_core::{Ns, TaskId};
use heddle_sys::scheduling;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A thread counts as lost if it was parked for this long while its agent checked this often: on a starved host
/// time alone says nothing, as the CPUs of the guest may stand still.
const STALLED: Duration = Duration::from_secs(2);
const LOOKS: u32 = 500;

/// Checks that no thread stays parked while the agent has read all messages.
struct Watch<'a> {
    testbed: &'a Testbed,
    worst: Duration,
    /// Since when each thread is parked, and how often it was seen so.
    seen: BTreeMap<TaskId, (Ns, u32)>,
}

/// Ends what runs beside a test, even if the test fails: a scope waits for its threads.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl Watch<'_> {
    fn look(&mut self, fifo: &Fifo) {
        let now = self.testbed.scx.now();
        for task in self.testbed.scx.threads() {
            let word = self.testbed.scx.thread(task);
            if word.state != State::Parked {
                continue;
            }
            let seen = self.seen.entry(task).or_default();
            *seen = (word.runnable_at, if seen.0 == word.runnable_at { seen.1 + 1 } else { 1 });
            let looks = seen.1;
            let waited = Duration::from_nanos(now.0.saturating_sub(word.runnable_at.0));
            self.worst = self.worst.max(waited);
            let backlog = self.testbed.scx.queue(self.testbed.scx.default_queue());
            let is_lost = waited >= STALLED && looks >= LOOKS;
            assert!(!is_lost, "{word:?} {backlog:?} {:?} {:?}", fifo.outcomes, fifo.kinds);
        }
    }
}

fn storm(testbed: &Testbed, fifo: &mut Fifo, time: Duration) -> Duration {
    let mut watch = Watch { testbed, worst: Duration::ZERO, seen: BTreeMap::new() };
    let end = Instant::now() + time;
    while Instant::now() < end {
        fifo.step(testbed);
        watch.look(fifo);
        testbed.scx.wait(testbed.scx.default_queue(), Some(testbed.scx.now() + Ns(1_000_000)));
    }
    watch.worst
}

#[test]
fn affinities_that_change_all_the_time_end_neither_the_scheduler_nor_a_thread() {
    let Some(testbed) = Testbed::new("storm", &[1, 2, 3]) else { return };
    let workers: Vec<Worker> = (0..4).map(|_| Worker::doing(std::thread::yield_now)).collect();
    for worker in &workers {
        testbed.scx.join(worker.tid).unwrap();
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
        storm(&testbed, &mut fifo, Duration::from_secs(10));
        drop(ends);
        toggles = toggler.join().unwrap();
    });
    eprintln!("{toggles} changes, {:?}", fifo.outcomes);
    assert!(testbed.scx.is_loaded(), "the kernel has ended the scheduler");
    assert_eq!(testbed.scx.threads().len(), workers.len());
    let before: Vec<u64> = workers.iter().map(Worker::turns).collect();
    fifo.run(&testbed, "all go on", || workers.iter().zip(&before).all(|(w, b)| w.turns() > *b));
}

/// In trials a thread once stayed parked for seconds, with its message unread in the ring.
#[test]
fn no_thread_stays_parked_in_a_minute_of_sleeping_and_running() {
    let Some(testbed) = Testbed::new("minute", &[1, 2]) else { return };
    let nap = || std::thread::sleep(Duration::from_micros(300));
    let mut workers: Vec<Worker> = (0..4).map(|_| Worker::spinning()).collect();
    workers.extend((0..4).map(|_| Worker::doing(nap)));
    for worker in &workers {
        testbed.scx.join(worker.tid).unwrap();
    }
    let mut fifo = Fifo::default();
    let worst = storm(&testbed, &mut fifo, Duration::from_secs(60));
    eprintln!("longest parked {worst:?}, {:?} {:?}", fifo.outcomes, fifo.kinds);
    let before: Vec<u64> = workers.iter().map(Worker::turns).collect();
    fifo.run(&testbed, "all go on", || workers.iter().zip(&before).all(|(w, b)| w.turns() > *b));
}
