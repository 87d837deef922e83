//! `heddle bench net`: the runtime's own network (`HEDDLE_NET=xdp:..`) beside the kernel's.
//!
//! ```text
//!    namespace `near`                                              namespace `far`
//!  +------------------+    veth, 1,500 B, checksums computed     +------------------+
//!  | server on CPU 0  | <--------------------------------------> | client on CPU 1  |
//!  +------------------+                                          +------------------+
//!   plain | kernel | xdp                                          plain (kernel sockets) | xdp
//! ```
//!
//! `plain` is a program of one thread on kernel sockets, `kernel` is Heddle's runtime with `net=kernel`, `xdp` the same
//! with lanes. Server and client are processes of their own, for each run of each round.
//!
//! # Invariants
//!
//! - **I1** Systems of a round run one after the other in the same pair of namespaces; a ratio compares two runs of one
//!   round.
//! - **I2** CPU time is that of both processes and of the `ksoftirqd` threads, in the scheduler's nanoseconds; where
//!   the kernel accounts softirqs apart from tasks, theirs too. A run beside which others used much of a CPU is
//!   invalid, and so is one by lanes whose packets the kernel received.
//! - **I3** Load never leaves the namespaces, which are removed with the bench.

#![forbid(unsafe_code)]

mod bench;
mod child;
mod compare;
mod contests;
mod measured;
mod memory;
mod options;
mod part;
mod report;
mod system;
mod tail;
mod targets;
mod testbed;
mod usage;
mod without_net;

pub use child::run as run_child;
pub use options::NetOptions;
pub use part::Part;
pub use system::System;
