//! Joining a task until a token is cancelled. It is here because [`crate::sync`] does not depend on handles.

use crate::spawn::JoinHandle;
use crate::sync::{CancellationToken, Registration};

impl CancellationToken {
    /// Waits for the end of a task. Returns its result as [`JoinHandle::join`] does.
    ///
    /// # Errors
    /// The handle if the token is cancelled before the task has ended.
    pub fn join<T>(&self, handle: JoinHandle<T>) -> Result<std::thread::Result<T>, JoinHandle<T>> {
        handle.join_limited(&Registration::new(self))
    }
}
