//! The spin lock around a short list.

#[cfg(not(loom))]
pub(crate) use super::SpinLock as Lock;

/// Loom's own lock: it knows which threads wait for it, while a spinning lock would give loom endless runs to explore.
/// A separate model checks that [`super::SpinLock`] excludes others.
#[cfg(loom)]
#[derive(Default)]
pub(crate) struct Lock(loom::sync::Mutex<()>);

#[cfg(not(loom))]
impl Lock {
    /// Runs `f` with the lock held. `f` does not panic.
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        self.lock();
        let result = f();
        self.unlock();
        result
    }
}

#[cfg(loom)]
impl Lock {
    pub(crate) fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        let _held = self.0.lock().unwrap();
        f()
    }
}
