//! The service of a deployment: which processes it means now.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use heddle_steer::process::{Protocol, server};
use heddle_sys::processes::{self, Process};

use super::file::SteerSection;
use crate::cmd::steer::find;
use crate::cmd::steer::selector::Selector;

/// How many bytes of a process's name the kernel keeps.
const NAME_BYTES: usize = 15;

/// How a file names its service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// Not at all: any process that serves the ports.
    Any,
    /// A process, with its descendants.
    Pid(u32),
    /// A systemd unit.
    Unit(String),
    /// A cgroup.
    Cgroup(PathBuf),
    /// A program's name: the first process called so, with its descendants.
    Command(String),
    /// The process that serves a port, with its descendants.
    Port(u16, Option<Protocol>),
}

/// The processes that a service consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceProcesses {
    /// All of them; `None` for any process of the machine.
    pub all: Option<BTreeSet<u32>>,
    /// The first process, if the service is not named by a unit or cgroup.
    pub first: Option<Process>,
}

/// What the record says of a service, so that another user's processes, or a later process with the same
/// number, are not taken for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ServiceIdentity {
    /// The user of its processes.
    pub uid: Option<u32>,
    /// When its process was started, if the file names it by number.
    pub began: Option<u64>,
}

impl std::fmt::Display for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("the processes that serve its ports"),
            Self::Pid(pid) => write!(f, "process {pid}"),
            Self::Unit(name) => write!(f, "unit {name}"),
            Self::Cgroup(path) => write!(f, "cgroup {}", path.display()),
            Self::Command(name) => write!(f, "command {name}"),
            Self::Port(port, None) => write!(f, "the server of port {port}"),
            Self::Port(port, Some(protocol)) => {
                write!(f, "the server of {} port {port}", protocol.name())
            }
        }
    }
}

impl Service {
    /// Returns its processes now, if it runs; otherwise a sentence.
    pub fn processes(
        &self,
        steer: &[SteerSection],
        identity: ServiceIdentity,
    ) -> Result<ServiceProcesses, String> {
        let is_its = |pid: u32| identity.uid.is_none_or(|uid| user_of(pid) == Some(uid));
        match self {
            Self::Any => {
                let first = steer.first().and_then(|section| serving(&section.selector, &is_its));
                let all =
                    identity.uid.map(|_| processes::all().filter(|pid| is_its(*pid)).collect());
                Ok(ServiceProcesses { all, first })
            }
            Self::Port(port, protocol) => {
                let protocols = protocol.iter().copied().collect();
                let selector = Selector { ports: vec![*port], protocols, ..Selector::default() };
                let first = serving(&selector, &is_its);
                first.map(family).ok_or_else(|| format!("no process serves {selector}"))
            }
            Self::Pid(pid) => {
                let process = Process::of(*pid);
                let process = process.filter(|it| identity.began.is_none_or(|at| at == it.began));
                process.map(family).ok_or_else(|| format!("there is no process {pid}"))
            }
            Self::Unit(name) => in_cgroup(processes::unit(name)?),
            Self::Cgroup(path) => in_cgroup(processes::cgroup(path)?),
            Self::Command(name) => by_name(name, &is_its),
        }
    }

    /// Returns what to remember of the service whose processes these are.
    pub fn identity(&self, processes: &ServiceProcesses) -> ServiceIdentity {
        let first = processes.first;
        match self {
            // Systemd says what belongs to it.
            Self::Unit(_) | Self::Cgroup(_) => ServiceIdentity::default(),
            Self::Pid(_) => ServiceIdentity { began: first.map(|it| it.began), uid: None },
            Self::Any | Self::Command(_) | Self::Port(..) => {
                ServiceIdentity { uid: first.and_then(|it| user_of(it.pid)), began: None }
            }
        }
    }

