//! Applications that share CPUs and hand them over in microseconds, without a kernel module.
//!
//! Each application has one worker for each shared CPU, pinned to it. At any moment one worker of a CPU is *active*;
//! the others sleep or wait. Who is next they decide themselves, from memory that each may read and of which each
//! writes its own part only ([`abi`]): no third party runs during a hand-over. The order comes from the *broker*
//! (`heddle-broker`), which admits applications, ranks them, and takes CPUs from those that do not give them back.
//! `docs/design/share.md` is the design.
//!
//! # Invariants
//!
//! - **I1** At most one member is active on a CPU ([`handover`]; checked by loom), except beside one that it preempts,
//!   or whose active thread sleeps in the kernel.
//! - **I2** While a member wants a CPU and none is active there, some member is awake and about to take it.
//! - **I3** Nothing in memory that another application writes is used as a pointer, a length or an index.
//! - **I4** What a worker calls here neither allocates nor locks, and is safe in a signal handler.

pub mod abi;
#[cfg(all(test, not(loom)))]
mod explore;
pub mod handover;
mod member;
mod memory;
#[cfg(all(test, loom))]
mod model;
pub mod wire;

pub use member::{JoinError, Kind, Member, Thread, WAIT_CLASSES, Watched, connect_to};
pub use memory::{AppMemory, BrokerMemory, Slot};
