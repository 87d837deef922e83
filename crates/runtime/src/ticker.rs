//! The thread that sees quanta end and workers get stuck.
//!
//! It looks at what workers publish (which dispatch they are at, since when) and asks the policy once a task has had its
//! quantum and something else waits for that CPU: a queued task, a due timer or a socket with data. Otherwise it skips,
//! which saves most preemptions (Aspen, section 4.4). It sleeps in between, and for good while every worker sleeps.
//!
//! Tasks that end sections without preemption look for themselves ([`crate::no_preempt`]). While they do, the ticker looks
//! seldom: on a virtual machine, where each of its timers costs the CPU some 30 us, that is most of what preemption costs.

use crate::sched::Scheduler;
use crate::worker::Remote;
use heddle_core::{Ns, Resched};
use heddle_sys::{clock, thread};
use std::sync::atomic::Ordering;

/// How long a worker must be off the CPU in the kernel before its queue is taken, and how often that is checked. As often, a
/// preemption that found its task in the C library is asked for again.
const STUCK: Ns = Ns::from_ms(1);

/// Rounds without work after which the ticker sleeps until it is woken.
const IDLE_ROUNDS: u32 = 5;

/// Quanta between two looks at a CPU whose tasks look for themselves.
const SELDOM: u64 = 16;

/// Quanta until the next look at a task that has had its own while nothing else wanted the CPU. Data ends that wait
/// early; what other workers put into the queue does not.
const SKIPS: u64 = 4;

/// What the ticker knows of one CPU.
#[derive(Default)]
struct Watch {
    generation: u64,
    /// When to look at the quantum again.
    due: Ns,
    /// The quantum is over and nothing wanted the CPU: data makes the task due at once.
    over: bool,
    /// How often tasks there had looked for themselves, and until when that is taken to go on.
    looks: u64,
    seldom_until: Ns,
    /// When the worker was last checked for being stuck, and its CPU time then.
    checked: Ns,
    cpu_time: Ns,
}

/// Runs until the runtime stops. `quantum` is the policy's shortest.
pub(crate) fn run(sched: &'static dyn Scheduler, quantum: Option<Ns>) {
    thread::make_punctual();
    let core = sched.core();
    let mut watches: Vec<Watch> = core.cpus.iter().map(|_| Watch::default()).collect();
    let (mut idle_rounds, mut data) = (0, false);
    while !(core.is_stopping() && (core.is_over() || sched.is_drained())) {
        let now = clock::now();
        let looks = watches.iter_mut().zip(core.cpus.iter().enumerate());
        let next = looks.filter_map(|(watch, (cpu, at))| {
            let worker = at.server()?;
            (!worker.current.load(Ordering::Relaxed).is_null()).then(|| {
                watch.due = if data && watch.over { now } else { watch.due };
                look(sched, watch, cpu, worker, now, quantum)
            })
        });
        let next = next.min();
        idle_rounds = if next.is_some() { 0 } else { idle_rounds + 1 };
        if idle_rounds > IDLE_ROUNDS {
            core.park_ticker();
            idle_rounds = 0;
        }
        let wake_at = next.unwrap_or(now + quantum.unwrap_or(STUCK));
        data = doze(sched, wake_at - clock::now(), !data && watches.iter().any(|w| w.over));
    }
}

/// Sleeps for `time`; with `light`, until data comes if that is sooner: each look in between would cost the task whose
/// CPU it takes some 20 us. Whether data came.
fn doze(sched: &'static dyn Scheduler, time: Ns, light: bool) -> bool {
    if light && sched.core().poller.is_active() {
        return sched.core().poller.await_ready(time);
    }
    thread::sleep(time);
    false
}

/// Looks at one busy worker; when to look again.
fn look(
    sched: &'static dyn Scheduler,
    watch: &mut Watch,
    cpu: usize,
    worker: &'static Remote,
    now: Ns,
    quantum: Option<Ns>,
) -> Ns {
    let generation = worker.generation.load(Ordering::Relaxed);
    if generation != watch.generation {
        let (looks, seldom_until) = (watch.looks, watch.seldom_until);
        *watch = Watch {
            generation,
            looks,
            seldom_until,
            checked: now,
            cpu_time: Ns::MAX,
            ..Watch::default()
        };
    }
    match quantum {
        Some(quantum) => look_at_quantum(sched, watch, cpu, worker, now, quantum),
        None => watch.due = Ns::MAX,
    }
    if now - watch.checked >= STUCK {
        if worker.is_overdue() {
            sched.core().mechanism.send(worker);
        }
        check_stuck(sched, watch, cpu, worker, now);
    }
    watch.due.min(watch.checked + STUCK)
}

