//! The agent process, as its guardian holds it.

use super::GuardianError;
use super::event::{Event, Events};
use super::protocol::{AgentReply, Assignment, Order, line};
use super::tasks;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// An agent process. Dropping it kills it.
#[derive(Debug)]
pub struct AgentProcess {
    /// Distinguishes an agent from its successor.
    pub serial: u32,
    pid: Pid,
    orders: ChildStdin,
    ended: Option<WaitStatus>,
}

impl AgentProcess {
    /// Starts `command`, or `program` if one is given, with `assignment`. Its messages come as events with
    /// `serial`.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(
        command: &[OsString],
        program: Option<&OwnedFd>,
        serial: u32,
        assignment: &Assignment,
        events: &Events,
    ) -> Result<AgentProcess, GuardianError> {
        let (name, arguments) =
            command.split_first().ok_or_else(|| GuardianError::Failed("no agent".into()))?;
        let file = program.map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()).into());
        let mut child = Command::new(file.as_ref().unwrap_or(name))
            .arg0(name)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C in the terminal is for the program, not for its scheduler.
            .process_group(0)
            .spawn()
            .map_err(GuardianError::system("cannot start the agent process"))?;
        let pid = Pid::from_child(&child);
        // Both pipes were requested above.
        let (Some(orders), Some(said)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(GuardianError::Failed("the agent process has no pipes".into()));
        };
        listen(said, serial, events.sender());
        let mut process = AgentProcess { serial, pid, orders, ended: None };
        process.say(&line(assignment));
        Ok(process)
    }

    /// Gives an order. If the agent is dead, the end of its output reports it.
    pub fn order(&mut self, order: Order) {
        self.say(&line(&order));
    }

    fn say(&mut self, text: &str) {
        let _ = self.orders.write_all(text.as_bytes());
    }

    /// Returns the process's number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// Whether the process ends by itself within `time`, or has begun to: on a busy machine that takes long.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        let begin = Instant::now();
        loop {
            if self.ended.is_none() {
                let ended = waitpid(Some(self.pid), WaitOptions::NOHANG);
                self.ended = ended.ok().flatten().map(|(_, status)| status);
            }
            if self.ended.is_some() || begin.elapsed() >= time {
                return self.ended.is_some() || tasks::is_exiting(self.pid());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills the process if it has not ended. Returns how it ended.
    pub fn end(&mut self) -> String {
        // A process that has ended keeps its own status; one that has not must take no more decisions.
        if self.ended.is_none() {
            let _ = kill_process(self.pid, Signal::KILL);
            self.ended =
                waitpid(Some(self.pid), WaitOptions::empty()).ok().flatten().map(|(_, s)| s);
        }
        self.ended.map_or_else(|| "it ended".into(), describe)
    }

    /// Takes the status of this process if `pid` is its number, from a loop that collects all children.
    pub fn collected(&mut self, pid: Pid, status: WaitStatus) -> bool {
        let mine = pid == self.pid;
        if mine {
            self.ended = Some(status);
        }
        mine
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.end();
    }
}

fn describe(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("it ended with exit code {code}"),
        (_, Some(signal)) => format!("it was ended by signal {signal}"),
        _ => "it ended".into(),
    }
}

/// Passes on the agent's messages and the end of its output.
fn listen(said: ChildStdout, serial: u32, events: Sender<Event>) {
    std::thread::spawn(move || {
        for text in BufReader::new(said).lines().map_while(Result::ok) {
            let said = serde_json::from_str(&text)
                .unwrap_or_else(|_| AgentReply::Failed(format!("it said `{text}`")));
            if events.send(Event::Agent(serial, said)).is_err() {
                return;
            }
        }
        let _ = events.send(Event::AgentGone(serial));
    });
}
