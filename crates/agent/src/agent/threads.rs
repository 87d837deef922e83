//! All threads of one agent, from start to end.

use super::realtime::Home;
use super::relay::Relay;
use super::report::{AgentInfo, StatusBoard};
use super::share::{REST, Share, Spent};
use super::{AgentError, AgentMode, Control, EndReason, Options, Realtime, Summary, realtime};
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

/// The state that all agents share.
pub(super) struct AgentThreads<'a, P: Policy> {
    pub backend: &'a Arc<dyn Backend>,
    pub control: &'a Control,
    pub mode: AgentMode,
    pub realtime: Realtime,
    /// The message queues: one for all CPUs, or one each.
    pub queues: Vec<QueueId>,
    scheduler: Mutex<Scheduler<'a, P>>,
    board: StatusBoard,
    info: AgentInfo,
    /// The CPU use of each agent.
    spent: Vec<Spent>,
    report: Option<PathBuf>,
    hooks: Mutex<Hooks>,
    gate: Gate,
    /// Which of the spinning agents is active.
    pub relay: Relay,
    is_attached: AtomicBool,
    over: AtomicBool,
    /// The first reason to end.
    ended: Mutex<Option<EndReason>>,
    panic: Mutex<Option<Box<dyn std::any::Any + Send>>>,
}

type Hook = Option<Box<dyn FnOnce() + Send>>;

#[derive(Default)]
struct Hooks {
    ready: Hook,
    attached: Hook,
}

