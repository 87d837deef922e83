//! Values bound to a task for the duration of a call; see [`task_local!`](crate::task_local!).

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::LocalKey as ThreadLocalKey;

/// Declares variables that have a value for the duration of a call, in the shape of tokio's `task_local!`: values that
/// a request carries through functions unaware of them, such as its number or its user.
///
/// ```
/// heddle_rt::task_local! {
///     /// The number of the request that the task serves.
///     static REQUEST: u64;
/// }
///
/// fn log(text: &str) -> String {
///     REQUEST.with(|request| format!("request {request}: {text}"))
/// }
///
/// assert_eq!(REQUEST.scope(7, || log("hello")), "request 7: hello");
/// assert!(REQUEST.try_with(|_| ()).is_err());
/// ```
///
/// # This or `thread_local!`
/// In a task every `thread_local!` is the task's own (I3): a variable that is initialised at first use and lives
/// until the task ends. Use that for caches, generators and buffers. A `task_local!` has no initial value: it has one
/// inside of a [`scope`](LocalKey::scope) and is absent outside, so that a value set for one request cannot be read
/// in the next by mistake; scopes nest. Neither is passed on to tasks that are created. It works in ordinary threads,
/// too.
#[macro_export]
macro_rules! task_local {
    () => {};
    ($(#[$attribute:meta])* $vis:vis static $name:ident: $type:ty; $($rest:tt)*) => {
        $crate::task_local!($(#[$attribute])* $vis static $name: $type);
        $crate::task_local!($($rest)*);
    };
    ($(#[$attribute:meta])* $vis:vis static $name:ident: $type:ty) => {
        $(#[$attribute])*
        $vis static $name: $crate::LocalKey<$type> = {
            ::std::thread_local! {
                static SLOT: ::std::cell::RefCell<::std::option::Option<$type>> =
                    const { ::std::cell::RefCell::new(::std::option::Option::None) };
            }
            $crate::LocalKey::new(&SLOT)
        };
    };
}

/// A variable of [`task_local!`](crate::task_local!).
pub struct LocalKey<T: 'static> {
    slot: &'static ThreadLocalKey<RefCell<Option<T>>>,
}

/// The error of [`LocalKey::try_with`]: the caller is in no scope of the variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessError;

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("task-local value not set: the caller is outside of `LocalKey::scope`")
    }
}

impl std::error::Error for AccessError {}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(slot: &'static ThreadLocalKey<RefCell<Option<T>>>) -> LocalKey<T> {
        LocalKey { slot }
    }

    /// Runs `f` with this value of the variable, then restores the previous value, if any.
    pub fn scope<R>(&'static self, value: T, f: impl FnOnce() -> R) -> R {
        let _restore = Restore { key: self, outer: self.exchange(Some(value)) };
        f()
    }

    /// Returns a future that polls `future` with this value of the variable. The value moves with the future, also from
    /// one thread to another, and is dropped with it.
    ///
    /// ```
    /// heddle_rt::task_local! {
    ///     static REQUEST: u64;
    /// }
    /// let number = heddle_rt::block_on(REQUEST.scope_async(7, async {
    ///     heddle_rt::futures::yield_now().await;
    ///     REQUEST.get()
    /// }));
    /// assert_eq!(number, 7);
    /// ```
    pub fn scope_async<F: Future>(&'static self, value: T, future: F) -> TaskLocalFuture<T, F> {
        TaskLocalFuture { key: self, value: Some(value), future: Some(future) }
    }

    /// Same as [`LocalKey::scope`]; tokio's name for functions that are not asynchronous.
    pub fn sync_scope<R>(&'static self, value: T, f: impl FnOnce() -> R) -> R {
        self.scope(value, f)
    }

    /// Runs `f` on the value.
    ///
    /// # Panics
    /// If the caller is in no scope of the variable.
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.try_with(f).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs `f` on the value.
    ///
    /// # Errors
    /// [`AccessError`] if the caller is in no scope of the variable.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        self.slot.with_borrow(|slot| slot.as_ref().map(f).ok_or(AccessError))
    }

    /// Returns a copy of the value.
    ///
    /// # Panics
    /// If the caller is in no scope of the variable.
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(|value| *value)
    }

    fn exchange(&self, value: Option<T>) -> Option<T> {
        self.slot.replace(value)
    }
}

/// The future of [`LocalKey::scope_async`].
#[must_use = "futures do nothing unless awaited"]
pub struct TaskLocalFuture<T: 'static, F> {
    key: &'static LocalKey<T>,
    /// Its value between two polls.
    value: Option<T>,
    /// Pinned; `None` once it is dropped.
    future: Option<F>,
}

impl<T: 'static, F: Future> TaskLocalFuture<T, F> {
    /// Calls `f` on the future, in the scope.
    fn enter<R>(self: Pin<&mut Self>, f: impl FnOnce(Pin<&mut Option<F>>) -> R) -> R {
        // SAFETY: `future` is pinned with this and never moved; the other fields are not pinned.
        let (this, future) = unsafe {
            let this = self.get_unchecked_mut();
            (&mut (this.key, &mut this.value), Pin::new_unchecked(&mut this.future))
        };
        let outer = this.0.exchange(this.1.take());
        let _leave = Leave { key: this.0, value: this.1, outer };
        f(future)
    }
}

/// Takes a future's value back, including after a panic.
struct Leave<'a, T: 'static> {
    key: &'static LocalKey<T>,
    value: &'a mut Option<T>,
    outer: Option<T>,
}

impl<T> Drop for Leave<'_, T> {
    fn drop(&mut self) {
        *self.value = self.key.exchange(self.outer.take());
    }
}

impl<T: 'static, F: Future> Future for TaskLocalFuture<T, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.enter(|mut future| {
            let polled =
                future.as_mut().as_pin_mut().expect("not polled after it is ready").poll(cx);
            if polled.is_ready() {
                future.set(None);
            }
            polled
        })
    }
}

impl<T: 'static, F> Drop for TaskLocalFuture<T, F> {
    fn drop(&mut self) {
        if self.future.is_some() {
            let leave = Leave {
                outer: self.key.exchange(self.value.take()),
                key: self.key,
                value: &mut self.value,
            };
            // Its destructors see the value. It is dropped where it was pinned.
            self.future = None;
            drop(leave);
        }
    }
}

impl<T: 'static, F> fmt::Debug for TaskLocalFuture<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskLocalFuture").finish_non_exhaustive()
    }
}

/// Ends a scope, including by a panic.
struct Restore<T: 'static> {
    key: &'static LocalKey<T>,
    outer: Option<T>,
}

impl<T> Drop for Restore<T> {
    fn drop(&mut self) {
        // The value is dropped outside of the borrow: its destructor may use the variable.
        drop(self.key.exchange(self.outer.take()));
    }
}

impl<T> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalKey").finish_non_exhaustive()
    }
}
