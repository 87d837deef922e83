//! Making an enclave, its agent and its program.

use super::cleaner::Cleaner;
use super::cpus::{self, Cpus, MachineCpus};
use super::event::{Event, Events};
use super::folder::{Enclaves, Folder};
use super::keeper::{Backends, Keeper, choose};
use super::options::{Options, What};
use super::process::AgentProcess;
use super::record::{Record, Stage};
use super::restart::Restarts;
use super::talk::{Assignment, Order, SCHEMA, Said};
use super::target::{Taken, Target, take};
use super::{GuardianError, Kind, clean, cleaned, control, launch, signals, tasks};
use crate::EnclaveSpec;
use crate::private::Lock;
use heddle_sys::processes::Process;
use rustix::process::{Pid, Signal, getpid, getuid, set_child_subreaper};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long an agent may take to load and attach; emulated machines verify programs slowly.
pub(super) const STARTING: Duration = Duration::from_secs(60);

/// A program that is looked after.
#[derive(Clone, Copy, Debug)]
pub(super) enum Program {
    /// Started by this guardian, which its descendants come to when their parents end.
    Ours(Pid),
    /// Joined, and when it began.
    Joined(u32, Option<u64>),
    /// None.
    None,
}

/// A cgroup whose processes come in when they come to it.
#[derive(Debug)]
pub(super) struct Followed {
    pub target: Target,
    pub seen: BTreeSet<Process>,
}

/// The guardian of one enclave. Dropping it ends the agent, gives all threads back and removes the enclave.
pub struct Guardian {
    // In the order in which they are let go: the agent decides no more, then its threads are given back.
    pub(super) agent: Option<AgentProcess>,
    /// None where the enclave could not be made again after its agent died.
    pub(super) keeper: Option<Box<dyn Keeper>>,
    pub(super) backends: &'static dyn Backends,
    pub(super) spec: EnclaveSpec,
    pub(super) events: Events,
    pub(super) options: Options,
    pub(super) record: Record,
    pub(super) folder: Folder,
    /// Takes over if this process and its agent are killed.
    cleaner: Option<Cleaner>,
    pub(super) program: Program,
    /// The exit code of a program of ours that has ended.
    pub(super) status: Option<u8>,
    pub(super) serial: u32,
    /// What the agent was upgraded to, if it was.
    pub(super) agent_program: Option<OwnedFd>,
    pub(super) restarts: Restarts,
    pub(super) followed: Vec<Followed>,
    /// When those were looked at last.
    pub(super) looked: Instant,
    _lock: Lock,
}

impl Guardian {
    /// Makes the enclave, attaches an agent, then starts the program or joins the process.
    ///
    /// # Errors
    /// What makes no sense, what the kernel refuses; nothing is left behind then.
    pub fn start(
        options: Options,
        enclaves: &Enclaves,
        backends: &'static dyn Backends,
    ) -> Result<Guardian, GuardianError> {
        let cpus = options.check(&MachineCpus::here()?)?;
        let (kind, note) = choose(backends, options.backend, options.no_fair())?;
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
        guardian.bring_in()?;
        Ok(guardian)
    }

