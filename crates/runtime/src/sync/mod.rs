//! Locks, conditions, channels and cancellation, for tasks and ordinary threads alike.
//!
//! A waiting task leaves its worker to others; a waiting thread sleeps; a future that waits (the functions whose names
//! end in `_async`) is polled again by its executor, which may be any. All stand in the same queues, in order of
//! arrival. Mutexes and reader-writer locks have the interface of `lock_api` (as parking_lot's): no poisoning, guards
//! that deref.
//!
//! # Futures
//! Each future here is *cancel-safe*: it can be dropped at any point, and nothing is lost. It takes what it waits for
//! in the poll that returns it, and if it was woken before that, it wakes the next waiter instead.
//!
//! A waker is called where the wait ends: in a task that unlocks, in a thread that sends, or in a worker's loop, where
//! sockets and timers are looked after. Preemption is off there; the waker may allocate and free, but must not wait for
//! a task (for a lock, for example, that a task may hold while it is preempted).
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
mod queued_waker;
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
pub use mutex::{Mutex, MutexExt, MutexGuard, RawMutex};
pub use once::Once;
pub(crate) use queued_waker::QueuedWaker;
pub use rwlock::{RawRwLock, RwLock, RwLockExt, RwLockReadGuard, RwLockWriteGuard};
pub use select::{SelectRecv, SelectSend};
pub use semaphore::{Permit, Semaphore};
pub(crate) use wait_queue::WaitQueue;
