//! What happens on a machine, seen from outside: unmodified programs, stock kernels.
//!
//! - [`Recording`]: what was seen of a service for a while, in a file: its sockets, threads and requests ([`Span`]),
//!   and every other thread that ran on its CPUs.
#![forbid(unsafe_code)]

mod recording;
mod span;

pub use recording::{
    Burst, Host, Lost, Protocol, Recording, RecordingError, Service, Socket, ThreadUse, Window,
};
pub use span::{Off, Span};
