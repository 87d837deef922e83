//! Threads in a base's loop.

use heddle_events::{EventId, EventOptions, EventQueue, Worker};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// What the queue calls the events that wake a thread out of its wait: no address of an event.
pub const BELL: u64 = 2;

static THREADS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static THIS: u64 = THREADS.fetch_add(1, Relaxed);
}

/// Names the calling thread; never 0.
pub fn this_thread() -> u64 {
    THIS.with(|this| *this)
}

/// What a thread has done in a base's loops. Stays when it leaves.
#[derive(Debug)]
pub struct Account {
    pub thread: u64,
    /// As the system calls it.
    pub tid: u32,
    pub is_in: AtomicBool,
    pub calls: AtomicU64,
    pub waits: AtomicU64,
}

/// A thread in a loop.
#[derive(Debug)]
struct Seat {
    thread: u64,
    pinned: EventOptions,
    bell: EventId,
}

/// All threads of a base.
#[derive(Debug, Default)]
pub struct Seats {
    taken: Mutex<Vec<Seat>>,
    accounts: Mutex<Vec<Arc<Account>>>,
    /// Whether any event was ever pinned: until then threads that come and leave need not look for theirs.
    pins: AtomicBool,
}

impl Seats {
    /// The calling thread comes into the loop as `worker`.
    pub fn sit(&self, queue: &EventQueue, worker: &Worker) -> Result<Arc<Account>, ()> {
        let pinned = EventOptions::default().pin(worker);
        let bell = queue.register_user(BELL, pinned).map_err(drop)?;
        let thread = this_thread();
        self.taken.lock().unwrap().push(Seat { thread, pinned, bell });
        Ok(self.account(thread))
    }

    fn account(&self, thread: u64) -> Arc<Account> {
        let mut accounts = self.accounts.lock().unwrap();
        let known = accounts.iter().find(|account| account.thread == thread);
        let account = known.map(Arc::clone).unwrap_or_else(|| {
            let tid = kernel_tid();
            let zero = AtomicU64::default;
            let account =
                Account { thread, tid, is_in: false.into(), calls: zero(), waits: zero() };
            accounts.push(Arc::new(account));
            Arc::clone(&accounts[accounts.len() - 1])
        });
        account.is_in.store(true, Relaxed);
        account
    }

    /// The calling thread leaves its innermost loop. Whether it is in none now.
    pub fn leave(&self, queue: &EventQueue) -> bool {
        let (mut taken, thread) = (self.taken.lock().unwrap(), this_thread());
        if let Some(at) = taken.iter().rposition(|seat| seat.thread == thread) {
            let _ = queue.deregister(taken.remove(at).bell);
        }
        let has_left = taken.iter().all(|seat| seat.thread != thread);
        drop(taken);
        let accounts = self.accounts.lock().unwrap();
        if let Some(account) = accounts.iter().find(|account| account.thread == thread) {
            account.is_in.store(!has_left, Relaxed);
        }
        has_left
    }

    /// How an event is registered that is for `thread` only. `None` if that is in no loop.
    pub fn pinned_to(&self, thread: u64) -> Option<EventOptions> {
        let taken = self.taken.lock().unwrap();
        taken.iter().rfind(|seat| seat.thread == thread).map(|seat| seat.pinned)
    }

    /// An event is pinned from now on.
    pub fn pin(&self) {
        self.pins.store(true, SeqCst);
    }

    pub fn have_pins(&self) -> bool {
        self.pins.load(SeqCst)
    }

    /// Wakes all threads out of their waits.
    pub fn ring(&self, queue: &EventQueue) {
        for seat in self.taken.lock().unwrap().iter() {
            let _ = queue.trigger(seat.bell);
        }
    }

    /// How many loops are run by others than `thread`.
    pub fn others(&self, thread: u64) -> usize {
        self.taken.lock().unwrap().iter().filter(|seat| seat.thread != thread).count()
    }

    pub fn accounts(&self) -> Vec<Arc<Account>> {
        self.accounts.lock().unwrap().clone()
    }
}

fn kernel_tid() -> u32 {
    // SAFETY: a system call without arguments.
    u32::try_from(unsafe { libc::gettid() }).unwrap_or(0)
}
