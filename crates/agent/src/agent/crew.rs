//! All threads of one agent, from the first to the last.

use super::relay::Relay;
use super::report::{About, Board};
use super::share::{REST, Share, Spent};
use super::{AgentError, Control, Ended, Options, Place, Realtime, Why, realtime};
use crate::model::{Phase, QueueId};
use crate::policy::{Round, Scheduler, Settings};
use crate::{Backend, BackendError};
use heddle_core::{CpuId, Model, Policy};
use heddle_sys::clock;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// What all agents share.
pub(super) struct Crew<'a, P: Policy> {
    pub backend: &'a Arc<dyn Backend>,
    pub control: &'a Control,
    pub place: Place,
    pub realtime: Realtime,
    /// The message queues: one for all CPUs, or one each.
    pub queues: Vec<QueueId>,
    scheduler: Mutex<Scheduler<'a, P>>,
    board: Board,
    about: About,
    /// Of each agent.
    spent: Vec<Spent>,
    report: Option<PathBuf>,
    hooks: Mutex<Hooks>,
    gate: Gate,
    /// Who of the spinning agents is the active one.
    pub relay: Relay,
    is_attached: AtomicBool,
    over: AtomicBool,
    /// The first reason to end.
    ended: Mutex<Option<Why>>,
    panic: Mutex<Option<Box<dyn std::any::Any + Send>>>,
}

type Hook = Option<Box<dyn FnOnce() + Send>>;

#[derive(Default)]
struct Hooks {
    ready: Hook,
    attached: Hook,
}

impl<'a, P: Policy> Crew<'a, P> {
    pub fn new(
        backend: &'a Arc<dyn Backend>,
        policy: P,
        options: Options,
        control: &'a Control,
    ) -> Self {
        let Options { classes, seed, threads, ready, attached, .. } = options;
        let settings = Settings { threads, seed, classes, ..Settings::default() };
        let cpus = backend.cpus().len();
        let place = match options.place {
            // Nobody else could run on the only CPU.
            Place::Central { spin: true } if cpus == 1 => Place::Central { spin: false },
            place => place,
        };
        let queues = if P::MODEL == Model::Central { 1 } else { cpus };
        let about = About { policy: options.policy, place, traits: backend.traits() };
        Crew {
            backend,
            control,
            place,
            realtime: options.realtime,
            queues: vec![backend.default_queue()],
            scheduler: Mutex::new(Scheduler::new(policy, &**backend, settings)),
            board: Board::new(queues),
            about,
            spent: (0..cpus).map(|_| Spent::default()).collect(),
            report: options.report,
            hooks: Mutex::new(Hooks { ready, attached }),
            gate: Gate::default(),
            relay: Relay::new(cpus),
            is_attached: AtomicBool::new(false),
            over: AtomicBool::new(false),
            ended: Mutex::new(None),
            panic: Mutex::new(None),
        }
    }

    /// The scheduler, for a round (A1). An agent that panicked in one has left it in no state to go on with, but its threads
    /// are the backend's to care for, not ours.
    pub fn scheduler(&self) -> MutexGuard<'_, Scheduler<'a, P>> {
        self.scheduler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything, until the end.
    pub fn run(mut self) -> Result<Ended, AgentError> {
        realtime::prepare_process(self.realtime)?;
        let made = self.make_queues();
        self.scheduler().set_queues(&self.queues);
        self.control.hang(self.backend, &self.queues);
        let attended = made.map_err(AgentError::from).and_then(|()| self.attend());
        self.control.hang(self.backend, &[]);
        self.give_queues_back();
        let is_attached = self.is_attached.load(Ordering::Acquire);
        if is_attached {
            self.backend.detach();
        }
        attended?;
        if let Some(panic) = self.panic.lock().unwrap_or_else(PoisonError::into_inner).take() {
            std::panic::resume_unwind(panic);
        }
        let why = self.ended.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(Why::Lost);
        let tally = self.scheduler().tally().clone();
        Ok(Ended { why, tally })
    }

    fn make_queues(&mut self) -> Result<(), BackendError> {
        let cpus = if self.place == Place::Local { self.backend.cpus().len() } else { 1 };
        for at in 1..cpus {
            let queue = self.backend.create_queue(true)?;
            self.queues.push(queue);
            self.backend.associate_cpu(CpuId(at as u16), queue)?;
        }
        Ok(())
    }

    /// The threads' messages go where they went before, for a successor that knows of no other queue.
    fn give_queues_back(&self) {
        let default = self.queues[0];
        let _ = self.backend.configure_queue(default, true);
        if self.queues.len() == 1 {
            return;
        }
        self.scheduler().gather(default);
        for (at, &queue) in self.queues.iter().enumerate().skip(1) {
            let _ = self.backend.associate_cpu(CpuId(at as u16), default);
            let _ = self.backend.destroy_queue(queue);
        }
    }

    /// Starts all threads, attaches once they are what they have to be, and waits for their end.
    fn attend(&self) -> Result<(), AgentError> {
        std::thread::scope(|scope| {
            self.start_writer(scope)?;
            let (said, heard) = channel();
            let agents = (0..self.agents()).map(|at| self.start(scope, at, said.clone()));
            // All of them before the first is real-time: it may have the CPU on which the next is to start.
            let agents: Result<Vec<_>, _> = agents.collect();
            drop(said);
            let begun = agents.and_then(|agents| self.begin(&heard).map(|()| agents));
            self.gate.open(begun.is_ok());
            let ends = begun.map(|agents| agents.into_iter().map(ScopedJoinHandle::join).collect());
            self.board.close();
            let ends: Vec<std::thread::Result<()>> = ends?;
            // A panic is a defect of a policy or of ours, and is shown as such, after all that is to be undone.
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) =
                ends.into_iter().find_map(Result::err);
            Ok(())
        })
    }

