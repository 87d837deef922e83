//! Locks, conditions, channels and cancellation, for tasks and ordinary threads alike.
//!
//! A waiting task leaves its worker to others; a waiting thread sleeps. Both stand in the same queues, in order of
//! arrival. Mutexes and reader-writer locks have the interface of `lock_api` (as parking_lot's): no poisoning, guards
//! that deref.
//!
//! The protocols, and why no wake-up is lost, are in `docs/design/runtime-sync.md`.

mod barrier;
mod cancel;
mod channel;
mod condvar;
mod lazy;
pub mod mpmc;
pub mod mpsc;
mod mutex;
mod once;
pub mod oneshot;
mod rwlock;
#[doc(hidden)]
pub mod select;
mod semaphore;
pub(crate) mod thread_parker;
mod wait_queue;
pub(crate) mod waiter;

pub use barrier::{Barrier, BarrierWaitResult};
pub(crate) use cancel::{Cancellable, Registration, cut_off, is_cut};
pub use cancel::{CancellationToken, Cancelled, DropGuard};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use lazy::{LazyLock, OnceLock};
pub use mutex::{Mutex, MutexGuard, RawMutex};
pub use once::Once;
pub use rwlock::{RawRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use select::{SelectRecv, SelectSend};
pub use semaphore::{Permit, Semaphore};
pub(crate) use wait_queue::WaitQueue;
