//! The runtime's page: its counters, and a ring of events for each run queue, where other processes read them
//! ([`heddle_telemetry`]).
//!
//! The page lives as long as the runtime's core, which every worker and every run queue belongs to. Without a page that
//! others see, everything is counted in private memory of the same form.

use crate::cpu_time::Meter;
use crate::trace::Trace;
use heddle_core::{Event, Ns};
use heddle_telemetry::{Counter, Cursor, Layout, Page, RingWriter, WORKERS_APART, of_workers};
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counted by a worker.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct WorkerCounters {
    pub(crate) switches: Counter,
    pub(crate) preemptions: Counter,
    pub(crate) steals: Counter,
    pub(crate) spawned: Counter,
    pub(crate) exited: Counter,
    pub(crate) sleeps: Counter,
    pub(crate) interrupts: Counter,
    pub(crate) probes: Counter,
    pub(crate) skipped: Counter,
    pub(crate) takeovers: Counter,
    pub(crate) polls_kept: Counter,
}

/// The names of these, in the same order.
const OF_WORKERS: [&str; 11] = [
    "heddle_runtime_switches_total",
    "heddle_runtime_preemptions_total",
    "heddle_runtime_steals_total",
    SPAWNED,
    "heddle_runtime_exited_total",
    "heddle_runtime_sleeps_total",
    "heddle_runtime_interrupts_total",
    "heddle_runtime_probes_total",
    "heddle_runtime_preemptions_skipped_total",
    TAKEOVERS,
    "heddle_runtime_polls_kept_total",
];

const SPAWNED: &str = "heddle_runtime_spawned_total";
const TAKEOVERS: &str = "heddle_runtime_takeovers_total";

const _: () = assert!(size_of::<WorkerCounters>() == OF_WORKERS.len() * size_of::<Counter>());

/// Counted by others.
#[repr(C)]
pub(crate) struct OtherCounters {
    /// By the ticker.
    pub(crate) reminders: Counter,
    pub(crate) takeovers: Counter,
    /// By threads that are no workers.
    pub(crate) spawned: Counter,
    /// Workers ever made.
    workers: Counter,
}

const OTHERS: [(&str, &str); 4] = [
    ("heddle_runtime_reminders_total", "worker=ticker"),
    (TAKEOVERS, "worker=ticker"),
    (SPAWNED, "worker=none"),
    ("heddle_runtime_workers", ""),
];

const _: () = assert!(size_of::<OtherCounters>() == OTHERS.len() * size_of::<Counter>());

/// A worker's counters, and its meter.
#[derive(Debug)]
pub(crate) struct WorkerStats {
    counters: &'static WorkerCounters,
    pub(crate) meter: Meter,
}

impl WorkerStats {
    pub(crate) fn new(counters: &'static WorkerCounters) -> WorkerStats {
        WorkerStats { counters, meter: Meter::default() }
    }
}

impl Deref for WorkerStats {
    type Target = WorkerCounters;

    #[inline(always)]
    fn deref(&self) -> &WorkerCounters {
        self.counters
    }
}

/// Workers that have a place in the page of a runtime on `cpus` CPUs. Each CPU has one, or one more where a task blocks
/// in the kernel; programs that block in many more tasks at once count those workers in their own memory.
fn places(cpus: usize) -> usize {
    2 * cpus + 14
}

/// Events in a ring: at a million switches a second, some milliseconds. In virtual time there is one ring, for all.
fn ring_events(queues: usize) -> usize {
    match cfg!(virtual_time) {
        true => 1 << 20,
        // 256 KiB for each queue, or less on huge machines.
        false => (8192 / queues.div_ceil(1024).next_power_of_two()).max(64),
    }
}

/// Names that marks of a program can have.
pub(crate) const MARKS: usize = 512;

/// See the module.
pub(crate) struct Telemetry {
    /// From [`Box::leak`].
    page: NonNull<Page>,
    others: &'static OtherCounters,
    places: usize,
    taken: AtomicUsize,
    rings: usize,
    /// Why others do not see the page, if they do not.
    pub(crate) unseen: Option<String>,
    recording: Mutex<Vec<Cursor>>,
}

