//! `struct event_base`: a queue, the state of each event, and the threads in the loop.

use crate::abi::Call;
use crate::entry::{Entry, EntryContext};
use crate::threads::{self, LoopThreads};
use heddle_events::{EventError, EventId, EventQueue};
use libc::c_short;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Keeps threads that handle different events from waiting for each other.
const SHARDS: usize = 64;
/// The queue's token for the timer of `event_base_loopexit`: not the address of an event.
pub const EXIT: u64 = 4;

/// An event base. C's pointer to it counts as one reference.
pub struct Base {
    pub queue: EventQueue,
    pub threads: LoopThreads,
    shards: Box<[Shard]>,
    /// How many events are added, active or handled: loops go on while there are any.
    alive: AtomicUsize,
    /// How often the loops were asked to end: after their current batch, and at once.
    exits: AtomicU64,
    breaks: AtomicU64,
    exit_timer: Mutex<Option<EventId>>,
    pub got_exit: AtomicBool,
    pub got_break: AtomicBool,
    left: (Mutex<()>, Condvar),
}

#[derive(Default)]
struct Shard {
    entries: Mutex<Entries>,
    /// Signalled when a callback has returned for which a thread waits.
    ended: Condvar,
}

#[derive(Default)]
struct Entries {
    by_address: HashMap<u64, Entry, BuildHasherDefault<Spread>>,
    runs: u64,
    waiters: usize,
}

