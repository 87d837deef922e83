//! Ways into a runtime from outside.

use crate::config::RuntimeBuilder;
use crate::runtime::Runtime;
use crate::spawn::{Builder, JoinHandle};
use std::io;

impl Runtime {
    /// Returns a builder.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::new()
    }

    /// Runs `f` in a task and waits for it; propagates its panic. Do not call this in a task of the same runtime:
    /// spawn.
    pub fn run<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        // SAFETY: this function returns only after the task has ended.
        let handle = unsafe { Builder::new().name("main").spawn_on(self.engine, f) }
            .expect("cannot create a task");
        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Polls `future` in a thread of this runtime until it is ready, and returns its output; propagates its panic. What
    /// it spawns runs in this runtime. Do not call this in a task of the same runtime: await the future, or use
    /// [`crate::block_on()`].
    ///
    /// The future is scheduled and preempted like any thread. One that is not `Send` can be made there:
    /// `runtime.run(|| heddle::block_on(async { ... }))`.
    pub fn block_on<F>(&self, future: F) -> F::Output
    where
        F: Future + Send,
        F::Output: Send,
    {
        self.run(|| crate::block_on(future))
    }

    /// Creates a task in this runtime.
    ///
    /// # Panics
    /// If the system has no memory for a stack.
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: closure and result borrow nothing.
        unsafe { Builder::new().spawn_on(self.engine, f) }.expect("cannot create a task")
    }
}

impl Builder {
    /// Creates the task in `runtime`.
    ///
    /// # Errors
    /// As [`Builder::spawn`].
    pub fn spawn_in<F, T>(self, runtime: &Runtime, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: closure and result borrow nothing.
        unsafe { self.spawn_on(runtime.engine, f) }
    }
}
