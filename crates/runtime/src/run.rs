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
