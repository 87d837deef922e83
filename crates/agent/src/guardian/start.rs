//! Making an enclave, starting its agent and its program.

use super::cleaner::Cleaner;
use super::cpus::{Cpus, MachineCpus};
use super::event::{Event, Events};
use super::folder::{Enclaves, Folder};
use super::keeper::{Backends, Keeper, choose};
use super::options::{Options, Workload};
use super::process::AgentProcess;
use super::protocol::{AgentReply, Assignment, Order, SCHEMA};
use super::record::{Record, Stage};
use super::restart::Restarts;
use super::target::{JoinReport, Target, join_target};
use super::{GuardianError, Kind, clean, cleaned, control, launch, signals, tasks};
use crate::EnclaveSpec;
use crate::private::Lock;
use crate::transition::transition;
use heddle_sys::processes::Process;
use rustix::process::{Pid, Signal, getpid, getuid, set_child_subreaper};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long an agent may take to load and attach; emulated machines verify programs slowly.
pub(super) const STARTING: Duration = Duration::from_secs(60);

/// The program that the guardian watches.
#[derive(Clone, Copy, Debug)]
pub(super) enum Program {
    /// Started by this guardian, which adopts the orphans among its descendants.
    Ours(Pid),
    /// Joined; with its start time.
    Joined(u32, Option<u64>),
    /// None.
    None,
}

/// A cgroup whose new processes join the enclave.
#[derive(Debug)]
pub(super) struct Followed {
    pub target: Target,
    pub seen: BTreeSet<Process>,
}

/// The guardian of one enclave. Dropping it ends the agent, gives all threads back and removes the enclave.
pub struct Guardian {
    // In the order of their drops: the agent stops deciding before its threads are given back.
    pub(super) agent: Option<AgentProcess>,
    /// None if the enclave could not be made again after its agent died.
    pub(super) keeper: Option<Box<dyn Keeper>>,
    pub(super) backends: &'static dyn Backends,
    pub(super) enclaves: Enclaves,
    pub(super) spec: EnclaveSpec,
    pub(super) events: Events,
    pub(super) options: Options,
    pub(super) record: Record,
    pub(super) folder: Folder,
    /// Takes over if this process and its agent are killed.
    cleaner: Option<Cleaner>,
    pub(super) program: Program,
    /// The exit code of our own program, once it has ended.
    pub(super) status: Option<u8>,
    pub(super) serial: u32,
    /// The program that the agent was upgraded to.
    pub(super) agent_program: Option<OwnedFd>,
    pub(super) restarts: Restarts,
    pub(super) followed: Vec<Followed>,
    /// When those were last checked.
    pub(super) checked_at: Instant,
    _lock: Lock,
}

impl Guardian {
    /// Makes the enclave, attaches an agent, then starts the program or joins the process.
    ///
    /// # Errors
    /// If the options make no sense, or the kernel refuses. Nothing is left behind then.
    pub fn start(
        options: Options,
        enclaves: &Enclaves,
        backends: &'static dyn Backends,
    ) -> Result<Guardian, GuardianError> {
        let cpus = options.check(&MachineCpus::here()?)?;
        let (kind, note) = choose(backends, options.backend()?, options.no_fair())?;
        let events = Events::new();
        signals::listen(&events)?;
        let mut guardian = Guardian::enclave(options, cpus, kind, enclaves, backends, events)?;
        if let Some(note) = note {
            guardian.say(&note);
        }
        let policy = guardian.record.policy.clone();
        let agent = guardian.ready_agent(None, &policy)?;
        guardian.agent = Some(agent);
        guardian.attach()?;
        control::listen(&guardian.folder, guardian.record.uid, guardian.events.sender())?;
        guardian.add_workload()?;
        Ok(guardian)
    }

    /// Makes the enclave, still without an agent.
    fn enclave(
        options: Options,
        cpus: Cpus,
        kind: Kind,
        enclaves: &Enclaves,
        backends: &'static dyn Backends,
        events: Events,
    ) -> Result<Guardian, GuardianError> {
        for done in clean(enclaves, backends) {
            say(options.quiet, &cleaned(&done));
        }
        let _one_at_a_time = enclaves.lock()?;
        let name = name(&options, enclaves);
        enclaves.check_overlap(&cpus, "")?;
        let folder = enclaves.folder(&name)?;
        let lock = folder.take()?;
        let spec = EnclaveSpec {
            name,
            cpus: cpus.into_iter().collect(),
            patience: options.patience,
            grace: options.grace,
            starting: Some(heddle_core::Ns::from_secs(2 * STARTING.as_secs())),
            pick_next: options.pick_next.clone(),
        };
        let record = record(&options, &spec, kind);
        // The record is written first: a guardian that is killed while it makes the enclave leaves a trace of it.
        let made = folder.write(&record).and_then(|()| backends.create(kind, &spec));
        let keeper = made.inspect_err(|_| folder.remove())?;
        let cleaner = Cleaner::start(&options.cleaner, &folder).inspect_err(|_| folder.remove())?;
        let restarts = Restarts::new(options.restarts);
        Ok(Guardian {
            agent: None,
            keeper: Some(keeper),
            backends,
            enclaves: enclaves.clone(),
            spec,
            events,
            options,
            record,
            folder,
            cleaner: Some(cleaner),
            program: Program::None,
            status: None,
            serial: 0,
            agent_program: None,
            restarts,
            followed: Vec::new(),
            checked_at: Instant::now(),
            _lock: lock,
        })
    }

