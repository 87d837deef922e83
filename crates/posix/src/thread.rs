//! Threads: their records. How they begin and end is in [`create`], how others wait for that in [`join`].

mod create;
pub(crate) mod first;
mod join;
mod registry;

pub(crate) use create::{adopt_carriers, create, exit};
pub(crate) use join::{pthread_detach, pthread_join};

use crate::report::Losses;
use crate::sched::Wishes;
use crate::wait::Attend;
use crate::{mutex, signals};
use heddle_rt::raw::RawTask;
use libc::pthread_t;
use registry::Registry;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};

/// What this library knows of a thread that is a task. One for each block of the runtime's, made at its first use and
/// never freed: a stale `pthread_t` finds a record, perhaps of a later thread.
pub(crate) struct Thread {
    pub(crate) task: RawTask,
    /// A [`Life`].
    life: AtomicU8,
    /// What other threads ask of it: [`Thread::CANCEL`], [`Thread::SIGNAL`].
    attention: AtomicU32,
    /// Whether a request to cancel it is acted upon. The thread's own, as the next.
    pub(crate) cancel_enabled: AtomicBool,
    /// Whether a request is acted upon at once, and not at the next cancellation point.
    pub(crate) cancel_async: AtomicBool,
    result: AtomicPtr<c_void>,
    /// The robust mutexes that it holds.
    pub(crate) robust: Cell<mutex::RobustList>,
    pub(crate) wishes: Wishes,
    pub(crate) losses: Losses,
    /// The number that `gettid` returns.
    pub(crate) tid: AtomicU32,
    pub(crate) signals: signals::State,
    /// The record that was made before this one.
    next: AtomicPtr<Thread>,
}

// SAFETY: `robust` is used by the thread itself only.
unsafe impl Sync for Thread {}
// SAFETY: as above.
unsafe impl Send for Thread {}

/// Who may still ask for the end of a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Life {
    /// The record's block serves no thread.
    None,
    Joinable,
    /// A thread waits for it, or has begun to.
    Joining,
    Detached,
}

/// The newest record.
static LAST: AtomicPtr<Thread> = AtomicPtr::new(ptr::null_mut());
impl Thread {
    pub(crate) const CANCEL: u32 = 1;
    pub(crate) const SIGNAL: u32 = 2;

    /// Returns the calling thread's record, if it is a task.
    #[inline]
    pub(crate) fn current() -> Option<&'static Thread> {
        Thread::of(RawTask::current()?)
    }

    /// Returns the record of `task`, if this library made the task.
    #[inline]
    pub(crate) fn of(task: RawTask) -> Option<&'static Thread> {
        let at = task.extension().load(Ordering::Acquire).cast::<Thread>();
        // SAFETY: null, or a record, which is never freed.
        unsafe { at.as_ref() }
    }

    /// Returns the record of the live or unjoined thread `thread`, if it is a task.
    pub(crate) fn find(thread: pthread_t) -> Option<&'static Thread> {
        let is_known = |t: &&Thread| match t.life() {
            life if life == Life::None as u8 => false,
            life => life != Life::Detached as u8 || !t.task.has_ended(),
        };
        Registry::get().find(thread as usize).filter(is_known)
    }

    /// Returns the record for the block of `task`.
    fn for_block(task: RawTask) -> &'static Thread {
        if let Some(known) = Thread::of(task) {
            return known;
        }
        let thread: &'static Thread = Box::leak(Box::new(Thread {
            task,
            life: AtomicU8::new(Life::None as u8),
            attention: AtomicU32::new(0),
            cancel_enabled: AtomicBool::new(true),
            cancel_async: AtomicBool::new(false),
            result: AtomicPtr::new(ptr::null_mut()),
            robust: Cell::default(),
            wishes: Wishes::new(),
            losses: Losses::new(),
            tid: AtomicU32::new(0),
            signals: signals::State::new(),
            next: AtomicPtr::new(ptr::null_mut()),
        }));
        task.extension().store(ptr::from_ref(thread).cast_mut().cast(), Ordering::Release);
        Registry::get().add(thread);
        thread.link();
        thread
    }

    /// Puts a new record in front of the list of all.
    fn link(&'static self) {
        let at = ptr::from_ref(self).cast_mut();
        let mut last = LAST.load(Ordering::Acquire);
        loop {
            self.next.store(last, Ordering::Relaxed);
            match LAST.compare_exchange(last, at, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) => last = other,
            }
        }
    }

    /// Returns all records, also those that serve no thread at present.
    pub(crate) fn all() -> impl Iterator<Item = &'static Thread> {
        // SAFETY: null, or a record, which is never freed.
        let get = |at: &AtomicPtr<Thread>| unsafe { at.load(Ordering::Acquire).as_ref() };
        std::iter::successors(get(&LAST), move |thread| get(&thread.next))
    }

    /// Returns whether the record serves a thread that has not ended.
    pub(crate) fn is_alive(&self) -> bool {
        self.life() != Life::None as u8 && !self.task.has_ended()
    }

    /// Prepares the record for a new thread on its block.
    fn begin(&self, life: Life) {
        self.attention.store(0, Ordering::Relaxed);
        self.cancel_enabled.store(true, Ordering::Relaxed);
        self.cancel_async.store(false, Ordering::Relaxed);
        self.result.store(ptr::null_mut(), Ordering::Relaxed);
        self.losses.reset();
        self.wishes.inherit(Thread::current());
        signals::begin(self);
        self.life.store(life as u8, Ordering::Release);
    }

    fn life(&self) -> u8 {
        self.life.load(Ordering::Acquire)
    }

    fn change_life(&self, from: Life, to: Life) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.life.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns whether it is the program's first thread.
    pub(crate) fn is_first(&self) -> bool {
        self.task.is_first()
    }

    /// Returns the `pthread_t`.
    pub(crate) fn id(&self) -> pthread_t {
        self.task.thread() as pthread_t
    }

    /// Returns the number that `gettid` answers in this thread.
    pub(crate) fn tid(&self) -> u32 {
        self.tid.load(Ordering::Relaxed)
    }

    /// Asks `what` of the thread, which attends to it where it waits or when it next looks.
    pub(crate) fn ask(&'static self, what: u32) {
        self.attention.fetch_or(what, Ordering::SeqCst);
        self.task.wake();
        self.task.interrupt();
        signals::receiver::insist(self);
    }

    /// Takes back a request, for the thread itself. Returns whether it was there.
    pub(crate) fn take(&self, what: u32) -> bool {
        self.attention.load(Ordering::Relaxed) & what != 0
            && self.attention.fetch_and(!what, Ordering::AcqRel) & what != 0
    }

    /// Returns whether `what` is asked of it.
    pub(crate) fn is_asked(&self, what: u32) -> bool {
        self.attention.load(Ordering::Relaxed) & what != 0
    }

    /// Returns whether anything is asked of it that ends a wait of this kind.
    #[inline]
    pub(crate) fn must_attend(&self, to: Attend) -> bool {
        let asked = self.attention.load(Ordering::Relaxed);
        asked != 0
            && (asked & Thread::SIGNAL != 0
                || asked & Thread::CANCEL != 0
                    && self.cancel_enabled.load(Ordering::Relaxed)
                    && (to == Attend::Cancel || self.cancel_async.load(Ordering::Relaxed)))
    }
}

/// In the child of a fork: there are no tasks, and the calling thread is no longer one.
pub(crate) fn forget_all() {
    Thread::all().for_each(|thread| thread.life.store(Life::None as u8, Ordering::Release));
    create::forget();
    first::forget();
}
