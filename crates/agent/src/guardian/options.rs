//! Options of an enclave.

use super::cpus::{Cpus, MachineCpus};
use super::{Agents, BackendChoice, GuardianError, Kind, Target};
use crate::PickNext;
use crate::classes::Rule;
use heddle_core::Ns;
use heddle_policies::Visitor;
use heddle_sys::processes::Process;
use std::ffi::{OsStr, OsString};

/// What to put into an enclave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// A program to start, with its arguments.
    Program(Vec<OsString>),
    /// Processes that run already.
    Running(Target),
    /// Nothing: other processes join.
    Nothing,
}

/// Options of an enclave and its agent.
#[derive(Clone, Debug)]
pub struct Options {
    /// The enclave's name; none: the program's.
    pub name: Option<String>,
    /// The policy's name and parameters.
    pub policy: String,
    /// Its CPUs; none: all but the first.
    pub cpus: Option<Cpus>,
    /// The backend that carries out decisions.
    pub backend: BackendChoice,
    /// How the agent process is organised.
    pub agents: Agents,
    /// Whether the central agent spins.
    pub spin: bool,
    /// Rules by which threads are LC or BE.
    pub classes: Vec<String>,
    /// A steering attachment, or a map of it or at a path, that says what threads serve: `7`, `7:work`.
    pub class_map: Option<String>,
    /// What decides which of the offered threads a CPU takes; none: the order of the offers. Over sched_ext only.
    pub pick_next: Option<PickNext>,
    /// How long a runnable thread may wait before its agent counts as hung; none: forever.
    pub patience: Option<Ns>,
    /// How long threads wait for the successor of an agent.
    pub grace: Ns,
    /// How often within a minute an agent that has died is replaced.
    pub restarts: u32,
    /// What to put into the enclave.
    pub workload: Workload,
    /// The command of the agent process: this binary with another main.
    pub agent: Vec<OsString>,
    /// The command that runs [`super::cleaner_process`]; the enclave's folder is appended.
    pub cleaner: Vec<OsString>,
    /// The command that [`super::launch::launch`]es a program.
    pub launcher: Vec<OsString>,
    /// Whether to stay silent on standard error.
    pub quiet: bool,
}

/// Checks that a policy exists and its parameters are right.
struct PolicyExists;

impl Visitor for PolicyExists {
    type Out = ();
    fn visit<P: heddle_core::Policy>(self, _: P) {}
}

/// Returns whether agents offer a policy's threads to CPUs.
struct Publishes;

impl Visitor for Publishes {
    type Out = bool;
    fn visit<P: heddle_core::Policy>(self, _: P) -> bool {
        P::PUBLISHES && !P::GANG
    }
}

fn lossy(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}

/// Parses a policy and discards it.
///
/// # Errors
/// The registry's error, which lists the names if the name is unknown.
pub(super) fn check_policy(text: &str) -> Result<(), GuardianError> {
    heddle_policies::with_policy(text, PolicyExists)
        .map_err(|error| GuardianError::Usage(error.to_string()))
}

impl Options {
    /// Checks all that can be checked without touching the machine's schedulers. Returns the enclave's CPUs.
    ///
    /// # Errors
    /// If the options make no sense.
    pub(super) fn check(&self, machine: &MachineCpus) -> Result<Cpus, GuardianError> {
        check_policy(&self.policy)?;
        self.check_pick_next()?;
        for rule in &self.classes {
            rule.parse::<Rule>().map_err(|error| GuardianError::Usage(error.to_string()))?;
        }
        let cpus = self.cpus.clone().unwrap_or_else(|| machine.default_enclave());
        if self.spin && self.agents == Agents::Local {
            return Err(GuardianError::Usage(
                "--spin is for --agents central: a local agent that spins would leave its CPU to no thread"
                    .into(),
            ));
        }
        self.check_cpus(&cpus, machine)?;
        match &self.workload {
            Workload::Program(program) => super::launch::check(program)?,
            Workload::Running(Target::Pid(pid)) if Process::of(*pid).is_none() => {
                return Err(GuardianError::Usage(format!("there is no process {pid}")));
            }
            Workload::Running(_) | Workload::Nothing => {}
        }
        Ok(cpus)
    }

