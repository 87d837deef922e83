//! The agent process's side of the protocol with its guardian.

use super::keeper::Backends as _;
use super::protocol::{AgentReply, Assignment, Order, SCHEMA, line};
use super::{Agents, Folder, KernelBackends, Kind, kernel};
use crate::agent::{AgentMode, Control, EndReason, Options, serve};
use crate::classes::{ClassMap, Classes, Rule};
use crate::fair::{self, WatchOptions};
use heddle_sys::processes;
use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

/// The main of an agent process: follows the orders on standard input until it ends.
pub fn agent_process() {
    if let Err(why) = work() {
        say(&AgentReply::Failed(why));
    }
}

fn say(said: &AgentReply) {
    let mut out = io::stdout().lock();
    // If the guardian is gone, the end of its orders says so.
    let _ = out.write_all(line(said).as_bytes()).and_then(|()| out.flush());
}

fn assignment() -> Result<Assignment, String> {
    let mut text = String::new();
    io::stdin().lock().read_line(&mut text).map_err(|error| error.to_string())?;
    let not_understood = |why: String| {
        format!(
            "this binary is of another version than its guardian and does not understand it ({why})"
        )
    };
    let assignment: Assignment =
        serde_json::from_str(&text).map_err(|error| not_understood(error.to_string()))?;
    match assignment.schema {
        SCHEMA => Ok(assignment),
        other => Err(not_understood(format!("schema {other}"))),
    }
}

fn work() -> Result<(), String> {
    let assignment = assignment()?;
    let (control, abandoned) = (Control::default(), Arc::new(AtomicBool::new(false)));
    let begin = listen(control.clone(), Arc::clone(&abandoned));
    let ended = match assignment.backend {
        Kind::Fair => watch(&assignment, begin, &control),
        _ => decide(&assignment, begin, &control),
    };
    if abandoned.load(Ordering::Acquire) {
        clean_up(&assignment);
        return Ok(());
    }
    match ended? {
        EndReason::Left | EndReason::Stopped => say(&AgentReply::Left),
        EndReason::Lost => {
            return Err(
                "the enclave no longer accepts its decisions: its patience has ended, or it is gone".into(),
            );
        }
    }
    Ok(())
}

/// Decides for the threads of an enclave.
fn decide(
    assignment: &Assignment,
    begin: Receiver<()>,
    control: &Control,
) -> Result<EndReason, String> {
    let backend = match &assignment.cpus {
        Some(cpus) => kernel::open_on(assignment.backend, &assignment.name, cpus),
        None => kernel::open(assignment.backend, &assignment.name),
    };
    let backend = backend.map_err(|error| format!("the agent cannot open the enclave: {error}"))?;
    let served = serve(backend, options(assignment, begin)?, control);
    served.map(|ended| ended.reason).map_err(|error| error.to_string())
}

/// Maintains the settings of threads that the kernel schedules.
fn watch(
    assignment: &Assignment,
    begin: Receiver<()>,
    control: &Control,
) -> Result<EndReason, String> {
    let watching = WatchOptions {
        folder: assignment.folder.clone(),
        policy: assignment.policy.clone(),
        classes: classes(assignment)?,
        status: assignment.status.clone(),
        enclave: assignment.name.clone(),
        guardian: processes::parent(std::process::id()),
    };
    let ready = || await_order(&begin);
    fair::serve(watching, control, ready, || say(&AgentReply::Attached))
}

fn await_order(begin: &Receiver<()>) {
    say(&AgentReply::Ready);
    // Without a guardian there is no enclave to serve; the order to stop has been given already.
    let _ = begin.recv();
}

/// Reads orders forever. The receiver gets the order to attach.
fn listen(control: Control, abandoned: Arc<AtomicBool>) -> Receiver<()> {
    let (sender, begin) = channel();
    std::thread::spawn(move || {
        for text in io::stdin().lines().map_while(Result::ok) {
            match serde_json::from_str(&text) {
                // The receiver is gone if the agent has failed, which it has reported then.
                Ok(Order::Attach) => drop(sender.send(())),
                Ok(Order::Leave) => control.leave(),
                Err(_) => {}
            }
        }
        abandoned.store(true, Ordering::Release);
        control.stop();
    });
    begin
}

fn options(assignment: &Assignment, begin: Receiver<()>) -> Result<Options, String> {
    let mut options = Options::new(&assignment.policy);
    options.mode = match assignment.agents {
        Agents::Central => AgentMode::Central { spin: assignment.spin },
        Agents::Local => AgentMode::Local,
    };
    options.classes = classes(assignment)?;
    options.report = Some(assignment.status.clone());
    options.enclave = Some(assignment.name.clone());
    options.ready = Some(Box::new(move || await_order(&begin)));
    options.attached = Some(Box::new(|| say(&AgentReply::Attached)));
    Ok(options)
}

fn classes(assignment: &Assignment) -> Result<Classes, String> {
    let rules: Result<Vec<Rule>, _> = assignment.classes.iter().map(|rule| rule.parse()).collect();
    let classes = Classes::new(rules.map_err(|error| error.to_string())?);
    match &assignment.class_map {
        None => Ok(classes),
        Some(named) => {
            Ok(classes.with_map(ClassMap::open(named).map_err(|error| error.to_string())?))
        }
    }
}

/// Cleans up after a killed guardian: gives its threads back and leaves nothing behind.
fn clean_up(assignment: &Assignment) {
    if let Err(error) = KernelBackends.undo(assignment.backend, &assignment.name) {
        eprintln!(
            "heddle: the guardian of enclave `{}` is dead, and what it left could not all be removed: {error}",
            assignment.name
        );
        return;
    }
    let folder = Folder::at(&assignment.folder);
    if folder.is_dead() {
        folder.remove();
    }
}
