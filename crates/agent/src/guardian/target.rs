//! Running processes that join an enclave: a process with its descendants, or a cgroup.

use super::GuardianError;
use super::keeper::Keeper;
use heddle_sys::processes::{self, Process};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

/// How often to search for new processes. The children of a process in the enclave join with it, so one that forks
/// all the time escapes nothing when this ends.
const ROUNDS: usize = 100;
/// How many processes to list by name.
const LISTED: usize = 8;

/// What is to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// A process and its descendants.
    Pid(u32),
    /// The processes of a cgroup, given by its folder, and of those below it.
    Cgroup(PathBuf),
}

/// A process that joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedProcess {
    /// Its number.
    pub pid: u32,
    /// Its short name.
    pub name: String,
    /// How many threads it had.
    pub threads: usize,
}

/// The result of joining.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinReport {
    /// Processes with at least one thread, in the order in which they joined.
    pub processes: Vec<JoinedProcess>,
    /// Descendants and members of the cgroup that did not join, with the reason.
    pub refused: Vec<String>,
}

impl Target {
    /// Returns the processes that the target means now, without the guardian's `own`.
    fn processes(&self, own: &[u32]) -> Result<Vec<Process>, GuardianError> {
        let all = match self {
            Target::Pid(pid) => processes::family(*pid),
            Target::Cgroup(folder) => processes::in_cgroup(folder).map_err(|error| {
                GuardianError::Usage(format!("no cgroup {}: {error}", folder.display()))
            })?,
        };
        Ok(all.into_iter().filter(|process| !own.contains(&process.pid)).collect())
    }

    /// Returns a sentence for users on what joins later.
    #[must_use]
    pub fn later(&self) -> &'static str {
        match self {
            Target::Pid(_) => "processes that they start later join automatically",
            Target::Cgroup(_) => "processes that enter the cgroup later join within a second",
        }
    }

    /// Whether the process is the requested one itself, which must be able to join.
    fn is_first(&self, process: Process) -> bool {
        *self == Target::Pid(process.pid)
    }
}

/// Puts all processes of `target` into the enclave, and those that appear meanwhile. Skips processes in `seen`, and
/// adds the new ones to it.
///
/// # Errors
/// If there is no such cgroup, or the process itself cannot join. Other processes that cannot join are listed in
/// the result.
pub(super) fn join_target(
    keeper: &dyn Keeper,
    target: &Target,
    own: &[u32],
    seen: &mut BTreeSet<Process>,
) -> Result<JoinReport, GuardianError> {
    let mut taken = JoinReport::default();
    for _ in 0..ROUNDS {
        let mut new = target.processes(own)?;
        new.retain(|process| seen.insert(*process));
        if new.is_empty() {
            break;
        }
        for process in new {
            // The number may be another's by now.
            let name = process.name();
            match keeper.join_process(process.pid) {
                Ok(0) => {}
                Ok(threads) => {
                    taken.processes.push(JoinedProcess { pid: process.pid, name, threads });
                }
                Err(error) if target.is_first(process) => return Err(error),
                Err(error) => taken.refused.push(format!("{name} ({}): {error}", process.pid)),
            }
        }
    }
    Ok(taken)
}

impl JoinReport {
    /// Whether there is nothing to report.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.processes.is_empty() && self.refused.is_empty()
    }

    /// Returns the total number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.processes.iter().map(|process| process.threads).sum()
    }
}