/// Addresses differ enough; a product spreads them over the table.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are addresses")
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = (key >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// How often loops had been asked to end when one started. The loop ends when that changes.
#[derive(Clone, Copy)]
pub struct LoopStart {
    exits: u64,
    breaks: u64,
}

impl Base {
    pub fn new(policy: Option<&str>) -> Result<Base, EventError> {
        let builder = EventQueue::builder();
        let queue = policy.map_or(builder.clone(), |policy| builder.policy(policy)).build()?;
        Ok(Base {
            queue,
            threads: LoopThreads::default(),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            alive: AtomicUsize::new(0),
            exits: AtomicU64::new(0),
            breaks: AtomicU64::new(0),
            exit_timer: Mutex::default(),
            got_exit: AtomicBool::new(false),
            got_break: AtomicBool::new(false),
            left: Default::default(),
        })
    }

    fn shard(&self, token: u64) -> &Shard {
        let mut hash = Spread::default();
        hash.write_u64(token);
        &self.shards[(hash.finish() >> 58) as usize % SHARDS]
    }

    pub fn at(&self, token: u64) -> EntryContext<'_> {
        EntryContext { queue: &self.queue, threads: &self.threads, token }
    }

    /// Changes an event's entry under its lock, creating it if necessary.
    pub fn with<T>(&self, token: u64, change: impl FnOnce(EntryContext<'_>, &mut Entry) -> T) -> T {
        let shard = self.shard(token);
        let mut entries = shard.entries.lock().unwrap();
        let entry = entries.by_address.entry(token).or_default();
        let was_alive = entry.is_alive();
        let out = change(self.at(token), entry);
        let is_alive = entry.is_alive();
        if !is_alive {
            entry.turn_off(self.at(token));
            entries.by_address.remove(&token);
        }
        if entries.waiters > 0 {
            shard.ended.notify_all();
        }
        drop(entries);
        self.count(was_alive, is_alive);
        out
    }

    /// As [`Base::with`], for an event that has an entry.
    pub fn inspect<T>(&self, token: u64, inspect: impl FnOnce(&Entry) -> T) -> Option<T> {
        self.shard(token).entries.lock().unwrap().by_address.get(&token).map(inspect)
    }

    fn count(&self, was_alive: bool, is_alive: bool) {
        match (was_alive, is_alive) {
            (false, true) => {
                self.alive.fetch_add(1, Ordering::SeqCst);
            }
            (true, false) if self.alive.fetch_sub(1, Ordering::SeqCst) == 1 => self.wake_all(),
            _ => {}
        }
    }

    pub fn is_empty(&self) -> bool {
        self.alive.load(Ordering::SeqCst) == 0
    }

    pub fn add(&self, token: u64, call: Call, timeout: Option<Duration>) -> Result<(), EventError> {
        self.with(token, |at, entry| entry.add(at, call, timeout))
    }

    pub fn activate(&self, token: u64, call: Call, what: c_short) -> Result<(), EventError> {
        self.with(token, |at, entry| entry.activate(at, Some(call), what))
    }

    /// Removes an event. With `wait`, its callback has returned by then if another thread was running it.
    pub fn remove(&self, token: u64, wait: bool) {
        if self.inspect(token, |_| ()).is_none() {
            return;
        }
        let run = self.with(token, |at, entry| {
            entry.remove(at);
            (entry.running != 0 && entry.running != threads::this_thread()).then_some(entry.run)
        });
        if let Some(run) = run.filter(|_| wait) {
            self.await_end(token, run);
        }
    }

    fn await_end(&self, token: u64, run: u64) {
        let shard = self.shard(token);
        let mut entries = shard.entries.lock().unwrap();
        let runs = |entries: &MutexGuard<'_, Entries>| {
            let entry = entries.by_address.get(&token);
            entry.is_some_and(|entry| entry.running != 0 && entry.run == run)
        };
        entries.waiters += 1;
        while runs(&entries) {
            entries = shard.ended.wait(entries).unwrap();
        }
        entries.waiters -= 1;
    }

    /// Starts a run of an event's callback. Returns what to call.
    pub fn begin(&self, token: u64, fired: &heddle_events::Fired, me: u64) -> Option<Call> {
        let shard = self.shard(token);
        let mut entries = shard.entries.lock().unwrap();
        entries.runs += 1;
        let run = entries.runs;
        let entry = entries.by_address.get_mut(&token)?;
        // The entry stays alive: it is running, or nothing has changed.
        entry.begin(self.at(token), fired, me, run)
    }

    pub fn finish(&self, token: u64) {
        self.with(token, |at, entry| entry.finish(at));
    }

    /// Applies `change` to all entries for which `which` returns true.
    pub fn for_each(
        &self,
        which: impl Fn(&Entry) -> bool,
        change: impl Fn(EntryContext<'_>, &mut Entry),
    ) {
        for shard in &self.shards {
            let mut entries = shard.entries.lock().unwrap();
            for (&token, entry) in entries.by_address.iter_mut().filter(|(_, entry)| which(entry)) {
                change(self.at(token), entry);
            }
        }
    }

    pub fn wake_all(&self) {
        self.threads.ring(&self.queue);
    }

    /// Returns the state at the start of a loop.
    pub fn start(&self) -> LoopStart {
        LoopStart {
            exits: self.exits.load(Ordering::SeqCst),
            breaks: self.breaks.load(Ordering::SeqCst),
        }
    }

    pub fn is_exited(&self, start: LoopStart) -> bool {
        self.exits.load(Ordering::SeqCst) != start.exits
    }

    pub fn is_broken(&self, start: LoopStart) -> bool {
        self.breaks.load(Ordering::SeqCst) != start.breaks
    }

    /// Makes the current loops end after their current batch.
    pub fn exit(&self) {
        self.got_exit.store(true, Ordering::SeqCst);
        self.exits.fetch_add(1, Ordering::SeqCst);
        self.wake_all();
    }

    /// As [`Base::exit`], or for the next loop if none is running.
    pub fn exit_soon(&self) -> Result<(), EventError> {
        match self.threads.others(0) {
            0 => self.exit_after(Duration::ZERO),
            _ => {
                self.exit();
                Ok(())
            }
        }
    }

    /// As [`Base::exit`], after a time.
    pub fn exit_after(&self, time: Duration) -> Result<(), EventError> {
        let mut timer = self.exit_timer.lock().unwrap();
        if let Some(id) = *timer {
            return self.queue.set_timer(id, time, None);
        }
        *timer = Some(self.queue.register_timer(time, None, EXIT, Default::default())?);
        Ok(())
    }

    /// Makes the current loops end after the callback that each is in.
    pub fn break_now(&self) {
        self.got_break.store(true, Ordering::SeqCst);
        self.breaks.fetch_add(1, Ordering::SeqCst);
        self.wake_all();
    }

    /// A loop has ended.
    pub fn notify_left(&self) {
        let _guard = self.left.0.lock().unwrap();
        self.left.1.notify_all();
    }

    /// Ends the base: once this returns, no other thread is in its loop.
    pub fn end(&self) {
        self.break_now();
        self.queue.close();
        let me = threads::this_thread();
        let mut guard = self.left.0.lock().unwrap();
        while self.threads.others(me) > 0 {
            guard = self.left.1.wait(guard).unwrap();
        }
        drop(guard);
        self.for_each(|_| true, |at, entry| entry.turn_off(at));
    }
}
