//! A member's thread: its code, and the calls by which it acts on the kernel.

use super::{Kernel, LOOK_AGAIN, Machine, Sleep, Task};
use crate::handover::{self, Cpu, NO_APP, State, Woken};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, MutexGuard};

/// Yields in a row after which a waiter sleeps.
const YIELDS: u32 = 3;
/// No run is as long.
const END: u64 = 40 * LOOK_AGAIN;

/// How a member's thread ends.
struct Ended;

type Guard<'a> = MutexGuard<'a, Kernel>;

/// A member's thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'a> {
    pub(super) machine: &'a Machine,
    pub(super) me: usize,
}

impl<'a> Member<'a> {
    pub(super) fn run(self) {
        match catch_unwind(AssertUnwindSafe(|| self.live())) {
            Err(payload) if payload.is::<Ended>() => {}
            Err(payload) => {
                let mut kernel = self.machine.kernel.lock().unwrap_or_else(|e| e.into_inner());
                kernel.fail(format!("{} panics", self.me));
                self.machine.runs.iter().for_each(Condvar::notify_all);
                drop(kernel);
                resume_unwind(payload);
            }
            Ok(()) => {}
        }
    }

    /// What the runtime's worker does.
    fn live(self) {
        drop(self.on_cpu(self.machine.kernel.lock().unwrap()));
        loop {
            self.poll();
            handover::enter(&self);
            self.lower();
            self.is_inside();
            while self.works() {
                if self.is_asked() {
                    self.task(|task| task.inside = false);
                    handover::make_way(&self);
                    self.is_inside();
                }
            }
            self.task(|task| task.inside = false);
            handover::leave(&self);
            self.raise();
        }
    }

    /// Returns when the caller has the CPU.
    fn on_cpu(self, mut kernel: Guard<'a>) -> Guard<'a> {
        loop {
            if kernel.over || kernel.tasks[self.me].dead {
                // The one that runs next takes note.
                if let Some(next) = kernel.next() {
                    self.machine.runs[next].notify_one();
                }
                if kernel.over || kernel.next().is_none() {
                    self.machine.runs.iter().for_each(Condvar::notify_all);
                }
                let is_last = !kernel.over && kernel.next().is_none();
                if is_last {
                    // The CPU is idle: what comes next still happens.
                    kernel.idle();
                    continue;
                }
                drop(kernel);
                resume_unwind(Box::new(Ended));
            }
            match kernel.next() {
                Some(next) if next == self.me => {
                    kernel.running = next;
                    return kernel;
                }
                Some(next) => {
                    self.machine.runs[next].notify_one();
                    kernel = self.machine.runs[self.me].wait(kernel).unwrap();
                }
                None => kernel.idle(),
            }
        }
    }

    /// One step: whatever is due happens, and the caller goes on when it has the CPU.
    fn step(self) -> Guard<'a> {
        let mut kernel = self.machine.kernel.lock().unwrap();
        kernel.now += 1;
        if kernel.now > END {
            kernel.fail("it never ends".into());
        }
        kernel.fire();
        self.on_cpu(kernel)
    }

    /// Changes what is no step of its own.
    fn task<R>(self, change: impl FnOnce(&mut Task) -> R) -> R {
        change(&mut self.machine.kernel.lock().unwrap().tasks[self.me])
    }

