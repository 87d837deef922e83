//! Calls that block in the kernel, from async tasks.

use super::JoinHandle;
use crate::sync::Semaphore;

/// How many calls block at a time, each on a kernel thread, as with tokio's default.
const MAX_BLOCKING: usize = 512;

/// Runs `f`, which may block in the kernel, beside the runtime's workers, and returns a handle to await its value. At
/// most 512 such calls run at a time in the process; others wait.
///
/// A call that has begun cannot be aborted. In a poll, [`crate::blocking()`] does the same in place.
///
/// ```
/// # let runtime = heddle_rt::RuntimeBuilder::new().workers(1).build()?;
/// # runtime.block_on(async {
/// let text = heddle_rt::futures::spawn_blocking(|| std::fs::read_to_string("/proc/self/comm"));
/// assert!(text.await.unwrap().is_ok());
/// # });
/// # Ok::<(), heddle_rt::ConfigError>(())
/// ```
///
/// # Panics
/// If the system has no memory.
pub fn spawn_blocking<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    static PERMITS: Semaphore = Semaphore::new(MAX_BLOCKING);
    super::spawn(async {
        let _permit = PERMITS.acquire();
        crate::blocking(f)
    })
}
