//! What can be done with a future of some type, behind its header.

use super::error::JoinError;
use crate::slab;
use crate::task::{Header, HeaderRef, Scheduler, Vtable};
use heddle_core::TaskAttrs;
use std::cell::UnsafeCell;
use std::io;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr;
use std::task::{Context, Poll};

/// The memory of a future that yields `T`.
#[repr(C)]
pub(crate) struct Memory<F, T> {
    header: Header,
    contents: UnsafeCell<Contents<F, T>>,
}

/// What the state says: the future until it is done, then its output until it is taken.
union Contents<F, T> {
    future: ManuallyDrop<F>,
    output: ManuallyDrop<Result<T, JoinError>>,
}

impl HeaderRef {
    /// Returns the memory of a new future of `sched`, with `future` in it, which is of the type of `vtable` and fits a
    /// class. The caller holds preemption off until it has started it.
    ///
    /// # Errors
    /// The system's, if it is out of memory or tasks.
    #[inline(always)]
    pub(crate) fn create<F: Future>(
        sched: &'static dyn Scheduler,
        attrs: TaskAttrs,
        future: F,
        vtable: &'static Vtable,
    ) -> io::Result<HeaderRef> {
        let header = sched.prepare_future(vtable.class, attrs)?;
        header.fill(future, vtable);
        Ok(header)
    }

    /// Puts `future` in, with the functions for its type. The caller is the only owner of the memory, which is of the
    /// future's class ([`class_of`]).
    #[inline(always)]
    pub(crate) fn fill<F: Future>(self, future: F, vtable: &'static Vtable) {
        let header = self.get();
        header.vtable.set(vtable);
        header.entity.set_context(None);
        header.state.reset();
        // SAFETY: the memory is of a class with room for this, and the caller's alone.
        unsafe {
            let contents = self.contents::<F>();
            contents.write(Contents { future: ManuallyDrop::new(future) });
        }
    }

    #[inline(always)]
    fn contents<F: Future>(self) -> *mut Contents<F, F::Output> {
        let memory = self.at().cast::<Memory<F, F::Output>>();
        // SAFETY: the address of a field.
        unsafe { UnsafeCell::raw_get(&raw const (*memory).contents) }
    }

    /// # Safety
    /// The future is done, the output is in place and the caller's; `T` is its type.
    #[inline(always)]
    pub(crate) unsafe fn take_output<T>(self) -> Result<T, JoinError> {
        let mut output: Option<Result<T, JoinError>> = None;
        // SAFETY: by the caller's promise.
        unsafe { (self.get().vtable.get().take_output)(self, (&raw mut output).cast()) };
        output.expect("the output is there")
    }
}

/// Returns the size class for a future of type `F`; `None` if it is too large.
#[inline(always)]
pub(crate) const fn class_of<F: Future>() -> Option<u8> {
    match align_of::<Memory<F, F::Output>>() <= slab::ALIGN {
        true => slab::class_for(size_of::<Memory<F, F::Output>>()),
        false => None,
    }
}

/// A future whose output is boxed, since one of both is too large.
pub(crate) struct Boxed<F>(pub(crate) Pin<Box<F>>);

impl<F: Future> Future for Boxed<F> {
    type Output = Box<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Box<F::Output>> {
        self.0.as_mut().poll(cx).map(Box::new)
    }
}

/// The functions for futures of type `F`.
pub(crate) struct Typed<F>(F);

impl<F: Future> Typed<Boxed<F>> {
    /// For a handle that expects the output of `F` itself.
    pub(crate) const UNBOXING: Vtable =
        Vtable { take_output: Self::take_unboxed, ..Typed::<Boxed<F>>::VTABLE };

    /// # Safety
    /// As [`HeaderRef::take_output`]; `to` is the address of an `Option<Result<F::Output, JoinError>>`.
    unsafe fn take_unboxed(header: HeaderRef, to: *mut ()) {
        let mut output: Option<Result<Box<F::Output>, JoinError>> = None;
        // SAFETY: by the caller's promise.
        unsafe {
            Self::take_output(header, (&raw mut output).cast());
            let output = output.map(|output| output.map(|value| *value));
            to.cast::<Option<Result<F::Output, JoinError>>>().write(output);
        }
    }
}

impl<F: Future> Typed<F> {
    pub(crate) const VTABLE: Vtable = Vtable {
        poll: Self::poll,
        cancel: Self::cancel,
        take_output: Self::take_output,
        drop_output: Self::drop_output,
        class: match class_of::<F>() {
            Some(class) => class,
            // Such a future is boxed, and this table is not used.
            None => u8::MAX,
        },
    };

    /// # Safety
    /// The future is there, and the caller's.
    unsafe fn poll(header: HeaderRef, cx: &mut Context<'_>) -> bool {
        let contents = header.contents::<F>();
        // SAFETY: by the caller's promise; the memory does not move.
        let polled = catch_unwind(AssertUnwindSafe(|| unsafe {
            Pin::new_unchecked(&mut *(*contents).future).poll(cx)
        }));
        let output = match polled {
            Ok(Poll::Pending) => return false,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(panic) => Err(JoinError::panicked(panic)),
        };
        // SAFETY: as above.
        unsafe { Self::finish(header, output) };
        true
    }

    /// # Safety
    /// As [`Typed::poll`].
    unsafe fn cancel(header: HeaderRef) {
        // SAFETY: by the caller's promise.
        unsafe { Self::finish(header, Err(JoinError::CANCELLED)) };
    }

    /// Drops the future and puts `output` in its place, or the panic of dropping it.
    ///
    /// # Safety
    /// As [`Typed::poll`].
    #[inline(always)]
    unsafe fn finish(header: HeaderRef, output: Result<F::Output, JoinError>) {
        let contents = header.contents::<F>();
        // SAFETY: by the caller's promise; nothing drops the future again.
        unsafe {
            let output = match std::mem::needs_drop::<F>() {
                false => output,
                true => {
                    let at = &raw mut (*contents).future;
                    match catch_unwind(AssertUnwindSafe(|| ManuallyDrop::drop(&mut *at))) {
                        Ok(()) => output,
                        Err(panic) => {
                            // No handle gets it, and a second panic has been reported by the panic hook.
                            let _ = catch_unwind(AssertUnwindSafe(|| drop(output)));
                            Err(JoinError::panicked(panic))
                        }
                    }
                }
            };
            contents.write(Contents { output: ManuallyDrop::new(output) });
        }
    }

    /// # Safety
    /// As [`HeaderRef::take_output`]; `to` is the address of an `Option<Result<F::Output, JoinError>>`.
    unsafe fn take_output(header: HeaderRef, to: *mut ()) {
        // SAFETY: by the caller's promise.
        unsafe {
            let output = ptr::read(&raw const (*header.contents::<F>()).output);
            to.cast::<Option<Result<F::Output, JoinError>>>()
                .write(Some(ManuallyDrop::into_inner(output)));
        }
    }

    /// # Safety
    /// As [`HeaderRef::take_output`].
    unsafe fn drop_output(header: HeaderRef) {
        if std::mem::needs_drop::<Result<F::Output, JoinError>>() {
            let contents = header.contents::<F>();
            // The panic of a value that no handle awaits has been reported by the panic hook.
            // SAFETY: by the caller's promise.
            let _ = catch_unwind(AssertUnwindSafe(|| unsafe {
                ManuallyDrop::drop(&mut (*contents).output);
            }));
        }
    }
}