/// Sees to the quantum of a busy worker and sets when it is due again.
fn look_at_quantum(
    sched: &'static dyn Scheduler,
    watch: &mut Watch,
    cpu: usize,
    worker: &Remote,
    now: Ns,
    quantum: Ns,
) {
    let looks = worker.looks.get();
    if looks != watch.looks {
        watch.looks = looks;
        watch.seldom_until = now + quantum * (2 * SELDOM);
    }
    let ran = worker.ran();
    if watch.due == Ns::ZERO {
        watch.due = now + (quantum - ran);
    }
    if now < watch.seldom_until && ran < quantum * SELDOM {
        watch.due = watch.due.max(now + quantum * SELDOM - ran);
    }
    if now >= watch.due {
        let again = at_quantum(sched, cpu, worker, ran, quantum);
        watch.over = again.is_none();
        watch.due = now + again.unwrap_or(quantum * SKIPS);
    }
}

/// Something other than its task waits for the CPU.
fn is_work_waiting(sched: &'static dyn Scheduler, cpu: usize) -> bool {
    let core = sched.core();
    sched.is_work_waiting(cpu) || core.timers.next() <= clock::now() || core.poller.is_ready()
}

/// Queues the tasks whose data or time has come. The policy cannot see them before: it would let a task run on, as
/// two-queue does for its long quantum, because nothing new waits.
fn take_inputs(sched: &'static dyn Scheduler) {
    let core = sched.core();
    if core.timers.next() > clock::now() && !core.poller.is_ready() {
        return;
    }
    core.take_inputs(Some(Ns::ZERO));
    // A worker that wanted to poll meanwhile is parked, and counts on us to go on polling.
    core.unpark_any();
}

/// A task has had its quantum; how long until the next look, `None` if nothing else wants the CPU.
fn at_quantum(
    sched: &'static dyn Scheduler,
    cpu: usize,
    worker: &Remote,
    ran: Ns,
    quantum: Ns,
) -> Option<Ns> {
    let stats = &sched.core().ticker;
    take_inputs(sched);
    if !sched.is_work_waiting(cpu) {
        stats.skipped.add(1);
        return None;
    }
    Some(match sched.tick(worker, ran) {
        // The queue is in use: the task is about to go anyway.
        None => quantum,
        Some(Resched::Now) => {
            let before = clock::now();
            sched.core().mechanism.send(worker);
            stats.send_ns.add((clock::now() - before).0);
            stats.sent.add(1);
            // The next look comes when the next task will just have had its quantum: one timer a preemption. If this one
            // found its task in a section that holds preemption off, it is taken at the end of that; if in the C library,
            // it is asked for again then (and each `STUCK`, which matters where the quantum is longer).
            quantum + quantum / 16
        }
        Some(Resched::After(more)) => more,
        Some(Resched::Never) => Ns::from_secs(1),
    })
}

/// Takes the queue of a worker that has not been on the CPU since the last look and sleeps in the kernel, if anything
/// waits for it.
fn check_stuck(
    sched: &'static dyn Scheduler,
    watch: &mut Watch,
    cpu: usize,
    worker: &'static Remote,
    now: Ns,
) {
    let tid = worker.tid.load(Ordering::Relaxed);
    let cpu_time = clock::cpu_time_of(tid);
    let still = cpu_time.0.saturating_sub(watch.cpu_time.0) < (now - watch.checked).0 / 10
        && watch.cpu_time != Ns::MAX;
    watch.checked = now;
    watch.cpu_time = cpu_time;
    if still
        && is_work_waiting(sched, cpu)
        && thread::is_asleep(tid)
        && sched.detach(worker, watch.generation)
    {
        sched.core().ticker.takeovers.add(1);
        sched.core().hand_over(worker);
    }
}
