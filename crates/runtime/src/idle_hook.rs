//! How time passes for a worker that has nothing to do.
//!
//! Real time passes by itself. Virtual time (`--cfg virtual_time`) is moved by the workload, which hooks in here.

/// Nothing to call.
#[cfg(not(virtual_time))]
#[derive(Default)]
pub(crate) struct IdleHook(());

#[cfg(not(virtual_time))]
impl IdleHook {
    /// A worker's loop has nothing to do: true if it shall look again before it rests.
    #[inline(always)]
    pub(crate) fn call(&self) -> bool {
        false
    }
}

/// What a worker without work calls: makes the next thing happen; false if there is none.
#[cfg(virtual_time)]
#[derive(Default)]
pub(crate) struct IdleHook(std::sync::OnceLock<Box<dyn Fn() -> bool + Send + Sync>>);

#[cfg(virtual_time)]
impl IdleHook {
    /// A worker's loop has nothing to do: true if it shall look again before it rests.
    pub(crate) fn call(&self) -> bool {
        self.0.get().is_some_and(|hook| hook())
    }

    /// Sets what is called, once. Workers that rest already have to be called.
    pub(crate) fn set(&self, hook: impl Fn() -> bool + Send + Sync + 'static) {
        assert!(self.0.set(Box::new(hook)).is_ok(), "a runtime has one driver");
    }
}
