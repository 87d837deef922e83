//! What an enclave shall be like.

use super::cpus::{Cpus, MachineCpus};
use super::{Agents, GuardianError, Target, Wanted};
use crate::classes::Rule;
use heddle_core::Ns;
use heddle_policies::Visitor;
use heddle_sys::processes::Process;
use std::ffi::{OsStr, OsString};

/// What is put into an enclave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A program that is started, with its arguments.
    Program(Vec<OsString>),
    /// What runs already.
    Running(Target),
    /// Nothing: others join.
    Nothing,
}

/// An enclave and its agent.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its name; none: after the program.
    pub name: Option<String>,
    /// Name and parameters.
    pub policy: String,
    /// Its CPUs; none: all but the first.
    pub cpus: Option<Cpus>,
    /// What carries out decisions.
    pub backend: Wanted,
    /// How the agent process is organised.
    pub agents: Agents,
    /// Whether the central agent spins.
    pub spin: bool,
    /// Rules by which threads are LC or BE.
    pub classes: Vec<String>,
    /// A steering attachment that says what threads serve.
    pub class_map: Option<String>,
    /// How long a thread that could run may wait before its agent counts as hung; none: for ever.
    pub patience: Option<Ns>,
    /// How long threads wait for an agent that follows another.
    pub grace: Ns,
    /// How often within a minute an agent that has died is followed by another.
    pub restarts: u32,
    /// What is put in.
    pub what: What,
    /// The command of the agent process: this binary with another main.
    pub agent: Vec<OsString>,
    /// The command that runs [`super::cleaner_process`]; the enclave's folder follows.
    pub cleaner: Vec<OsString>,
    /// The command that [`super::launch::launch`]es a program.
    pub launcher: Vec<OsString>,
    /// Whether to say on standard error what happens.
    pub quiet: bool,
}

/// Whether a policy is there and its parameters are right.
struct Exists;

impl Visitor for Exists {
    type Out = ();
    fn visit<P: heddle_core::Policy>(self, _: P) {}
}

fn lossy(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}

/// Reads a policy without making use of it.
///
/// # Errors
/// The registry's words: an unknown name lists the names.
pub(super) fn check_policy(text: &str) -> Result<(), GuardianError> {
    heddle_policies::with_policy(text, Exists)
        .map_err(|error| GuardianError::Usage(error.to_string()))
}

impl Options {
    /// What can be said without touching the machine's schedulers: the enclave's CPUs.
    ///
    /// # Errors
    /// What makes no sense.
    pub(super) fn check(&self, machine: &MachineCpus) -> Result<Cpus, GuardianError> {
        check_policy(&self.policy)?;
        for rule in &self.classes {
            rule.parse::<Rule>().map_err(|error| GuardianError::Usage(error.to_string()))?;
        }
        let cpus = self.cpus.clone().unwrap_or_else(|| machine.default_enclave());
        machine.check(&cpus)?;
        if self.spin && self.agents == Agents::Local {
            return Err(GuardianError::Usage(
                "--spin is for --agents central: a local agent that spins leaves its CPU to nobody"
                    .into(),
            ));
        }
        if self.spin && cpus.len() < 2 {
            return Err(GuardianError::Usage(
                "--spin takes one of the enclave's CPUs for the agent: give it two or more".into(),
            ));
        }
        match &self.what {
            What::Program(program) => super::launch::check(program)?,
            What::Running(Target::Pid(pid)) if Process::of(*pid).is_none() => {
                return Err(GuardianError::Usage(format!("there is no process {pid}")));
            }
            What::Running(_) | What::Nothing => {}
        }
        Ok(cpus)
    }

    /// Why the kernel's fair scheduler cannot do what is asked for, if so. The policy has been [checked](Options::check).
    pub(super) fn no_fair(&self) -> Option<String> {
        let because = |what: &str| Some(format!("{what} takes an agent that decides"));
        match () {
            () if self.spin => because("--spin"),
            () if self.agents == Agents::Local => because("--agents local"),
            () if self.class_map.is_some() => because("--class-map"),
            () => crate::fair::cannot_express(&self.policy).ok().flatten(),
        }
    }

    /// The enclave's name, where none is given: the program's.
    pub(super) fn default_name(&self) -> String {
        let name = match &self.what {
            What::Program(program) => program
                .first()
                .map(|name| lossy(std::path::Path::new(name).file_name().unwrap_or(name))),
            What::Running(Target::Pid(pid)) => Process::of(*pid).map(Process::name),
            // nginx.service
            What::Running(Target::Cgroup(folder)) => folder.file_stem().map(lossy),
            What::Nothing => None,
        };
        let fine = |c: &char| c.is_ascii_alphanumeric() || "-_".contains(*c);
        let name: String = name.unwrap_or_default().chars().filter(fine).take(24).collect();
        let name = name.trim_start_matches(['-', '_']);
        if name.is_empty() { "enclave".into() } else { name.into() }
    }

    /// What the record shows of it.
    pub(super) fn shown(&self) -> Vec<String> {
        match &self.what {
            What::Program(program) => program.iter().map(|word| lossy(word)).collect(),
            What::Running(Target::Pid(pid)) => vec![super::tasks::command(*pid)],
            What::Running(Target::Cgroup(folder)) => vec![format!("cgroup {}", folder.display())],
            What::Nothing => Vec::new(),
        }
    }
}
