//! libheddle: Heddle's steering, agents, events and threads for programs in C. `include/heddle/client.h`, `agent.h`,
//! `event.h` and `thread.h` are its documentation; a test compares them with the exported symbols.
//!
//! - **I1** No call ends the program: an error is a negative error number, or a null pointer and `errno`, and
//!   a text ([`error::hd_error`]).
//! - **I2** The hot path, [`executor::hd_busy`] and [`executor::hd_idle`], is one store into shared memory:
//!   no system call, no lock, no allocation.
//! - **I3** `unsafe` is for pointers and descriptors from C; the header states what C promises about them.

mod agent;
mod deploy;
mod error;
mod executor;
mod kqueue;
mod locks;
mod map;
mod packets;
mod preemption;
mod steering;
mod stream;
mod text;
mod threads;
