//! `struct event_base`: a queue, what it knows of each event, and who is in its loop.

use crate::abi::Call;
use crate::entry::{At, Entry};
use crate::seat::{self, Seats};
use heddle_events::{EventError, EventId, EventQueue};
use libc::c_short;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Threads that handle different events should not wait for each other.
const SHARDS: usize = 64;
/// What the queue calls the timer of `event_base_loopexit`: no address of an event.
pub const EXIT: u64 = 4;

/// An event base. C has a pointer to it that counts as one reference.
pub struct Base {
    pub queue: EventQueue,
    pub seats: Seats,
    shards: Box<[Shard]>,
    /// Events that are added, active or handled: while there are any, loops go on.
    alive: AtomicUsize,
    /// How often somebody has said that the loops shall end: after what they were given, and at once.
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
    /// A function has returned for which somebody waits.
    ended: Condvar,
}

#[derive(Default)]
struct Entries {
    by_address: HashMap<u64, Entry, BuildHasherDefault<Spread>>,
    runs: u64,
    waiters: usize,
}

/// Addresses are different enough; a product spreads them over the table.
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

/// How often loops were told to end when one began: it ends when that changes.
#[derive(Clone, Copy)]
pub struct Begun {
    exits: u64,
    breaks: u64,
}

impl Base {
    pub fn new(policy: Option<&str>) -> Result<Base, EventError> {
        let builder = EventQueue::builder();
        let queue = policy.map_or(builder.clone(), |policy| builder.policy(policy)).build()?;
        Ok(Base {
            queue,
            seats: Seats::default(),
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

    pub fn at(&self, token: u64) -> At<'_> {
        At { queue: &self.queue, seats: &self.seats, token }
    }

    /// Changes what is known of an event, under its lock.
    pub fn with<T>(&self, token: u64, change: impl FnOnce(At<'_>, &mut Entry) -> T) -> T {
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

    /// As [`Base::with`], of an event that is known.
    pub fn look<T>(&self, token: u64, look: impl FnOnce(&Entry) -> T) -> Option<T> {
        self.shard(token).entries.lock().unwrap().by_address.get(&token).map(look)
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

    /// Ends an event. With `wait`, its function has returned then if another thread ran it.
    pub fn remove(&self, token: u64, wait: bool) {
        if self.look(token, |_| ()).is_none() {
            return;
        }
        let run = self.with(token, |at, entry| {
            entry.remove(at);
            (entry.running != 0 && entry.running != seat::this_thread()).then_some(entry.run)
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

    /// A number for the next run of an event's function.
    pub fn begin(&self, token: u64, fired: &heddle_events::Fired, me: u64) -> Option<Call> {
        let shard = self.shard(token);
        let mut entries = shard.entries.lock().unwrap();
        entries.runs += 1;
        let run = entries.runs;
        let entry = entries.by_address.get_mut(&token)?;
        // It stays alive: it runs, or nothing has changed.
        entry.begin(self.at(token), fired, me, run)
    }

    pub fn finish(&self, token: u64) {
        self.with(token, |at, entry| entry.finish(at));
    }

    /// All events for which `which` says so, changed.
    pub fn for_each(&self, which: impl Fn(&Entry) -> bool, change: impl Fn(At<'_>, &mut Entry)) {
        for shard in &self.shards {
            let mut entries = shard.entries.lock().unwrap();
            for (&token, entry) in entries.by_address.iter_mut().filter(|(_, entry)| which(entry)) {
                change(self.at(token), entry);
            }
        }
    }

    pub fn wake_all(&self) {
        self.seats.ring(&self.queue);
    }

    /// A loop begins.
    pub fn begun(&self) -> Begun {
        Begun {
            exits: self.exits.load(Ordering::SeqCst),
            breaks: self.breaks.load(Ordering::SeqCst),
        }
    }

    pub fn is_exited(&self, begun: Begun) -> bool {
        self.exits.load(Ordering::SeqCst) != begun.exits
    }

    pub fn is_broken(&self, begun: Begun) -> bool {
        self.breaks.load(Ordering::SeqCst) != begun.breaks
    }

    /// The loops that are run now end after what they were given.
    pub fn exit(&self) {
        self.got_exit.store(true, Ordering::SeqCst);
        self.exits.fetch_add(1, Ordering::SeqCst);
        self.wake_all();
    }

    /// As [`Base::exit`], or the next loop if none is run now.
    pub fn exit_soon(&self) -> Result<(), EventError> {
        match self.seats.others(0) {
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

    /// The loops that are run now end after the function that each is in.
    pub fn break_off(&self) {
        self.got_break.store(true, Ordering::SeqCst);
        self.breaks.fetch_add(1, Ordering::SeqCst);
        self.wake_all();
    }

    /// A loop has ended.
    pub fn has_left(&self) {
        let _guard = self.left.0.lock().unwrap();
        self.left.1.notify_all();
    }

    /// Ends the base: no loop of another thread is run when this returns.
    pub fn end(&self) {
        self.break_off();
        self.queue.close();
        let me = seat::this_thread();
        let mut guard = self.left.0.lock().unwrap();
        while self.seats.others(me) > 0 {
            guard = self.left.1.wait(guard).unwrap();
        }
        drop(guard);
        self.for_each(|_| true, |at, entry| entry.turn_off(at));
    }
}
