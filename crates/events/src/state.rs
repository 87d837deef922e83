//! The word that keeps an event with one thread at a time (SKQ, section 3.2: the processing flag).
//!
//! ```text
//!            activate              take                 release
//!   idle ------------> QUEUED ------------> RUNNING ------------> idle
//!                        ^                     |  activate: AGAIN
//!                        +---------------------+  release with AGAIN
//! ```
//!
//! An activation of a running event is remembered ([`AGAIN`]) and reported when the event is released: no two
//! threads handle an event, and nothing needs to be rearmed. [`OFF`] holds activations back in the same way.
//! [`GONE`] is the end: the last thread to release the event frees its slot. The generation in the upper half
//! makes activations fail that name an earlier user of the slot.

use heddle_sync::atomic::{AtomicU64, Ordering};

const QUEUED: u64 = 1;
const RUNNING: u64 = 2;
const AGAIN: u64 = 4;
const OFF: u64 = 8;
const GONE: u64 = 16;

/// What must be done with an event next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, or another thread does it.
    Nothing,
    /// This thread puts it into a run queue.
    Enqueue,
    /// No thread has it any more: this thread frees the slot.
    Free,
}

/// What became of an event that was taken out of a run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeOutcome {
    /// This thread handles it.
    Mine,
    /// It was turned off meanwhile.
    Off,
    /// It was deregistered meanwhile: this thread frees the slot.
    Free,
}

/// State and generation of a slot.
#[derive(Debug)]
pub(crate) struct State(AtomicU64);

impl Default for State {
    /// A free slot.
    fn default() -> Self {
        State(AtomicU64::new(GONE))
    }
}

