//! How time passes for a worker that has nothing to do.
//!
//! Real time passes by itself. Virtual time (`--cfg virtual_time`) is moved by the workload, which hooks in here.

use heddle_core::Ns;

/// The empty hook.
#[cfg(not(virtual_time))]
#[derive(Default)]
pub(crate) struct IdleHook(());

#[cfg(not(virtual_time))]
impl IdleHook {
    /// Called when a worker that is about to park has marked itself idle. Returns true if it should look again instead.
    #[inline(always)]
    pub(crate) fn call(&self, _: usize, _: Ns) -> bool {
        false
    }
}

/// Called by a worker of this CPU without work, with how long it may rest; returns when it is the worker's turn.
#[cfg(virtual_time)]
type Hook = Box<dyn Fn(usize, Ns) -> bool + Send + Sync>;

/// See [`Hook`].
#[cfg(virtual_time)]
#[derive(Default)]
pub(crate) struct IdleHook(std::sync::OnceLock<Hook>);

#[cfg(virtual_time)]
impl IdleHook {
    /// Called when a worker that is about to park has marked itself idle. Returns true if it should look again instead.
    pub(crate) fn call(&self, cpu: usize, at_most: Ns) -> bool {
        self.0.get().is_some_and(|hook| hook(cpu, at_most))
    }

    /// Sets the hook, once. Workers that already rest must be woken.
    pub(crate) fn set(&self, hook: impl Fn(usize, Ns) -> bool + Send + Sync + 'static) {
        assert!(self.0.set(Box::new(hook)).is_ok(), "a runtime has one driver");
    }
}
