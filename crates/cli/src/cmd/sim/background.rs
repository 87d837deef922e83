//! Long work in a thread, while the main thread watches for Ctrl-C.

use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use heddle_metrics::Progress;
use heddle_sim::SimError;
use heddle_sim::sweep::Pool;

use crate::exit::Usage;

/// Returns the result of `work`, or `None` if Ctrl-C came first: the work then ends with the process, which is
/// safe since a simulation has no effects outside it.
pub fn unless_interrupted<T: Send + 'static>(
    stop: &AtomicBool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (send, receive) = mpsc::channel();
    // Sending fails only if the main thread no longer waits.
    let worker = thread::spawn(move || drop(send.send(work())));
    loop {
        match receive.recv_timeout(Duration::from_millis(20)) {
            Ok(value) => return Some(value),
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => return None,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => match worker.join() {
                Err(payload) => panic::resume_unwind(payload),
                Ok(()) => unreachable!("the worker sends before it ends"),
            },
        }
    }
}

/// Simulates with progress on standard error: `work` gets a pool that reports its runs. Returns `None` if
/// Ctrl-C came first.
///
/// # Errors
/// A bad scenario is wrong usage.
pub fn simulate<T: Send + 'static>(
    title: &str,
    steps: u64,
    stop: &Arc<AtomicBool>,
    work: impl FnOnce(&Pool<'_>) -> Result<T, SimError> + Send + 'static,
) -> anyhow::Result<Option<T>> {
    let progress = Arc::new(Mutex::new(Progress::new(title, steps)));
    let (shown, flag) = (Arc::clone(&progress), Arc::clone(stop));
    let done = unless_interrupted(stop, move || {
        let report = |step: &str| {
            shown.lock().expect("no thread panics with it").step(step);
            !flag.load(Ordering::Relaxed)
        };
        work(&Pool::new(&report))
    });
    match done {
        Some(Ok(value)) => {
            if let Ok(progress) = Arc::try_unwrap(progress) {
                progress.into_inner().expect("no thread panicked with it").finish("simulated");
            }
            Ok(Some(value))
        }
        Some(Err(SimError::Interrupted)) | None => Ok(None),
        Some(Err(error)) => Err(Usage(error.to_string()).into()),
    }
}
