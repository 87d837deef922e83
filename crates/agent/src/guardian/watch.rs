//! The guardian's main loop: waits, passes signals on, answers requests, and gives threads back when it must.

use super::control::{Answer, Peer, Request, Requester};
use super::event::Event;
use super::launch::code;
use super::protocol::AgentReply;
use super::record::Stage;
use super::start::{Followed, Guardian, Program, ends};
use super::target::{Target, join_target};
use super::{GuardianError, cpus, tasks};
use crate::model::Phase;
use heddle_sys::usdt;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use std::time::{Duration, Instant};

/// How often to check what sends no events.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// How often to check cgroups for new processes.
const JOIN_EVERY: Duration = Duration::from_secs(1);

/// How many children to collect before other events are handled.
const COLLECTED: usize = 1000;

/// How long to wait for the end of a process that the backend has seen exit.
const DYING: Duration = Duration::from_millis(50);

/// How a guardian's work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The program ended with this exit code: its own, or 128 plus the number of the signal that ended it.
    Program(u8),
    /// The joined process ended, or the enclave was ended by a signal or `heddle agent stop`.
    Done,
}

impl Guardian {
    /// Looks after the enclave until its end.
    ///
    /// # Errors
    /// If the record can no longer be written.
    pub fn run(mut self) -> Result<Ending, GuardianError> {
        let mut next = Instant::now();
        loop {
            let had_ended = self.status.is_some();
            if let Some(event) = self.events.next(next.saturating_duration_since(Instant::now()))
                && let Some(ending) = self.handle(event)?
            {
                return Ok(ending);
            }
            // Not after each event: a program can have its children end as quickly as it likes, and a check takes
            // longer the more children there are.
            if Instant::now() < next && had_ended == self.status.is_some() {
                continue;
            }
            self.check()?;
            if let Some(ending) = self.ended() {
                return Ok(ending);
            }
            next = Instant::now() + CHECK_EVERY;
        }
    }

    fn handle(&mut self, event: Event) -> Result<Option<Ending>, GuardianError> {
        match event {
            Event::Signal(signal, terminal) => return Ok(self.signal(signal, terminal)),
            Event::Child => self.collect(),
            Event::Agent(serial, said) if self.is_current(serial) => self.agent_said(said)?,
            Event::AgentGone(serial) if self.is_current(serial) => self.agent_gone(None)?,
            Event::Agent(..) | Event::AgentGone(_) => {}
            Event::Request(Request::Stop, _, requester) => return self.stop(requester),
            Event::Request(request, peer, requester) => {
                let said =
                    self.answer(request, peer).unwrap_or_else(|error| Answer::refused(&error));
                requester.answer(&said);
            }
        }
        Ok(None)
    }

    fn is_current(&self, serial: u32) -> bool {
        self.agent.as_ref().is_some_and(|agent| agent.serial == serial)
    }

    fn answer(&mut self, request: Request, peer: Peer) -> Result<Answer, GuardianError> {
        if self.record.stage == Stage::GivenBack {
            return Err(GuardianError::Failed(format!(
                "enclave `{}` has no agent any more: its threads are the default scheduler's",
                self.record.name
            )));
        }
        match request {
            Request::Join { target } => {
                let taken = self.join(&target)?;
                match target {
                    Target::Pid(pid) if taken.processes.is_empty() => {
                        Err(GuardianError::Usage(format!("there is no process {pid}")))
                    }
                    _ => Ok(Answer::Joined { threads: taken.threads(), taken }),
                }
            }
            Request::Upgrade { policy } => self.upgrade(policy, &peer),
            Request::Resize { cpus } => self.resize(cpus),
            Request::Stop => Err(GuardianError::Failed("the enclave ends".into())),
        }
    }

    /// Passes a signal on to the program, unless a terminal has sent it there already. Without a program of our
    /// own, the signal ends the enclave.
    fn signal(&mut self, signal: Signal, terminal: bool) -> Option<Ending> {
        match self.program {
            Program::Ours(pid) => {
                if !terminal {
                    self.pass_on(pid, signal);
                }
                None
            }
            Program::Joined(..) | Program::None => ends(signal).then_some(Ending::Done),
        }
    }

    fn pass_on(&self, first: Pid, signal: Signal) {
        let to = match self.status {
            None => vec![first],
            Some(_) => self.rest().filter_map(raw).collect(),
        };
        for pid in to {
            // It may just have ended.
            let _ = kill_process(pid, signal);
        }
    }

    /// Returns the processes that remain of our program after its first process.
    fn rest(&self) -> impl Iterator<Item = u32> + use<> {
        let own = self.own();
        tasks::children().filter(move |pid| !own.contains(pid))
    }

