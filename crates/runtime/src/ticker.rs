//! The thread that checks, each millisecond, for what no worker sees.
//!
//! - A worker *sleeps in the kernel* while something waits for its CPU: the ticker takes its queue away.
//! - A *preemption is overdue*: the task was found in the C library and computes on, or an alarm was lost.
//! - *Sockets and timers* have not been polled by any worker: their tasks are queued, so any worker can take them. This
//!   bounds their delay under a policy without a quantum, whose workers poll only every 61 direct switches.
//!
//! Each worker's own [alarm](crate::alarm) ends quanta. If a task computes alone, its alarm is off, and if it has a
//! long turn, its alarm is late: this thread sleeps in the poll in its stead. It sleeps indefinitely while every worker
//! does.

use crate::engine::Engine;
use crate::take_over;
use crate::threads;
use crate::watches::{Watch, Watches};
use crate::worker::{self, Remote};
use heddle_core::Ns;
use heddle_share::{Thread, Watched};
use heddle_sys::{clock, futex, thread};
use std::io;
use std::sync::atomic::Ordering;

/// Time between two checks, and how long a worker must be off the CPU in the kernel before its queue is taken.
const PERIOD: Ns = Ns::from_ms(1);

/// How long it watches sockets and timers for a worker that computes: what arrives ends a long turn, and the next one
/// may begin soon.
const WATCH: Ns = Ns::from_ms(4);

/// Number of checks that find every worker asleep before the ticker sleeps until it is woken.
const IDLE_LOOKS: u32 = 5;

/// Starts the ticker of a runtime.
///
/// # Errors
/// The system's, if it cannot create a thread.
pub(crate) fn start(engine: &'static dyn Engine) -> io::Result<()> {
    let core = engine.core();
    threads::start(engine, core.thread_name("tick"), move || run(engine))?;
    // As an ordinary thread it might never run beside the real-time workers that it must interrupt.
    while core.settings.share.is_some() && core.ticker_runs.load(Ordering::Acquire) == 0 {
        futex::wait(&core.ticker_runs, 0, None);
    }
    Ok(())
}

/// Runs until the runtime stops.
fn run(engine: &'static dyn Engine) {
    thread::make_punctual();
    worker::help(engine.liveness());
    let core = engine.core();
    if let Some(share) = &core.settings.share {
        share.member().adopt_thread(Thread::Helper);
    }
    core.ticker_runs.store(1, Ordering::Release);
    futex::wake(&core.ticker_runs, 1);
    let mut watches = core.watches.lock().unwrap_or_else(|e| e.into_inner());
    let (mut idle_looks, mut data, mut watch_until) = (0, false, Ns::ZERO);
    while !(core.is_stopping() && (core.is_over() || engine.is_drained())) {
        let mut busy = false;
        for cpu in 0..core.cpus.len() {
            if let Some(worker) = busy_server(engine, cpu) {
                busy = true;
                look(engine, &mut watches, cpu, worker);
            }
            busy |= watch_share(engine, cpu);
        }
        take_inputs(engine);
        idle_looks = if busy { 0 } else { idle_looks + 1 };
        if idle_looks > IDLE_LOOKS {
            core.park_ticker();
            idle_looks = 0;
        }
        if is_watch_wanted(engine) {
            watch_until = clock::now() + WATCH;
        }
        data = sleep(engine, clock::now() < watch_until, data);
    }
}

/// Sees to `cpu` if it is shared: interrupts its worker if that must make way. Returns whether the worker has the CPU
/// or wants it.
fn watch_share(engine: &'static dyn Engine, cpu: usize) -> bool {
    let core = engine.core();
    let Some(share) = &core.settings.share else { return false };
    let watched = share.member().watch(cpu);
    if watched == Watched::MakeWay
        && let Some(worker) = core.cpus[cpu].server()
    {
        core.settings.mechanism.send(worker);
    }
    watched != Watched::Idle
}

