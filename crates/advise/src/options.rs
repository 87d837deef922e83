//! What could be changed.

use std::fmt;

use heddle_observe::{Group, Protocol, Runtime, RuntimeKind};
use serde::{Deserialize, Serialize};

use crate::model::{Model, Neighbour, WorkerKind};

/// The steering policies that need to know nothing of a service.
const POLICIES: [&str; 3] = ["jiq", "jsq", "round-robin"];
/// The policies of the runtime that need to know nothing of a service: the first preempts what is long.
const RUNTIME_POLICIES: [&str; 3] = ["two-queue", "work-stealing", "fifo"];
/// The nice value of work that may wait.
const BACKGROUND: i32 = 19;
/// The least share of a CPU from which on a neighbour is worth a nice value.
const NOTICEABLE: f64 = 0.02;
/// The most neighbours for which an option of its own is simulated.
const NEIGHBOURS: usize = 3;

/// A change of the service or its machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// None.
    Nothing,
    /// A steering policy chooses the socket.
    Steer {
        /// With its parameters.
        policy: String,
        /// The service's protocol.
        protocol: Protocol,
        /// The service's port.
        port: u16,
    },
    /// Another number of workers.
    Workers {
        /// How many there are.
        from: usize,
        /// How many there would be.
        to: usize,
    },
    /// One socket that all workers accept from, instead of one each.
    SharedSocket,
    /// One event queue of Heddle for the connections of all event loops, instead of one epoll instance each.
    EventQueue,
    /// Heddle's scheduler in a Go program (`heddle go build`).
    HeddleGo,
    /// Another policy of the Heddle runtime.
    RuntimePolicy {
        /// The name of the policy that it has.
        from: String,
        /// The policy that it would have, with its parameters.
        to: String,
    },
    /// Another nice value for a process.
    Nice {
        /// Which.
        process: u32,
        /// Its name.
        name: String,
        /// The value that it has.
        from: i32,
        /// The value that it would have.
        to: i32,
    },
    /// Another weight for the group of a process that is not in the service's group: its nice value would not matter.
    Weight {
        /// A process of the group.
        process: u32,
        /// The name of that process.
        name: String,
        /// The file with the weight: of a cgroup, or of an automatic group.
        file: String,
        /// What it holds.
        from: String,
        /// What it would hold.
        to: String,
    },
}

/// What a change takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effort {
    /// Nothing: it can be applied and undone while the service runs.
    None,
    /// The service must be restarted with another option.
    Restart,
    /// It must be built again, with another tool.
    Rebuild,
    /// Its code must change: another library, or another event loop.
    Code,
}

impl Change {
    /// Returns what it takes.
    #[must_use]
    pub fn effort(&self) -> Effort {
        match self {
            Change::Nothing
            | Change::Steer { .. }
            | Change::Nice { .. }
            | Change::Weight { .. } => Effort::None,
            Change::Workers { .. } | Change::SharedSocket | Change::RuntimePolicy { .. } => {
                Effort::Restart
            }
            Change::HeddleGo => Effort::Rebuild,
            Change::EventQueue => Effort::Code,
        }
    }

    /// Returns the command that applies it; `None` if it needs the service's own options, or its code.
    #[must_use]
    pub fn apply(&self) -> Option<String> {
        match self {
            Change::Steer { policy, protocol, port } => Some(format!(
                "heddle steer attach --port {port} --protocol {} --policy {policy}",
                name(*protocol)
            )),
            Change::Nice { process, to, .. } => Some(renice(*process, *to)),
            Change::Weight { file, to, .. } => Some(format!("echo {to} > {file}")),
            _ => None,
        }
    }

    /// Returns the command that undoes it.
    #[must_use]
    pub fn undo(&self) -> Option<String> {
        match self {
            Change::Steer { protocol, port, .. } => {
                Some(format!("heddle steer detach --port {port} --protocol {}", name(*protocol)))
            }
            Change::Nice { process, from, .. } => Some(renice(*process, *from)),
            Change::Weight { file, from, .. } => Some(format!("echo {from} > {file}")),
            _ => None,
        }
    }

    /// Whether more or fewer requests are in service at a time under it.
    #[must_use]
    pub fn changes_concurrency(&self) -> bool {
        matches!(self, Change::Workers { .. })
    }
}

/// A nice value is a thread's, and `renice -p` takes threads.
fn renice(process: u32, nice: i32) -> String {
    format!("renice -n {nice} -p $(ls /proc/{process}/task)")
}

fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    }
}

impl fmt::Display for Change {
    /// As a row of a table names it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Nothing => f.pad("nothing"),
            Change::Steer { policy, .. } => f.pad(&format!("steer {policy}")),
            Change::Workers { from, to } => f.pad(&format!("workers {from} -> {to}")),
            Change::SharedSocket => f.pad("one shared socket"),
            Change::EventQueue => f.pad("one event queue"),
            Change::HeddleGo => f.pad("heddle go build"),
            Change::RuntimePolicy { to, .. } => f.pad(&format!("HEDDLE_POLICY={to}")),
            Change::Nice { process, name, to, .. } => {
                // The name is another program's: it must not write to the terminal.
                f.pad(&format!("nice {to} for {} ({process})", name.escape_default()))
            }
            Change::Weight { process, name, .. } => {
                f.pad(&format!("least weight for {} ({process})", name.escape_default()))
            }
        }
    }
}

/// Returns the changes that make sense for a service, "nothing" first.
pub fn of(model: &Model) -> Vec<Change> {
    let mut changes = vec![Change::Nothing];
    if let Some(runtime) = &model.runtime {
        changes.extend(of_runtime(runtime));
        return changes;
    }
    let sync = model.workers.iter().all(|worker| worker.kind == WorkerKind::Sync);
    if model.steerable() > 1 {
        changes.extend(POLICIES.map(|policy| Change::Steer {
            policy: policy.into(),
            protocol: model.protocol,
            port: model.port,
        }));
    }
    if sync && !model.workers.is_empty() {
        let from = model.workers.len();
        changes.push(Change::Workers { from, to: 2 * from });
    }
    if sync && model.queues.len() > 1 {
        changes.push(Change::SharedSocket);
    }
    if model.is_threads_with_loops() {
        changes.push(Change::EventQueue);
    }
    changes.extend(nicer(model));
    changes
}

fn of_runtime(runtime: &Runtime) -> Vec<Change> {
    let from = &runtime.policy;
    let to = |policy: &&str| Change::RuntimePolicy { from: from.clone(), to: (*policy).into() };
    match runtime.kind {
        RuntimeKind::Heddle => {
            RUNTIME_POLICIES.iter().filter(|policy| *policy != from).map(to).collect()
        }
        RuntimeKind::Go => vec![Change::HeddleGo],
        RuntimeKind::HeddleGo => vec![],
    }
}

/// Returns the change to a policy that the caller names: one of a Heddle runtime, if the service has one, else of
/// steering.
pub fn named(model: &Model, policy: &str) -> Change {
    match &model.runtime {
        Some(Runtime { kind: RuntimeKind::Heddle, policy: from, .. }) => {
            Change::RuntimePolicy { from: from.clone(), to: policy.into() }
        }
        _ => Change::Steer { policy: policy.into(), protocol: model.protocol, port: model.port },
    }
}

/// Processes beside the service that delayed it, and are not nice yet.
fn nicer(model: &Model) -> Vec<Change> {
    let mut processes: Vec<(&Neighbour, f64)> = Vec::new();
    for one in model.neighbours.iter().filter(|one| one.process != 0) {
        match processes.iter_mut().find(|(first, _)| first.process == one.process) {
            Some((_, share)) => *share += one.share,
            None => processes.push((one, one.share)),
        }
    }
    let worth = processes.into_iter().filter(|(_, share)| *share >= NOTICEABLE);
    worth.filter_map(|(one, _)| less(one, &model.group)).take(NEIGHBOURS).collect()
}

/// Returns how a neighbour gets less CPU time than the service; `None` if it has as little as possible.
fn less(one: &Neighbour, own: &Group) -> Option<Change> {
    let (process, name) = (one.process, one.name.clone());
    if one.group.name == own.name {
        let (from, to) = (one.nice, BACKGROUND);
        return (from < to).then_some(Change::Nice { process, name, from, to });
    }
    let file = one.group.file.clone();
    // Of a cgroup 1 is the least (2 in version 1); of an automatic group it is a nice value.
    let to = match file.rsplit('/').next()? {
        "cpu.weight" => "1",
        "cpu.shares" => "2",
        "autogroup" => "19",
        _ => return None,
    };
    let (from, to) = (one.group.weight.clone(), to.to_string());
    (from != to).then_some(Change::Weight { process, name, file, from, to })
}
