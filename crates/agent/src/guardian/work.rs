//! The agent process's side of what guardian and agent say to each other.

use super::talk::{Assignment, Order, SCHEMA, Said, line};
use std::io::{self, BufRead as _, Write as _};

/// The main of an agent process.
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

fn order() -> Option<Order> {
    let mut text = String::new();
    io::stdin().lock().read_line(&mut text).ok()?;
    serde_json::from_str(&text).ok()
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
    say(&Said::Ready);
    let Some(Order::Attach) = order() else { return Ok(()) };
    Err(format!("{} is not there yet", assignment.backend))
}
