//! Why an async task has no value.

use std::any::Any;
use std::fmt;

/// An async task ended without a value: it panicked, was aborted, or its runtime ended before it.
pub struct JoinError(Reason);

enum Reason {
    Cancelled,
    RuntimeDropped,
    Panic(Payload),
}

/// What a task panicked with.
struct Payload(Box<dyn Any + Send + 'static>);

// SAFETY: a shared payload shows only its text, if it is a string.
unsafe impl Sync for Payload {}

impl JoinError {
    pub(crate) const CANCELLED: JoinError = JoinError(Reason::Cancelled);
    pub(crate) const RUNTIME_DROPPED: JoinError = JoinError(Reason::RuntimeDropped);

    #[cold]
    pub(crate) fn panicked(payload: Box<dyn Any + Send + 'static>) -> JoinError {
        JoinError(Reason::Panic(Payload(payload)))
    }

    /// Returns whether the task was aborted, or its runtime was dropped before it had ended.
    pub fn is_cancelled(&self) -> bool {
        !self.is_panic()
    }

    /// Returns whether the task panicked, in a poll or when its future was dropped.
    pub fn is_panic(&self) -> bool {
        matches!(self.0, Reason::Panic(_))
    }

    /// Returns what the task panicked with.
    ///
    /// # Panics
    /// If it did not: see [`JoinError::try_into_panic`].
    pub fn into_panic(self) -> Box<dyn Any + Send + 'static> {
        self.try_into_panic().expect("`JoinError::into_panic` of a task that did not panic")
    }

    /// Returns what the task panicked with.
    ///
    /// # Errors
    /// The error itself, if it did not panic.
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send + 'static>, JoinError> {
        match self.0 {
            Reason::Panic(Payload(payload)) => Ok(payload),
            reason => Err(JoinError(reason)),
        }
    }

    fn text(&self) -> Option<&str> {
        let Reason::Panic(Payload(payload)) = &self.0 else { return None };
        let text = payload.downcast_ref::<&'static str>().copied();
        text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0, self.text()) {
            (Reason::Cancelled, _) => f.write_str("the task was aborted"),
            (Reason::RuntimeDropped, _) => {
                f.write_str("the task's runtime was dropped before the task had ended")
            }
            (Reason::Panic(_), Some(text)) => write!(f, "the task panicked: {text}"),
            (Reason::Panic(_), None) => f.write_str("the task panicked"),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0, self.text()) {
            (Reason::Cancelled, _) => f.write_str("JoinError::Cancelled"),
            (Reason::RuntimeDropped, _) => f.write_str("JoinError::RuntimeDropped"),
            (Reason::Panic(_), text) => f.debug_tuple("JoinError::Panic").field(&text).finish(),
        }
    }
}

impl std::error::Error for JoinError {}
