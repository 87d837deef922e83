//! libheddle_event: the part of libevent's interface that servers like memcached use, over one event queue
//! that all threads share (called libevent-skq in SKQ, section 5). `include/heddle/libevent/event.h` is its
//! documentation; a test compares them.
//!
//! What differs from libevent: any number of threads may be in `event_base_loop` of one base, and the queue's
//! policy chooses which of them runs an event's callback. Names, types, flags and results are the same.
//!
//! # Invariants
//!
//! - **L1** The loop never touches a `struct event`: what it needs was copied when the event was added. So an
//!   event may be changed or freed in its own callback, and in any thread once `event_del` has returned.
//! - **L2** The callback of a `struct event` runs in one thread at a time, even if it deletes the event and
//!   adds it again: a registration made while it runs is turned off until it has returned.
//! - **L3** A `struct event` has one registration for delivery: its descriptor's, or one that is only
//!   triggered. A timeout, a signal or `event_active` leaves a note and triggers that registration. So
//!   nothing is delivered twice or by two threads.
//! - **L4** Locks of events come before those of the queue, and no callback of the program is called under
//!   any lock.
//! - **L5** No call ends the program: an error is -1, or null, and `errno`.

mod abi;
mod base;
mod calls;
mod entry;
mod event_loop;
mod signals;
mod threads;
