//! The kernel threads of a runtime.

use crate::sched::Scheduler;
use crate::worker::Worker;
use heddle_sys::{futex, signal, thread};
use std::io;
use std::sync::atomic::Ordering;

/// Starts a worker for the CPU with index `cpu`.
///
/// # Errors
/// The system's: no thread to be had.
pub(crate) fn start_worker(sched: &'static dyn Scheduler, cpu: usize) -> io::Result<()> {
    let core = sched.core();
    let mut workers = core.workers.lock().unwrap_or_else(|e| e.into_inner());
    let number = workers.len();
    let worker = Worker::leak(sched, cpu as u32, number as u64);
    // Before it runs: a wake in between must find it.
    core.attach(worker);
    std::thread::Builder::new()
        .name(format!("heddle-{number}"))
        .spawn(move || run(sched, worker))?;
    core.threads_started.fetch_add(1, Ordering::Relaxed);
    workers.push(worker);
    Ok(())
}

/// A worker's life: it serves a CPU until it is detached, then waits for another.
fn run(sched: &'static dyn Scheduler, worker: &'static Worker) {
    let core = sched.core();
    worker.enter();
    signal::unblock(libc::SIGURG);
    while !core.is_stopping() {
        if core.pin {
            // The CPU was there when the runtime started; if it went away, anywhere is better than nowhere.
            let _ = thread::pin(&[core.topology[worker.cpu()].os_id]);
        }
        sched.serve(worker);
        wait_for_cpu(sched, worker);
    }
    worker.exit();
    core.ended.fetch_add(1, Ordering::AcqRel);
    futex::wake(&core.ended, u32::MAX >> 1);
}

fn wait_for_cpu(sched: &'static dyn Scheduler, worker: &'static Worker) {
    let core = sched.core();
    let mut spares = core.spares.lock().unwrap_or_else(|e| e.into_inner());
    if core.is_stopping() {
        return;
    }
    worker.spare_word.store(0, Ordering::Relaxed);
    spares.push(worker);
    drop(spares);
    while worker.spare_word.load(Ordering::Acquire) == 0 {
        futex::wait(&worker.spare_word, 0, None);
    }
}

/// Starts the ticker of a runtime.
///
/// # Errors
/// The system's: no thread to be had.
pub(crate) fn start_ticker(
    sched: &'static dyn Scheduler,
    quantum: Option<heddle_core::Ns>,
) -> io::Result<()> {
    let run = move || crate::ticker::run(sched, quantum);
    std::thread::Builder::new().name("heddle-ticker".into()).spawn(run)?;
    sched.core().threads_started.fetch_add(1, Ordering::Relaxed);
    Ok(())
}
