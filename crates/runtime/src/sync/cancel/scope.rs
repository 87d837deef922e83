//! Sections of a task whose network operations end when a token is cancelled.

use super::waits::Registration;
use super::{CancellationToken, Cancelled};
use crate::sync::waiter::Limit;
use heddle_core::Ns;
use std::cell::{Cell, RefCell};

/// A section that the task is in.
struct Scope {
    token: CancellationToken,
    /// Whether an operation was cut off. Those begun later fail at once, so that none succeeds whose result would be
    /// dropped.
    cut: bool,
}

thread_local! {
    /// How many sections the task is in: spares the others the look at the list.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static SCOPES: RefCell<Vec<Scope>> = const { RefCell::new(Vec::new()) };
}

/// Whether an operation of the caller was cut off in a section that it is still in.
#[inline]
pub(crate) fn is_cut() -> bool {
    DEPTH.get() > 0 && SCOPES.with_borrow(|scopes| scopes.iter().any(|scope| scope.cut))
}

/// An operation of the caller has ended its wait: whether because a token was cancelled, which is noted.
pub(crate) fn cut_off() -> bool {
    let is_cancelled = is_cancelled();
    if is_cancelled {
        SCOPES.with_borrow_mut(|scopes| {
            scopes.iter_mut().for_each(|scope| scope.cut |= scope.token.is_cancelled());
        });
    }
    is_cancelled
}

fn is_cancelled() -> bool {
    let any = |scopes: &Vec<Scope>| scopes.iter().any(|scope| scope.token.is_cancelled());
    DEPTH.get() > 0 && SCOPES.with_borrow(any)
}

/// Until the deadline, or until a token is cancelled in whose section the caller is: it is registered there.
#[derive(Clone, Copy)]
pub(crate) struct Cancellable(pub(crate) Option<Ns>);

impl Limit for Cancellable {
    fn park(self) -> bool {
        !is_cancelled() && self.0.park()
    }
}

impl CancellationToken {
    /// Runs `f`; if the token is cancelled, its network operation that waits (connecting and looking names up
    /// included) fails with an error of the kind [`Other`](std::io::ErrorKind::Other) that holds a [`Cancelled`], and
    /// so do all that `f` begins after that. It works as [`timeout`](crate::timeout) does: `f` is not cut off, but
    /// sees the errors and returns; if none of its operations was cut off, its value is returned. Only the calling
    /// task's operations are concerned, not those of tasks that it creates.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use heddle_rt::sync::{CancellationToken, Cancelled};
    /// # let runtime = heddle_rt::RuntimeBuilder::new().workers(1).build()?;
    /// # runtime.run(|| {
    /// let listener = heddle_rt::net::TcpListener::bind("127.0.0.1:0").unwrap();
    /// let token = CancellationToken::new();
    /// let stop = token.clone();
    /// heddle_rt::spawn(move || stop.cancel());
    /// let accepted = token.run_until_cancelled(|| listener.accept());
    /// assert!(matches!(accepted, Err(Cancelled)));
    /// # });
    /// # Ok::<(), heddle_rt::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`Cancelled`] if an operation of `f` was cut off; the value of `f` is dropped then.
    pub fn run_until_cancelled<R>(&self, f: impl FnOnce() -> R) -> Result<R, Cancelled> {
        let section = Section::enter(self);
        let value = f();
        if section.leave() { Err(Cancelled) } else { Ok(value) }
    }
}

/// The calling task is in a section while this lives.
struct Section<'a>(#[allow(dead_code, reason = "its drop counts")] Registration<'a>);

impl<'a> Section<'a> {
    fn enter(token: &'a CancellationToken) -> Section<'a> {
        let section = Section(Registration::new(token));
        SCOPES.with_borrow_mut(|scopes| scopes.push(Scope { token: token.clone(), cut: false }));
        DEPTH.set(DEPTH.get() + 1);
        section
    }

    /// Whether an operation was cut off.
    fn leave(self) -> bool {
        SCOPES.with_borrow(|scopes| scopes.last().is_some_and(|scope| scope.cut))
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        let scope = SCOPES.with_borrow_mut(Vec::pop);
        drop(scope);
    }
}
