//! The guardian at work: waits, passes signals on, answers, and gives threads back when it must.

use super::control::{Answer, Asker, Peer, Request};
use super::event::Event;
use super::launch::code;
use super::record::Stage;
use super::start::{Followed, Guardian, Program, ends};
use super::talk::Said;
use super::target::{Target, take};
use super::{GuardianError, tasks};
use crate::model::Phase;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use std::time::{Duration, Instant};

/// How often what tells nothing of itself is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How often cgroups are looked at for who has come to them.
const NEWCOMERS: Duration = Duration::from_secs(1);

/// How many children are collected before something else is looked at.
const COLLECTED: usize = 1000;

/// How long a process takes to end whose end the backend has seen already.
const DYING: Duration = Duration::from_millis(50);

/// How a guardian's work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The program did, with this exit code: its own, or 128 and the number of the signal that ended it.
    Program(u8),
    /// The process that was joined did, or the enclave was ended by a signal or `heddle agent stop`.
    Done,
}

impl Guardian {
    /// Looks after the enclave until there is no reason to.
    ///
    /// # Errors
    /// The enclave cannot be written down any more.
    pub fn run(mut self) -> Result<Ending, GuardianError> {
        let mut next = Instant::now();
        loop {
            let had_ended = self.status.is_some();
            if let Some(event) = self.events.next(next.saturating_duration_since(Instant::now()))
                && let Some(ending) = self.handle(event)?
            {
                return Ok(ending);
            }
            // Not after each event: a program can have its children end as quickly as it likes, and a look takes the longer the more
            // of them there are.
            if Instant::now() < next && had_ended == self.status.is_some() {
                continue;
            }
            self.look()?;
            if let Some(ending) = self.ended() {
                return Ok(ending);
            }
            next = Instant::now() + LOOK;
        }
    }

    fn handle(&mut self, event: Event) -> Result<Option<Ending>, GuardianError> {
        match event {
            Event::Signal(signal, terminal) => return Ok(self.signal(signal, terminal)),
            Event::Child => self.collect(),
            Event::Agent(serial, said) if self.is_current(serial) => self.agent_said(said)?,
            Event::AgentGone(serial) if self.is_current(serial) => self.agent_gone(None)?,
            Event::Agent(..) | Event::AgentGone(_) => {}
            Event::Request(Request::Stop, _, asker) => return self.stop(asker),
            Event::Request(request, peer, asker) => {
                let said =
                    self.answer(request, peer).unwrap_or_else(|error| Answer::refused(&error));
                asker.answer(&said);
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
            Request::Stop => Err(GuardianError::Failed("the enclave ends".into())),
        }
    }

    /// A signal is the program's. One from a terminal has reached it already, and one that nobody is there for ends the enclave.
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

    /// What is left of our program when its first process has ended.
    fn rest(&self) -> impl Iterator<Item = u32> + use<> {
        let own = self.own();
        tasks::children().filter(move |pid| !own.contains(pid))
    }

    /// Collects children that have ended; of very many some, and comes back for the others.
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
                "the program has ended, {} of its processes have not: enclave `{name}` stays for them (heddle agent stop {name} ends it)",
                rest,
                name = self.record.name
            ));
        }
    }

    fn agent_said(&mut self, said: Said) -> Result<(), GuardianError> {
        match said {
            Said::Failed(why) => self.agent_gone(Some(why)),
            // Nothing else is expected while it works.
            Said::Ready | Said::Attached | Said::Left => Ok(()),
        }
    }

    /// The agent is useless, which `why` tells, or has died, or the kernel has ended the backend under it: the threads are the default
    /// scheduler's again. One that has died, or lost its backend by an error, is followed by another, if that was not so too often;
    /// otherwise whoever looks is told.
    pub(super) fn agent_gone(&mut self, why: Option<String>) -> Result<(), GuardianError> {
        let how = self.agent.take().map(|mut agent| agent.end()).unwrap_or_default();
        // Asked first: what the agent says of it, or dies of, is only its consequence.
        let ended = self.keeper.as_ref().and_then(|keeper| keeper.ended());
        let (mut why, may_follow) = match (ended, why) {
            (Some(ended), _) => (ended.why, !ended.is_wanted),
            (None, Some(why)) => (why, false),
            (None, None) => (how, true),
        };
        let members = self.members();
        let given = self.give_back();
        if may_follow && given.is_ok() {
            match self.restart(&members, &why) {
                Ok(()) => return Ok(()),
                Err(failed) => why += &failed,
            }
        }
        // Of a restart that failed.
        drop(self.agent.take());
        let name = &self.record.name;
        self.say(&match &given {
            Ok(threads) => format!("the agent of enclave `{name}` is gone ({why}): {threads} threads given back to the default scheduler; the program goes on without a policy"),
            Err(error) => format!("the agent of enclave `{name}` is gone ({why}), and NOT all threads could be given back: {error}"),
        });
        (self.record.agent, self.record.agent_began) = (None, None);
        self.record.stage = Stage::GivenBack;
        self.record.reason = Some(why);
        self.write()
    }

    fn stop(&mut self, asker: Asker) -> Result<Option<Ending>, GuardianError> {
        drop(self.agent.take());
        (self.record.agent, self.record.agent_began) = (None, None);
        let given = self.give_back();
        self.record.stage = Stage::GivenBack;
        self.record.reason = Some("heddle agent stop".into());
        self.write()?;
        let said = match given {
            Ok(threads) => Answer::Stopped { threads },
            Err(error) => Answer::refused(&error),
        };
        asker.answer(&said);
        match self.program {
            // Somebody waits for its exit status.
            Program::Ours(_) => {
                self.say(
                    "the threads are the default scheduler's; the program goes on without a policy",
                );
                Ok(None)
            }
            Program::Joined(..) | Program::None => Ok(Some(Ending::Done)),
        }
    }

    /// What nobody tells: that the backend lost patience with the agent, or was ended.
    fn look(&mut self) -> Result<(), GuardianError> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        keeper.look_around();
        let Some(agent) = &mut self.agent else { return Ok(()) };
        keeper.look();
        if keeper.ended().is_some() {
            return self.agent_gone(None);
        }
        if keeper.enclave().phase != Phase::Orphan {
            self.take_newcomers();
            return Ok(());
        }
        // The enclave of an agent that dies is an orphan before its guardian can see the death, which says more.
        let hangs = !agent.ends_within(DYING);
        let why = hangs.then(|| self.lost_patience());
        self.agent_gone(why)
    }

    /// Those who have come to a cgroup. One that is gone is empty: a service that is started again has the same.
    fn take_newcomers(&mut self) {
        if self.followed.is_empty() || self.looked.elapsed() < NEWCOMERS {
            return;
        }
        self.looked = Instant::now();
        let mut followed = std::mem::take(&mut self.followed);
        let own = self.own();
        for Followed { target, seen } in &mut followed {
            seen.retain(|process| process.lives());
            let taken = self.keeper().and_then(|keeper| take(keeper, target, &own, seen));
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
        format!("a thread that could run had waited for longer than {patience}")
    }

    fn ended(&self) -> Option<Ending> {
        match self.program {
            Program::Ours(_) => {
                let code = self.status?;
                self.rest().next().is_none().then_some(Ending::Program(code))
            }
            Program::Joined(pid, began) => (!tasks::lives(pid, began)).then_some(Ending::Done),
            Program::None => (self.record.stage == Stage::GivenBack).then_some(Ending::Done),
        }
    }
}

fn raw(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}
