//! Heddle's system calls: clock, futex, signals, affinity, epoll, memory.
//!
//! # Invariants
//!
//! - **I1** Everything `unsafe` about a system call ends here; this crate's interface is safe unless its contract says
//!   why it cannot be.
//! - **I2** Nothing here allocates after set-up, and nothing keeps state in thread-local variables.

pub mod child;
pub mod clock;
pub mod cpu_list;
pub mod epoll;
pub mod fork;
pub mod futex;
pub mod interface;
pub mod isolated;
pub mod limits;
#[doc(hidden)]
pub mod locked;
pub mod memory;
pub mod notes;
pub mod packet;
pub mod processes;
pub mod scheduling;
pub mod signal;
pub mod signalfd;
pub mod socket;
pub mod stat;
pub mod syscall;
pub mod thread;
pub mod timer;
pub mod topology;
pub mod uintr;
pub mod usdt;

/// Prints the reason on standard error and aborts the process, for cases in which continuing would run a task twice or
/// never, and unwinding would leave a lock held.
#[cold]
pub fn abort(why: impl std::fmt::Display) -> ! {
    // One write, so that another aborting thread cannot write into the middle of it.
    let text = format!("heddle: {why}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
    std::process::abort()
}
