//! The agent process's side of what guardian and agent say to each other.

use super::keeper::Backends as _;
use super::talk::{Assignment, Order, SCHEMA, Said, line};
use super::{Agents, Folder, Here, Kind, here};
use crate::agent::{Control, Options, Place, Why, serve};
use crate::classes::{Classes, Lines, Rule};
use crate::fair::{self, Watching};
use heddle_sys::processes;
use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

/// The main of an agent process: does what its guardian says on standard input, until it says no more.
pub fn agent_process() {
    if let Err(why) = work() {
        say(&Said::Failed(why));
    }
}

fn say(said: &Said) {
    let mut out = io::stdout().lock();
    // If the guardian is gone, the end of its orders says so.
    let _ = out.write_all(line(said).as_bytes()).and_then(|()| out.flush());
}

fn assignment() -> Result<Assignment, String> {
    let mut text = String::new();
    io::stdin().lock().read_line(&mut text).map_err(|error| error.to_string())?;
    let not_understood = |why: String| {
        format!("this binary does not understand its guardian ({why}): it is of another version")
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
        Why::Left | Why::Stopped => say(&Said::Left),
        Why::Lost => {
            return Err(
                "the enclave takes its decisions no more: it has lost patience, or is gone".into(),
            );
        }
    }
    Ok(())
}

/// Decides for the threads of an enclave.
fn decide(assignment: &Assignment, begin: Receiver<()>, control: &Control) -> Result<Why, String> {
    let backend = here::open(assignment.backend, &assignment.name)
        .map_err(|error| format!("the agent cannot open the enclave: {error}"))?;
    let served = serve(backend, options(assignment, begin)?, control);
    served.map(|ended| ended.why).map_err(|error| error.to_string())
}

/// Watches over threads for which the kernel decides.
fn watch(assignment: &Assignment, begin: Receiver<()>, control: &Control) -> Result<Why, String> {
    let watching = Watching {
        folder: assignment.folder.clone(),
        policy: assignment.policy.clone(),
        classes: classes(assignment)?,
        status: assignment.status.clone(),
        guardian: processes::parent(std::process::id()),
    };
    let ready = || await_order(&begin);
    fair::serve(watching, control, ready, || say(&Said::Attached))
}

fn await_order(begin: &Receiver<()>) {
    say(&Said::Ready);
    // Without a guardian there is no enclave to serve: the order to stop is there already.
    let _ = begin.recv();
}

/// Reads orders for ever. What comes out is that of beginning.
fn listen(control: Control, abandoned: Arc<AtomicBool>) -> Receiver<()> {
    let (sender, begin) = channel();
    std::thread::spawn(move || {
        for text in io::stdin().lines().map_while(Result::ok) {
            match serde_json::from_str(&text) {
                // The receiver is gone if the agent has failed, and then that was said.
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
    options.place = match assignment.agents {
        Agents::Central => Place::Central { spin: assignment.spin },
        Agents::Local => Place::Local,
    };
    options.classes = classes(assignment)?;
    options.report = Some(assignment.status.clone());
    options.ready = Some(Box::new(move || await_order(&begin)));
    options.attached = Some(Box::new(|| say(&Said::Attached)));
    Ok(options)
}

fn classes(assignment: &Assignment) -> Result<Classes, String> {
    let rules: Result<Vec<Rule>, _> = assignment.classes.iter().map(|rule| rule.parse()).collect();
    let classes = Classes::new(rules.map_err(|error| error.to_string())?);
    match &assignment.class_map {
        None => Ok(classes),
        Some(named) => {
            Ok(classes.with_lines(Lines::open(named).map_err(|error| error.to_string())?))
        }
    }
}

/// The guardian was killed: its threads are given back here, and nothing stays behind.
fn clean_up(assignment: &Assignment) {
    if let Err(error) = Here.undo(assignment.backend, &assignment.name) {
        eprintln!(
            "heddle: the guardian of enclave `{}` is dead, and not all that it left could be removed: {error}",
            assignment.name
        );
        return;
    }
    let folder = Folder::at(&assignment.folder);
    if folder.is_dead() {
        folder.remove();
    }
}
