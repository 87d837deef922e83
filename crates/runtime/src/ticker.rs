//! The thread that looks, each millisecond, for what no worker sees.
//!
//! - A worker *sleeps in the kernel* while something waits for its CPU: its queue is taken from it.
//! - A *preemption is overdue*: the task was found in the C library and computes on, or an alarm was lost.
//! - *Sockets and timers* that nobody has looked at: their tasks are queued, so that any worker can take them. This bounds
//!   how late they are under a policy without a quantum, whose workers look every 61 direct switches only.
//!
//! Quanta end by each worker's own [alarm](crate::alarm). Where a task computes alone its alarm is off, and this thread sleeps in the
//! poll in its stead. It sleeps for good while every worker does.

use crate::held_up::HeldUp;
use crate::sched::Scheduler;
use crate::worker::Remote;
use heddle_core::Ns;
use heddle_sys::{clock, thread};
use std::sync::atomic::Ordering;

/// The time between two looks, and for how long a worker must be off the CPU in the kernel before its queue is taken.
const PERIOD: Ns = Ns::from_ms(1);

/// Looks that find every worker asleep after which the ticker sleeps until it is woken.
const IDLE_LOOKS: u32 = 5;

/// What the ticker saw of one CPU.
#[derive(Clone, Copy, Default)]
struct Watch {
    generation: u64,
    at: Ns,
    /// Its worker's CPU time then.
    cpu_time: Ns,
}

/// What the ticker remembers from one look to the next: there before it starts, for it allocates nothing.
pub(crate) struct Notes {
    watches: Box<[Watch]>,
    held_up: HeldUp,
}

impl Notes {
    /// For so many CPUs.
    pub(crate) fn new(cpus: usize) -> Notes {
        Notes { watches: vec![Watch::default(); cpus].into(), held_up: HeldUp::default() }
    }
}

/// Runs until the runtime stops.
pub(crate) fn run(sched: &'static dyn Scheduler) {
    thread::make_punctual();
    let core = sched.core();
    let mut notes = core.notes.lock().unwrap_or_else(|e| e.into_inner());
    let (mut idle_looks, mut data) = (0, false);
    while !(core.is_stopping() && (core.is_over() || sched.is_drained())) {
        let mut busy = false;
        for cpu in 0..core.cpus.len() {
            if let Some(worker) = busy_server(sched, cpu) {
                busy = true;
                look(sched, &mut notes, cpu, worker);
            }
        }
        take_inputs(sched);
        idle_looks = if busy { 0 } else { idle_looks + 1 };
        if idle_looks > IDLE_LOOKS {
            core.park_ticker();
            idle_looks = 0;
        }
        data = sleep(sched, !data);
    }
}

/// The worker that serves `cpu`, if it runs a task.
fn busy_server(sched: &'static dyn Scheduler, cpu: usize) -> Option<&'static Remote> {
    let worker = sched.core().cpus[cpu].server()?;
    (!worker.current.load(Ordering::Relaxed).is_null()).then_some(worker)
}

/// Sleeps until the next look is due. Where a task computes alone and `in_poll`, sockets and timers end the sleep; whether
/// sockets did.
fn sleep(sched: &'static dyn Scheduler, in_poll: bool) -> bool {
    let core = sched.core();
    let computes_alone = |cpu| {
        let worker = busy_server(sched, cpu);
        worker.is_some_and(|worker| worker.over.load(Ordering::Relaxed))
    };
    let watched = in_poll && core.has_inputs() && (0..core.cpus.len()).any(computes_alone);
    if !watched {
        thread::sleep(PERIOD);
        return false;
    }
    core.inputs_watched.store(true, Ordering::Relaxed);
    let time = (core.timers.next() - clock::now()).min(PERIOD);
    let data = if core.poller.is_active() {
        core.poller.await_ready(time)
    } else {
        thread::sleep(time);
        false
    };
    core.inputs_watched.store(false, Ordering::Relaxed);
    data
}

/// Looks at one busy worker, unless it has done so within a period.
fn look(sched: &'static dyn Scheduler, notes: &mut Notes, cpu: usize, worker: &'static Remote) {
    let watch = &mut notes.watches[cpu];
    let now = clock::now();
    if now - watch.at < PERIOD {
        return;
    }
    let tid = worker.tid.load(Ordering::Relaxed);
    let generation = worker.generation.load(Ordering::Relaxed);
    let seen = Watch { generation, at: now, cpu_time: clock::cpu_time_of(tid) };
    let before = std::mem::replace(watch, seen);
    if before.generation != generation {
        return;
    }
    // First this: a signal would wake one that sleeps.
    if was_still(before, seen) && is_work_waiting(sched, cpu) && thread::is_asleep(tid) {
        if take_over(sched, worker, generation) {
            notes.held_up.lost(tid);
        }
    } else if is_unheard(sched, cpu, worker) {
        sched.core().ticker.reminders.add(1);
        sched.core().mechanism.interrupt(worker);
    }
}

/// The worker was on the CPU for less than a tenth of the time.
fn was_still(before: Watch, seen: Watch) -> bool {
    seen.cpu_time - before.cpu_time < Ns((seen.at - before.at).0 / 10)
}

/// Something other than its task waits for the CPU.
fn is_work_waiting(sched: &'static dyn Scheduler, cpu: usize) -> bool {
    let core = sched.core();
    sched.is_work_waiting(cpu) || core.timers.next() <= clock::now() || core.poller.is_ready()
}

/// Takes the CPU from a worker that sleeps in the kernel, if it still runs its task number `generation`; whether it did.
fn take_over(sched: &'static dyn Scheduler, worker: &'static Remote, generation: u64) -> bool {
    // Before it can come back.
    worker.alarm.recall();
    if !sched.detach(worker, generation) {
        worker.alarm.recalled();
        return false;
    }
    worker.alarm.off();
    sched.core().ticker.takeovers.add(1);
    sched.core().hand_over(worker);
    true
}

/// The worker was asked to preempt and could not, or nobody asks it although its task has had its quantum and another waits.
///
/// An alarm whose cause has gone is not repeated: what computes alone within the C library would be interrupted each period.
fn is_unheard(sched: &'static dyn Scheduler, cpu: usize, worker: &Remote) -> bool {
    if worker.is_pending() {
        let is_wanted = worker.asked.load(Ordering::Relaxed) || sched.is_work_waiting(cpu);
        return worker.is_overdue() && is_wanted;
    }
    let quantum = sched.core().quantum;
    quantum.is_some_and(|quantum| worker.ran() >= quantum)
        && !worker.alarm.is_set()
        && sched.is_work_waiting(cpu)
}

/// Queues the tasks whose data or time has come, where nobody else has.
fn take_inputs(sched: &'static dyn Scheduler) {
    let core = sched.core();
    if core.has_dispatcher || core.timers.next() > clock::now() && !core.poller.is_ready() {
        return;
    }
    core.take_inputs(Some(Ns::ZERO));
    // A worker that wanted to poll meanwhile is parked, and counts on us to go on polling.
    core.unpark_any();
}
