//! Statistics of a queue: per worker and in total.

use crate::EventQueue;
use crate::inner::Inner;
use crate::port::Port;
use crate::slot::flag;
use crate::telemetry::Count;
use heddle_core::Ns;
use heddle_sys::clock;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

/// What a worker has done since it joined, and its current state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// The worker's number: workers are numbered as they join, and no number is used twice.
    pub number: u32,
    /// Events that it was given.
    pub events: u64,
    /// How many of them were of high priority.
    pub high: u64,
    /// How often it waited and returned.
    pub waits: u64,
    /// How often it parked.
    pub parks: u64,
    /// How often it took events from another run queue, and how many.
    pub steals: u64,
    /// See [`steals`](WorkerStats::steals).
    pub stolen: u64,
    /// Events that it harvested and that the policy gave to another worker.
    pub forwarded: u64,
    /// How often it woke an idle worker, because it had more than it took or the chosen worker was busy.
    pub rings: u64,
    /// How long it handled events. If it is the only worker, every 16th turn is timed and stands for the
    /// others.
    pub busy: Ns,
    /// The average duration of an event: a decaying average (SKQ, section 4.2).
    pub average: Ns,
    /// How long an event would wait that entered its run queue now.
    pub expected_wait: Ns,
    /// How many events wait in its run queue, or in the shared one if the policy has only one.
    pub queued: usize,
}

/// Statistics of a queue: [`EventQueue::stats`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The current workers, in the order of their run queues.
    pub workers: Vec<WorkerStats>,
    /// How many events are registered.
    pub registrations: usize,
    /// How many of them are pinned to a thread that has left, and so are never reported.
    pub lost_pins: usize,
    /// With how many workers besides its home a descriptor is registered at present, if there are that many:
    /// 0 while no worker is idle.
    pub peers: usize,
    /// Why other processes of the user do not see what the queue counts, if they do not.
    pub unseen: Option<String>,
}

impl WorkerStats {
    fn since(&self, earlier: &WorkerStats) -> WorkerStats {
        WorkerStats {
            events: self.events.saturating_sub(earlier.events),
            high: self.high.saturating_sub(earlier.high),
            waits: self.waits.saturating_sub(earlier.waits),
            parks: self.parks.saturating_sub(earlier.parks),
            steals: self.steals.saturating_sub(earlier.steals),
            stolen: self.stolen.saturating_sub(earlier.stolen),
            forwarded: self.forwarded.saturating_sub(earlier.forwarded),
            rings: self.rings.saturating_sub(earlier.rings),
            busy: Ns(self.busy.0.saturating_sub(earlier.busy.0)),
            ..*self
        }
    }
}

impl Stats {
    /// Returns what was done since `earlier`. Counts and times are differences, or everything for workers
    /// that joined in between. Averages, lengths and numbers of registrations are those of `self`, the later
    /// snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Stats) -> Stats {
        let before = |number| earlier.workers.iter().find(|worker| worker.number == number);
        let since = |worker: &WorkerStats| match before(worker.number) {
            Some(before) => worker.since(before),
            None => *worker,
        };
        Stats { workers: self.workers.iter().map(since).collect(), ..self.clone() }
    }

    /// Returns how much less busy the least busy worker was than the busiest, in per cent of the busiest.
    /// Zero with fewer than two workers, or if none did anything.
    #[must_use]
    pub fn imbalance(&self) -> f64 {
        let busy = || self.workers.iter().map(|worker| worker.busy.0);
        match (busy().max(), busy().min()) {
            (Some(most), Some(least)) if most > 0 => (most - least) as f64 * 100.0 / most as f64,
            _ => 0.0,
        }
    }
}

impl fmt::Display for Stats {
    /// A table with a line per worker.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [waits, parks, forwarded] = ["waits", "parks", "forwarded"];
        write!(
            f,
            "worker     events       high {waits:>10} {parks:>10}     steals     stolen {forwarded:>10}      rings"
        )?;
        writeln!(f, "    busy ms  average us  expected us  queued")?;
        self.workers.iter().try_for_each(|worker| worker.line(f))?;
        let Stats { registrations, lost_pins, peers, .. } = self;
        let imbalance = self.imbalance();
        write!(
            f,
            "imbalance {imbalance:.1} %, {registrations} registered, {lost_pins} pinned to who left, {peers} peers"
        )
    }
}

