//! A server under lanes in a process of its own, and the clients that it meets.
#![allow(dead_code, reason = "each test program uses its part")]

pub mod fork;
pub mod scenarios;
pub mod server;

use heddle_netns::{NEAR, Namespace, Pair, missing_privilege};
use heddle_test_support::Running;
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdout, Command, Stdio};

/// Longer than anything takes, on a busy machine too.
pub const HANG: std::time::Duration = std::time::Duration::from_secs(120);

/// Returns a pair of namespaces; `None`, having said why, without the privilege.
pub fn pair() -> Option<Pair> {
    if let Some(missing) = missing_privilege() {
        eprintln!("skipped: {missing}");
        return None;
    }
    Some(Pair::new(2).unwrap())
}

/// This program's test `serve`, in a process of its own whose sockets lanes serve. It ends with this value.
pub struct Server {
    pub process: Running,
    answers: BufReader<ChildStdout>,
}

impl Server {
    /// Starts it in the namespace `near` and waits until it serves.
    #[track_caller]
    pub fn start(near: &Namespace, options: &str) -> Server {
        Server::start_on(near, NEAR, options)
    }

    /// Starts it on an interface of a namespace.
    #[track_caller]
    pub fn start_on(namespace: &Namespace, interface: &str, options: &str) -> Server {
        let program = std::env::current_exe().unwrap();
        let mut command = namespace.command(program.to_str().unwrap());
        command.args(["--exact", "--ignored", "--nocapture", "serve"]);
        command.env("HEDDLE_NET", format!("xdp:{interface}{options}")).env("HEDDLE_WORKERS", "2");
        let mut process = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let answers = BufReader::new(process.child().stdout.take().unwrap());
        let mut server = Server { process, answers };
        server.await_line("ready");
        server
    }

    #[track_caller]
    fn await_line(&mut self, wanted: &str) {
        while self.line() != wanted {}
    }

    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        let length = self.answers.read_line(&mut line).unwrap();
        assert!(length > 0, "the server has ended");
        // The test harness begins a line before the server does.
        line.trim_end().rsplit(' ').next().unwrap_or("").to_owned()
    }

    /// Has it obey `order` (see [`server::obey`]). Returns the numbers that it answers, by name.
    #[track_caller]
    pub fn order(&mut self, order: &str) -> HashMap<String, u64> {
        writeln!(self.process.child().stdin.as_mut().unwrap(), "{order}").unwrap();
        let mut numbers = HashMap::new();
        loop {
            let line = self.line();
            if line == "done" {
                return numbers;
            }
            if let Some((name, value)) = line.split_once('=') {
                numbers.insert(name.to_owned(), value.parse().unwrap());
            }
        }
    }
}

/// Runs `command` to its end, and returns what it printed.
#[track_caller]
pub fn output(command: &mut Command) -> String {
    heddle_test_support::run(command)
}
