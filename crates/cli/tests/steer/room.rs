//! An isolated room for a test: a mount namespace with an empty `/run/heddle` and BPF file system, and a
//! network namespace with only loopback. No other test sees what a test attaches, and it disappears with the
//! room.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

const FURNISH: &str = "mkdir -p /run/heddle && mount -t tmpfs heddle-test /run/heddle && mount -t bpf bpf \
    /sys/fs/bpf && ip link set lo up && echo furnished && exec cat";

pub struct Room {
    holder: Child,
}

impl Room {
    /// Creates a room. Prints a line and returns `None` if this user may not.
    pub fn new() -> Option<Room> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: steering real servers requires root");
            return None;
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--propagation", "private", "sh", "-c", FURNISH]);
        let mut holder = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare, of util-linux");
        let mut line = String::new();
        let stdout = holder.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("readable");
        if line.is_empty() {
            let _ = holder.wait();
            eprintln!("skipped: no BPF file system or no namespaces here");
            return None;
        }
        Some(Room { holder })
    }

    /// Returns a command that runs inside.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--net", "--target", &self.holder.id().to_string(), program]);
        command.args(arguments).stdin(Stdio::null()).env_remove("HEDDLE_CLANG");
        command
    }

    pub fn heddle(&self, arguments: &[&str]) -> Output {
        self.command(env!("CARGO_BIN_EXE_heddle"), arguments).output().expect("it starts")
    }

    /// Runs a command that must succeed, and returns its standard output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.heddle(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("text")
    }

    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.ok(arguments)).expect("one JSON object")
    }

    /// Runs a command that must exit with `code`, and returns its standard error.
    pub fn refused(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.heddle(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        text
    }

    /// Runs the command in the machine's network namespace, as from the host of a container.
    #[allow(dead_code, reason = "not every test is about namespaces")]
    pub fn heddle_outside(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.holder.id().to_string()]);
        command.arg(env!("CARGO_BIN_EXE_heddle")).args(arguments).output().expect("it starts")
    }

    /// Starts a server with several workers inside.
    pub fn server(
        &self,
        protocol: &str,
        address: &str,
        port: u16,
        workers: usize,
        how: &str,
    ) -> Server {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/steer/server.py");
        self.server_by(&["python3", script], protocol, address, port, workers, how)
    }

    /// The same, started by the given command.
    #[allow(dead_code, reason = "not every test is about who the server is")]
    pub fn server_by(
        &self,
        program: &[&str],
        protocol: &str,
        address: &str,
        port: u16,
        workers: usize,
        how: &str,
    ) -> Server {
        let (port, workers) = (port.to_string(), workers.to_string());
        let arguments = [&program[1..], &[protocol, address, &port, &workers, how]].concat();
        let mut command = self.command(program[0], &arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let mut lines = BufReader::new(stdout.expect("piped"));
        let mut ready = String::new();
        lines.read_line(&mut ready).expect("readable");
        let port = ready
            .trim()
            .strip_prefix("ready ")
            .and_then(|port| port.parse().ok())
            .expect("the server is ready");
        let at = SocketAddr::new(address.parse().expect("an address"), port);
        Server { child, stdin, lines, at, udp: protocol == "udp" }
    }

    /// Sends `n` requests, each from its own socket, and returns which worker answered each.
    pub fn ask(&self, server: &Server, n: usize) -> Vec<usize> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/steer/client.py");
        let protocol = if server.udp { "udp" } else { "tcp" };
        let (ip, port, n) =
            (server.at.ip().to_string(), server.at.port().to_string(), n.to_string());
        let output =
            self.command("python3", &[script, protocol, &ip, &port, &n]).output().expect("python3");
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines()
            .map(|line| line.split(' ').next().expect("a word").parse().expect("a worker's number"))
            .collect()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

pub struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    pub at: SocketAddr,
    udp: bool,
}

impl Server {
    pub fn port(&self) -> String {
        self.at.port().to_string()
    }

    /// The server's first process, which `nsenter` became.
    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// `restart K` or `stop K`.
    pub fn order(&mut self, command: &str) {
        writeln!(self.stdin.as_mut().expect("open"), "{command}").expect("the server lives");
        let mut done = String::new();
        self.lines.read_line(&mut done).expect("readable");
        assert_eq!(done, "done\n");
    }

    pub fn end(mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