    /// Collects children that have ended, a limited number at a time.
    fn collect(&mut self) {
        for _ in 0..COLLECTED {
            let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) else { return };
            if let Some(agent) = &mut self.agent
                && agent.collected(pid, status)
            {
                // The end of its output tells the rest.
            } else if matches!(self.program, Program::Ours(first) if first == pid) {
                self.status = Some(code(status));
                self.first_ended();
            }
        }
        self.events.children().ended();
    }

    fn first_ended(&self) {
        let rest = self.rest().count();
        if rest > 0 {
            self.say(&format!(
                "the program has ended, but {} of its processes have not: \
                 enclave `{name}` stays for them (heddle agent stop {name} ends it)",
                rest,
                name = self.record.name
            ));
        }
    }

    fn agent_said(&mut self, said: AgentReply) -> Result<(), GuardianError> {
        match said {
            AgentReply::Failed(why) => self.agent_gone(Some(why)),
            // The agent sends nothing else while it works.
            AgentReply::Ready | AgentReply::Attached | AgentReply::Left => Ok(()),
        }
    }

    /// Handles the loss of the agent: it is useless for the reason `why`, it has died, or the kernel has ended the
    /// backend under it. The threads go back to the default scheduler. An agent that has died, or lost its backend
    /// by an error, is replaced if that has not happened too often; otherwise the record says why not.
    pub(super) fn agent_gone(&mut self, why: Option<String>) -> Result<(), GuardianError> {
        let how = self.agent.take().map(|mut agent| agent.end()).unwrap_or_default();
        // Read first: the agent's message or death is only a consequence of it.
        let ended = self.keeper.as_ref().and_then(|keeper| keeper.ended());
        let (mut why, may_follow) = match (ended, why) {
            (Some(ended), _) => (ended.why, !ended.is_wanted),
            (None, Some(why)) => (why, false),
            (None, None) => (how, true),
        };
        usdt::agent_gone(self.record.agent.unwrap_or(0), &why);
        let members = self.members();
        let given = self.give_back();
        if may_follow && given.is_ok() {
            match self.restart(&members, &why) {
                Ok(()) => return Ok(()),
                Err(failed) => why += &failed,
            }
        }
        // Left by a failed restart.
        drop(self.agent.take());
        let name = &self.record.name;
        self.say(&match &given {
            Ok(threads) => format!(
                "the agent of enclave `{name}` is gone ({why}): {threads} threads given back to the default \
                 scheduler; the program goes on without a policy"
            ),
            Err(error) => format!(
                "the agent of enclave `{name}` is gone ({why}), and NOT all threads could be given back: {error}"
            ),
        });
        (self.record.agent, self.record.agent_began) = (None, None);
        self.set_stage(Stage::GivenBack);
        self.record.reason = Some(why);
        self.write()
    }

    fn stop(&mut self, requester: Requester) -> Result<Option<Ending>, GuardianError> {
        drop(self.agent.take());
        (self.record.agent, self.record.agent_began) = (None, None);
        let given = self.give_back();
        self.set_stage(Stage::GivenBack);
        self.record.reason = Some("heddle agent stop".into());
        self.write()?;
        let said = match given {
            Ok(threads) => Answer::Stopped { threads },
            Err(error) => Answer::refused(&error),
        };
        requester.answer(&said);
        match self.program {
            // Its parent waits for its exit status.
            Program::Ours(_) => {
                self.say(
                    "the threads are the default scheduler's; the program goes on without a policy",
                );
                Ok(None)
            }
            Program::Joined(..) | Program::None => Ok(Some(Ending::Done)),
        }
    }

    /// Checks what sends no events: which CPUs are online, whether the backend has lost patience with the agent, or
    /// has ended.
    fn check(&mut self) -> Result<(), GuardianError> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        keeper.release_unmanaged();
        let Some(agent) = &mut self.agent else { return Ok(()) };
        // If it cannot be read, it is as before.
        if let Ok(online) = cpus::online() {
            keeper.set_online(&online);
        }
        keeper.check_patience();
        if keeper.ended().is_some() {
            return self.agent_gone(None);
        }
        if keeper.enclave().phase != Phase::Orphan {
            self.join_newcomers();
            return Ok(());
        }
        // The enclave of an agent that dies is an orphan before its guardian sees the death, which has the better
        // explanation.
        let hangs = !agent.ends_within(DYING);
        let why = hangs.then(|| self.lost_patience());
        self.agent_gone(why)
    }

    /// Joins processes that have entered a cgroup. A removed cgroup counts as empty: a service that is started
    /// again has the same one.
    fn join_newcomers(&mut self) {
        if self.followed.is_empty() || self.checked_at.elapsed() < JOIN_EVERY {
            return;
        }
        self.checked_at = Instant::now();
        let mut followed = std::mem::take(&mut self.followed);
        let own = self.own();
        for Followed { target, seen } in &mut followed {
            seen.retain(|process| process.lives());
            let taken = self.keeper().and_then(|keeper| join_target(keeper, target, &own, seen));
            if let Ok(taken) = taken
                && !taken.is_nothing()
            {
                self.say(&format!("enclave `{}` took {taken}", self.record.name));
            }
        }
        self.followed = followed;
    }

    fn lost_patience(&self) -> String {
        let patience = self.options.patience.unwrap_or_default();
        format!("a thread that could run waited for longer than {patience}")
    }

    fn ended(&self) -> Option<Ending> {
        match self.program {
            Program::Ours(_) => {
                let code = self.status?;
                self.rest().next().is_none().then_some(Ending::Program(code))
            }
            Program::Joined(pid, began) => (!tasks::is_alive(pid, began)).then_some(Ending::Done),
            Program::None => (self.record.stage == Stage::GivenBack).then_some(Ending::Done),
        }
    }
}

fn raw(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}