    /// Checks that the enclave can have `cpus` of this machine.
    ///
    /// # Errors
    /// If there are too few, or the machine has not all of them online.
    pub(super) fn check_cpus(
        &self,
        cpus: &Cpus,
        machine: &MachineCpus,
    ) -> Result<(), GuardianError> {
        machine.check(cpus)?;
        let usage = |text: &str| Err(GuardianError::Usage(text.into()));
        match cpus.len() {
            0 => usage("an enclave needs at least one CPU"),
            1 if self.spin => {
                usage("--spin takes one of the enclave's CPUs for the agent: give it two or more")
            }
            _ => Ok(()),
        }
    }

    /// Returns the backend that carries out what is asked for.
    ///
    /// # Errors
    /// If that is another than was wanted.
    pub(super) fn backend(&self) -> Result<BackendChoice, GuardianError> {
        match self.backend {
            BackendChoice::Auto if self.pick_next.is_some() => Ok(BackendChoice::Only(Kind::Scx)),
            BackendChoice::Only(kind) if self.pick_next.is_some() && kind != Kind::Scx => {
                Err(GuardianError::Usage(format!(
                    "--pick-next needs --backend scx: over {kind} no CPU takes threads by itself"
                )))
            }
            wanted => Ok(wanted),
        }
    }

    /// Checks that threads are offered, so that there is something to choose from.
    fn check_pick_next(&self) -> Result<(), GuardianError> {
        if self.pick_next.is_none() {
            return Ok(());
        }
        let why = match heddle_policies::with_policy(&self.policy, Publishes) {
            _ if self.agents == Agents::Local => "--agents local offers no threads to CPUs".into(),
            Ok(false) => {
                format!("the policy {} does not publish which threads come next", self.policy)
            }
            Ok(true) | Err(_) => return Ok(()),
        };
        let text = format!("--pick-next would never be asked: {why}");
        Err(GuardianError::Usage(text))
    }

    /// Returns the reason why the kernel's fair scheduler cannot do what is asked for, if there is one. The policy
    /// has been [checked](Options::check).
    pub(super) fn no_fair(&self) -> Option<String> {
        let because = |what: &str| Some(format!("{what} needs an agent that decides"));
        match () {
            () if self.spin => because("--spin"),
            () if self.agents == Agents::Local => because("--agents local"),
            () if self.class_map.is_some() => because("--class-map"),
            () => crate::fair::cannot_express(&self.policy).ok().flatten(),
        }
    }

    /// Returns the enclave's default name, after the program.
    pub(super) fn default_name(&self) -> String {
        let name = match &self.workload {
            Workload::Program(program) => program
                .first()
                .map(|name| lossy(std::path::Path::new(name).file_name().unwrap_or(name))),
            Workload::Running(Target::Pid(pid)) => Process::of(*pid).map(Process::name),
            // For example, nginx.service.
            Workload::Running(Target::Cgroup(folder)) => folder.file_stem().map(lossy),
            Workload::Nothing => None,
        };
        let fine = |c: &char| c.is_ascii_alphanumeric() || "-_".contains(*c);
        let name: String = name.unwrap_or_default().chars().filter(fine).take(24).collect();
        let name = name.trim_start_matches(['-', '_']);
        if name.is_empty() { "enclave".into() } else { name.into() }
    }

    /// Returns the program as the record shows it.
    pub(super) fn shown(&self) -> Vec<String> {
        match &self.workload {
            Workload::Program(program) => program.iter().map(|word| lossy(word)).collect(),
            Workload::Running(Target::Pid(pid)) => vec![super::tasks::command(*pid)],
            Workload::Running(Target::Cgroup(folder)) => {
                vec![format!("cgroup {}", folder.display())]
            }
            Workload::Nothing => Vec::new(),
        }
    }
}
