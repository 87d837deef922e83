//! Added to a copy of tokio by scripts/test-async-suites: with `HEDDLE_SUITE`, what suites run on current-thread
//! runtimes, and the futures of `block_on`, become tasks of multi-thread runtimes, which go to Heddle.
//!
//! Suites are written for `#[tokio::test]`, whose future is polled in place by a current-thread runtime. Left as they
//! are, they would hardly use the scheduler that they are to test.

#![allow(dead_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tasks that Heddle has created.
static TASKS: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| std::env::var_os("HEDDLE_SUITE").is_some())
}

pub(crate) fn count() {
    TASKS.fetch_add(1, Ordering::Relaxed);
}

/// At the end of the process, so that the script can tell tests that use Heddle from others.
#[used]
#[unsafe(link_section = ".fini_array")]
static REPORT: extern "C" fn() = report;

extern "C" fn report() {
    if is_on() {
        eprintln!("heddle-suite: {} tasks", TASKS.load(Ordering::Relaxed));
    }
}

cfg_rt_multi_thread! {
    use crate::runtime::Runtime;
    use crate::runtime::scheduler::MultiThread;

    use std::future::Future;
    use std::mem;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

    /// A future that another thread may poll, though its type does not promise that.
    struct Anywhere(Boxed<'static, ()>);

    // SAFETY: what a test's future owns and is not `Send` belongs to the task alone, which is in one thread at a time.
    // What belongs to a thread instead (a `LocalSet`) checks where it is, and such a test fails.
    unsafe impl Send for Anywhere {}

    impl Future for Anywhere {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            self.0.as_mut().poll(cx)
        }
    }

    /// Runs the future as a task of the runtime, for which the caller waits; propagates its panic.
    #[track_caller]
    pub(crate) fn block_on<F: Future>(runtime: &Runtime, scheduler: &MultiThread, future: F) -> F::Output {
        let mut output = None;
        let place = &mut output;
        let body: Boxed<'_, ()> = Box::pin(async move { *place = Some(future.await) });
        // SAFETY: this function returns after the task has ended, which then has dropped the future; the runtime, whose
        // end would be another way out, is borrowed.
        let body = Anywhere(unsafe { mem::transmute::<Boxed<'_, ()>, Boxed<'static, ()>>(body) });
        // Where the caller may not wait, as inside another runtime, nothing has been spawned.
        let ended = scheduler.block_on(&runtime.handle().inner, async move { runtime.spawn(body).await });
        if let Err(error) = ended {
            std::panic::resume_unwind(error.into_panic());
        }
        output.expect("the task has ended")
    }
}