    /// Starts a new agent process, from `program` if one is given, which waits for the order to attach.
    pub(super) fn ready_agent(
        &mut self,
        program: Option<&OwnedFd>,
        policy: &str,
    ) -> Result<AgentProcess, GuardianError> {
        self.serial += 1;
        let assignment = self.assignment(policy);
        let command = &self.options.agent;
        let mut agent =
            AgentProcess::start(command, program, self.serial, &assignment, &self.events)?;
        self.expect(&mut agent, &AgentReply::Ready)?;
        Ok(agent)
    }

    fn assignment(&self, policy: &str) -> Assignment {
        Assignment {
            schema: SCHEMA,
            name: self.record.name.clone(),
            folder: self.folder.path().to_owned(),
            backend: self.record.backend,
            policy: policy.to_owned(),
            agents: self.record.agents,
            spin: self.record.spin,
            classes: self.options.classes.clone(),
            class_map: self.options.class_map.clone(),
            status: self.folder.status(),
            cpus: Some(self.spec.cpus.iter().copied().collect()),
        }
    }

    /// Makes the agent attach.
    pub(super) fn attach(&mut self) -> Result<(), GuardianError> {
        let Some(mut agent) = self.agent.take() else { return Ok(()) };
        agent.order(Order::Attach);
        self.expect(&mut agent, &AgentReply::Attached)?;
        self.record.agent = Some(agent.pid());
        self.record.agent_began = tasks::start_time(agent.pid());
        self.set_stage(Stage::Active);
        self.agent = Some(agent);
        self.write()
    }

    /// Waits for the message `wanted` of the agent; any other message, or silence, is a failure.
    pub(super) fn expect(
        &mut self,
        agent: &mut AgentProcess,
        wanted: &AgentReply,
    ) -> Result<(), GuardianError> {
        let serial = agent.serial;
        // A signal to the program, which comes later, does not cancel an upgrade.
        let starting = self.record.stage == Stage::Starting;
        let answer = self.events.wait(STARTING, |event| match event {
            Event::Agent(from, said) if *from == serial => Some(Some(said.clone())),
            Event::AgentGone(from) if *from == serial => Some(None),
            Event::Signal(signal, _) if starting && ends(*signal) => {
                Some(Some(AgentReply::Failed("interrupted".into())))
            }
            _ => None,
        });
        let failed = |why: String| {
            Err(GuardianError::Failed(format!("the agent process failed to start: {why}")))
        };
        match answer {
            Some(Some(said)) if said == *wanted => Ok(()),
            Some(Some(AgentReply::Failed(why))) if why == "interrupted" => {
                Err(GuardianError::Interrupted)
            }
            Some(Some(AgentReply::Failed(why))) => Err(GuardianError::Failed(why)),
            Some(Some(other)) => failed(format!("it sent {other:?} instead of {wanted:?}")),
            Some(None) => failed(agent.end()),
            None => failed(format!("it was silent for {} s", STARTING.as_secs())),
        }
    }

    /// Starts the program in the enclave, or joins the running processes.
    fn add_workload(&mut self) -> Result<(), GuardianError> {
        match self.options.workload.clone() {
            Workload::Nothing => Ok(()),
            Workload::Running(target) => self.join_running(&target),
            Workload::Program(program) => self.start_program(&program),
        }
    }

    fn join_running(&mut self, target: &Target) -> Result<(), GuardianError> {
        if let Target::Pid(pid) = *target {
            self.program = Program::Joined(pid, tasks::start_time(pid));
            self.record.pid = Some(pid);
        }
        let taken = self.join(target)?;
        if let Target::Pid(pid) = target
            && taken.processes.is_empty()
        {
            return Err(GuardianError::Failed(format!("process {pid} has ended")));
        }
        self.say(&format!("enclave `{}` took {taken}; {}", self.record.name, target.later()));
        self.record.taken = Some(taken);
        self.write()
    }

