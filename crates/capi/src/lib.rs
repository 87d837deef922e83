//! libheddle: the C face of Heddle's steering, agents and events. `include/heddle/client.h`, `agent.h` and `event.h` are its
//! documentation; a test compares them with what there is.
//!
//! - **I1** No call ends the program: what is wrong is a negative error number, or a null pointer and `errno`, and a text
//!   ([`error::hd_error`]).
//! - **I2** The hot path, [`executor::hd_busy`] and [`executor::hd_idle`], is one store into shared memory: no system call, no
//!   lock, no allocation.
//! - **I3** `unsafe` is for pointers and descriptors that C hands in, and what C promises about them is in the header.

mod agent;
mod deploy;
mod error;
mod executor;
mod kqueue;
mod map;
mod text;