    /// Returns the options with which `heddle agent run` takes the service's processes.
    pub fn agent_options(&self, processes: &ServiceProcesses) -> Option<[String; 2]> {
        match self {
            Self::Unit(name) => Some(["--unit".into(), name.clone()]),
            Self::Cgroup(path) => Some(["--cgroup".into(), path.display().to_string()]),
            _ => processes.first.map(|first| ["--pid".into(), first.pid.to_string()]),
        }
    }
}

fn family(first: Process) -> ServiceProcesses {
    let all = processes::family(first.pid).into_iter().map(|process| process.pid);
    ServiceProcesses { all: Some(all.collect()), first: Some(first) }
}

fn in_cgroup(folder: PathBuf) -> Result<ServiceProcesses, String> {
    let all = processes::in_cgroup(&folder)
        .map_err(|error| format!("cannot read cgroup {}: {error}", folder.display()))?;
    match all.is_empty() {
        true => Err(format!("no process is in cgroup {}", folder.display())),
        false => Ok(ServiceProcesses {
            all: Some(all.into_iter().map(|it| it.pid).collect()),
            first: None,
        }),
    }
}

/// Returns the process to name the server of the selected sockets by.
fn serving(selector: &Selector, is_its: &dyn Fn(u32) -> bool) -> Option<Process> {
    let groups = find::groups(selector).ok()?;
    let mut sockets: Vec<_> = groups.into_iter().flat_map(|group| group.sockets).collect();
    sockets.retain(|socket| is_its(socket.pid));
    Process::of(server(&sockets)?)
}

fn by_name(name: &str, is_its: &dyn Fn(u32) -> bool) -> Result<ServiceProcesses, String> {
    let kept = name.get(..NAME_BYTES).unwrap_or(name);
    let called = |pid: &u32| is_its(*pid) && Process::of(*pid).is_some_and(|it| it.name() == kept);
    let all: BTreeSet<u32> = processes::all().filter(called).collect();
    let is_first = |pid: &&u32| processes::parent(**pid).is_none_or(|it| !all.contains(&it));
    let firsts: Vec<u32> = all.iter().filter(is_first).copied().collect();
    match firsts[..] {
        [] => Err(format!("no process is called `{name}`")),
        [one] => Process::of(one).map(family).ok_or_else(|| format!("process {one} has ended")),
        _ => {
            let firsts: Vec<String> = firsts.iter().map(u32::to_string).collect();
            Err(format!(
                "several services are called `{name}`, with the first processes {}: name one by `unit`, \
                    `cgroup`, `port` or `pid`",
                firsts.join(", ")
            ))
        }
    }
}

/// Returns the real user of a process.
fn user_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_identified_by_its_start_too() {
        let me = std::process::id();
        let found = Service::Pid(me).processes(&[], ServiceIdentity::default()).unwrap();
        let identity = Service::Pid(me).identity(&found);
        assert_eq!(found.first.map(|it| it.began), identity.began);
        assert!(Service::Pid(me).processes(&[], identity).is_ok());
        let other = ServiceIdentity { began: identity.began.map(|at| at + 1), uid: None };
        let error = Service::Pid(me).processes(&[], other).unwrap_err();
        assert_eq!(error, format!("there is no process {me}"));
    }

    #[test]
    fn a_name_means_processes_of_one_user() {
        let name = Process::of(std::process::id()).unwrap().name();
        let other = ServiceIdentity { uid: Some(u32::MAX - 1), began: None };
        let error = Service::Command(name.clone()).processes(&[], other).unwrap_err();
        assert_eq!(error, format!("no process is called `{name}`"));
        let error = Service::Command("no-such-program".into())
            .processes(&[], ServiceIdentity::default())
            .unwrap_err();
        assert!(error.contains("no-such-program"), "{error}");
    }

    #[test]
    fn an_absent_unit_is_named() {
        let error = Service::Unit("no-such-unit".into())
            .processes(&[], ServiceIdentity::default())
            .unwrap_err();
        assert!(error.contains("no unit no-such-unit.service"), "{error}");
    }
}
