//! What happens on a machine, seen from outside: unmodified programs, stock kernels.
//!
//! - [`Watch`] watches a service for a while; the result is a [`Recording`]: its sockets, threads and requests
//!   ([`Span`]), and every other thread that ran on its CPUs.
//! - [`Switches`] is the program at every switch of a CPU: run-queue delays and bursts by groups of processes, and on
//!   request one event of each switch.
//! - [`probe`] lists what this process and this kernel permit.
//!
//! # Invariants
//!
//! - **I1** Nothing is keyed by a descriptor, an address or a port that may be another's by then: sockets are known by
//!   their cookies.
//! - **I2** What is not seen is counted: requests in a full ring, sockets and threads beyond a table, requests without
//!   an answer.
//! - **I3** The programs allocate nothing and wake no reader.
#![forbid(unsafe_code)]

mod budget;
mod error;
mod features;
mod host;
mod objects;
mod recording;
mod runtime;
mod service;
mod span;
mod spans;
mod switches;
mod watch;

pub use error::ObserveError;
pub use features::{Feature, probe};
pub use recording::{
    Burst, Group, Host, Lost, Protocol, Recording, RecordingError, Service, Socket, ThreadUse,
    Window,
};
pub use runtime::{Runtime, RuntimeKind};
pub use service::Target;
pub use span::{Off, Span};
pub use switches::{BUCKETS, GROUPS, GroupTimes, Switch, SwitchOptions, Switches, Use};
pub use watch::{Options, POLL, Progress, Watch};
