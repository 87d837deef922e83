//! The threads of a server, on any system.

use super::demux::{EventWorker, Remainder, Watched};
use super::open::open;
use super::system::System;
use heddle_core::Ns;
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread waits before it checks whether it should end.
const PATIENCE: Duration = Duration::from_millis(20);

/// The worker threads of a system.
#[derive(Clone, Copy)]
pub(super) struct WorkerThreads<'a> {
    pub(super) system: &'a System,
    pub(super) threads: usize,
}

/// Sets a flag however the scope ends, so that threads end.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl WorkerThreads<'_> {
    /// Lets the threads handle events of `watched` while `meanwhile` runs. Returns its result, and each thread's state.
    ///
    /// # Errors
    /// System errors, and those of `meanwhile`.
    pub(super) fn run<S: Default + Send, T>(
        self,
        watched: &[Watched<'_>],
        handle: &(dyn Fn(&mut S, usize) -> Remainder + Sync),
        meanwhile: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<(T, Vec<S>)> {
        let demux = open(self.system, self.threads, watched)?;
        let (barrier, end) = (Barrier::new(self.threads + 1), AtomicBool::new(false));
        thread::scope(|scope| {
            let be = |number| {
                let (demux, barrier, end) = (&*demux, &barrier, &end);
                move || {
                    self.pin(number);
                    // A service that sleeps ends on time.
                    heddle_sys::thread::set_timer_slack(Some(Ns(1)));
                    let worker = demux.worker(number);
                    barrier.wait();
                    worker.and_then(|worker| serve(worker, handle, end))
                }
            };
            let threads: Vec<_> = (0..self.threads).map(|n| scope.spawn(be(n))).collect();
            barrier.wait();
            let done = {
                let _ending = Ending(&end);
                (0..watched.len()).try_for_each(|n| demux.register(n)).and_then(|()| meanwhile())
            };
            let join = |thread: thread::ScopedJoinHandle<'_, io::Result<S>>| {
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a handler panicked")))
            };
            let said = threads.into_iter().map(join).collect::<io::Result<Vec<S>>>()?;
            Ok((done?, said))
        })
    }

    /// Pins each thread to its own CPU if there are enough: queues take the CPU on which they were created.
    fn pin(self, number: usize) {
        let cpus = heddle_sys::thread::affinity().unwrap_or_default();
        if self.threads <= cpus.len() {
            // Without it the figures are only noisier.
            let _ = heddle_sys::thread::pin(&[cpus[number]]);
        }
    }
}

fn serve<S: Default>(
    mut worker: Box<dyn EventWorker + '_>,
    handle: &(dyn Fn(&mut S, usize) -> Remainder + Sync),
    end: &AtomicBool,
) -> io::Result<S> {
    let mut state = S::default();
    while !end.load(Relaxed) {
        worker.serve(PATIENCE, &mut |number| handle(&mut state, number))?;
    }
    Ok(state)
}

/// Waits for `time`.
///
/// # Errors
/// `stop` was set.
pub(super) fn pass(time: Duration, stop: &AtomicBool) -> io::Result<()> {
    let end = Instant::now() + time;
    loop {
        if stop.load(Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return Ok(()),
            left => thread::sleep(left.min(PATIENCE)),
        }
    }
}