impl State {
    /// Applies `change` to the bits until no other thread interferes. Returns None if `generation` is over.
    fn update<T>(&self, generation: u32, mut change: impl FnMut(u64) -> (u64, T)) -> Option<T> {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            if (seen >> 32) as u32 != generation {
                return None;
            }
            let (bits, out) = change(seen & 0xFFFF_FFFF);
            let new = seen >> 32 << 32 | bits;
            // Written even if nothing changes: a plain load might return an old value, and then no thread
            // would see what the caller did before. (Found by loom: an activation saw an event as off that
            // had been turned on and handled.)
            match self.0.compare_exchange_weak(seen, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(out),
                Err(now) => seen = now,
            }
        }
    }

    pub fn generation(&self) -> u32 {
        (self.0.load(Ordering::Acquire) >> 32) as u32
    }

    /// Starts a new life of a free slot. Returns the generation that later calls have to name.
    pub fn begin(&self, off: bool) -> u32 {
        let generation = self.generation().wrapping_add(1);
        self.0.store(u64::from(generation) << 32 | if off { OFF } else { 0 }, Ordering::Release);
        generation
    }

    /// Something happened.
    pub fn activate(&self, generation: u32) -> Next {
        let next = self.update(generation, |bits| match bits {
            _ if bits & GONE != 0 => (bits, Next::Nothing),
            _ if bits & (RUNNING | OFF) != 0 => (bits | AGAIN, Next::Nothing),
            _ if bits & QUEUED != 0 => (bits, Next::Nothing),
            _ => (bits | QUEUED, Next::Enqueue),
        });
        next.unwrap_or(Next::Nothing)
    }

    /// Activates an idle event and takes it in one step. Returns false and changes nothing if it was not
    /// idle.
    pub fn seize(&self, generation: u32, dispatch: bool) -> bool {
        let idle = u64::from(generation) << 32;
        let taken = idle | RUNNING | if dispatch { OFF } else { 0 };
        self.0.compare_exchange(idle, taken, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes an event that came out of a run queue. With `dispatch`, no activation is reported until
    /// `turn_on`.
    pub fn take(&self, generation: u32, dispatch: bool) -> TakeOutcome {
        let off = if dispatch { OFF } else { 0 };
        let taken = self.update(generation, |bits| match bits {
            _ if bits & GONE != 0 => (bits & !QUEUED, TakeOutcome::Free),
            _ if bits & OFF != 0 => (bits & !QUEUED | AGAIN, TakeOutcome::Off),
            _ => (bits & !QUEUED & !AGAIN | RUNNING | off, TakeOutcome::Mine),
        });
        debug_assert!(taken.is_some(), "a queued slot is not freed");
        taken.unwrap_or(TakeOutcome::Off)
    }

    /// Drops an event that came out of a run queue and has nothing left to report.
    pub fn pass_over(&self, generation: u32) -> Next {
        let next = self.update(generation, |bits| match bits & GONE {
            0 => (bits & !(QUEUED | AGAIN), Next::Nothing),
            _ => (bits & !QUEUED, Next::Free),
        });
        debug_assert!(next.is_some(), "a queued slot is not freed");
        next.unwrap_or(Next::Nothing)
    }

    /// Forgets activations of an event that this thread holds, because the thread is about to check itself.
    pub fn forget_again(&self, generation: u32) {
        // Reading an old value costs one unnecessary check later.
        if self.0.load(Ordering::Relaxed) & AGAIN != 0 {
            self.update(generation, |bits| (bits & !AGAIN, ()));
        }
    }

    /// The thread has finished with the event; `ready` if it is known to have more.
    pub fn release(&self, generation: u32, ready: bool) -> Next {
        let next = self.update(generation, |bits| match bits {
            _ if bits & GONE != 0 => (bits & !RUNNING, Next::Free),
            _ if bits & OFF != 0 => {
                (bits & !RUNNING | if ready { AGAIN } else { 0 }, Next::Nothing)
            }
            _ if ready || bits & AGAIN != 0 => (QUEUED, Next::Enqueue),
            _ => (0, Next::Nothing),
        });
        debug_assert!(next.is_some(), "a slot is not freed while it is handled");
        next.unwrap_or(Next::Nothing)
    }

    /// Deregisters. Returns None if it was deregistered before.
    pub fn end(&self, generation: u32) -> Option<Next> {
        self.update(generation, |bits| match bits {
            _ if bits & GONE != 0 => (bits, None),
            _ if bits & (QUEUED | RUNNING) != 0 => (bits | GONE, Some(Next::Nothing)),
            _ => (GONE, Some(Next::Free)),
        })
        .flatten()
    }

    /// Holds activations back. Returns false if it is deregistered.
    pub fn turn_off(&self, generation: u32) -> bool {
        let done = self.update(generation, |bits| match bits & GONE {
            0 => (bits | OFF, true),
            _ => (bits, false),
        });
        done.unwrap_or(false)
    }

    /// Lets activations through, including those that were held back; `ready` if it is known to be ready.
    pub fn turn_on(&self, generation: u32, ready: bool) -> Next {
        let next = self.update(generation, |bits| match bits {
            _ if bits & GONE != 0 => (bits, Next::Nothing),
            _ if bits & RUNNING != 0 => {
                (bits & !OFF | if ready { AGAIN } else { 0 }, Next::Nothing)
            }
            _ if bits & QUEUED != 0 => (bits & !OFF, Next::Nothing),
            _ if ready || bits & AGAIN != 0 => (QUEUED, Next::Enqueue),
            _ => (0, Next::Nothing),
        });
        next.unwrap_or(Next::Nothing)
    }

    /// Whether it is neither queued nor handled, and not turned off.
    pub fn is_at_rest(&self, generation: u32) -> bool {
        self.0.load(Ordering::Acquire) == u64::from(generation) << 32
    }

    /// Whether a registration of `generation` is alive.
    pub fn is_alive(&self, generation: u32) -> bool {
        let now = self.0.load(Ordering::Acquire);
        (now >> 32) as u32 == generation && now & GONE == 0
    }
}
