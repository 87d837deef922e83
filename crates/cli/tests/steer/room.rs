//! A room of its own for a test: a mount namespace with an empty `/run/heddle` and BPF file system, and a network
//! namespace with only loopback. What the test attaches is seen by no other, and goes when the room does.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

const FURNISH: &str = "mkdir -p /run/heddle && mount -t tmpfs heddle-test /run/heddle && mount -t bpf bpf /sys/fs/bpf && ip link set lo up && echo furnished && exec cat";

pub struct Room {
    holder: Child,
}

impl Room {
    /// `None`, and a line that says so, where this user may not make one.
    pub fn new() -> Option<Room> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: steering real servers takes root");
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

    /// A command inside.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--net", "--target", &self.holder.id().to_string(), program]);
        command.args(arguments).stdin(Stdio::null()).env_remove("HEDDLE_CLANG");
        command
    }

    pub fn heddle(&self, arguments: &[&str]) -> Output {
        self.command(env!("CARGO_BIN_EXE_heddle"), arguments).output().expect("it starts")
    }

    /// What a command that succeeds prints.
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

    /// What a command that fails says; it must exit with `code`.
    pub fn refused(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.heddle(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        text
    }

    /// The same from the network namespace of the machine, as from the host of a container.
    #[allow(dead_code, reason = "not every test is about namespaces")]
    pub fn heddle_outside(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.holder.id().to_string()]);
        command.arg(env!("CARGO_BIN_EXE_heddle")).args(arguments).output().expect("it starts")
    }

    /// A server of several workers inside.
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

    /// The same, started by a command of one's own.
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

    /// What the workers answer to `n` requests, each from a socket of its own.
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

    /// The server's first process: the one that `nsenter` became.
    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// `restart K` or `stop K`.
    pub fn tell(&mut self, command: &str) {
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
