//! One CPU under `SCHED_FIFO`, as far as members notice it. Each member is a thread of the test that runs only while
//! this kernel has it on the CPU. A step is one call of [`Cpu`](crate::handover::Cpu), or one unit of work; time is the
//! number of steps.

mod member;

use crate::abi::{self, active_priority, raised_priority};
use crate::handover::{NO_APP, State};
use member::Member;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::thread;

/// How long a waiter sleeps before it looks again by itself: longer than anything that happens without faults.
pub const LOOK_AGAIN: u64 = 1000;
/// Of workers that sleep and of others, for the members of the first rank and for the rest.
const PRIORITIES: usize = 4;

/// What comes from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// So many units of work arrive for a member, which wakes if it sleeps in its poll.
    Arrive(usize, u32),
    /// The member's process dies.
    Kill(usize),
    /// The broker notices that, in three steps: it clears the bit, resets the word, and wakes everybody.
    ClearBit(usize),
    ResetWord(usize),
    WakeAll,
    /// The member's process is stopped, and goes on.
    Stop(usize),
    Continue(usize),
    /// The member sleeps in the kernel for so long in its next unit of work.
    Block(usize, u64),
    /// The broker makes it a member.
    Join(usize),
}

/// What a thread sleeps in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    Poll,
    Futex(usize),
    Kernel,
}

/// One member's thread.
#[derive(Debug)]
struct Task {
    /// It has the priority of one that sleeps.
    raised: bool,
    sleep: Option<Sleep>,
    timer: Option<u64>,
    stopped: bool,
    dead: bool,
    work: u32,
    done: u32,
    /// When it last could run after it had slept, and when it was last put behind those that could run.
    woken_at: u64,
    queued_at: u64,
    /// A signal to make way is pending.
    asked: bool,
    block: u64,
    idle_yields: u32,
    /// Its code between entering and leaving may run.
    inside: bool,
    /// Another stood in for it since it is inside.
    passed_over: bool,
    word: u32,
    waits_on: u32,
    since: u64,
    /// Since when others can see that it wants the CPU.
    wants_at: Option<u64>,
    /// When it last set its word to be active.
    active_at: u64,
    /// Those whose wish it passed over because they slept in the kernel.
    passes: u32,
}

#[derive(Debug)]
struct Kernel {
    now: u64,
    running: usize,
    /// Those that can run, by priority: the lowest first.
    ready: [VecDeque<usize>; PRIORITIES],
    tasks: Vec<Task>,
    ranks: Vec<u32>,
    members: u32,
    events: VecDeque<(u64, Event)>,
    /// Since when no member has been killed, stopped or blocked.
    has_faults: bool,
    stood_in: u32,
    waits: Vec<u64>,
    over: bool,
    failure: Option<String>,
}

/// What a run was like.
#[derive(Debug)]
pub struct Outcome {
    pub steps: u64,
    pub stood_in: u32,
    /// The longest wait of each member.
    pub waits: Vec<u64>,
    pub done: Vec<u32>,
}

