//! A hierarchical timing wheel with nanosecond resolution (Varghese and Lauck, 1987). It is intrusive: timers lie where
//! their owners put them.
//!
//! ```text
//! level 0:  64 slots of 1 ns      deadlines that share all but the lowest digit (base 64) with `elapsed`
//! level 1:  64 slots of 64 ns     those that share all but the two lowest
//! ...
//! level 10: 16 slots of 2^60 ns
//! ```
//!
//! A timer lies at the level of the highest digit in which its deadline differs from `elapsed`, in the slot of that
//! digit. Hence:
//!
//! - **I1** Timers at a lower level are due before those at a higher level; within a level, lower slots are due first.
//! - **I2** Timers with the same deadline lie in one slot, in the order in which they were set.
//! - **I3** A slot of level 0 holds timers with one deadline, and those that were overdue when they were set. It is
//!   sorted.
//!
//! `elapsed` advances only in [`Wheel::pop`]: to the start of a slot that is due, or to a time before which no slot
//! starts. The timers of a due slot then move down, each at most ten times in its life. Setting and cancelling take a
//! few instructions: a timer is a link in its slot's list, and two bitmaps show which slots are occupied.
//!
//! Each slot keeps a lower bound of its earliest deadline, because cancelling does not search for the next one. So
//! [`Wheel::next`] may return a time at which nothing is due any more; a pop at that time moves the slot's timers down.

use heddle_core::Ns;
use std::cell::Cell;
use std::ptr::{self, NonNull};

const LEVELS: usize = 11;
const DIGIT: u32 = 6;
const SLOTS: usize = 1 << DIGIT;

/// A timer, linked into a slot while it is set.
pub(super) struct Timer<W> {
    pub(super) deadline: Ns,
    pub(super) who: W,
    next: Cell<*const Timer<W>>,
    prev: Cell<*const Timer<W>>,
    /// Level and digit of its slot.
    slot: Cell<(u8, u8)>,
}

impl<W> Timer<W> {
    pub(super) fn new(deadline: Ns, who: W) -> Timer<W> {
        let (next, prev) = (Cell::new(ptr::null()), Cell::new(ptr::null()));
        Timer { deadline, who, next, prev, slot: Cell::new((0, 0)) }
    }
}

/// The timers of one slot, first to last.
struct Slot<W> {
    first: *const Timer<W>,
    last: *const Timer<W>,
    /// A lower bound of its deadlines.
    earliest: Ns,
}

/// See the module documentation. For one thread at a time.
pub(super) struct Wheel<W> {
    elapsed: Ns,
    /// Bitmap of the levels that have timers.
    levels: u16,
    /// For each level, bitmap of the slots that have timers.
    occupied: [u64; LEVELS],
    slots: Box<[[Slot<W>; SLOTS]; LEVELS]>,
}

impl<W> Wheel<W> {
    pub(super) fn new() -> Wheel<W> {
        let empty = || Slot { first: ptr::null(), last: ptr::null(), earliest: Ns::MAX };
        let level = || std::array::from_fn(|_| empty());
        let slots = Box::new(std::array::from_fn(|_| level()));
        Wheel { elapsed: Ns::ZERO, levels: 0, occupied: [0; LEVELS], slots }
    }

    /// Returns a lower bound of the earliest deadline; [`Ns::MAX`] if no timer is set.
    pub(super) fn next(&self) -> Ns {
        self.first().map_or(Ns::MAX, |(level, digit)| self.slots[level][digit].earliest)
    }

    /// Sets a timer.
    ///
    /// # Safety
    /// The timer stays where it is, and is not set again, until it is popped or cancelled.
    pub(super) unsafe fn set(&mut self, timer: &Timer<W>) {
        // An overdue timer goes into the slot for the current time.
        let at = timer.deadline.max(self.elapsed);
        let level = (at.0 ^ self.elapsed.0 | 1).ilog2() / DIGIT;
        let digit = (at.0 >> (level * DIGIT)) as usize % SLOTS;
        let level = level as usize;
        timer.slot.set((level as u8, digit as u8));
        let slot = &mut self.slots[level][digit];
        // SAFETY: the timers of a slot are where they were set, as promised above.
        unsafe { slot.push(timer, level == 0) };
        self.occupied[level] |= 1 << digit;
        self.levels |= 1 << level;
    }

    /// Cancels a timer that is set.
    ///
    /// # Safety
    /// It is set in this wheel.
    pub(super) unsafe fn cancel(&mut self, timer: &Timer<W>) {
        let (level, digit) = timer.slot.get();
        let slot = &mut self.slots[level as usize][digit as usize];
        // SAFETY: it is in this slot, as are its neighbours.
        unsafe { slot.unlink(timer) };
        if slot.first.is_null() {
            self.vacate(level as usize, digit as usize);
        }
    }