    /// Sleeps, and returns when it has the CPU again.
    fn sleeps(self, mut kernel: Guard<'a>, sleep: Sleep, time: Option<u64>) -> Guard<'a> {
        let timer = time.map(|time| kernel.now + time);
        kernel.sleep(self.me, sleep, timer);
        self.on_cpu(kernel)
    }

    fn poll(self) {
        loop {
            let kernel = self.step();
            if kernel.tasks[self.me].work != 0 {
                return;
            }
            drop(self.sleeps(kernel, Sleep::Poll, None));
        }
    }

    fn is_inside(self) {
        let mut kernel = self.machine.kernel.lock().unwrap();
        kernel.check_order(self.me);
        let now = kernel.now;
        let task = &mut kernel.tasks[self.me];
        let waited = now - task.since;
        (task.inside, task.passed_over, task.passes) = (true, false, 0);
        kernel.waits[self.me] = kernel.waits[self.me].max(waited);
    }

    /// Does a unit of work. Returns false if there is none.
    fn works(self) -> bool {
        let mut kernel = self.step();
        let block = std::mem::take(&mut kernel.tasks[self.me].block);
        if block != 0 {
            drop(self.sleeps(kernel, Sleep::Kernel, Some(block)));
            kernel = self.step();
        }
        kernel.check_alone(self.me);
        let task = &mut kernel.tasks[self.me];
        if task.work == 0 {
            return false;
        }
        (task.work, task.done) = (task.work - 1, task.done + 1);
        true
    }

    /// The handler of the signal.
    fn is_asked(self) -> bool {
        let asked = std::mem::take(&mut self.step().tasks[self.me].asked);
        asked && handover::rival(&self).is_some()
    }

    fn raise(self) {
        let may_be_next = handover::has_peer_behind(&self);
        let mut kernel = self.step();
        if may_be_next && !kernel.tasks[self.me].raised {
            kernel.takes_off(self.me);
            kernel.tasks[self.me].raised = true;
            kernel.queue(self.me).push_back(self.me);
        }
    }

    /// Whose priority is lowered is the first of the lower queue.
    fn lower(self) {
        let mut kernel = self.step();
        if std::mem::take(&mut kernel.tasks[self.me].raised) {
            kernel.takes_off(self.me);
            kernel.queue(self.me).push_front(self.me);
        }
    }

    fn yields(self) -> bool {
        let kernel = self.step();
        (kernel.members | 1 << self.me).count_ones() == 2
            && kernel.tasks[self.me].idle_yields < YIELDS
    }

    /// Waits, as the real member does. Returns false if something has happened.
    fn waits(self, app: usize, word: u32, yields: bool) -> bool {
        let mut kernel = self.step();
        if kernel.tasks[app].word != word {
            return yields;
        }
        if yields {
            kernel.takes_off(self.me);
            kernel.queue(self.me).push_back(self.me);
            kernel.tasks[self.me].queued_at = kernel.now;
            drop(self.on_cpu(kernel));
            return true;
        }
        let until = kernel.now + LOOK_AGAIN;
        let kernel = self.sleeps(kernel, Sleep::Futex(app), Some(LOOK_AGAIN));
        kernel.now >= until
    }
}

impl Cpu for Member<'_> {
    fn me(&self) -> usize {
        self.me
    }

    fn members(&self) -> u32 {
        self.step().members | 1 << self.me
    }

    fn rank(&self, app: usize) -> u32 {
        self.step().ranks[app]
    }

    fn word(&self, app: usize) -> u32 {
        self.step().tasks[app].word
    }

    fn set_word(&self, word: u32) {
        let mut kernel = self.step();
        let now = kernel.now;
        let task = &mut kernel.tasks[self.me];
        task.word = word;
        match State::of(word) {
            State::Active => task.active_at = now,
            State::Wanting => drop(task.wants_at.get_or_insert(now)),
            State::Idle => {}
        }
    }

    fn since(&self, app: usize) -> u64 {
        self.step().tasks[app].since
    }

    fn begin_want(&self) {
        let mut kernel = self.step();
        let now = kernel.now;
        let task = &mut kernel.tasks[self.me];
        (task.since, task.waits_on, task.idle_yields, task.wants_at) = (now, NO_APP, 0, None);
    }

    fn preempts(&self, app: usize) -> bool {
        self.step().preempts(self.me, app)
    }

    fn waits_on(&self, app: usize) -> u32 {
        self.step().tasks[app].waits_on
    }

    fn sleep(&self, app: usize, word: u32) -> Woken {
        self.lower();
        let yields = self.yields();
        self.step().tasks[self.me].waits_on = if yields { NO_APP } else { app as u32 };
        if !self.waits(app, word, yields) {
            self.step().tasks[self.me].idle_yields = 0;
            return Woken::Moved;
        }
        let mut kernel = self.step();
        if kernel.tasks[app].word != word {
            return Woken::Moved;
        }
        kernel.check_stand_in(app, self.me);
        kernel.tasks[self.me].idle_yields += 1;
        kernel.tasks[self.me].passes |= 1 << app;
        kernel.tasks[app].passed_over = true;
        Woken::StandIn
    }

    fn wake(&self, app: usize, waiter: usize) {
        let mut kernel = self.step();
        if kernel.tasks[waiter].sleep == Some(Sleep::Futex(app)) {
            kernel.wake(waiter);
        }
    }

    fn ask(&self, app: usize) {
        self.step().tasks[app].asked = true;
    }

    fn broke_rule(&self) {
        self.step().fail("the next one was active before the one that left slept".into());
    }

    fn stands_in(&self) {
        self.step().stood_in += 1;
    }
}
