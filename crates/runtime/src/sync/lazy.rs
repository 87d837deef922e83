//! Values that are initialised once, at first use.

use super::{Mutex, Once};
use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock as Storage;

/// A cell that is written once: `std::sync::OnceLock`, whose waiting callers park instead of blocking their workers.
///
/// ```
/// use heddle_rt::sync::OnceLock;
///
/// static CONFIG: OnceLock<String> = OnceLock::new();
/// assert_eq!(CONFIG.get(), None);
/// assert_eq!(CONFIG.get_or_init(|| "fast".to_owned()), "fast");
/// assert_eq!(CONFIG.set("slow".to_owned()), Err("slow".to_owned()));
/// ```
pub struct OnceLock<T> {
    once: Once,
    /// Written inside `once` only, so it is never contended.
    value: Storage<T>,
}

impl<T> OnceLock<T> {
    /// An empty cell.
    pub const fn new() -> OnceLock<T> {
        OnceLock { once: Once::new(), value: Storage::new() }
    }

    /// The value, if it has been set.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// The value, if it has been set.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut()
    }

    /// The value; `f` computes it if it has not been set. While another caller computes it, waits. If `f` panics, the
    /// cell stays empty.
    ///
    /// `f` must not use the cell itself: it would wait for its own end.
    pub fn get_or_init(&self, f: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        self.once.call_once(|| {
            let _ = self.value.set(f());
        });
        self.get().expect("set by whichever call completed")
    }

    /// Sets the value.
    ///
    /// # Errors
    /// Returns `value` if the cell was not empty.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("called once"));
        value.map_or(Ok(()), Err)
    }

    /// Takes the value out, which leaves the cell empty.
    pub fn take(&mut self) -> Option<T> {
        self.once = Once::new();
        self.value.take()
    }

    /// The value, if it has been set.
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        OnceLock::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        let cell = OnceLock::new();
        let _ = cell.set(value);
        cell
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceLock").field(&self.get()).finish()
    }
}

/// A value that is computed at first use: `std::sync::LazyLock`, whose waiting callers park instead of blocking their
/// workers.
///
/// ```
/// use heddle_rt::sync::LazyLock;
///
/// static SQUARES: LazyLock<Vec<u32>> = LazyLock::new(|| (0..10).map(|i| i * i).collect());
/// assert_eq!(SQUARES[9], 81);
/// ```
///
/// If the initialiser panics, the value is poisoned: every later use panics.
pub struct LazyLock<T, F = fn() -> T> {
    value: OnceLock<T>,
    init: Mutex<Option<F>>,
}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    /// A value that `init` computes at first use.
    pub const fn new(init: F) -> LazyLock<T, F> {
        LazyLock { value: OnceLock::new(), init: Mutex::new(Some(init)) }
    }

    /// Computes the value unless that was done. The same as a dereference, in words.
    ///
    /// # Panics
    /// If the initialiser panics or has panicked.
    pub fn force(this: &LazyLock<T, F>) -> &T {
        this.value.get_or_init(|| {
            let init = this.init.lock().take();
            init.expect("LazyLock instance has previously been poisoned")()
        })
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    fn deref(&self) -> &T {
        LazyLock::force(self)
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> Self {
        LazyLock::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LazyLock").field(&self.value.get()).finish()
    }
}