    /// The enclave, still without an agent.
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
        check_overlap(&cpus, enclaves)?;
        let folder = enclaves.folder(&name)?;
        let lock = folder.take()?;
        let spec = EnclaveSpec {
            name,
            cpus: cpus.into_iter().collect(),
            patience: options.patience,
            grace: options.grace,
            starting: Some(heddle_core::Ns::from_secs(2 * STARTING.as_secs())),
        };
        let record = record(&options, &spec, kind);
        // Written first: who is killed while he makes the enclave leaves word of it.
        let made = folder.write(&record).and_then(|()| backends.create(kind, &spec));
        let keeper = made.inspect_err(|_| folder.remove())?;
        let cleaner = Cleaner::start(&options.cleaner, &folder).inspect_err(|_| folder.remove())?;
        let restarts = Restarts::new(options.restarts);
        Ok(Guardian {
            agent: None,
            keeper: Some(keeper),
            backends,
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
            looked: Instant::now(),
            _lock: lock,
        })
    }

    /// A new agent process, of another `program` than ours where one is given, that waits for the order to attach.
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
        self.expect(&mut agent, &Said::Ready)?;
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
        }
    }

    /// Has the agent attach.
    pub(super) fn attach(&mut self) -> Result<(), GuardianError> {
        let Some(mut agent) = self.agent.take() else { return Ok(()) };
        agent.order(Order::Attach);
        self.expect(&mut agent, &Said::Attached)?;
        self.record.agent = Some(agent.pid());
        self.record.agent_began = tasks::began(agent.pid());
        self.record.stage = Stage::Active;
        self.agent = Some(agent);
        self.write()
    }

    /// Waits until the agent says that; anything else that it says, and silence, is its failure.
    pub(super) fn expect(
        &mut self,
        agent: &mut AgentProcess,
        wanted: &Said,
    ) -> Result<(), GuardianError> {
        let serial = agent.serial;
        // An upgrade is not given up for a signal to the program: that comes after it.
        let starting = self.record.stage == Stage::Starting;
        let answer = self.events.wait(STARTING, |event| match event {
            Event::Agent(from, said) if *from == serial => Some(Some(said.clone())),
            Event::AgentGone(from) if *from == serial => Some(None),
            Event::Signal(signal, _) if starting && ends(*signal) => {
                Some(Some(Said::Failed("interrupted".into())))
            }
            _ => None,
        });
        let failed = |why: String| {
            Err(GuardianError::Failed(format!("the agent process did not start: {why}")))
        };
        match answer {
            Some(Some(said)) if said == *wanted => Ok(()),
            Some(Some(Said::Failed(why))) if why == "interrupted" => {
                Err(GuardianError::Interrupted)
            }
            Some(Some(Said::Failed(why))) => Err(GuardianError::Failed(why)),
            Some(Some(other)) => failed(format!("it said {other:?} where {wanted:?} was expected")),
            Some(None) => failed(agent.end()),
            None => failed(format!("it said nothing for {} s", STARTING.as_secs())),
        }
    }

    /// Starts the program in the enclave, or puts the process into it.
    fn bring_in(&mut self) -> Result<(), GuardianError> {
        match self.options.what.clone() {
            What::Nothing => Ok(()),
            What::Running(target) => self.bring_in_running(&target),
            What::Program(program) => self.start_program(&program),
        }
    }

    fn bring_in_running(&mut self, target: &Target) -> Result<(), GuardianError> {
        if let Target::Pid(pid) = *target {
            self.program = Program::Joined(pid, tasks::began(pid));
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

    /// Takes what runs into the enclave; of a cgroup also what comes to it later.
    pub(super) fn join(&mut self, target: &Target) -> Result<Taken, GuardianError> {
        let mut seen = BTreeSet::new();
        let taken = take(self.keeper()?, target, &self.own(), &mut seen)?;
        if let Target::Cgroup(_) = target {
            self.followed.retain(|followed| followed.target != *target);
            self.followed.push(Followed { target: target.clone(), seen });
        }
        Ok(taken)
    }

    /// The processes that this one has for itself.
    pub(super) fn own(&self) -> Vec<u32> {
        let cleaner = self.cleaner.as_ref().map(Cleaner::pid);
        let agent = self.agent.as_ref().map(AgentProcess::pid);
        [Some(std::process::id()), agent, cleaner].into_iter().flatten().collect()
    }

    /// The enclave.
    ///
    /// # Errors
    /// It could not be made again after its agent died.
    pub(super) fn keeper(&self) -> Result<&dyn Keeper, GuardianError> {
        let gone = || GuardianError::Failed(format!("enclave `{}` is gone", self.record.name));
        self.keeper.as_deref().ok_or_else(gone)
    }

    /// Gives all threads back.
    pub(super) fn give_back(&self) -> Result<usize, GuardianError> {
        self.keeper.as_ref().map_or(Ok(0), |keeper| keeper.give_back())
    }

    fn start_program(&mut self, program: &[OsString]) -> Result<(), GuardianError> {
        // Daemons that leave their parents come to us, and are waited for.
        set_child_subreaper(Some(getpid()))
            .map_err(GuardianError::system("cannot look after orphans"))?;
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

    /// Writes the record.
    pub(super) fn write(&self) -> Result<(), GuardianError> {
        self.folder.write(&self.record)
    }

    /// Tells the user.
    pub(super) fn say(&self, text: &str) {
        say(self.options.quiet, text);
    }

    /// What is written down of the enclave.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.agent.take());
        if let Err(error) = self.give_back() {
            // The folder stays, so that the next look tries again.
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

/// Signals that end a guardian that has no program.
pub(super) fn ends(signal: Signal) -> bool {
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].contains(&signal)
}

fn say(quiet: bool, text: &str) {
    if !quiet {
        eprintln!("heddle: {text}");
    }
}

/// The name that was given, or the program's, with a number where that is taken.
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

fn check_overlap(wanted: &Cpus, enclaves: &Enclaves) -> Result<(), GuardianError> {
    for other in enclaves.list() {
        let taken: Cpus = wanted.intersection(&other.record.cpus).copied().collect();
        if !taken.is_empty() && other.record.stage != Stage::GivenBack {
            return Err(GuardianError::Usage(format!(
                "CPU {} belongs to the enclave `{}` (CPUs {})",
                cpus::format(&taken),
                other.record.name,
                cpus::format(&other.record.cpus)
            )));
        }
    }
    Ok(())
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
        guardian_began: tasks::began(std::process::id()),
        agent: None,
        agent_began: None,
        uid: getuid().as_raw(),
        since_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        program: options.shown(),
        pid: None,
        taken: None,
        upgrades: 0,
        restarts: 0,
        last_death: None,
        last_gap_us: None,
        reason: None,
        version: env!("CARGO_PKG_VERSION").into(),
    }
}