// SAFETY: it owns the page, which threads may share.
unsafe impl Send for Telemetry {}
// SAFETY: as above.
unsafe impl Sync for Telemetry {}

impl Telemetry {
    /// Makes the page of a runtime on `cpus` CPUs with so many run queues; one that others see if `seen`.
    ///
    /// # Errors
    /// The system's, if it has no memory at all. If it has none for others to see, or no descriptor, the runtime does
    /// without.
    pub(crate) fn new(
        labels: &str,
        cpus: usize,
        queues: usize,
        seen: bool,
    ) -> io::Result<Telemetry> {
        let places = places(cpus);
        let queues = if cfg!(virtual_time) { 1 } else { queues };
        let labels_of_workers: Vec<String> = (0..places).map(|n| format!("worker={n}")).collect();
        let of_rings: Vec<String> = (0..queues).map(|n| format!("queue={n}")).collect();
        let mut counters = of_workers(&OF_WORKERS, &labels_of_workers);
        counters.extend(OTHERS);
        let rings: Vec<_> =
            of_rings.iter().map(|labels| ("heddle_runtime_events", &labels[..])).collect();
        let (histograms, ring_events) = (&[][..], ring_events(queues));
        let (counters, rings) = (&counters[..], &rings[..]);
        let layout = Layout { labels, counters, histograms, rings, ring_events, marks: MARKS };
        let (page, unseen) = Page::open(&layout, seen)?;
        let page: &'static Page = Box::leak(Box::new(page));
        let first = places * WORKERS_APART;
        // SAFETY: so many counters, with the alignment of one, and in the same order.
        let others = unsafe { &*page.counters(first..first + OTHERS.len()).as_ptr().cast() };
        let (page, taken, recording) = (page.into(), AtomicUsize::new(0), Mutex::default());
        Ok(Telemetry { page, others, places, taken, rings: queues, unseen, recording })
    }

    /// Returns the page: for what belongs to the runtime's core and is used no longer.
    fn page(&self) -> &'static Page {
        // SAFETY: freed when `self` is dropped, which the core drops last of what counts.
        unsafe { self.page.as_ref() }
    }

    /// Returns the counters of a new worker; `None` if there is no room.
    pub(crate) fn worker(&self) -> Option<&'static WorkerCounters> {
        self.others().workers.add_shared(1);
        let place = self.taken.fetch_add(1, Ordering::Relaxed);
        let first = place.min(self.places) * WORKERS_APART;
        (place < self.places).then(|| {
            let counters = self.page().counters(first..first + OF_WORKERS.len());
            // SAFETY: as in `new`.
            unsafe { &*counters.as_ptr().cast() }
        })
    }

    /// Returns the counters of what is no worker.
    #[inline]
    pub(crate) fn others(&self) -> &'static OtherCounters {
        self.others
    }

    /// Returns the ring of a run queue. Its writer holds the queue's lock; in virtual time all queues have one ring,
    /// and one thread acts at a time.
    pub(crate) fn ring(&self, queue: usize) -> RingWriter<'static> {
        self.page().ring(queue.min(self.rings - 1))
    }

    /// Gives marks with this number a name, before the first of them.
    pub(crate) fn name_mark(&self, number: u32, name: &str) {
        self.page().name_mark(number, name);
    }

    /// Records for `time` from now on. Preemption is off.
    pub(crate) fn record(&self, time: Ns) {
        let cursors = (0..self.rings).map(|ring| self.page().cursor(ring)).collect();
        *self.recording.lock().unwrap_or_else(PoisonError::into_inner) = cursors;
        self.page().record(time);
    }

    /// Returns what was recorded since the last call of this or of [`Telemetry::record`]. Preemption is off.
    pub(crate) fn recorded(&self) -> Trace {
        let mut cursors = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        let batches = cursors.iter_mut().enumerate();
        let mut trace = Trace::default();
        for (ring, cursor) in batches {
            let batch = self.page().events(ring, cursor);
            trace.lost += batch.lost;
            trace.events.extend(batch.events);
        }
        trace.events.sort_by_key(|event: &Event| event.at);
        trace
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        // SAFETY: it came from `Box::leak`, and nothing that counts there is left.
        drop(unsafe { Box::from_raw(self.page.as_ptr()) });
    }
}
