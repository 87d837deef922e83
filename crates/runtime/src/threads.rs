//! The kernel threads of a runtime.
//!
//! Those that run no task neither allocate nor free memory, from their start on, nor does who starts them: a task that was
//! preempted with the allocator's lock would keep them from ever running it again. What they need is mapped
//! ([`kernel_thread`], [`Worker::create`]), was there when the runtime started, or is a link in what they work on. Only the last to
//! leave a runtime frees memory, the runtime's own.

use crate::kernel_thread::{self, Name};
use crate::park::Placed;
use crate::sched::{self, Scheduler};
use crate::ticker;
use crate::worker::{Owner, Remote, Worker};
use heddle_core::{Model, Ns};
use heddle_sys::{futex, signal, thread};
use std::io;
use std::sync::atomic::Ordering;

/// Starts a worker for the CPU with index `cpu`.
///
/// # Errors
/// The system's: no thread to be had.
pub(crate) fn start_worker(sched: &'static dyn Scheduler, cpu: usize) -> io::Result<()> {
    let core = sched.core();
    let number = core.started.load(Ordering::Relaxed);
    let owner = match core.take_retired(cpu) {
        Some(owner) => owner,
        None => {
            let (owner, worker) = Worker::create(sched, cpu as u32, u64::from(number))?;
            core.workers.add(worker);
            owner
        }
    };
    let worker = owner.remote();
    // Before it runs: a wake in between must find it.
    core.attach(worker);
    let started = start(sched, core.thread_name(number), move || run(sched, owner));
    // Its owner is gone with the closure.
    started.inspect_err(|_| core.retired().push(worker))
}

/// A worker's life: it serves a CPU until it is detached, then waits for another.
fn run(sched: &'static dyn Scheduler, owner: Owner) {
    let core = sched.core();
    let worker = owner.enter();
    // The ticker starts spares.
    core.promptness.adopt();
    signal::unblock(libc::SIGURG);
    while !core.is_stopping() {
        // The CPU was there when the runtime started; if it went away, anywhere is better than nowhere.
        let _ = thread::pin(&[core.topology[worker.cpu()].os_id]);
        sched.serve(worker);
        // It may have left a task in the queue on its way out, and whoever serves the CPU now may sleep.
        let placed = Placed { cpu: worker.cpu(), local: false };
        core.unpark_for(placed, Model::PerCpu, true);
        if !wait_for_cpu(sched, worker) {
            break;
        }
    }
    core.retire(worker.exit());
}

/// How long a spare waits for a CPU while there are more spares than CPUs.
const SPARE_WAITS: Ns = Ns::from_ms(100);

/// Waits until `worker` has a CPU or the runtime stops; false if it is not needed.
fn wait_for_cpu(sched: &'static dyn Scheduler, worker: &'static Remote) -> bool {
    worker.alarm.off();
    worker.alarm.recalled();
    let core = sched.core();
    let mut spares = core.spares();
    if core.is_stopping() {
        return true;
    }
    worker.spare_word.store(0, Ordering::Relaxed);
    spares.push(worker);
    drop(spares);
    // The last to come is the first to get a CPU: who waits for long is not needed.
    futex::wait(&worker.spare_word, 0, Some(SPARE_WAITS));
    if core.leave_spares(worker) {
        return false;
    }
    while worker.spare_word.load(Ordering::Acquire) == 0 {
        futex::wait(&worker.spare_word, 0, None);
    }
    true
}

/// Starts the ticker of a runtime.
///
/// # Errors
/// The system's: no thread to be had.
pub(crate) fn start_ticker(sched: &'static dyn Scheduler) -> io::Result<()> {
    start(sched, sched.core().thread_name("tick"), move || ticker::run(sched))
}

/// Starts the dispatcher of a runtime on the CPU that the system calls `os_id`.
///
/// # Errors
/// The system's: no thread to be had.
pub(crate) fn start_dispatcher(sched: &'static dyn Scheduler, os_id: u32) -> io::Result<()> {
    start(sched, sched.core().thread_name("hand"), move || {
        let _ = thread::pin(&[os_id]);
        sched::dispatch(sched);
    })
}

/// Starts a thread, which is a party of the runtime.
fn start(
    sched: &'static dyn Scheduler,
    name: Name,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let core = sched.core();
    let liveness = core.liveness();
    liveness.enter();
    core.started.fetch_add(1, Ordering::Relaxed);
    let started = kernel_thread::spawn(name, move || {
        run();
        let before = core.ending.caller_ends();
        core.thread_ended();
        // The last use of the runtime.
        liveness.leave();
        before.join();
    });
    started.inspect_err(|_| {
        core.thread_ended();
        liveness.leave();
    })
}
