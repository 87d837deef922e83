//! The runtime of the caller: of the calling task, or the process-wide one in an ordinary thread.

use crate::config::RuntimeBuilder;
use crate::engine::{Engine, WeakRuntime, engine_of};
use crate::poller::Registration;
use crate::preempt::NoPreempt;
use crate::runtime::{Runtime, stats_of};
use crate::stats::Stats;
use crate::task::{Scheduler, Task};
use crate::worker::Worker;
use heddle_netstack::net::Net;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};

/// Returns the counters of the calling task's runtime, or of the process-wide one in an ordinary thread.
///
/// # Errors
/// If there is no runtime and none can be started.
pub fn stats() -> io::Result<Stats> {
    engine().map(stats_of)
}

/// Returns the scheduler of the calling task, or the process-wide one, started at first use.
#[inline]
pub(crate) fn scheduler() -> io::Result<&'static dyn Scheduler> {
    match Task::current() {
        Some(task) => Ok(task.sched()),
        None => Ok(process_wide()?),
    }
}

/// Returns the runtime of the calling task, or the process-wide one, started at first use.
fn engine() -> io::Result<&'static dyn Engine> {
    match Task::current() {
        Some(task) => Ok(engine_of(task.sched())),
        None => process_wide(),
    }
}

pub(crate) fn process_wide() -> io::Result<&'static dyn Engine> {
    process_wide_by(RuntimeBuilder::new())
}

/// The process-wide runtime, once it runs.
pub(crate) type Global = MutexGuard<'static, Option<&'static Runtime>>;

/// Takes the lock under which the process-wide runtime is started.
pub(crate) fn lock() -> Global {
    static GLOBAL: Mutex<Option<&'static Runtime>> = Mutex::new(None);
    GLOBAL.lock().unwrap_or_else(|e| e.into_inner())
}

/// Returns the process-wide runtime; if it does not run, starts it by `builder`.
pub(crate) fn process_wide_by(builder: RuntimeBuilder) -> io::Result<&'static dyn Engine> {
    let mut global = lock();
    if let Some(runtime) = *global {
        return Ok(runtime.engine);
    }
    let runtime = builder.build().map_err(io::Error::other)?;
    let runtime: &'static Runtime = Box::leak(Box::new(runtime));
    *global = Some(runtime);
    Ok(runtime.engine)
}

/// Returns the runtime of the calling task, or the process-wide one, by a handle that may outlive it. The runtime
/// exists for as long as the caller does not wait.
pub(crate) fn weak() -> io::Result<WeakRuntime> {
    engine().map(WeakRuntime::new)
}

/// Returns the own network of the calling task's runtime, or of the process-wide one, if it has one.
pub(crate) fn net() -> io::Result<Option<Arc<Net>>> {
    Ok(engine()?.core().inputs.lanes().map(|lanes| lanes.net().clone()))
}

/// Returns whether calls on the lanes of `net` are expected soon after the caller's: other tasks wait for its CPU, and
/// its worker's loop, which has frames sent that wait in vain, is of the same runtime. Preemption is off.
pub(crate) fn are_more_expected(net: &Arc<Net>) -> bool {
    let Some(worker) = Worker::here() else { return false };
    let engine = engine_of(worker.liveness.scheduler());
    let has_lanes = || engine.core().inputs.lanes().is_some_and(|own| Arc::ptr_eq(own.net(), net));
    engine.is_work_waiting(worker.cpu()) && has_lanes()
}

/// Registers a non-blocking descriptor with the calling task's runtime; without one, only lanes report.
pub(crate) fn register(fd: Option<BorrowedFd<'_>>) -> io::Result<(Registration, WeakRuntime)> {
    let engine = engine()?;
    let Some(fd) = fd else {
        return Ok((Registration::unpolled()?, WeakRuntime::new(engine)));
    };
    let registration = engine.core().inputs.poller.add(fd)?;
    let _guard = NoPreempt::new();
    engine.core().source_is_new();
    Ok((registration, WeakRuntime::new(engine)))
}
