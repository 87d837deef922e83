//! The model: messages, sequence numbers, status words, transactions. It knows no operating system.

mod layout;
pub mod machine;
mod message;
mod seq;
mod transaction;
mod words;
pub mod world;

pub use layout::{FromWords, ToWords};
pub use message::{Kind, Message};
pub use seq::Seq;
pub use transaction::{Group, Outcome, Transaction};
pub(crate) use words::OWN_CPU;
pub use words::{CpuOccupant, CpuWord, EnclaveWord, Phase, QueueId, QueueWord, State, ThreadWord};
