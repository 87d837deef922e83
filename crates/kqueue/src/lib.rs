//! kqueue's two calls over [`heddle_events::EventQueue`]: what `include/heddle/event.h` and `include/kqueue/sys/event.h` declare.
//! `docs/events/c.md` tells users what they may expect.
//!
//! A *knote* is what the program registered: a filter and an identifier. It has an event of the queue, and whoever is given that event
//! looks the knote up ([`notes`]) and fills a `struct kevent` from it ([`tell`]).
//!
//! - **K1** A thread that asks for events is a worker of the queue ([`place`]) until it ends or leaves; one that only registers is none.
//!   What it was given it holds until it asks again.
//! - **K2** A knote is changed and told only under its shard's lock, and told only if the event that was given is the knote's present one:
//!   what was deregistered is not told afterwards.
//! - **K3** Before a descriptor's knote is told or changed it is looked whether its number still means the same file: a knote ends with its
//!   descriptor ([`descriptor`]).
//! - **K4** A queue is found by its descriptor's number. When the program has closed that, the queue ends: at once if a thread waits, at the
//!   latest when its number is looked at or the next queue is made ([`registry`]).
//! - **K5** A child of fork(2) knows no queue of its parent's, touches none of its locks and none of its epolls.
//! - **K6** A knote without EV_CLEAR is told for as long as it is so. The queue looks at readiness by itself; what it does not look at (a
//!   file's offset, NOTE_LOWAT's bytes, what happened to a file, a moment that has come) is told again by [`tell`], and looked at there.
//!
//! This crate exports no symbol. C libraries do, with [`export_calls!`]: libheddle under `heddle_*`, libheddle_kqueue under kqueue's own
//! names.

pub mod calls;
mod change;
mod descriptor;
pub mod error;
mod exports;
mod fflags;
mod fill;
mod multi;
mod notes;
mod other;
mod place;
pub mod raw;
mod registry;
mod tell;
