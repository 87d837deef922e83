//! Policies in user space: the same source, as native code of this process, some nanoseconds per decision.
//!
//! For programs that receive on one socket, or on an AF_XDP ring, and hand requests to threads themselves
//! ([`Dispatcher`]); for the simulator; and for tests that need a policy's decisions without a kernel.
//!
//! Each [`NativePolicy`] is a separate instance: it shares its variables and maps with no other. Native code
//! is trusted like the program that loads it (see `heddle_steer_abi`): use [`NativePolicy::compile`] only for
//! your own files.

mod dispatcher;
mod policy;
mod random;
mod simulated;

pub use dispatcher::{Counts, Dispatcher, Sent, Worker};
pub use heddle_steer_abi::{Input, Line, Lines, MAX_EXECUTORS, NativeMap, View, WINDOW};
pub use policy::{Decision, NativeError, NativePolicy, input};
pub use random::Random;
pub use simulated::Simulated;
