//! Policies in user space: the same source, native code of this process, some nanoseconds a decision.
//!
//! For programs that receive on one socket, or on an AF_XDP ring, and hand requests to threads themselves
//! ([`Dispatcher`]); for the simulator; and for tests, where a policy's decisions are wanted without a kernel.
//!
//! Each [`NativePolicy`] is an instance of its own: its variables and maps are shared with no other. Native code is
//! trusted like the program that loads it (see `heddle_steer_abi`): [`NativePolicy::compile`] is for one's own files.

mod dispatcher;
mod policy;
mod random;
mod simulated;

pub use dispatcher::{Counts, Dispatcher, Sent, Worker};
pub use heddle_steer_abi::{Input, Line, Lines, MAX_EXECUTORS, NativeMap, View, WINDOW};
pub use policy::{Decision, NativeError, NativePolicy, input};
pub use random::Random;
pub use simulated::Simulated;
