//! Who waits for which descriptor.
//!
//! The runtime's poller reports events. A task that waits joins the queue of its descriptor's number and *arms* the
//! number: `EPOLL_CTL_MOD` with `EPOLLONESHOT` for all that is waited for there, or `ADD` if the kernel does not know
//! it. The kernel looks at the level at the same time, so nothing is missed between the call that found nothing and the
//! wait. What the C library closes, or another process reads, cannot fool a registration that is made at each wait: a
//! stale registration fires at most once, and a task that is woken for nothing waits again.
//!
//! # Who arms again
//!
//! An event disarms its number. It takes the first waiter for each thing that is ready out of the queue (all, if the
//! descriptor broke) and arms what else is waited for. Waiters for what *was* ready stay disarmed until the chosen one
//! has made its call: then it arms all that is still waited for ([`Node::leave`]). So several tasks that accept from
//! one socket, say, are woken one at a time. Thus, if a queue is not empty, its number is armed for each waiter, or a
//! task that was taken out of it has yet to leave.

use super::EINTR;
use super::kind::FDS;
use crate::start;
use crate::sys::syscall;
use crate::thread::Thread;
use crate::wait::Attend;
use heddle_core::Ns;
use heddle_rt::raw::{self, NoPreempt, RawTask};
use heddle_sync::SpinLock;
use heddle_sys::clock;
use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

pub(super) const IN: u32 = libc::EPOLLIN as u32;
pub(super) const OUT: u32 = libc::EPOLLOUT as u32;
const BROKEN: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

/// The queue of a number. Used under the lock.
struct Entry {
    lock: SpinLock,
    /// Held by the task that accepts a connection.
    accepting: SpinLock,
    head: Cell<*const Node>,
    tail: Cell<*const Node>,
}

// SAFETY: the cells are used under the lock only.
unsafe impl Sync for Entry {}

static ENTRIES: [Entry; FDS] = [const {
    Entry {
        lock: SpinLock::new(),
        accepting: SpinLock::new(),
        head: Cell::new(ptr::null()),
        tail: Cell::new(ptr::null()),
    }
}; FDS];

/// The highest number that has been waited for.
static HIGHEST: AtomicI32 = AtomicI32::new(-1);

/// A task that waits, for one descriptor or several.
pub(super) struct Waiter {
    task: RawTask,
    woken: AtomicBool,
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Ready,
    TimedOut,
    /// Something is asked of the thread, for [`crate::cancel::attend`] once it has left.
    Interrupted,
}

/// A waiter's place in the queue of one descriptor. Stays where it is from [`Node::join`] to [`Node::leave`].
pub(super) struct Node {
    fd: c_int,
    /// What it waits for, as bits of epoll, which are those of poll.
    events: u32,
    waiter: *const Waiter,
    state: Cell<State>,
    next: Cell<*const Node>,
    prev: Cell<*const Node>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not in the queue.
    Out,
    Queued,
    /// Taken out by an event; others may rely on its leaving.
    Fired,
    /// Taken out because the program closes the descriptor.
    Closed,
}

impl Waiter {
    /// Returns the calling task as a waiter.
    pub(super) fn new() -> Waiter {
        let task = RawTask::current().expect("the caller is a task");
        Waiter { task, woken: AtomicBool::new(false) }
    }

    pub(super) fn task(&self) -> RawTask {
        self.task
    }

    /// Prepares for a wait: none of its nodes is in a queue.
    pub(super) fn begin(&self) {
        self.woken.store(false, Ordering::Relaxed);
    }

    /// Parks until one of the waiter's nodes is taken out, until `deadline`, or until the thread is asked for
    /// something.
    pub(super) fn park(&self, deadline: Option<Ns>) -> Ended {
        let thread = Thread::of(self.task);
        loop {
            if self.woken.load(Ordering::Acquire) {
                return Ended::Ready;
            }
            if thread.is_some_and(|thread| thread.must_attend(Attend::Cancel)) {
                return Ended::Interrupted;
            }
            if deadline.is_some_and(|at| at <= clock::now()) {
                return Ended::TimedOut;
            }
            raw::park(deadline);
        }
    }
}

