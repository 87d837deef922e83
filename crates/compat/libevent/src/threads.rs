//! The threads in a base's loop.

use heddle_events::{EventId, EventOptions, EventQueue, Worker};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// The queue's token for events that wake a thread from its wait: not the address of an event.
pub const BELL: u64 = 2;

static THREADS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static THIS: u64 = THREADS.fetch_add(1, Relaxed);
}

/// Returns the calling thread's number, which is never 0.
pub fn this_thread() -> u64 {
    THIS.with(|this| *this)
}

/// What a thread has done in a base's loops. Kept after it leaves.
#[derive(Debug)]
pub struct ThreadCounters {
    pub thread: u64,
    /// The system's thread id.
    pub tid: u32,
    pub in_loop: AtomicBool,
    pub calls: AtomicU64,
    pub waits: AtomicU64,
}

/// A thread in a loop.
#[derive(Debug)]
struct LoopThread {
    thread: u64,
    pinned: EventOptions,
    bell: EventId,
}

/// All threads of a base.
#[derive(Debug, Default)]
pub struct LoopThreads {
    inside: Mutex<Vec<LoopThread>>,
    counters: Mutex<Vec<Arc<ThreadCounters>>>,
    /// Whether any event was ever pinned: until then, threads that enter and leave need not look for theirs.
    pins: AtomicBool,
}

impl LoopThreads {
    /// The calling thread enters the loop as `worker`.
    pub fn enter(&self, queue: &EventQueue, worker: &Worker) -> Result<Arc<ThreadCounters>, ()> {
        let pinned = EventOptions::default().pin(worker);
        let bell = queue.register_user(BELL, pinned).map_err(drop)?;
        let thread = this_thread();
        self.inside.lock().unwrap().push(LoopThread { thread, pinned, bell });
        Ok(self.counters_of(thread))
    }

    fn counters_of(&self, thread: u64) -> Arc<ThreadCounters> {
        let mut counters = self.counters.lock().unwrap();
        let known = counters.iter().find(|own| own.thread == thread);
        let own = known.map(Arc::clone).unwrap_or_else(|| {
            let tid = kernel_tid();
            let zero = AtomicU64::default;
            let own =
                ThreadCounters { thread, tid, in_loop: false.into(), calls: zero(), waits: zero() };
            counters.push(Arc::new(own));
            Arc::clone(&counters[counters.len() - 1])
        });
        own.in_loop.store(true, Relaxed);
        own
    }

    /// The calling thread leaves its innermost loop. Returns whether it is in none now.
    pub fn leave(&self, queue: &EventQueue) -> bool {
        let (mut inside, thread) = (self.inside.lock().unwrap(), this_thread());
        if let Some(at) = inside.iter().rposition(|entry| entry.thread == thread) {
            let _ = queue.deregister(inside.remove(at).bell);
        }
        let has_left = inside.iter().all(|entry| entry.thread != thread);
        drop(inside);
        let counters = self.counters.lock().unwrap();
        if let Some(own) = counters.iter().find(|own| own.thread == thread) {
            own.in_loop.store(!has_left, Relaxed);
        }
        has_left
    }

    /// Returns the options of an event that is pinned to `thread`. None if that thread is in no loop.
    pub fn pinned_to(&self, thread: u64) -> Option<EventOptions> {
        let inside = self.inside.lock().unwrap();
        inside.iter().rfind(|entry| entry.thread == thread).map(|entry| entry.pinned)
    }

    /// Notes that an event is pinned.
    pub fn pin(&self) {
        self.pins.store(true, SeqCst);
    }

    pub fn have_pins(&self) -> bool {
        self.pins.load(SeqCst)
    }

    /// Wakes all threads from their waits.
    pub fn ring(&self, queue: &EventQueue) {
        for entry in self.inside.lock().unwrap().iter() {
            let _ = queue.trigger(entry.bell);
        }
    }

    /// Returns how many loops other threads than `thread` run.
    pub fn others(&self, thread: u64) -> usize {
        self.inside.lock().unwrap().iter().filter(|entry| entry.thread != thread).count()
    }

    pub fn counters(&self) -> Vec<Arc<ThreadCounters>> {
        self.counters.lock().unwrap().clone()
    }
}

fn kernel_tid() -> u32 {
    // SAFETY: a system call without arguments.
    u32::try_from(unsafe { libc::gettid() }).unwrap_or(0)
}
