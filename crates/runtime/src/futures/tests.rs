//! The memory of futures without a scheduler: Miri can interpret all of it.
//!
//! Nothing here wakes or frees a future, which takes a runtime: wakers do nothing, and the memory keeps a reference and
//! is given back by hand.

use super::{JoinError, JoinHandle};
use crate::carrier::typed::{Boxed, Memory, Typed, class_of};
use crate::slab;
use crate::task::{Header, HeaderRef, Vtable};
use std::alloc::{Layout, alloc, dealloc};
use std::future::{pending, ready};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The memory of one future.
struct Cell {
    header: HeaderRef,
    layout: Layout,
}

impl Cell {
    /// Memory of exactly the size that a future of type `F` needs, with one in it.
    fn new<F: Future>(future: F) -> Cell {
        assert!(class_of::<F>().is_some(), "fits a class");
        Cell::with(future, &Typed::<F>::VTABLE)
    }

    fn boxed<F: Future>(future: F) -> Cell {
        Cell::with(Boxed(Box::pin(future)), &Typed::<Boxed<F>>::UNBOXING)
    }

    fn with<F: Future>(future: F, vtable: &'static Vtable) -> Cell {
        let size = size_of::<Memory<F, F::Output>>();
        let layout = Layout::from_size_align(size, slab::ALIGN).unwrap();
        // SAFETY: not empty; filled with a header before anything reads it.
        let header = unsafe {
            let at = NonNull::new(alloc(layout)).unwrap().cast::<Header>();
            at.write(Header::new(slab::free_vtable(0)));
            HeaderRef::new(at)
        };
        header.fill(future, vtable);
        // So that no handle is the last to refer to it.
        header.get().state.add_reference();
        Cell { header, layout }
    }

    /// Takes a turn, as a carrier does. Returns whether the future has ended.
    fn turn(&self) -> bool {
        let (header, state) = (self.header, &self.header.get().state);
        let vtable = header.get().vtable.get();
        // SAFETY: the state says that the future is there, and only this thread polls it.
        let has_ended = unsafe {
            if state.begin_poll() {
                (vtable.poll)(header, &mut Context::from_waker(Waker::noop()))
            } else {
                (vtable.cancel)(header);
                true
            }
        };
        if !has_ended {
            assert!(!state.end_poll());
            return false;
        }
        let ended = state.end();
        // SAFETY: the state says whose output and waker are.
        unsafe {
            if ended.drop_output {
                header.drop_output();
            }
            if ended.wake {
                header.take_waker().wake();
            }
        }
        assert!(!state.drop_reference());
        true
    }

    fn handle<T>(&self) -> JoinHandle<T> {
        JoinHandle::new(self.header)
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        assert!(self.header.get().state.drop_reference(), "references are left");
        // SAFETY: from `alloc`, and nothing refers to it.
        unsafe { dealloc(self.header.at().cast(), self.layout) };
    }
}

fn poll<T>(handle: &mut JoinHandle<T>) -> Poll<Result<T, JoinError>> {
    Pin::new(handle).poll(&mut Context::from_waker(Waker::noop()))
}

/// A value that is on the heap, and where Miri finds it if it is not dropped, or dropped twice.
fn value() -> Rc<u32> {
    Rc::new(7)
}

/// Is ready in its second poll.
async fn later<T>(value: T) -> T {
    let mut has_waited = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut has_waited, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    value
}

/// Panics when it is dropped, with its own value as the payload.
struct Loud(u32);

impl Drop for Loud {
    fn drop(&mut self) {
        resume_unwind(Box::new(self.0));
    }
}

fn payload<T>(result: Result<T, JoinError>) -> u32 {
    *result.err().expect("a panic").into_panic().downcast().expect("a number")
}

#[test]
fn a_handle_takes_the_output() {
    let kept = value();
    let cell = Cell::new(later(kept.clone()));
    let mut handle = cell.handle::<Rc<u32>>();
    assert!(!cell.turn() && poll(&mut handle).is_pending() && poll(&mut handle).is_pending());
    let abort = handle.abort_handle();
    assert!(!cell.header.get().state.cancel() || cell.turn());
    let Poll::Ready(output) = poll(&mut handle) else { panic!("it has ended") };
    assert!(output.unwrap_err().is_cancelled() && abort.is_finished());
    assert_eq!(Rc::strong_count(&kept), 1);

    let cell = Cell::new(ready(kept.clone()));
    let mut handle = cell.handle::<Rc<u32>>();
    assert!(poll(&mut handle).is_pending() && cell.turn() && handle.is_finished());
    let Poll::Ready(output) = poll(&mut handle) else { panic!("it has ended") };
    assert_eq!(*output.unwrap(), 7);
    assert_eq!(Rc::strong_count(&kept), 1);
}

