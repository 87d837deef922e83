//! The queue's page: what its workers count, where other processes of the user read it ([`heddle_telemetry`]).
//!
//! A worker counts in a slot of the page, which the next worker gets when it has left. The counters of a slot are not
//! set back, so that readers see none fall; a worker's statistics begin with what it found there. Workers for which
//! there is no slot count in private memory of the same form, as all do if other processes do not see the page.

use heddle_core::Ns;
use heddle_telemetry::{Counters, Layout, Page, WORKERS_APART, of_workers};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

/// What a worker counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Events,
    High,
    Waits,
    Parks,
    Steals,
    Stolen,
    Forwarded,
    Rings,
    /// Nanoseconds.
    Busy,
}

/// The names of these, in the same order.
const OF_WORKERS: [&str; 9] = [
    "heddle_events_taken_total",
    "heddle_events_taken_high_total",
    "heddle_events_waits_total",
    "heddle_events_parks_total",
    "heddle_events_steals_total",
    "heddle_events_stolen_total",
    "heddle_events_forwarded_total",
    "heddle_events_rings_total",
    "heddle_events_busy_seconds_total",
];

const _: () = assert!(OF_WORKERS.len() == Count::Busy as usize + 1);

/// Counted for the whole queue.
const OF_QUEUE: [(&str, &str); 2] =
    [("heddle_events_lost_total", ""), ("heddle_events_workers", "")];

/// Workers that have a slot: two threads for each CPU, and a few.
static SLOTS: LazyLock<usize> =
    LazyLock::new(|| 2 * std::thread::available_parallelism().map_or(1, usize::from) + 14);

/// The page of a queue.
#[derive(Debug)]
pub(crate) struct Telemetry {
    page: Arc<Page>,
    of_queue: Counters<{ OF_QUEUE.len() }>,
    /// The slots that workers have. Without a lock, which the child of a fork could find held.
    taken: Arc<[AtomicBool]>,
    /// Why other processes do not see the page, if they do not.
    pub unseen: Option<String>,
}

fn labels(policy: &str) -> String {
    format!("layer=events,policy={}", policy.split(':').next().unwrap_or_default())
}

impl Telemetry {
    /// Makes the page of a queue under `policy`; one that other processes see if `seen`.
    ///
    /// # Errors
    /// The system's, if it has no memory at all. If it has none for others to see, or no descriptor, the queue does
    /// without.
    pub fn new(policy: &str, seen: bool) -> io::Result<Telemetry> {
        let slots = *SLOTS;
        let of_slots: Vec<String> = (0..slots).map(|slot| format!("worker={slot}")).collect();
        let mut counters = of_workers(&OF_WORKERS, &of_slots);
        counters.extend(OF_QUEUE);
        let labels = labels(policy);
        let layout = Layout { labels: &labels, counters: &counters, ..Layout::default() };
        let (page, unseen) = Page::open(&layout, seen)?;
        let page = Arc::new(page);
        let of_queue = Counters::of(&page, slots * WORKERS_APART);
        let taken = (0..slots).map(|_| AtomicBool::new(false)).collect();
        Ok(Telemetry { page, of_queue, taken, unseen })
    }

    /// Returns the counters of a new worker.
    ///
    /// # Errors
    /// The system's, if there is no slot and no memory.
    pub fn worker(&self) -> io::Result<WorkerCounts> {
        // What the last worker counted there is seen.
        let take = |slot: &AtomicBool| {
            slot.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        match self.taken.iter().position(take) {
            Some(slot) => {
                let slots = Arc::clone(&self.taken);
                Ok(WorkerCounts::new(&self.page, slot * WORKERS_APART, Some((slots, slot))))
            }
            None => WorkerCounts::private(),
        }
    }

    /// A worker has joined or left, and now there are so many.
    pub fn set_workers(&self, workers: usize) {
        self.of_queue[1].set(workers as u64);
    }

    /// The queue has another policy. The caller holds the lock of the queue's workers.
    pub fn set_policy(&self, policy: &str) {
        self.page.set_labels(&labels(policy));
    }

    /// An event was dropped.
    pub fn lose(&self) {
        self.of_queue[0].add_shared(1);
    }

    /// Returns how many events were dropped.
    pub fn lost(&self) -> u64 {
        self.of_queue[0].get()
    }
}

/// A worker's counters, written by its thread alone.
#[derive(Debug)]
pub(crate) struct WorkerCounts {
    counters: Counters<{ OF_WORKERS.len() }>,
    /// What others had counted here before this worker joined.
    before: [u64; OF_WORKERS.len()],
    /// The slot, among all of the queue.
    slot: Option<(Arc<[AtomicBool]>, usize)>,
}

impl WorkerCounts {
    fn new(page: &Arc<Page>, first: usize, slot: Option<(Arc<[AtomicBool]>, usize)>) -> Self {
        let counters = Counters::of(page, first);
        let before = counters.each_ref().map(heddle_telemetry::Counter::get);
        WorkerCounts { counters, before, slot }
    }

    /// Returns counters that no other process sees.
    fn private() -> io::Result<WorkerCounts> {
        let labels = [String::new()];
        let layout = Layout { counters: &of_workers(&OF_WORKERS, &labels), ..Layout::default() };
        Ok(WorkerCounts::new(&Arc::new(Page::private(&layout)?), 0, None))
    }

    /// Adds to a counter.
    #[inline]
    pub fn add(&self, what: Count, n: u64) {
        self.counters[what as usize].add(n);
    }

    /// Returns what this worker has counted.
    #[inline]
    pub fn get(&self, what: Count) -> u64 {
        // The child of a fork begins with zeroes.
        self.counters[what as usize].get().saturating_sub(self.before[what as usize])
    }

    /// Returns how long this worker handled events, without the present turn.
    pub fn busy(&self) -> Ns {
        Ns(self.get(Count::Busy))
    }
}

impl Drop for WorkerCounts {
    fn drop(&mut self) {
        if let Some((taken, slot)) = &self.slot {
            taken[*slot].store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
impl Default for WorkerCounts {
    fn default() -> WorkerCounts {
        WorkerCounts::private().expect("memory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_worker_counts_on_in_the_slot_of_one_that_has_left() {
        let telemetry = Telemetry::new("fifo", false).unwrap();
        let (first, second) = (telemetry.worker().unwrap(), telemetry.worker().unwrap());
        first.add(Count::Events, 7);
        second.add(Count::Busy, 1);
        drop(first);
        let third = telemetry.worker().unwrap();
        third.add(Count::Events, 2);
        assert_eq!((third.get(Count::Events), third.counters[0].get()), (2, 9));
        assert_eq!((second.get(Count::Events), second.busy()), (0, Ns(1)));
    }

    #[test]
    fn workers_beyond_the_slots_count_all_the_same() {
        let telemetry = Telemetry::new("fifo", false).unwrap();
        let all: Vec<_> = (0..*SLOTS + 2).map(|_| telemetry.worker().unwrap()).collect();
        all.iter().for_each(|worker| worker.add(Count::Parks, 1));
        assert!(all.iter().all(|worker| worker.get(Count::Parks) == 1));
        assert_eq!(all.iter().filter(|worker| worker.slot.is_none()).count(), 2);
    }

    #[test]
    fn a_queue_whose_page_is_not_wanted_says_so() {
        let unseen = Telemetry::new("hybrid:x=1", false).unwrap().unseen;
        assert!(unseen.is_some_and(|why| why.contains("HEDDLE_TELEMETRY=off")));
        assert_eq!(labels("hybrid:x=1"), "layer=events,policy=hybrid");
    }
}
