//! The word that keeps an event with one thread at a time (SKQ, section 3.2: the processing flag).
//!
//! ```text
//!            activate              take                 release
//!   idle ------------> QUEUED ------------> RUNNING ------------> idle
//!                        ^                     |  activate: AGAIN
//!                        +---------------------+  release with AGAIN
//! ```
//!
//! An activation of a running event is remembered ([`AGAIN`]) and told when the event is released: nothing is handled by two threads, and
//! nothing has to be armed anew. [`OFF`] holds activations back in the same way. [`GONE`] is the end: whoever lets go of the event last
//! gives its slot back. The generation in the upper half makes activations that name an earlier user of the slot fail.

use heddle_sync::atomic::{AtomicU64, Ordering};

const QUEUED: u64 = 1;
const RUNNING: u64 = 2;
const AGAIN: u64 = 4;
const OFF: u64 = 8;
const GONE: u64 = 16;

/// What has to be done with an event next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, or another thread does it.
    Nothing,
    /// It is this thread's to put it in a lane.
    Enqueue,
    /// Nobody has it any more: this thread gives the slot back.
    Free,
}

/// What became of an event that was in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// This thread handles it.
    Mine,
    /// It was turned off meanwhile.
    Off,
    /// It was deregistered meanwhile: this thread gives the slot back.
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
    /// Applies `change` to the bits until nobody interferes, unless `generation` is over.
    fn update<T>(&self, generation: u32, mut change: impl FnMut(u64) -> (u64, T)) -> Option<T> {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            if (seen >> 32) as u32 != generation {
                return None;
            }
            let (bits, out) = change(seen & 0xFFFF_FFFF);
            let new = seen >> 32 << 32 | bits;
            // Written even where nothing changes: a mere look might be at a word of the past, and what the caller did before it be seen by
            // nobody. (Found by loom: an activation that took an event for off that had been turned on and handled.)
            match self.0.compare_exchange_weak(seen, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(out),
                Err(now) => seen = now,
            }
        }
    }

    pub fn generation(&self) -> u32 {
        (self.0.load(Ordering::Acquire) >> 32) as u32
    }

    /// Begins a new life of a free slot; what `activate` and the others have to name from now on.
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

    /// Activates an idle event and takes it at once. False if it was not idle; nothing has changed then.
    pub fn seize(&self, generation: u32, dispatch: bool) -> bool {
        let idle = u64::from(generation) << 32;
        let taken = idle | RUNNING | if dispatch { OFF } else { 0 };
        self.0.compare_exchange(idle, taken, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// A thread took the event out of a lane. With `dispatch` no activation is told from then on, until `turn_on`.
    pub fn take(&self, generation: u32, dispatch: bool) -> Taken {
        let off = if dispatch { OFF } else { 0 };
        let taken = self.update(generation, |bits| match bits {
            _ if bits & GONE != 0 => (bits & !QUEUED, Taken::Free),
            _ if bits & OFF != 0 => (bits & !QUEUED | AGAIN, Taken::Off),
            _ => (bits & !QUEUED & !AGAIN | RUNNING | off, Taken::Mine),
        });
        debug_assert!(taken.is_some(), "a slot is not given back while it is in a lane");
        taken.unwrap_or(Taken::Off)
    }

    /// An event that was in a lane has nothing to tell any more: it is given to nobody.
    pub fn pass_over(&self, generation: u32) -> Next {
        let next = self.update(generation, |bits| match bits & GONE {
            0 => (bits & !(QUEUED | AGAIN), Next::Nothing),
            _ => (bits & !QUEUED, Next::Free),
        });
        debug_assert!(next.is_some(), "a slot is not given back while it is in a lane");
        next.unwrap_or(Next::Nothing)
    }

    /// What was told of an event that this thread holds is forgotten: the thread is going to look itself.
    pub fn forget_again(&self, generation: u32) {
        // A look at a word of the past costs one look for nothing, later.
        if self.0.load(Ordering::Relaxed) & AGAIN != 0 {
            self.update(generation, |bits| (bits & !AGAIN, ()));
        }
    }

    /// The thread has done with the event; `ready` if it is known to have more.
    pub fn release(&self, generation: u32, ready: bool) -> Next {
        let next = self.update(generation, |bits| match bits {
            _ if bits & GONE != 0 => (bits & !RUNNING, Next::Free),
            _ if bits & OFF != 0 => {
                (bits & !RUNNING | if ready { AGAIN } else { 0 }, Next::Nothing)
            }
            _ if ready || bits & AGAIN != 0 => (QUEUED, Next::Enqueue),
            _ => (0, Next::Nothing),
        });
        debug_assert!(next.is_some(), "a slot is not given back while it is handled");
        next.unwrap_or(Next::Nothing)
    }

    /// Deregisters. `None` if it was already.
    pub fn end(&self, generation: u32) -> Option<Next> {
        self.update(generation, |bits| match bits {
            _ if bits & GONE != 0 => (bits, None),
            _ if bits & (QUEUED | RUNNING) != 0 => (bits | GONE, Some(Next::Nothing)),
            _ => (GONE, Some(Next::Free)),
        })
        .flatten()
    }

    /// Holds activations back. False if it is deregistered.
    pub fn turn_off(&self, generation: u32) -> bool {
        let done = self.update(generation, |bits| match bits & GONE {
            0 => (bits | OFF, true),
            _ => (bits, false),
        });
        done.unwrap_or(false)
    }

    /// Lets activations through, those that were held back too; `ready` if it is known to be.
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

    /// Whether a registration of `generation` is alive.
    pub fn is_alive(&self, generation: u32) -> bool {
        let now = self.0.load(Ordering::Acquire);
        (now >> 32) as u32 == generation && now & GONE == 0
    }
}
