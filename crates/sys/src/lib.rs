//! The one door of Heddle to the operating system: clock, atomics, futex, signals, affinity, epoll, memory.
//!
//! # Invariants
//!
//! - **I1** Whatever crosses threads in the runtime goes through [`sync`], which becomes loom's model of memory
//!   under `--cfg loom`: the protocols below it are checked, not believed.
//! - **I2** Everything `unsafe` about a system call ends here; what leaves this crate is safe unless its
//!   contract says why it cannot be.
//! - **I3** Nothing here allocates after set-up, and nothing keeps state in thread-local variables.

pub mod sync;

#[cfg(not(loom))]
pub mod apart;
#[cfg(all(feature = "bpf", not(loom)))]
pub mod bpf;
#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
pub mod epoll;
#[cfg(not(loom))]
pub mod fork;
#[cfg(not(loom))]
pub mod futex;
#[cfg(not(loom))]
#[doc(hidden)]
pub mod locked;
#[cfg(not(loom))]
pub mod memory;
#[cfg(not(loom))]
pub mod native;
#[cfg(not(loom))]
pub mod processes;
#[cfg(not(loom))]
pub mod scheduling;
#[cfg(not(loom))]
pub mod signal;
#[cfg(not(loom))]
pub mod signalfd;
#[cfg(not(loom))]
pub mod socket;
#[cfg(not(loom))]
pub mod thread;
#[cfg(not(loom))]
pub mod timer;
#[cfg(not(loom))]
pub mod topology;
#[cfg(all(feature = "xsk", not(loom)))]
pub mod xsk;

/// Says why on standard error and aborts the process: where to go on would run a task twice or never, and to unwind would leave a lock
/// held.
#[cold]
pub fn abort(why: impl std::fmt::Display) -> ! {
    // One write, so that another thread that ends at the same moment does not write into the middle of it.
    let text = format!("heddle: {why}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
    std::process::abort()
}