impl Node {
    /// Returns a node for `waiter`, which stays for as long as the node.
    pub(super) fn new(fd: c_int, events: u32, waiter: &Waiter) -> Node {
        let state = Cell::new(State::Out);
        let (next, prev) = (Cell::new(ptr::null()), Cell::new(ptr::null()));
        Node { fd, events, waiter: ptr::from_ref(waiter), state, next, prev }
    }

    /// Joins the queue and arms the number. Returns false if it cannot be waited for (a file, a number out of range):
    /// then there is nothing to leave.
    ///
    /// # Safety
    /// The node stays where it is until [`Node::leave`].
    pub(super) unsafe fn join(&self) -> bool {
        if !is_ready() {
            return false;
        }
        let Some(entry) = entry(self.fd) else { return false };
        if self.fd > HIGHEST.load(Ordering::Relaxed) {
            HIGHEST.fetch_max(self.fd, Ordering::Relaxed);
        }
        entry.with(|| {
            entry.push(self);
            let armed = raw::arm(self.fd, entry.wanted());
            if !armed {
                entry.unlink(self);
                self.state.set(State::Out);
            }
            armed
        })
    }

    /// Leaves the queue, after the call that was waited for has been made again, or the wait was given up. Returns
    /// false if the program closes the descriptor.
    pub(super) fn leave(&self) -> bool {
        let Some(entry) = entry(self.fd) else { return true };
        entry.with(|| match self.state.replace(State::Out) {
            State::Queued => entry.unlink(self),
            State::Fired if !entry.is_empty() => {
                raw::arm(self.fd, entry.wanted());
            }
            State::Fired | State::Out => {}
            State::Closed => self.state.set(State::Closed),
        });
        self.state.get() != State::Closed
    }

    /// Returns whether the program closes the descriptor, which must not be used any more then. For the only node of
    /// a waiter that is ready.
    pub(super) fn is_closed(&self) -> bool {
        self.state.get() == State::Closed
    }

    /// Takes the node out and wakes its waiter. Under the lock: the waiter takes it before it leaves.
    fn fire(&self, entry: &Entry, state: State) {
        entry.unlink(self);
        self.state.set(state);
        // SAFETY: the waiter stays until the node has left, which needs the lock.
        let waiter = unsafe { &*self.waiter };
        let task = waiter.task;
        waiter.woken.store(true, Ordering::Release);
        task.wake();
    }
}

impl Entry {
    fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        let _guard = NoPreempt::new();
        self.lock.lock();
        let result = f();
        self.lock.unlock();
        result
    }

    fn is_empty(&self) -> bool {
        self.head.get().is_null()
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        // SAFETY: queued nodes are valid, and the lock is held.
        let mut next = unsafe { self.head.get().as_ref() };
        std::iter::from_fn(move || {
            let node = next?;
            // SAFETY: as above. Read before the node is handed out: it may be unlinked then.
            next = unsafe { node.next.get().as_ref() };
            Some(node)
        })
    }

    /// Returns all that is waited for.
    fn wanted(&self) -> u32 {
        self.nodes().fold(0, |wanted, node| wanted | node.events)
    }

    fn push(&self, node: &Node) {
        let (at, last) = (ptr::from_ref(node), self.tail.get());
        node.prev.set(last);
        node.next.set(ptr::null());
        // SAFETY: queued nodes are valid, and the lock is held.
        match unsafe { last.as_ref() } {
            Some(last) => last.next.set(at),
            None => self.head.set(at),
        }
        self.tail.set(at);
        node.state.set(State::Queued);
    }

    fn unlink(&self, node: &Node) {
        let (prev, next) = (node.prev.get(), node.next.get());
        // SAFETY: as above.
        unsafe {
            match prev.as_ref() {
                Some(prev) => prev.next.set(next),
                None => self.head.set(next),
            }
            match next.as_ref() {
                Some(next) => next.prev.set(prev),
                None => self.tail.set(prev),
            }
        }
    }

    /// Hands out an event: see the module.
    fn report(&self, fd: c_int, ready: u32) {
        let (mut left, mut fired) = (ready, false);
        for node in self.nodes() {
            if ready & BROKEN != 0 || node.events & left != 0 {
                left &= !node.events;
                node.fire(self, State::Fired);
                fired = true;
            }
        }
        let rest = self.wanted() & !ready;
        if !self.is_empty() && (rest != 0 || !fired) {
            raw::arm(fd, rest);
        }
    }
}