    /// Removes and returns the first timer that is due at `now`; if several have the same deadline, the one set first.
    /// After `None`, [`Wheel::next`] is later than `now`.
    pub(super) fn pop(&mut self, now: Ns) -> Option<NonNull<Timer<W>>> {
        while let Some((level, digit)) = self.first() {
            if level == 0 {
                return self.pop_from(digit, now);
            }
            let start = self.start(level, digit);
            if start > now {
                break;
            }
            self.elapsed = start;
            self.move_down(level, digit);
        }
        // No slot starts by `now`, so `elapsed` may advance: later timers then start at the lowest level possible.
        self.elapsed = self.elapsed.max(now);
        None
    }

    /// Pops from a slot of level 0, whose timers are sorted.
    fn pop_from(&mut self, digit: usize, now: Ns) -> Option<NonNull<Timer<W>>> {
        let slot = &mut self.slots[0][digit];
        // SAFETY: the slot has timers, where they were set.
        let first = unsafe { &*slot.first };
        slot.earliest = first.deadline;
        if first.deadline > now {
            return None;
        }
        // The deadline of a timer that was overdue when it was set is before `elapsed`, which never goes back.
        self.elapsed = self.elapsed.max(first.deadline);
        // SAFETY: it is in this wheel.
        unsafe { self.cancel(first) };
        Some(NonNull::from(first))
    }

    /// Re-inserts the timers of a slot at lower levels. `elapsed` is at the slot's start.
    fn move_down(&mut self, level: usize, digit: usize) {
        let slot = &mut self.slots[level][digit];
        let mut timer = std::mem::replace(&mut slot.first, ptr::null());
        slot.last = ptr::null();
        self.vacate(level, digit);
        // SAFETY: the timers of a slot are where they were set. They were just removed from the slot.
        while let Some(this) = unsafe { timer.as_ref() } {
            timer = this.next.get();
            // SAFETY: as when it was first set.
            unsafe { self.set(this) };
        }
    }

    /// Returns the level and digit of the first occupied slot.
    fn first(&self) -> Option<(usize, usize)> {
        let level = (self.levels != 0).then(|| self.levels.trailing_zeros() as usize)?;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    /// Returns the time at which a slot starts: the digits above are those of `elapsed`, those below are zero.
    fn start(&self, level: usize, digit: usize) -> Ns {
        let shift = level as u32 * DIGIT;
        let above = self.elapsed.0.checked_shr(shift + DIGIT).unwrap_or(0);
        Ns((above.checked_shl(DIGIT).unwrap_or(0) | digit as u64) << shift)
    }

    fn vacate(&mut self, level: usize, digit: usize) {
        self.slots[level][digit].earliest = Ns::MAX;
        self.occupied[level] &= !(1 << digit);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }
}

impl<W> Slot<W> {
    /// Appends `timer`; if `sorted`, before those that are due later.
    ///
    /// # Safety
    /// The timers of the slot are where they were set.
    unsafe fn push(&mut self, timer: &Timer<W>, sorted: bool) {
        let (mut prev, mut next) = (self.last, ptr::null::<Timer<W>>());
        // SAFETY: by the caller's promise.
        while let Some(before) = unsafe { prev.as_ref() } {
            if !sorted || before.deadline <= timer.deadline {
                break;
            }
            (next, prev) = (prev, before.prev.get());
        }
        timer.prev.set(prev);
        timer.next.set(next);
        // SAFETY: as above.
        unsafe { self.link(prev, next, timer, timer) };
        self.earliest = self.earliest.min(timer.deadline);
    }

    /// # Safety
    /// `timer` and its neighbours are in the slot, where they were set.
    unsafe fn unlink(&mut self, timer: &Timer<W>) {
        let (prev, next) = (timer.prev.get(), timer.next.get());
        // SAFETY: by the caller's promise.
        unsafe { self.link(prev, next, next, prev) };
    }

    /// Makes `after` the successor of `prev`, and `before` the predecessor of `next`; null stands for an end of the
    /// list.
    ///
    /// # Safety
    /// `prev` and `next` are null or where they were set.
    unsafe fn link(
        &mut self,
        prev: *const Timer<W>,
        next: *const Timer<W>,
        after: *const Timer<W>,
        before: *const Timer<W>,
    ) {
        // SAFETY: by the caller's promise.
        unsafe {
            match prev.as_ref() {
                Some(prev) => prev.next.set(after),
                None => self.first = after,
            }
            match next.as_ref() {
                Some(next) => next.prev.set(before),
                None => self.last = before,
            }
        }
    }
}
