//! The kernel threads of a runtime.
//!
//! Threads that run no task never allocate or free memory, from their start on; nor does the thread that starts them.
//! Otherwise a task preempted while it holds the allocator's lock would keep them from ever running it again. The
//! memory they need is mapped ([`kernel_thread`], [`Worker::create`]), exists since the runtime started, or is a link
//! in the objects they work on. Only the last to leave a runtime frees memory: the runtime's own.

use crate::core_state::{Core, Placed};
use crate::engine::Engine;
use crate::kernel_thread::{self, Name};
use crate::preempt;
use crate::worker::{Owner, Remote, Worker};
use heddle_core::{Model, Ns};
use heddle_share::Thread;
use heddle_sys::futex;
use std::io;
use std::sync::atomic::Ordering;

/// Starts a worker for the CPU with index `cpu`.
///
/// # Errors
/// The system's, if it cannot create a thread.
pub(crate) fn start_worker(engine: &'static dyn Engine, cpu: usize) -> io::Result<()> {
    let core = engine.core();
    let number = core.lifecycle.started();
    let owner = match core.servers.take_retired(cpu) {
        Some(owner) => owner,
        None => {
            let (owner, worker) = {
                let (seed, shown) = (u64::from(number), core.telemetry.worker());
                Worker::create(core.identity(), core.liveness(), cpu as u32, seed, shown)?
            };
            core.servers.all.add(worker);
            owner
        }
    };
    let worker = owner.remote();
    // Attach it before it runs: a wake in between must find it.
    core.cpus[cpu].attach(worker);
    let started = start(engine, core.thread_name(number), move || run(engine, owner));
    // Its owner is gone with the closure.
    started.inspect_err(|_| core.servers.retired().push(worker))
}

/// Runs a worker's life: it serves a CPU until it is detached, then waits for another.
fn run(engine: &'static dyn Engine, owner: Owner) {
    let core = engine.core();
    let share = core.settings.share.as_ref();
    let (quantum, mechanism) = (core.settings.quantum, core.settings.mechanism);
    let worker = owner.enter(quantum, mechanism.grace(), share.is_some(), |worker| {
        preempt::receive(worker, mechanism, quantum)
    });
    // The ticker starts spares.
    core.promptness.adopt();
    preempt::prepare_worker();
    // Even if the runtime is stopping already: tasks may be queued for it.
    loop {
        // First: on a shared CPU an ordinary thread may never run.
        if let Some(share) = share {
            share.member().adopt_thread(Thread::Worker(worker.cpu()));
        }
        worker.pin(core.settings.topology[worker.cpu()].os_id);
        if let Some(share) = share {
            share.member().enter(worker.cpu());
        }
        engine.serve(worker);
        if let Some(share) = share {
            match worker.is_attached() {
                true => share.member().leave(worker.cpu()),
                false => share.release(worker),
            }
        }
        // It may have left a task in the queue on its way out, and the worker that serves the CPU now may be asleep.
        let placed = Placed { cpu: worker.cpu(), local: false };
        core.unpark_for(placed, Model::PerCpu, true);
        if core.is_stopping() || !wait_for_cpu(engine, worker) {
            break;
        }
    }
    core.servers.retire(worker.exit());
}

/// Puts another worker in charge of the CPU of `worker`, which has been detached.
pub(crate) fn hand_over(engine: &'static dyn Engine, worker: &'static Remote) {
    let (core, cpu) = (engine.core(), worker.cpu());
    if let Some(share) = &core.settings.share {
        share.release(worker);
    }
    let spare = core.servers.spares().pop();
    match spare {
        Some(spare) => attach(core, cpu, spare),
        // No thread is available: better late than never.
        None if start_worker(engine, cpu).is_err() => {
            core.cpus[cpu].attach(worker);
            worker.alarm.recalled();
        }
        None => {}
    }
}

/// Puts a spare in charge of the CPU of `worker`, the caller's, which has it. Returns false if there is no spare.
pub(crate) fn hand_over_to_spare(engine: &'static dyn Engine, worker: &'static Remote) -> bool {
    let core = engine.core();
    let spare = core.servers.spares().pop();
    let Some(spare) = spare else { return false };
    if worker.attached.swap(false, Ordering::AcqRel) {
        worker.alarm.off();
        if let Some(share) = &core.settings.share {
            share.release(worker);
        }
        attach(core, worker.cpu(), spare);
    } else {
        // The ticker was faster.
        core.servers.spares().push(spare);
    }
    true
}

/// Puts a spare, which waits, in charge of `cpu`.
fn attach(core: &Core, cpu: usize, spare: &'static Remote) {
    spare.cpu.store(cpu as u32, Ordering::Relaxed);
    core.cpus[cpu].attach(spare);
    spare.spare_word.store(1, Ordering::Release);
    futex::wake(&spare.spare_word, 1);
}

/// How long a spare waits for a CPU if there are more spares than CPUs.
const SPARE_WAITS: Ns = Ns::from_ms(100);

/// Waits until `worker` has a CPU or the runtime stops. Returns false if the worker is not needed.
fn wait_for_cpu(engine: &'static dyn Engine, worker: &'static Worker) -> bool {
    worker.alarm.off();
    worker.alarm.recalled();
    let core = engine.core();
    let mut spares = core.servers.spares();
    if core.is_stopping() {
        return true;
    }
    worker.spare_word.store(0, Ordering::Relaxed);
    spares.push(worker);
    drop(spares);
    if !worker.is_parent.get() {
        // The newest spare gets a CPU first, so one that waits for long is not needed.
        futex::wait(&worker.spare_word, 0, Some(SPARE_WAITS));
        if core.servers.leave_spares(worker, core.cpus.len()) {
            return false;
        }
    }
    while worker.spare_word.load(Ordering::Acquire) == 0 {
        futex::wait(&worker.spare_word, 0, None);
    }
    true
}

/// Starts a thread, which is a party of the runtime.
///
/// # Errors
/// The system's, if it cannot create a thread.
pub(crate) fn start(
    engine: &'static dyn Engine,
    name: Name,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let core = engine.core();
    let liveness = core.liveness();
    liveness.enter();
    core.lifecycle.thread_starts();
    let started = kernel_thread::spawn(name, move || {
        run();
        let before = core.lifecycle.ending.caller_ends();
        core.lifecycle.thread_ended();
        // This is the last use of the runtime.
        liveness.leave();
        before.join();
    });
    started.inspect_err(|_| {
        core.lifecycle.thread_ended();
        liveness.leave();
    })
}