    /// Puts running processes into the enclave; of a cgroup also those that enter it later.
    pub(super) fn join(&mut self, target: &Target) -> Result<JoinReport, GuardianError> {
        let mut seen = BTreeSet::new();
        let taken = join_target(self.keeper()?, target, &self.own(), &mut seen)?;
        if let Target::Cgroup(_) = target {
            self.followed.retain(|followed| followed.target != *target);
            self.followed.push(Followed { target: target.clone(), seen });
        }
        Ok(taken)
    }

    /// Returns the guardian's own processes.
    pub(super) fn own(&self) -> Vec<u32> {
        let cleaner = self.cleaner.as_ref().map(Cleaner::pid);
        let agent = self.agent.as_ref().map(AgentProcess::pid);
        [Some(std::process::id()), agent, cleaner].into_iter().flatten().collect()
    }

    /// Returns the enclave.
    ///
    /// # Errors
    /// If it could not be made again after its agent died.
    pub(super) fn keeper(&self) -> Result<&dyn Keeper, GuardianError> {
        let gone = || GuardianError::Failed(format!("enclave `{}` is gone", self.record.name));
        self.keeper.as_deref().ok_or_else(gone)
    }

    /// Gives all threads back.
    pub(super) fn give_back(&self) -> Result<usize, GuardianError> {
        self.keeper.as_ref().map_or(Ok(0), |keeper| keeper.give_back())
    }

    fn start_program(&mut self, program: &[OsString]) -> Result<(), GuardianError> {
        // Daemons that leave their parents become our children and are waited for.
        set_child_subreaper(Some(getpid()))
            .map_err(GuardianError::system("cannot become the parent of orphaned processes"))?;
        let pid = launch::start_stopped(&self.options.launcher, program)?;
        self.program = Program::Ours(pid);
        let number = pid.as_raw_nonzero().get().cast_unsigned();
        if let Err(error) = self.keeper()?.join(number) {
            // It has not become the program yet, so nothing is lost with it.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            return Err(error);
        }
        self.record.pid = Some(number);
        self.write()?;
        launch::begin(pid)
    }

    /// Changes the record's stage; [`Guardian::write`] saves it.
    #[track_caller]
    pub(super) fn set_stage(&mut self, next: Stage) {
        transition(&mut self.record.stage, next);
    }

    /// Writes the record.
    pub(super) fn write(&self) -> Result<(), GuardianError> {
        self.folder.write(&self.record)
    }

    /// Prints a message for the user.
    pub(super) fn say(&self, text: &str) {
        say(self.options.quiet, text);
    }

    /// Returns the enclave's record.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.agent.take());
        if let Err(error) = self.give_back() {
            // The folder stays, so that the next `heddle agent status` tries again.
            say(
                false,
                &format!(
                    "not all threads could be given back: {error}; heddle agent status tries again"
                ),
            );
            return;
        }
        self.folder.remove();
        if let Some(cleaner) = self.cleaner.take() {
            cleaner.end();
        }
    }
}

/// Whether the signal ends a guardian that has no program.
pub(super) fn ends(signal: Signal) -> bool {
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].contains(&signal)
}

fn say(quiet: bool, text: &str) {
    if !quiet {
        eprintln!("heddle: {text}");
    }
}

/// Returns the given name, or the program's, with a number if that is in use.
fn name(options: &Options, enclaves: &Enclaves) -> String {
    if let Some(name) = &options.name {
        return name.clone();
    }
    let first = options.default_name();
    let names: Vec<String> = enclaves.list().into_iter().map(|listed| listed.record.name).collect();
    let mut candidates =
        std::iter::once(first.clone()).chain((2..).map(|n| format!("{first}-{n}")));
    candidates.find(|name| !names.contains(name)).unwrap_or(first)
}

fn record(options: &Options, spec: &EnclaveSpec, kind: Kind) -> Record {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Record {
        schema: 1,
        name: spec.name.clone(),
        backend: kind,
        stage: Stage::Starting,
        policy: options.policy.clone(),
        agents: options.agents,
        spin: options.spin,
        cpus: spec.cpus.iter().copied().collect(),
        guardian: std::process::id(),
        guardian_began: tasks::start_time(std::process::id()),
        agent: None,
        agent_began: None,
        uid: getuid().as_raw(),
        since_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        program: options.shown(),
        pid: None,
        taken: None,
        upgrades: 0,
        resizes: 0,
        restarts: 0,
        last_death: None,
        last_gap_us: None,
        reason: None,
        version: env!("CARGO_PKG_VERSION").into(),
    }
}
