//! Servers for tests: in this process, or in a child that can be killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use heddle_server::{HeddleOptions, Options, Protocol, Server, System};
use heddle_store::StoreConfig;
use heddle_test_support::PATIENCE;
pub(crate) use heddle_test_support::{temp_dir, until as wait_until};
use rustix::process::{Resource, Rlimit};

/// Selects the server that a child runs: `system` or `system:directory`.
const ROLE: &str = "HEDDLE_TEST_SERVER";
/// Limits a child to this many descriptors.
pub(crate) const DESCRIPTORS: &str = "HEDDLE_TEST_DESCRIPTORS";
/// Limits requests of a child to 200 ms.
pub(crate) const HASTY: &str = "HEDDLE_TEST_HASTY";

pub(crate) fn systems() -> Vec<System> {
    let rest = [System::Tokio { workers: Some(2) }, System::Threads { pool: Some(4) }];
    std::iter::once(heddle()).chain(rest).chain(evented()).collect()
}

/// More threads than processors on one queue, and the epoll baseline.
pub(crate) fn evented() -> [System; 2] {
    let threads = Some(4);
    [System::Events { policy: Some("hybrid".into()), threads }, System::Epoll { threads }]
}

/// Heddle with a short quantum, so that tests meet preemption, and on one worker, so that it matters.
pub(crate) fn heddle() -> System {
    System::Heddle(HeddleOptions {
        policy: Some("two-queue:quantum=100us".into()),
        workers: Some(1),
        handlers: 16,
        ..HeddleOptions::default()
    })
}

/// Runs `test` against every system on every store of this build.
pub(crate) fn on_each(test: impl Fn(&Server)) {
    on_each_with(|_| (), test);
}

pub(crate) fn on_each_with(change: impl Fn(&mut Options), test: impl Fn(&Server)) {
    for system in systems() {
        for on_disk in [false, true] {
            if on_disk && cfg!(not(feature = "rocksdb")) {
                continue;
            }
            let dir = temp_dir();
            let mut options = Options { system: system.clone(), ..Options::on_free_ports() };
            if on_disk {
                options.store = StoreConfig::RocksDb { dir: dir.path().into(), sync: false };
            }
            change(&mut options);
            let server = Server::start(&options).unwrap();
            test(&server);
            server.stop().request();
            server.wait().unwrap();
        }
    }
}

/// Runs `test` against a server of `protocol` on each system that speaks it.
pub(crate) fn on_each_speaking(protocol: &Protocol, test: impl Fn(&Server)) {
    for system in evented() {
        let (protocol, udp) = (protocol.clone(), None);
        let server =
            Server::start(&Options { system, protocol, udp, ..Options::on_free_ports() }).unwrap();
        test(&server);
        server.stop().request();
        server.wait().unwrap();
    }
}

/// A RESP client that checks bytes.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Client {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(stream)
    }

    pub(crate) fn to(server: &Server) -> Client {
        Client::connect(server.tcp().unwrap())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Sends `request` and expects exactly `reply`.
    pub(crate) fn talk(&mut self, request: &str, reply: &str) {
        self.send(request.as_bytes());
        let mut got = vec![0; reply.len()];
        self.0.read_exact(&mut got).unwrap();
        assert_eq!(String::from_utf8_lossy(&got), reply, "{request:?}");
    }

    /// The next line, without its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line[..line.len() - 2]).into_owned()
    }

    /// Everything until the server closes.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).unwrap();
        String::from_utf8_lossy(&rest).into_owned()
    }
}

/// A server in a process of its own.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) tcp: SocketAddr,
}

impl Process {
    /// Starts a server; see [`ROLE`].
    pub(crate) fn start(role: &str) -> Process {
        Process::start_with(role, &[])
    }

    /// The same with additional variables: [`HASTY`], [`DESCRIPTORS`].
    pub(crate) fn start_with(role: &str, variables: &[(&str, &str)]) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .envs(variables.iter().copied())
            .stderr(if variables.is_empty() { Stdio::inherit() } else { Stdio::piped() })
            .args(["--exact", "harness::be_a_server", "--ignored", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready =
            lines.find_map(|line| Some(line.unwrap().split_once("ready tcp=")?.1.to_owned()));
        // The reader stays open for what the child prints at its end.
        std::thread::spawn(move || lines.for_each(drop));
        let ready = ready.expect("the server became ready");
        let tcp = ready.split(' ').next().unwrap().parse().unwrap();
        Process { child, tcp }
    }

    /// Sends a signal by its name and returns the exit code; `None` after a death by signal.
    pub(crate) fn end_by(mut self, signal: &str) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

/// Not a test: what a child of [`Process::start`] does.
#[test]
#[ignore = "the server process of other tests"]
fn be_a_server() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (system, dir) = role.split_once(':').unwrap_or((&role, ""));
    let system = systems().into_iter().find(|s| s.name() == system).unwrap();
    let mut options = Options { system, until_stdin_closes: true, ..Options::on_free_ports() };
    if let Ok(most) = std::env::var(DESCRIPTORS) {
        let most = most.parse().ok();
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })
            .unwrap();
    }
    if std::env::var_os(HASTY).is_some() {
        options.clients.request = Duration::from_millis(200);
    }
    if !dir.is_empty() {
        options.store = StoreConfig::RocksDb { dir: dir.into(), sync: false };
    }
    let ended = heddle_server::run(&options);
    std::process::exit(i32::from(ended.is_err()));
}
