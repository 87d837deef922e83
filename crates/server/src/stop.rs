//! Asks a server to stop, from a signal, a test or another thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Hook = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Inner {
    requested: AtomicBool,
    hooks: Mutex<Vec<Hook>>,
}

/// A request to stop, shared by those that make it and those that obey it.
#[derive(Clone, Default)]
pub struct Stop(Arc<Inner>);

impl Stop {
    /// Requests the stop; the first call runs all hooks.
    pub fn request(&self) {
        let hooks = {
            let mut hooks = self.hooks();
            self.0.requested.store(true, Ordering::Release);
            std::mem::take(&mut *hooks)
        };
        hooks.into_iter().for_each(|hook| hook());
    }

    /// Whether the stop was requested.
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::Acquire)
    }

    /// Runs `hook` when the stop is requested, or now if it already was.
    pub(super) fn on_request(&self, hook: impl FnOnce() + Send + 'static) {
        let mut hooks = self.hooks();
        // The flag changes under this lock only, so a hook runs exactly once: in `request` or here.
        if !self.is_requested() {
            hooks.push(Box::new(hook));
            return;
        }
        drop(hooks);
        hook();
    }

    fn hooks(&self) -> MutexGuard<'_, Vec<Hook>> {
        self.0.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn hooks_run_once_early_or_late() {
        let (stop, ran) = (Stop::default(), Arc::new(AtomicU32::new(0)));
        let hook = || {
            let ran = ran.clone();
            move || {
                ran.fetch_add(1, Ordering::Relaxed);
            }
        };
        stop.on_request(hook());
        assert!(!stop.is_requested() && ran.load(Ordering::Relaxed) == 0);
        stop.request();
        stop.request();
        stop.on_request(hook());
        assert!(stop.is_requested() && ran.load(Ordering::Relaxed) == 2);
    }
}