impl<'a, P: Policy> AgentThreads<'a, P> {
    pub fn new(
        backend: &'a Arc<dyn Backend>,
        policy: P,
        options: Options,
        control: &'a Control,
    ) -> Self {
        let Options { classes, seed, threads, ready, attached, .. } = options;
        let settings = Settings { threads, seed, classes, ..Settings::default() };
        let cpus = backend.cpus().len();
        let mode = match options.mode {
            // Nothing else could run on the only CPU.
            AgentMode::Central { spin: true } if cpus == 1 => AgentMode::Central { spin: false },
            mode => mode,
        };
        let queues = if P::MODEL == Model::Central { 1 } else { cpus };
        let (policy_text, enclave) = (options.policy, options.enclave);
        let info = AgentInfo { policy: policy_text, enclave, mode, traits: backend.traits() };
        AgentThreads {
            backend,
            control,
            mode,
            realtime: options.realtime,
            queues: vec![backend.default_queue()],
            scheduler: Mutex::new(Scheduler::new(policy, &**backend, settings)),
            board: StatusBoard::new(queues),
            info,
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

    /// Locks the scheduler for a round (A1). The lock is taken even if an agent panicked in a round and left the
    /// scheduler broken: the backend takes care of the threads.
    pub fn scheduler(&self) -> MutexGuard<'_, Scheduler<'a, P>> {
        self.scheduler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the agents until the end.
    pub fn run(mut self) -> Result<Summary, AgentError> {
        realtime::prepare_process(self.realtime)?;
        let made = self.make_queues();
        self.scheduler().set_queues(&self.queues);
        self.control.set_queues(self.backend, &self.queues);
        let outcome = made.map_err(AgentError::from).and_then(|()| self.run_agents());
        self.control.set_queues(self.backend, &[]);
        self.give_queues_back();
        let is_attached = self.is_attached.load(Ordering::Acquire);
        if is_attached {
            self.backend.detach();
        }
        outcome?;
        if let Some(panic) = self.panic.lock().unwrap_or_else(PoisonError::into_inner).take() {
            std::panic::resume_unwind(panic);
        }
        let reason =
            self.ended.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(EndReason::Lost);
        let tally = self.scheduler().tally().clone();
        Ok(Summary { reason, tally })
    }

    fn make_queues(&mut self) -> Result<(), BackendError> {
        let cpus = if self.mode == AgentMode::Local { self.backend.cpus().len() } else { 1 };
        for at in 1..cpus {
            let queue = self.backend.create_queue(true)?;
            self.queues.push(queue);
            self.backend.associate_cpu(CpuId(at as u16), queue)?;
        }
        Ok(())
    }

    /// Returns the threads' messages to the default queue, for a successor that knows of no other.
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

    /// Starts all threads, attaches when they are ready, and waits for their end.
    fn run_agents(&self) -> Result<(), AgentError> {
        std::thread::scope(|scope| {
            self.start_writer(scope)?;
            let (sender, ready) = channel();
            let agents = (0..self.agents()).map(|at| self.start(scope, at, sender.clone()));
            // All of them before the first is real-time: it may have the CPU on which the next is to start.
            let agents: Result<Vec<_>, _> = agents.collect();
            drop(sender);
            let attached =
                agents.and_then(|agents| self.attach_when_ready(&ready).map(|()| agents));
            self.gate.open(attached.is_ok());
            let ends =
                attached.map(|agents| agents.into_iter().map(ScopedJoinHandle::join).collect());
            self.board.close();
            let ends: Vec<std::thread::Result<()>> = ends?;
            // A panic is a defect of a policy or of this crate. It is propagated after the cleanup.
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) =
                ends.into_iter().find_map(Result::err);
            Ok(())
        })
    }

    fn start_writer<'s>(&'s self, scope: &'s Scope<'s, '_>) -> Result<(), AgentError> {
        let Some(path) = &self.report else { return Ok(()) };
        let write = || self.board.write(&self.info, &self.spent, &**self.backend, path);
        let name = "heddle-report".into();
        let started = Builder::new().name(name).spawn_scoped(scope, write);
        started.map(drop).map_err(AgentError::Thread)
    }

    fn agents(&self) -> usize {
        match self.mode {
            AgentMode::Central { spin: false } => 1,
            AgentMode::Central { spin: true } | AgentMode::Local => self.backend.cpus().len(),
        }
    }

    fn start<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        at: usize,
        sender: Sender<Result<(), AgentError>>,
    ) -> Result<ScopedJoinHandle<'s, ()>, AgentError> {
        let agent = move || {
            let is_central = self.mode == AgentMode::Central { spin: false };
            let is_pinned = !is_central && self.backend.cpu(CpuId(at as u16)).online;
            let cpu = is_pinned.then(|| self.backend.cpus()[at].os_id);
            let ready = realtime::become_agent(self.realtime, &self.backend.traits(), cpu);
            let _ = sender.send(ready);
            if self.gate.pass() {
                let _watch = EndOnPanic(self);
                self.work(at);
            }
        };
        let started = Builder::new().name(format!("heddle-agent/{at}")).spawn_scoped(scope, agent);
        started.map_err(AgentError::Thread)
    }

    fn work(&self, at: usize) {
        match self.mode {
            AgentMode::Central { spin: false } => self.sleep_centrally(),
            AgentMode::Central { spin: true } => self.spin_centrally(at),
            AgentMode::Local => self.decide_locally(CpuId(at as u16)),
        }
    }

    /// Attaches when all agents are ready.
    fn attach_when_ready(
        &self,
        ready: &Receiver<Result<(), AgentError>>,
    ) -> Result<(), AgentError> {
        (0..self.agents()).try_for_each(|_| ready.recv().unwrap_or(Ok(())))?;
        let Hooks { ready, attached } =
            std::mem::take(&mut *self.hooks.lock().unwrap_or_else(PoisonError::into_inner));
        ready.into_iter().for_each(|hook| hook());
        self.backend.attach()?;
        self.is_attached.store(true, Ordering::Release);
        self.scheduler().adopt();
        attached.into_iter().for_each(|hook| hook());
        Ok(())
    }

    /// Whether the agents must end.
    pub fn is_over(&self) -> bool {
        if let Some(reason) = self.control.reason() {
            self.end(reason);
        } else if self.backend.enclave().phase != Phase::Active {
            self.end(EndReason::Lost);
        }
        self.over.load(Ordering::Acquire)
    }

    /// Returns the place of the agent of `cpu`.
    pub fn home(&self, cpu: CpuId) -> Home {
        Home::new(self.realtime, self.backend.cpus()[cpu.index()].os_id)
    }

    /// Returns the account of the calling agent `at`.
    pub fn share(&self, at: usize) -> Share<'_> {
        Share::new(&self.spent[at], clock::now(), clock::thread_cpu_time())
    }

    /// Sleeps after a round until `queue` has a message or something is due; longer if the agent has used up its
    /// share.
    pub fn rest(&self, share: &mut Share<'_>, queue: QueueId, round: &Round) {
        if let Some(pause) = share.settle(clock::now(), clock::thread_cpu_time()) {
            std::thread::sleep(pause.into());
        } else if !round.is_unfinished {
            let soonest = self.backend.now() + REST;
            self.backend.wait(queue, round.next.map(|at| at.max(soonest)));
        }
    }

    /// Ends all agents. Only the first reason counts.
    fn end(&self, reason: EndReason) {
        if self.over.load(Ordering::Acquire) {
            return;
        }
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.over.store(true, Ordering::Release);
        self.queues.iter().for_each(|&queue| self.backend.wake(queue));
        self.relay.end();
    }

    /// Updates the report's snapshot, if the writer wants one.
    pub fn show(&self, scheduler: &Scheduler<'_, P>) {
        self.board.pass(|snapshot| {
            snapshot.tally.copy_from(scheduler.tally());
            snapshot.waiting.clear();
            snapshot.waiting.extend(scheduler.waiting());
            snapshot.at = self.backend.now();
        });
    }
}

/// Ends the other agents if one panics.
struct EndOnPanic<'c, 'a, P: Policy>(&'c AgentThreads<'a, P>);

impl<P: Policy> Drop for EndOnPanic<'_, '_, P> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(EndReason::Lost);
        }
    }
}

/// Where agents wait until all are ready.
#[derive(Default)]
struct Gate {
    is_open: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Gate {
    fn open(&self, proceed: bool) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = Some(proceed);
        self.changed.notify_all();
    }

    /// Waits for the gate. Whether there is work behind it.
    fn pass(&self) -> bool {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = self.changed.wait_while(is_open, |is_open| is_open.is_none());
        is_open.unwrap_or_else(PoisonError::into_inner).unwrap_or(false)
    }
}