/// Returns the worker that serves `cpu`, if it runs a task.
fn busy_server(engine: &'static dyn Engine, cpu: usize) -> Option<&'static Remote> {
    let worker = engine.core().cpus[cpu].server()?;
    (!worker.current.load(Ordering::Relaxed).is_null()).then_some(worker)
}

/// Sleeps until the next check is due; while `watch`, sockets and timers end the sleep. Returns whether sockets did. If
/// they ended the last one (`data`), what arrives now waits for a quantum first: the ticker must not run all the time.
fn sleep(engine: &'static dyn Engine, watch: bool, data: bool) -> bool {
    let core = engine.core();
    if !watch || !core.inputs.exist() {
        thread::sleep(PERIOD);
        return false;
    }
    core.inputs.while_watched(|| {
        if data {
            thread::sleep(core.settings.quantum.unwrap_or(PERIOD).min(PERIOD));
        }
        let time = (core.inputs.next_timer() - clock::now()).min(PERIOD);
        if core.inputs.poller.is_active() {
            return core.inputs.await_ready(time);
        }
        thread::sleep(time);
        false
    })
}

/// Returns whether a worker computes without looking at sockets and timers: alone, or in a long turn.
fn is_watch_wanted(engine: &'static dyn Engine) -> bool {
    (0..engine.core().cpus.len()).any(|cpu| {
        let worker = busy_server(engine, cpu);
        worker.is_some_and(|w| w.over.load(Ordering::Relaxed) || w.alarm.is_late())
    })
}

/// Checks one busy worker, unless that was done within the last period.
fn look(engine: &'static dyn Engine, watches: &mut Watches, cpu: usize, worker: &'static Remote) {
    let watch = &mut watches.cpus[cpu];
    let now = clock::now();
    if now - watch.at < PERIOD {
        return;
    }
    let tid = worker.tid.load(Ordering::Relaxed);
    let generation = worker.generation.load(Ordering::Relaxed);
    let seen = Watch { generation, at: now, since: now, cpu_time: clock::cpu_time_of(tid) };
    let before = std::mem::replace(watch, seen);
    if before.generation != generation {
        return;
    }
    watch.since = before.since;
    // Check this first: a signal would wake a worker that sleeps.
    if was_still(before, seen) && is_work_waiting(engine, cpu) && thread::is_asleep(tid) {
        if take_over::from_sleeper(engine, worker, generation) {
            watches.held_up.lost(tid);
        }
    } else if is_unheard(engine, cpu, worker) {
        engine.core().telemetry.others().reminders.add(1);
        engine.core().settings.mechanism.interrupt(worker);
    } else if has_had_its_slice(engine, now - before.since) && engine.is_work_waiting(cpu) {
        engine.core().settings.mechanism.send(worker);
    }
}

/// Returns whether a task that has run for this long must give way to others under a policy without a quantum.
fn has_had_its_slice(engine: &'static dyn Engine, ran: Ns) -> bool {
    engine.core().settings.slice.is_some_and(|slice| ran >= slice)
}

/// Returns whether the worker was on the CPU for less than a tenth of the time.
fn was_still(before: Watch, seen: Watch) -> bool {
    seen.cpu_time - before.cpu_time < Ns((seen.at - before.at).0 / 10)
}

/// Returns whether something other than its own task waits for the CPU.
fn is_work_waiting(engine: &'static dyn Engine, cpu: usize) -> bool {
    let core = engine.core();
    engine.is_work_waiting(cpu) || core.inputs.has_due_timer() || core.inputs.is_ready()
}

/// Returns whether the worker was asked to preempt and could not, or nothing asks it although its task has had its
/// quantum and another waits.
///
/// An alarm whose cause has gone is not repeated: a task that computes alone within the C library would be interrupted
/// each period.
fn is_unheard(engine: &'static dyn Engine, cpu: usize, worker: &Remote) -> bool {
    if worker.is_pending() {
        let is_wanted = worker.asked.load(Ordering::Relaxed) || engine.is_work_waiting(cpu);
        return worker.is_overdue() && is_wanted;
    }
    let quantum = engine.core().settings.quantum;
    quantum.is_some_and(|quantum| worker.ran() >= quantum)
        && !worker.alarm.is_set()
        && engine.is_work_waiting(cpu)
}

/// Queues the tasks whose data has arrived or timer has expired, if no worker has.
fn take_inputs(engine: &'static dyn Engine) {
    let core = engine.core();
    core.inputs.send_waiting();
    if core.settings.has_dispatcher || !core.inputs.has_due_timer() && !core.inputs.is_ready() {
        return;
    }
    core.inputs.take_all();
    // A worker that wanted to poll meanwhile is parked, and relies on us to continue polling.
    core.unpark_any();
}