fn entry(fd: c_int) -> Option<&'static Entry> {
    ENTRIES.get(usize::try_from(fd).ok()?)
}

/// Set once the runtime's poller calls [`report`].
static REPORTS: AtomicBool = AtomicBool::new(false);

/// Returns whether descriptors can be waited for. For a task.
#[inline]
fn is_ready() -> bool {
    REPORTS.load(Ordering::Acquire) || begin()
}

#[cold]
fn begin() -> bool {
    let is_started = raw::report_readiness(report).is_ok();
    REPORTS.store(is_started, Ordering::Release);
    is_started
}

/// Hands out an event.
fn report(fd: c_int, ready: u32) {
    if let Some(entry) = entry(fd) {
        entry.with(|| entry.report(fd, ready));
    }
}

/// Called before the program closes `fd`: who waits for it must not use the number again.
#[inline]
pub(super) fn closes(fd: c_int) {
    fire_all(fd, State::Closed);
}

/// Called after `fd` has become another descriptor: who waits for it tries again.
pub(super) fn replaced(fd: c_int) {
    fire_all(fd, State::Fired);
}

#[inline]
fn fire_all(fd: c_int, state: State) {
    if fd > HIGHEST.load(Ordering::Relaxed) {
        return;
    }
    let Some(entry) = entry(fd) else { return };
    // A look without the lock: a task that joins at the same time could as well have come later.
    if !entry.is_empty() && start::has_started() {
        entry.with(|| entry.nodes().for_each(|node| node.fire(entry, state)));
    }
}

/// Forgets all waiters, in the child of a fork: they are the parent's.
///
/// # Safety
/// The process has one thread, which waits for nothing.
pub(crate) unsafe fn forget() {
    for entry in &ENTRIES[..(HIGHEST.load(Ordering::Relaxed) + 1) as usize] {
        entry.head.set(ptr::null());
        entry.tail.set(ptr::null());
        for lock in [&entry.lock, &entry.accepting].into_iter().filter(|lock| lock.is_locked()) {
            lock.unlock();
        }
    }
    REPORTS.store(false, Ordering::Relaxed);
}

/// Runs `call` while no other task does for the same descriptor; returns `None` if one does.
pub(super) fn alone<R>(fd: c_int, call: impl FnOnce() -> R) -> Option<R> {
    let Some(entry) = entry(fd) else { return Some(call()) };
    let _guard = NoPreempt::new();
    entry.accepting.try_lock().then(|| {
        let result = call();
        entry.accepting.unlock();
        result
    })
}

/// Returns whether `fd` is ready for `events` now, or has an error that a call would return.
pub(super) fn is(fd: c_int, events: u32) -> bool {
    let mut entry = libc::pollfd { fd, events: events as i16, revents: 0 };
    // SAFETY: one valid entry, no waiting.
    look(|| unsafe { syscall!(libc::SYS_poll, &raw mut entry, 1, 0) }) != 0
}

/// Makes `call`, a `poll` or `select` that does not wait, until it is not interrupted: even then it returns EINTR if
/// the runtime's signal finds it. Preemption is off, or the runtime would take it for a call that sleeps.
pub(super) fn look(mut call: impl FnMut() -> isize) -> isize {
    let _guard = NoPreempt::new();
    loop {
        match call() {
            EINTR => {}
            result => return result,
        }
    }
}