impl Kernel {
    fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
        self.over = true;
    }

    fn next(&self) -> Option<usize> {
        self.ready.iter().rev().find_map(VecDeque::front).copied()
    }

    fn preempts(&self, app: usize, other: usize) -> bool {
        abi::preempts(self.ranks[app], self.ranks[other])
    }

    fn queue(&mut self, app: usize) -> &mut VecDeque<usize> {
        let active = active_priority(0, self.ranks[app]);
        let priority = if self.tasks[app].raised { raised_priority(active) } else { active };
        &mut self.ready[priority as usize]
    }

    fn is_ready(&self, app: usize) -> bool {
        self.ready.iter().any(|queue| queue.contains(&app))
    }

    /// Puts a task that can run at the end of its queue.
    fn wake(&mut self, app: usize) {
        let task = &mut self.tasks[app];
        (task.sleep, task.timer) = (None, None);
        (task.woken_at, task.queued_at) = (self.now, self.now);
        let can_run = !task.dead && !task.stopped;
        if can_run {
            self.queue(app).push_back(app);
        }
    }

    fn takes_off(&mut self, app: usize) {
        self.ready.iter_mut().for_each(|queue| queue.retain(|&other| other != app));
    }

    fn sleep(&mut self, app: usize, sleep: Sleep, timer: Option<u64>) {
        self.takes_off(app);
        (self.tasks[app].sleep, self.tasks[app].timer) = (Some(sleep), timer);
    }

    /// Returns when something happens by itself.
    fn next_alarm(&self) -> Option<u64> {
        let timers = self.tasks.iter().filter(|task| !task.dead).filter_map(|task| task.timer);
        timers.chain(self.events.front().map(|&(at, _)| at)).min()
    }

    /// Lets everything happen that is due.
    fn fire(&mut self) {
        while self.events.front().is_some_and(|&(at, _)| at <= self.now) {
            let (_, event) = self.events.pop_front().unwrap();
            self.happen(event);
        }
        for app in 0..self.tasks.len() {
            let is_due = self.tasks[app].timer.is_some_and(|at| at <= self.now);
            if is_due && !self.tasks[app].dead {
                self.wake(app);
            }
        }
    }

    fn happen(&mut self, event: Event) {
        self.has_faults |= matches!(event, Event::Kill(_) | Event::Stop(_) | Event::Block(..));
        match event {
            Event::Arrive(app, work) => {
                self.tasks[app].work += work;
                if self.tasks[app].sleep == Some(Sleep::Poll) {
                    self.wake(app);
                }
            }
            Event::Kill(app) => {
                let task = &mut self.tasks[app];
                (task.dead, task.inside, task.sleep) = (true, false, None);
                self.takes_off(app);
            }
            Event::ClearBit(app) => self.members &= !(1 << app),
            Event::ResetWord(app) => self.tasks[app].word = 0,
            Event::WakeAll => {
                for app in 0..self.tasks.len() {
                    if matches!(self.tasks[app].sleep, Some(Sleep::Futex(_))) {
                        self.wake(app);
                    }
                }
            }
            Event::Stop(app) => {
                self.tasks[app].stopped = true;
                self.takes_off(app);
            }
            Event::Continue(app) => {
                self.tasks[app].stopped = false;
                if !self.tasks[app].dead && self.tasks[app].sleep.is_none() {
                    self.wake(app);
                }
            }
            Event::Block(app, time) => self.tasks[app].block = time,
            Event::Join(app) => self.members |= 1 << app,
        }
    }

    /// No member can run: goes to the next point in time at which something happens.
    fn idle(&mut self) {
        let waits = |task: &Task| !task.dead && matches!(task.sleep, Some(Sleep::Futex(_)));
        if !self.has_faults && self.tasks.iter().any(waits) {
            return self.fail("a wish is lost: all sleep".into());
        }
        match self.next_alarm() {
            Some(at) => self.now = at.max(self.now),
            None => self.over = true,
        }
        self.fire();
    }

    /// `app` does work: no other may be in the middle of its own (I1), but for those that it preempts, and for one that
    /// preempts it and cannot run.
    fn check_alone(&mut self, app: usize) {
        let inside = |other: &usize| {
            let task = &self.tasks[*other];
            let goes_on = self.preempts(*other, app) && !self.is_ready(*other);
            task.inside && !task.passed_over && !self.preempts(app, *other) && !goes_on
        };
        if let Some(other) = (0..self.tasks.len()).filter(|&other| other != app).find(inside)
            && !self.tasks[app].passed_over
        {
            self.fail(format!("{app} works while {other} is active"));
        }
    }

    /// `app` has become active: no better one waited when it took the CPU.
    fn check_order(&mut self, app: usize) {
        let active_at = self.tasks[app].active_at;
        let overtaken = (0..self.tasks.len()).find(|&other| {
            let task = &self.tasks[other];
            let wants = State::of(task.word) == State::Wanting;
            let waits = wants && task.wants_at.is_some_and(|at| at < active_at);
            let is_there = !task.dead && !task.stopped && self.members & 1 << other != 0;
            waits
                && is_there
                && self.ranks[other] < self.ranks[app]
                && self.tasks[app].passes & 1 << other == 0
        });
        if let Some(other) = overtaken {
            self.fail(format!("{app} is active before {other}, which is better and waits"));
        }
    }

    /// `waiter` finds that `app` sleeps in the kernel: those that could run when `waiter` was queued have slept.
    fn check_stand_in(&mut self, app: usize, waiter: usize) {
        let could_run = self.tasks[app].woken_at < self.tasks[waiter].queued_at;
        if self.is_ready(app) && could_run {
            self.fail(format!("{app} could run, and {waiter} passes it over"));
        }
    }
}

/// The kernel and where its threads wait for the CPU.
#[derive(Debug)]
pub struct Machine {
    kernel: Mutex<Kernel>,
    runs: Vec<Condvar>,
}

impl Machine {
    /// Runs members of these ranks with this work to begin with, until nothing happens any more.
    pub fn run(ranks: &[u32], work: &[u32], events: &[(u64, Event)]) -> Result<Outcome, String> {
        let mut events = events.to_vec();
        events.sort_by_key(|&(at, _)| at);
        let joins = |app| events.iter().any(|&(_, event)| event == Event::Join(app));
        let members = (0..ranks.len()).filter(|&app| !joins(app)).map(|app| 1 << app).sum();
        let machine = Machine::new(ranks, work, members, events.into());
        thread::scope(|scope| {
            for me in 0..ranks.len() {
                let member = Member { machine: &machine, me };
                scope.spawn(move || member.run());
            }
        });
        machine.kernel.into_inner().unwrap().outcome()
    }

    fn new(ranks: &[u32], work: &[u32], members: u32, events: VecDeque<(u64, Event)>) -> Machine {
        let task = |&work: &u32| Task {
            raised: true,
            sleep: None,
            timer: None,
            stopped: false,
            dead: false,
            work,
            done: 0,
            woken_at: 0,
            queued_at: 0,
            asked: false,
            block: 0,
            idle_yields: 0,
            inside: false,
            passed_over: false,
            word: 0,
            waits_on: NO_APP,
            since: 0,
            wants_at: None,
            active_at: 0,
            passes: 0,
        };
        let mut kernel = Kernel {
            now: 0,
            running: 0,
            ready: Default::default(),
            tasks: work.iter().map(task).collect(),
            ranks: ranks.into(),
            members,
            events,
            has_faults: false,
            stood_in: 0,
            waits: vec![0; ranks.len()],
            over: false,
            failure: None,
        };
        (0..ranks.len()).for_each(|app| kernel.queue(app).push_back(app));
        Machine { kernel: Mutex::new(kernel), runs: ranks.iter().map(|_| Condvar::new()).collect() }
    }
}

impl Kernel {
    fn outcome(mut self) -> Result<Outcome, String> {
        for app in 0..self.tasks.len() {
            let task = &self.tasks[app];
            if !task.dead && !task.stopped && (task.work != 0 || task.sleep != Some(Sleep::Poll)) {
                self.fail(format!("{app} has not done its work"));
            }
        }
        let done = self.tasks.iter().map(|task| task.done).collect();
        let (steps, stood_in, waits) = (self.now, self.stood_in, self.waits);
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(Outcome { steps, stood_in, waits, done }),
        }
    }
}