/// `9 threads of 3 processes: nginx (812, 1 thread), nginx (813, 4), ...`
impl fmt::Display for JoinReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        let (threads, processes) = (self.threads(), self.processes.len());
        write!(f, "{threads} thread{} of {processes} process", plural(threads))?;
        f.write_str(if processes == 1 { "" } else { "es" })?;
        for (at, JoinedProcess { pid, name, threads }) in
            self.processes.iter().take(LISTED).enumerate()
        {
            let before = if at == 0 { ": " } else { ", " };
            write!(f, "{before}{name} ({pid}, {threads} thread{})", plural(*threads))?;
        }
        if processes > LISTED {
            write!(f, " and {} more", processes - LISTED)?;
        }
        for refused in &self.refused {
            write!(f, "; NOT {refused}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::process::{Child, Command, Stdio};

    /// All processes can join, except those of this name.
    struct Joins(RefCell<Vec<u32>>, &'static str);

    impl Keeper for Joins {
        fn enclave(&self) -> crate::model::EnclaveWord {
            unreachable!("not called")
        }
        fn members(&self) -> Vec<Process> {
            unreachable!("not called")
        }
        fn join(&self, _: u32) -> Result<(), GuardianError> {
            unreachable!("whole processes join")
        }
        fn join_process(&self, pid: u32) -> Result<usize, GuardianError> {
            if Process::of(pid).is_some_and(|process| process.name() == self.1) {
                return Err(GuardianError::Failed("not this one".into()));
            }
            self.0.borrow_mut().push(pid);
            Ok(2)
        }
        fn give_back(&self) -> Result<usize, GuardianError> {
            unreachable!("not called")
        }
    }

    // Made and used by one thread.
    fn joins(but: &'static str) -> Joins {
        Joins(RefCell::default(), but)
    }

    /// Starts a shell that has a `sleep` as its child.
    fn shell() -> (Child, u32) {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & wait"]).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        let sleep = loop {
            let family = processes::family(child.id());
            if let Some(sleep) = family.iter().find(|process| process.name() == "sleep") {
                break sleep.pid;
            }
        };
        (child, sleep)
    }

    fn end(mut child: Child, sleep: u32) {
        for pid in [sleep, child.id()] {
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_process_joins_with_its_descendants_and_is_reported() {
        let (child, sleep) = shell();
        let (keeper, mut seen) = (joins("none"), BTreeSet::new());
        let taken = join_target(&keeper, &Target::Pid(child.id()), &[], &mut seen).unwrap();
        assert_eq!(*keeper.0.borrow(), [child.id(), sleep]);
        let expected = format!(
            "4 threads of 2 processes: sh ({}, 2 threads), sleep ({sleep}, 2 threads)",
            child.id()
        );
        assert_eq!(taken.to_string(), expected);
        let again = join_target(&keeper, &Target::Pid(child.id()), &[], &mut seen).unwrap();
        assert_eq!(again, JoinReport::default(), "no process joins twice");
        end(child, sleep);
    }

    #[test]
    fn the_process_itself_must_join_and_refused_descendants_are_reported() {
        let (child, sleep) = shell();
        let target = Target::Pid(child.id());
        let taken = join_target(&joins("sleep"), &target, &[], &mut BTreeSet::new()).unwrap();
        assert_eq!(taken.refused, [format!("sleep ({sleep}): not this one")]);
        assert!(join_target(&joins("sh"), &target, &[], &mut BTreeSet::new()).is_err());
        end(child, sleep);
    }

    #[test]
    fn guardian_and_agent_stay_out_of_their_own_enclave() {
        let (child, sleep) = shell();
        let me = Target::Pid(std::process::id());
        let keeper = joins("none");
        join_target(&keeper, &me, &[std::process::id(), sleep], &mut BTreeSet::new()).unwrap();
        let joined = keeper.0.borrow().clone();
        assert!(joined.contains(&child.id()), "{joined:?}");
        assert!(!joined.contains(&sleep) && !joined.contains(&std::process::id()), "{joined:?}");
        end(child, sleep);
    }

    #[test]
    fn a_missing_cgroup_is_named() {
        let target = Target::Cgroup("/no/such".into());
        let error = join_target(&joins("none"), &target, &[], &mut BTreeSet::new()).unwrap_err();
        assert!(error.to_string().contains("no cgroup /no/such"), "{error}");
    }

    #[test]
    fn requests_of_older_commands_are_understood() {
        use super::super::Request;
        let pid = serde_json::from_str::<Request>(r#"{"do":"join","pid":812}"#).unwrap();
        assert_eq!(pid, Request::Join { target: Target::Pid(812) });
        let text = r#"{"do":"join","cgroup":"/a"}"#;
        let cgroup = serde_json::from_str::<Request>(text).unwrap();
        assert_eq!(cgroup, Request::Join { target: Target::Cgroup("/a".into()) });
    }
}