#[test]
fn a_waker_of_the_handle_is_replaced_and_dropped() {
    struct Counts;
    impl std::task::Wake for Counts {
        fn wake(self: std::sync::Arc<Self>) {}
    }
    let counts = std::sync::Arc::new(Counts);
    let cell = Cell::new(pending::<()>());
    let mut handle = cell.handle::<()>();
    let waker = Waker::from(counts.clone());
    assert!(Pin::new(&mut handle).poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(std::sync::Arc::strong_count(&counts), 3);
    assert!(poll(&mut handle).is_pending());
    assert_eq!(std::sync::Arc::strong_count(&counts), 2);
    assert!(Pin::new(&mut handle).poll(&mut Context::from_waker(&waker)).is_pending());
    drop((handle, waker));
    assert_eq!(std::sync::Arc::strong_count(&counts), 1);
    assert!(!cell.header.get().state.cancel() && cell.turn());
}

#[test]
fn an_output_without_a_handle_is_dropped() {
    let kept = value();
    let cell = Cell::new(ready(kept.clone()));
    drop(cell.handle::<Rc<u32>>());
    assert!(cell.turn());
    assert_eq!(Rc::strong_count(&kept), 1);
    // By the handle, if the future has ended.
    let cell = Cell::new(ready(kept.clone()));
    assert!(cell.turn());
    assert_eq!(Rc::strong_count(&kept), 2);
    drop(cell.handle::<Rc<u32>>());
    assert_eq!(Rc::strong_count(&kept), 1);
}

#[test]
fn a_future_that_panics_is_dropped() {
    let kept = value();
    let theirs = kept.clone();
    let cell = Cell::new(async move {
        let _theirs = theirs;
        resume_unwind(Box::new(5u32))
    });
    assert!(cell.turn());
    assert_eq!(Rc::strong_count(&kept), 1);
    let Poll::Ready(output) = poll(&mut cell.handle::<()>()) else { panic!("it has ended") };
    assert_eq!(payload(output), 5);
}

#[test]
fn a_panic_in_a_drop_takes_the_place_of_the_output() {
    // Of the future, when it is ready and when it is cancelled.
    for cancels in [false, true] {
        let (kept, loud) = (value(), Loud(3));
        let output = kept.clone();
        let cell = Cell::new(async move {
            later(()).await;
            std::mem::forget(loud);
            output
        });
        let mut handle = cell.handle::<Rc<u32>>();
        assert!(!cell.turn());
        let _ = cell.header.get().state.wake(false);
        if cancels {
            let _ = cell.header.get().state.cancel();
        }
        assert!(cell.turn());
        let Poll::Ready(answer) = poll(&mut handle) else { panic!("it has ended") };
        match cancels {
            true => assert_eq!(payload(answer), 3),
            false => assert_eq!(*answer.unwrap(), 7),
        }
        assert_eq!(Rc::strong_count(&kept), 1);
    }
    // Of a future that is ready.
    struct Ready(#[expect(dead_code)] Loud, Option<Rc<u32>>);
    impl Future for Ready {
        type Output = Rc<u32>;
        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Rc<u32>> {
            Poll::Ready(self.1.take().unwrap())
        }
    }
    let kept = value();
    let cell = Cell::new(Ready(Loud(4), Some(kept.clone())));
    assert!(cell.turn());
    let Poll::Ready(answer) = poll(&mut cell.handle::<Rc<u32>>()) else { panic!("it has ended") };
    assert_eq!((payload(answer), Rc::strong_count(&kept)), (4, 1));
    // Of an output that no handle awaits.
    let cell = Cell::new(async { Loud(6) });
    drop(cell.handle::<Loud>());
    assert!(cell.turn());
    // Of both: the future's counts.
    struct Both(#[expect(dead_code)] Loud);
    impl Future for Both {
        type Output = Loud;
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Loud> {
            Poll::Ready(Loud(2))
        }
    }
    let cell = Cell::new(Both(Loud(1)));
    assert!(cell.turn());
    let Poll::Ready(answer) = poll(&mut cell.handle::<Loud>()) else { panic!("it has ended") };
    assert_eq!(payload(answer), 1);
}

#[test]
fn boxed_futures_yield_what_is_in_the_box() {
    let kept = value();
    let cell = Cell::boxed(later((kept.clone(), [1u8; 5000])));
    let mut handle = cell.handle::<(Rc<u32>, [u8; 5000])>();
    assert!(!cell.turn());
    assert!(cell.header.get().state.wake(false) && cell.turn());
    let Poll::Ready(output) = poll(&mut handle) else { panic!("it has ended") };
    let (shared, bytes) = output.ok().unwrap();
    assert_eq!((*shared, bytes[4999], Rc::strong_count(&kept)), (7, 1, 2));
    drop(shared);
    // Cancelled, and without a handle.
    let cell = Cell::boxed(later(kept.clone()));
    let _ = cell.header.get().state.cancel();
    drop(cell.handle::<Rc<u32>>());
    assert!(cell.turn());
    assert_eq!(Rc::strong_count(&kept), 1);
}

#[test]
fn types_of_no_size_and_of_large_alignment_fit() {
    #[derive(Debug, PartialEq)]
    #[repr(align(32))]
    struct Aligned(u8);
    let cell = Cell::new(ready(Aligned(3)));
    assert!(cell.turn());
    let Poll::Ready(output) = poll(&mut cell.handle::<Aligned>()) else { panic!("it has ended") };
    assert_eq!(output.unwrap(), Aligned(3));

    #[repr(align(256))]
    struct TooAligned;
    assert_eq!(class_of::<std::future::Ready<TooAligned>>(), None);
    let cell = Cell::boxed(later(TooAligned));
    assert!(!cell.turn() && cell.header.get().state.wake(false) && cell.turn());
    let Poll::Ready(output) = poll(&mut cell.handle::<TooAligned>()) else {
        panic!("it has ended")
    };
    assert_eq!(&raw const *output.as_ref().ok().unwrap() as usize % 256, 0);

    struct Nothing;
    impl Future for Nothing {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            Poll::Ready(())
        }
    }
    let cell = Cell::new(Nothing);
    assert!(cell.turn());
    assert!(matches!(poll(&mut cell.handle::<()>()), Poll::Ready(Ok(()))));
}
