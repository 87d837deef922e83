//! kqueue's two calls over [`heddle_events::EventQueue`], as `include/heddle/event.h` and
//! `include/kqueue/sys/event.h` declare them. `docs/events/c.md` tells users what to expect.
//!
//! A *knote* is what the program registered: a filter and an identifier. It has an event of the queue. The
//! thread that is given the event looks the knote up (`notes`) and fills a `struct kevent` from it
//! (`report`).
//!
//! - **K1** A thread that asks for events is a worker of the queue (`membership`) until it ends or leaves;
//!   one that only registers is not. It holds what it was given until it asks again.
//! - **K2** A knote is changed and reported only under its shard's lock, and reported only if the delivered
//!   event is the knote's current one: what was deregistered is not reported afterwards.
//! - **K3** Before a descriptor's knote is reported or changed, its number is checked to still mean the same
//!   file: a knote ends with its descriptor (`descriptor`).
//! - **K4** A queue is found by its descriptor's number. When the program has closed that, the queue ends: at
//!   once if a thread waits, otherwise when its number is next used or the next queue is made (`registry`).
//! - **K5** A child of fork(2) knows none of its parent's queues, and touches none of its locks and epolls.
//! - **K6** A knote without EV_CLEAR is reported for as long as its condition holds. The queue checks
//!   readiness by itself. What it does not check (a file's offset, NOTE_LOWAT's bytes, changes of a file, a
//!   moment that has passed) is reported again, and checked, by `report`.
//!
//! This crate exports no symbols. C libraries do, with [`export_calls!`]: libheddle under `heddle_*`,
//! libheddle_kqueue under kqueue's own names.

pub mod calls;
mod change;
mod counted;
mod descriptor;
pub mod error;
mod exports;
mod fflags;
mod membership;
mod multi;
mod notes;
pub mod raw;
mod registry;
mod report;
mod wait;