    fn start_writer<'s>(&'s self, scope: &'s Scope<'s, '_>) -> Result<(), AgentError> {
        let Some(path) = &self.report else { return Ok(()) };
        let write = || self.board.write(&self.about, &self.spent, &**self.backend, path);
        let name = "heddle-report".into();
        let started = Builder::new().name(name).spawn_scoped(scope, write);
        started.map(drop).map_err(AgentError::Thread)
    }

    fn agents(&self) -> usize {
        match self.place {
            Place::Central { spin: false } => 1,
            Place::Central { spin: true } | Place::Local => self.backend.cpus().len(),
        }
    }

    fn start<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        at: usize,
        said: Sender<Result<(), AgentError>>,
    ) -> Result<ScopedJoinHandle<'s, ()>, AgentError> {
        let agent = move || {
            let is_central = self.place == Place::Central { spin: false };
            let cpu = (!is_central).then(|| self.backend.cpus()[at].os_id);
            let ready = realtime::become_agent(self.realtime, &self.backend.traits(), cpu);
            let _ = said.send(ready);
            if self.gate.pass() {
                let _watch = Watch(self);
                self.work(at);
            }
        };
        let started = Builder::new().name(format!("heddle-agent/{at}")).spawn_scoped(scope, agent);
        started.map_err(AgentError::Thread)
    }

    fn work(&self, at: usize) {
        match self.place {
            Place::Central { spin: false } => self.sleep_centrally(),
            Place::Central { spin: true } => self.spin_centrally(at),
            Place::Local => self.decide_locally(CpuId(at as u16)),
        }
    }

    /// All agents are what they have to be: attaches.
    fn begin(&self, heard: &Receiver<Result<(), AgentError>>) -> Result<(), AgentError> {
        (0..self.agents()).try_for_each(|_| heard.recv().unwrap_or(Ok(())))?;
        let Hooks { ready, attached } =
            std::mem::take(&mut *self.hooks.lock().unwrap_or_else(PoisonError::into_inner));
        ready.into_iter().for_each(|hook| hook());
        self.backend.attach()?;
        self.is_attached.store(true, Ordering::Release);
        self.scheduler().adopt();
        attached.into_iter().for_each(|hook| hook());
        Ok(())
    }

    /// Whether it is time to go.
    pub fn is_over(&self) -> bool {
        if let Some(why) = self.control.why() {
            self.end(why);
        } else if self.backend.enclave().phase != Phase::Active {
            self.end(Why::Lost);
        }
        self.over.load(Ordering::Acquire)
    }

    /// The account of the agent `at`, which is the caller.
    pub fn share(&self, at: usize) -> Share<'_> {
        Share::new(&self.spent[at], clock::now(), clock::thread_cpu_time())
    }

    /// Sleeps after a round until there is news in `queue` or something is due; longer if the agent has used up its share.
    pub fn rest(&self, share: &mut Share<'_>, queue: QueueId, round: &Round) {
        if let Some(pause) = share.settle(clock::now(), clock::thread_cpu_time()) {
            std::thread::sleep(pause.into());
        } else if !round.is_unfinished {
            let soonest = self.backend.now() + REST;
            self.backend.wait(queue, round.next.map(|at| at.max(soonest)));
        }
    }

    /// Ends all agents. The first reason counts.
    fn end(&self, why: Why) {
        if self.over.load(Ordering::Acquire) {
            return;
        }
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.over.store(true, Ordering::Release);
        self.queues.iter().for_each(|&queue| self.backend.wake(queue));
        self.relay.end();
    }

    /// What `status` shows, if it is time for that.
    pub fn show(&self, scheduler: &Scheduler<'_, P>) {
        self.board.pass(|snapshot| {
            snapshot.tally.copy_from(scheduler.tally());
            snapshot.waiting.clear();
            snapshot.waiting.extend(scheduler.waiting());
            snapshot.at = self.backend.now();
        });
    }
}

/// Where one agent panics, the others do not go on without it.
struct Watch<'c, 'a, P: Policy>(&'c Crew<'a, P>);

impl<P: Policy> Drop for Watch<'_, '_, P> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(Why::Lost);
        }
    }
}

/// Where agents wait until all are ready.
#[derive(Default)]
struct Gate {
    is_open: Mutex<Option<bool>>,
    bell: Condvar,
}

impl Gate {
    fn open(&self, in_earnest: bool) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = Some(in_earnest);
        self.bell.notify_all();
    }

    /// Whether there is work behind it.
    fn pass(&self) -> bool {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = self.bell.wait_while(is_open, |is_open| is_open.is_none());
        is_open.unwrap_or_else(PoisonError::into_inner).unwrap_or(false)
    }
}
