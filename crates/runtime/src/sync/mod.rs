//! Locks, conditions and channels for tasks and ordinary threads alike.
//!
//! A task that waits leaves its worker to others; a thread that waits sleeps. Both stand in the same queues, in order of
//! arrival. Mutexes and reader-writer locks have the interface of `lock_api` (as parking_lot's): no poisoning, guards that
//! deref.

mod barrier;
mod condvar;
pub mod mpsc;
mod mutex;
mod once;
mod rwlock;
mod semaphore;
mod thread_parker;
mod wait_queue;
pub(crate) mod who;

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard, RawMutex};
pub use once::Once;
pub use rwlock::{RawRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Permit, Semaphore};
pub(crate) use wait_queue::WaitQueue;
