//! Added by Heddle: the thread-local state of a poll outside of tokio's workers.

#![allow(dead_code)]

use std::cell::Cell;

thread_local! {
    /// Whether the calling thread polls a task for Heddle.
    static IS_POLLING: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread polls a task for Heddle, and may not wait for that runtime's end.
pub(crate) fn is_polling() -> bool {
    IS_POLLING.try_with(Cell::get).unwrap_or(false)
}

fn with_polling<R>(value: bool, f: impl FnOnce() -> R) -> R {
    struct Reset(bool);

    impl Drop for Reset {
        fn drop(&mut self) {
            let _ = IS_POLLING.try_with(|cell| cell.set(self.0));
        }
    }

    let _reset = Reset(IS_POLLING.try_with(|cell| cell.replace(value)).unwrap_or(false));
    f()
}

cfg_rt_multi_thread! {
    use super::CONTEXT;
    use crate::loom::sync::Arc;
    use crate::runtime::scheduler::{self, multi_thread};
    use crate::task::coop;

    use std::{mem, ptr};

    /// Calls `f`, which may block (`block_in_place`): without a budget, as on tokio's workers.
    pub(crate) fn outside_poll<R>(f: impl FnOnce() -> R) -> R {
        struct Reset(coop::Budget);

        impl Drop for Reset {
            fn drop(&mut self) {
                coop::set(self.0);
            }
        }

        if !is_polling() {
            return f();
        }
        let _reset = Reset(coop::stop());
        with_polling(false, f)
    }

    /// Calls `f` with `handle` as the current runtime.
    ///
    /// A worker of tokio's counts one reference of its runtime for all its polls. To count one for each poll would
    /// make every thread write to the same place, so this one is borrowed.
    pub(crate) fn poll_with<R>(handle: &Arc<multi_thread::Handle>, f: impl FnOnce() -> R) -> R {
        with_polling(true, || {
            let _borrowed = Borrowed::enter(handle);
            f()
        })
    }

    /// The current runtime is `handle`, without a reference of its own.
    struct Borrowed<'a> {
        handle: &'a Arc<multi_thread::Handle>,
        previous: Option<scheduler::Handle>,
        depth: usize,
    }

    impl<'a> Borrowed<'a> {
        fn enter(handle: &'a Arc<multi_thread::Handle>) -> Option<Borrowed<'a>> {
            CONTEXT.try_with(|context| {
                // SAFETY: `drop` forgets this copy, or counts it.
                let copy = scheduler::Handle::MultiThread(unsafe { ptr::read(handle) });
                let previous = context.current.handle.borrow_mut().replace(copy);
                let depth = context.current.depth.get();
                context.current.depth.set(depth + 1);
                Borrowed { handle, previous, depth }
            })
            .ok()
        }
    }

    impl Drop for Borrowed<'_> {
        fn drop(&mut self) {
            let _ = CONTEXT.try_with(|context| {
                let depth = context.current.depth.replace(self.depth);
                let current =
                    mem::replace(&mut *context.current.handle.borrow_mut(), self.previous.take());
                if depth == self.depth + 1 {
                    mem::forget(current);
                } else {
                    // The poll has left a guard of `Handle::enter` behind. The copy is in the guard, and may be dropped
                    // there; what was current is the guard's, and counted.
                    mem::forget(self.handle.clone());
                    drop(current);
                }
            });
        }
    }
}
