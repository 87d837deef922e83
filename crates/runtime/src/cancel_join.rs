//! Joining a task until a token is cancelled: here and not in [`crate::sync`], which knows nothing of handles.

use crate::spawn::JoinHandle;
use crate::sync::{CancellationToken, Registration};

impl CancellationToken {
    /// Waits for the end of a task; its result as of [`JoinHandle::join`].
    ///
    /// # Errors
    /// The handle if the token is cancelled before the task has ended.
    pub fn join<T>(&self, handle: JoinHandle<T>) -> Result<std::thread::Result<T>, JoinHandle<T>> {
        handle.join_limited(&Registration::new(self))
    }
}
