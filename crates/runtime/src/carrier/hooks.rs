//! What a thread library does for carriers, which it has not created ([`crate::raw`]).

use crate::task::TaskRef;
use std::sync::OnceLock;

/// Called in the life of each carrier.
pub(crate) struct Hooks {
    /// It was made, by the caller.
    pub(crate) made: fn(TaskRef),
    /// The caller is a carrier, before its first poll.
    pub(crate) begins: fn(),
    /// The caller is a carrier that is about to end.
    pub(crate) ends: fn(),
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Sets the hooks, once for the process.
pub(crate) fn set(hooks: Hooks) {
    let _ = HOOKS.set(hooks);
}

#[inline]
pub(super) fn call(f: impl FnOnce(&'static Hooks)) {
    if let Some(hooks) = HOOKS.get() {
        f(hooks);
    }
}