impl WorkerStats {
    fn line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:6}", self.number)?;
        let counts = [
            self.events,
            self.high,
            self.waits,
            self.parks,
            self.steals,
            self.stolen,
            self.forwarded,
            self.rings,
        ];
        counts.iter().try_for_each(|count| write!(f, " {count:>10}"))?;
        let us = |time: Ns| time.0 as f64 / 1e3;
        let (busy, average) = (us(self.busy) / 1e3, us(self.average));
        let expected = us(self.expected_wait);
        writeln!(f, " {busy:>10.1} {average:>11.1} {expected:>12.1} {:>7}", self.queued)
    }
}

impl EventQueue {
    /// Returns statistics. The numbers keep changing while they are read, so they need not agree to the last
    /// event. Goes through all registrations: not meant for every request.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }
}

impl Inner {
    fn stats(&self) -> Stats {
        let (workers, now) = (self.dispatch.workers(), clock::now());
        let worker = |(index, port): (usize, &std::sync::Arc<Port>)| {
            worker_stats(port, workers.schedule.waiting(index), now)
        };
        let is_lost = |slot: &crate::slot::Slot| {
            slot.has(flag::PINNED) && workers.index_of(slot.home.load(Relaxed)).is_none()
        };
        Stats {
            workers: workers.ports.iter().enumerate().map(worker).collect(),
            registrations: self.dispatch.table.len(),
            lost_pins: self
                .dispatch
                .table
                .ids()
                .filter(|id| is_lost(self.dispatch.table.slot(id.index)))
                .count(),
            peers: self.watches.level(&workers) as usize,
            unseen: self.dispatch.telemetry.unseen.clone(),
        }
    }
}

fn worker_stats(port: &Port, queued: usize, now: Ns) -> WorkerStats {
    let figures = &port.figures;
    let of = |what| figures.counts.get(what);
    WorkerStats {
        number: port.number,
        events: of(Count::Events),
        high: of(Count::High),
        waits: of(Count::Waits),
        parks: of(Count::Parks),
        steals: of(Count::Steals),
        stolen: of(Count::Stolen),
        forwarded: of(Count::Forwarded),
        rings: of(Count::Rings),
        busy: figures.busy(now),
        average: figures.turn.average(),
        expected_wait: figures.turn.wait(now, queued),
        queued,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventOptions;
    use std::time::Duration;

    fn worker(number: u32, events: u64, busy: u64) -> WorkerStats {
        WorkerStats { number, events, busy: Ns(busy), ..WorkerStats::default() }
    }

    #[test]
    fn imbalance_compares_busy_times() {
        let of = |busy: &[u64]| {
            let workers = busy.iter().map(|&busy| worker(0, 0, busy)).collect();
            Stats { workers, ..Stats::default() }.imbalance()
        };
        assert_eq!((of(&[]), of(&[7]), of(&[0, 0])), (0.0, 0.0, 0.0));
        assert_eq!((of(&[100, 75, 80]), of(&[0, 5])), (25.0, 100.0));
    }

    #[test]
    fn differences_are_per_worker_and_include_new_workers() {
        let earlier =
            Stats { workers: vec![worker(1, 10, 5), worker(2, 9, 9)], ..Stats::default() };
        let workers = vec![worker(3, 4, 4), worker(1, 15, 6)];
        let later = Stats { workers, registrations: 8, ..Stats::default() };
        let since = later.since(&earlier);
        assert_eq!(since.workers, [worker(3, 4, 4), worker(1, 5, 1)]);
        assert_eq!(since.registrations, 8);
    }

    #[test]
    fn work_is_counted_and_lost_pins_are_reported() {
        let queue = EventQueue::new().unwrap();
        let mut here = queue.worker().unwrap();
        let gone = queue.worker().unwrap();
        let high = queue.register_user(1, EventOptions::default().high().pin(&here)).unwrap();
        queue.register_user(2, EventOptions::default().pin(&gone)).unwrap();
        assert_eq!(queue.stats().lost_pins, 0);
        drop(gone);
        let before = queue.stats();
        assert_eq!((before.workers.len(), before.registrations, before.lost_pins), (1, 2, 1));
        for _ in 0..40 {
            queue.trigger(high).unwrap();
            assert_eq!(here.wait(Some(Duration::from_secs(30))).unwrap().count(), 1);
        }
        let done = queue.stats().since(&before).workers[0];
        assert_eq!((done.events, done.high, done.waits), (40, 40, 40));
        assert!(done.busy > Ns::ZERO, "every 16th turn is timed");
        let table = queue.stats().to_string();
        assert_eq!(table.lines().count(), 3, "{table}");
        let [head, line] = [0, 1].map(|i| table.lines().nth(i).unwrap().chars().count());
        assert_eq!(head, line, "{table}");
    }
}
