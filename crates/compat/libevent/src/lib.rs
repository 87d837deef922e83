//! libheddle_event: the part of libevent's interface that servers like memcached use, over one event queue that all threads share (SKQ,
//! section 5, calls its own libevent-skq). `include/heddle/libevent/event.h` is its documentation; a test compares them.
//!
//! What differs from libevent: any number of threads may be in `event_base_loop` of one base, and the queue's policy chooses which of them
//! calls an event's function. What does not: names, types, flags, results.
//!
//! # Invariants
//!
//! - **L1** The loop never touches a `struct event`: what it needs of it was copied when the event was added. So an event may be changed
//!   or freed in its own function, and in any thread once `event_del` has returned.
//! - **L2** The function of one `struct event` runs in one thread at a time, also when it deletes the event and adds it anew: what is
//!   registered while it runs is turned off until it has ended.
//! - **L3** A `struct event` has one registration that is told: its descriptor's, or one that is only triggered. A timeout, a signal or
//!   `event_active` leaves a note and triggers that registration. So nothing is told twice or by two threads.
//! - **L4** The locks of events are above those of the queue, and no function of the program is called under any.
//! - **L5** No call ends the program: what is wrong is -1, or null, and `errno`.

mod abi;
mod base;
mod calls;
mod entry;
mod seat;
mod signals;
mod turn;
