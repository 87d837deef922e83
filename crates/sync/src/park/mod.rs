#![doc = include_str!("README.md")]

mod futex_word;
mod parker;
mod parking;
mod poll_lock;

#[cfg(all(test, loom))]
mod model;

pub use futex_word::FutexWord;
pub use parker::{Driver, Parker};
pub use parking::Parking;
pub use poll_lock::PollLock;
