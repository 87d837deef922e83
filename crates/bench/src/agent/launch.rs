//! Starting a load: this binary, alone or under `heddle agent`.

use super::child::{LOAD, LoadReport, LoadSpec};
use super::running::Running;
use super::system::System;
use heddle_agent::guardian::{Backends as _, EnclaveEntry, Enclaves, KernelBackends, Kind, cpus};
use serde::Serialize;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Longer than an agent takes to start on an emulated machine, and a program to end.
const SLACK: Duration = Duration::from_secs(90);

/// An enclave to run a load in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enclave {
    /// Its name.
    pub name: String,
    /// The backend.
    pub backend: Kind,
    /// The policy with its parameters.
    pub policy: String,
    /// Its CPUs.
    pub cpus: Vec<u32>,
    /// Rules of classes.
    pub classes: Vec<String>,
    /// Whether its agent spins.
    pub spin: bool,
}

impl Enclave {
    /// An enclave of this bench.
    #[must_use]
    pub fn new(backend: Kind, policy: &str, cpus: &[u32]) -> Enclave {
        Enclave {
            name: format!("bench-{}", std::process::id()),
            backend,
            policy: policy.to_owned(),
            cpus: cpus.to_vec(),
            classes: vec!["be=be-*".into(), "be=antagonist*".into()],
            spin: false,
        }
    }

    /// The record that its guardian wrote.
    #[must_use]
    pub fn find(&self) -> Option<EnclaveEntry> {
        Enclaves::here().list().into_iter().find(|listed| listed.record.name == self.name)
    }
}

/// This binary, in its roles.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The file of a program that answers `agent` and `bench agent --child`.
    pub program: PathBuf,
}

impl Launcher {
    /// This binary as the child `what`.
    #[must_use]
    pub fn child(&self, what: &str, spec: &impl Serialize) -> Vec<String> {
        // Serializing our plain data cannot fail.
        let spec = serde_json::to_string(spec).unwrap_or_default();
        let program = self.program.to_string_lossy().into_owned();
        vec![program, "bench".into(), "agent".into(), "--child".into(), what.into(), spec]
    }

    /// A program under the default scheduler.
    #[must_use]
    pub fn alone(&self, program: &[String]) -> Command {
        let mut command = Command::new(program.first().map_or("", String::as_str));
        command.args(program.iter().skip(1));
        command
    }

    /// A program in an enclave, with its own guardian and agent.
    #[must_use]
    pub fn under(&self, enclave: &Enclave, program: &[String]) -> Command {
        let mut command = Command::new(&self.program);
        let list = cpus::format(&enclave.cpus);
        command.args(["agent", "run", "--name", &enclave.name, "--policy", &enclave.policy]);
        command.args(["--backend", &enclave.backend.to_string(), "--cpus", &list]);
        for rule in &enclave.classes {
            command.args(["--class", rule]);
        }
        if enclave.spin {
            command.arg("--spin");
        }
        command.arg("--").args(program);
        command
    }

    /// Runs a load to its end.
    ///
    /// # Errors
    /// The load failed, or `stop` was set.
    pub fn load(
        &self,
        system: &System,
        cpus: &[u32],
        spec: &LoadSpec,
        stop: &AtomicBool,
    ) -> io::Result<LoadReport> {
        let running = Running::start(self.command(system, cpus, spec))?;
        running.finish(limit(spec), stop).and_then(|lines| report_in(&lines))
    }

    fn command(&self, system: &System, cpus: &[u32], spec: &LoadSpec) -> Command {
        let mut spec = spec.clone();
        if system == &System::Nice {
            spec.nice = 19;
        }
        spec.idle = system == &System::Idle;
        if let Some(periodic) = &mut spec.periodic {
            periodic.short_slice = system == &System::ShortSlice;
            periodic.fifo = system == &System::Fifo;
        }
        match system {
            System::Agent { backend, policy, .. } => {
                let enclave = Enclave::new(*backend, policy, cpus);
                self.under(&enclave, &self.child(LOAD, &spec))
            }
            _ => {
                spec.cpus = cpus.to_vec();
                self.alone(&self.child(LOAD, &spec))
            }
        }
    }
}

/// Time limit of a load.
#[must_use]
pub fn limit(spec: &LoadSpec) -> Duration {
    Duration::from_nanos(spec.warmup_ns + spec.duration_ns) + SLACK
}

/// Finds the report in the output of a load and its guardian.
///
/// # Errors
/// There is none.
pub fn report_in(lines: &[String]) -> io::Result<LoadReport> {
    let found = lines.iter().rev().find_map(|line| serde_json::from_str(line).ok());
    found.ok_or_else(|| io::Error::other("the load printed no report"))
}

/// The strongest backend that works here, or why none does.
///
/// # Errors
/// One sentence for each backend.
pub fn backend_here(wanted: Option<Kind>) -> Result<Kind, String> {
    let kinds = wanted.map_or(vec![Kind::Scx, Kind::Rt], |kind| vec![kind]);
    let mut reasons = Vec::new();
    for kind in kinds {
        match KernelBackends.probe(kind) {
            Ok(()) => return Ok(kind),
            Err(why) => reasons.push(format!("{kind}: {why}")),
        }
    }
    Err(reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_found_among_other_lines() {
        let report = LoadReport { toggled: 7, end: 1, ..LoadReport::default() };
        let text = serde_json::to_string(&report).unwrap();
        let lines = ["using rt".to_owned(), text, "{}".to_owned()];
        assert_eq!(report_in(&lines).unwrap(), report);
        assert!(report_in(&lines[..1]).is_err());
    }

    #[test]
    fn the_guardians_arguments_describe_the_enclave() {
        let launcher = Launcher { program: "heddle".into() };
        let enclave = Enclave { name: "b".into(), ..Enclave::new(Kind::Rt, "fifo", &[1, 2]) };
        let command = launcher.under(&enclave, &["true".to_owned()]);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        assert_eq!(
            words.join(" "),
            "agent run --name b --policy fifo --backend rt --cpus 1-2 --class be=be-* --class be=antagonist* \
             -- true"
        );
    }
}
