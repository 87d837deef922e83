//! Memory of tasks that wait, and the time to create and to drop many.

use super::executor::{Executor, Tasks, Use, start};
use super::threads;
use crate::futures::System;
use heddle_core::Ns;
use heddle_sys::clock::process_cpu_time;
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

/// Bytes of a future's state.
pub(in crate::futures) const STATE: usize = 64;

/// Tasks that are created before the measurement begins.
const WARM_UP: u64 = 1_000;

/// The results.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::futures) struct Memory {
    /// By how much the resident memory grew, in bytes.
    pub(in crate::futures) bytes: u64,
    /// The CPU time to create all tasks, until each waits.
    pub(in crate::futures) spawn_ns: u64,
    /// The CPU time to drop the runtime and with it all tasks; none of threads, which are not dropped.
    pub(in crate::futures) drop_ns: Option<u64>,
}

static POLLED: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Waits forever.
struct Idle([u64; STATE / 8]);

impl Future for Idle {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        black_box(&self.0);
        POLLED.fetch_add(1, Relaxed);
        Poll::Pending
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Relaxed);
    }
}

/// Measures `count` idle tasks on `system`.
pub(super) fn measure(system: System, count: u64) -> Memory {
    if system == System::Threads {
        return idle_threads(count);
    }
    start(system, Ns::from_us(100), Crowd(count))
}

struct Crowd(u64);

impl Use for Crowd {
    type Out = Memory;

    fn with(self, executor: impl Executor) -> Memory {
        executor.run(idle(executor.tasks(), WARM_UP));
        let (before, begin) = (resident(), process_cpu_time());
        executor.run(idle(executor.tasks(), self.0));
        let spawned = process_cpu_time();
        let bytes = resident().saturating_sub(before);
        let begin_of_drop = process_cpu_time();
        drop(executor);
        // Some runtimes drop tasks on their own threads.
        while DROPPED.load(Relaxed) < WARM_UP + self.0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let drop_ns = Some((process_cpu_time() - begin_of_drop).0);
        Memory { bytes, spawn_ns: (spawned - begin).0, drop_ns }
    }
}

/// Creates `count` tasks and returns when each has been polled.
async fn idle<T: Tasks>(tasks: T, count: u64) {
    let wanted = POLLED.load(Relaxed) + count;
    for i in 0..count {
        tasks.detach(Idle([i; STATE / 8]));
    }
    while POLLED.load(Relaxed) < wanted {
        T::yield_now().await;
    }
}

fn idle_threads(count: u64) -> Memory {
    let runtime = threads::runtime(Ns::ZERO);
    let create = |count: u64| {
        let wanted = POLLED.load(Relaxed) + count;
        for i in 0..count {
            heddle::spawn(move || heddle::block_on(Idle([i; STATE / 8])));
        }
        while POLLED.load(Relaxed) < wanted {
            heddle::yield_now();
        }
    };
    runtime.run(|| create(WARM_UP.min(count)));
    let (before, begin) = (resident(), process_cpu_time());
    runtime.run(|| create(count));
    let spawn_ns = (process_cpu_time() - begin).0;
    let bytes = resident().saturating_sub(before);
    // Threads that wait do not end, and the process does.
    std::mem::forget(runtime);
    Memory { bytes, spawn_ns, drop_ns: None }
}

/// The resident memory of this process in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("the second field is the resident set") * procfs::page_size()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_of_64_bytes_and_the_process_has_some_memory() {
        assert_eq!(size_of::<Idle>(), STATE);
        assert!(resident() > 0);
    }
}
