//! heddled with its own state, servers to steer, and unprivileged users.
#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use heddle_steer::client::{Connection, Deployment, Steering};
use heddle_steer::engine::State;
use heddle_steer::hook::Hook;
use heddle_steer::request::{Attachment, Error, Policy};
use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use rustix::process::{Pid, Signal, kill_process};

pub const NOBODY: u32 = 65534;
pub const EXE: &str = env!("CARGO_BIN_EXE_heddled");
/// The environment variable that gives the daemon's socket to a test that runs as another user.
pub const SOCKET: &str = "HEDDLE_TEST_SOCKET";
const LONG: Duration = Duration::from_secs(60);

/// 800 random numbers, without a loop: the verifier explores only few iterations of an unprivileged loop.
pub const SLOW: &str = "
#define ONE sum += hd_random();
#define TEN ONE ONE ONE ONE ONE ONE ONE ONE ONE ONE
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
static volatile u32 sum;
static u32 schedule(struct hd_in *in)
{
    HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED
    return sum % hd_executors();
}";

/// Returns whether these tests can run here; prints the reason if not.
pub fn able() -> bool {
    let root = rustix::process::geteuid().is_root();
    let bpf = State::at("/run", "/sys/fs/bpf/heddle-test").prepare();
    let _ = fs::remove_dir("/sys/fs/bpf/heddle-test");
    if root && bpf.is_ok() {
        return true;
    }
    eprintln!("SKIPPED: needs root and a BPF file system");
    false
}

/// heddled, stopped when the test ends.
pub struct Daemon {
    folder: PathBuf,
    pins: PathBuf,
    arguments: Vec<String>,
    under: Vec<String>,
    child: Option<Child>,
}

impl Daemon {
    pub fn start(arguments: &[&str]) -> Self {
        let mut daemon = Self::new(arguments);
        daemon.again();
        daemon
    }

    /// Starts one under another program: `prlimit --nofile=1024`.
    pub fn under(under: &[&str], arguments: &[&str]) -> Self {
        let mut daemon = Self::new(arguments);
        daemon.under = under.iter().map(ToString::to_string).collect();
        daemon.again();
        daemon
    }

    /// Prepares one without starting it.
    pub fn new(arguments: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (pid, n) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("heddled-test-{pid}-{n}"));
        fs::create_dir(&folder).expect("a folder");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("open to all");
        let pins = PathBuf::from(format!("/sys/fs/bpf/heddled-test-{pid}-{n}"));
        let mut arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        for (name, path) in [
            ("--socket", folder.join("sock")),
            ("--state", folder.join("run")),
            ("--pins", pins.clone()),
        ] {
            arguments.extend([name.into(), path.display().to_string()]);
        }
        Self { folder, pins, arguments, under: Vec::new(), child: None }
    }

    /// Starts it on the existing state.
    pub fn again(&mut self) {
        self.spawn();
        until("heddled listens", || Connection::open(&self.socket()).is_ok());
    }

    /// Starts it without waiting.
    pub fn spawn(&mut self) {
        let log = fs::File::options().create(true).append(true).open(self.folder.join("log"));
        let command = [&self.under[..], &[EXE.to_owned()], &self.arguments[..]].concat();
        let mut started = Command::new(&command[0]);
        started.args(&command[1..]).stderr(log.expect("a log"));
        self.child = Some(started.spawn().expect("heddled starts"));
    }

    /// Waits for its exit; returns whether it succeeded.
    pub fn ended(&mut self) -> bool {
        self.child.take().expect("it runs").wait().expect("ended").success()
    }

    /// Returns the folder of its records.
    pub fn run(&self) -> PathBuf {
        self.folder.join("run")
    }

    /// Returns the folder of its pins.
    pub fn pins(&self) -> &Path {
        &self.pins
    }

    pub fn state(&self) -> State {
        State::at(self.run(), &self.pins)
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("sock")
    }

    pub fn steering(&self) -> Steering {
        Steering::at(self.socket())
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// From now on runs it under another program, or under none.
    pub fn set_under(&mut self, under: &[String]) {
        self.under = under.to_vec();
    }

    /// Returns whether it runs; forgets it if it has exited.
    pub fn lives(&mut self) -> bool {
        let Some(child) = &mut self.child else { return false };
        let lives = matches!(child.try_wait(), Ok(None));
        if !lives {
            self.child = None;
        }
        lives
    }

    pub fn id(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("killed");
        child.wait().expect("ended");
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(self.child.as_ref().expect("it runs"));
        kill_process(pid, signal).expect("signalled");
    }

    /// Stops it with `signal`, and waits only for its lock: part of it may never end.
    pub fn leave(&mut self, signal: Signal) {
        self.signal(signal);
        self.child = None;
        let lock = fs::File::open(self.run().join("heddled.lock")).expect("its lock");
        until("another may run", || flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok());
    }

    /// SIGTERM, as systemd sends it.
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        kill_process(Pid::from_child(&child), Signal::TERM).expect("signalled");
        assert!(child.wait().expect("ended").success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("heddled said:\n{}", self.log());
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let state = self.state();
        for attachment in state.list().unwrap_or_default() {
            let _ = state.remove(attachment.id);
        }
        for root in fs::read_dir(&self.pins).into_iter().flatten().flatten() {
            let _ = heddle_steer::hook::xdp::Root::unpin(&root.path());
        }
        let _ = fs::remove_dir(&self.pins);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub use heddle_test_support::until;

/// Sockets that share a port of the loopback.
pub fn group(n: usize, at: &str) -> Vec<UdpSocket> {
    let mut at: SocketAddr = at.parse().expect("an address");
    let mut sockets = Vec::new();
    for _ in 0..n {
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let kind = (SocketType::DGRAM, SocketFlags::CLOEXEC);
        let socket = socket_with(family, kind.0, kind.1, None).expect("a socket");
        set_socket_reuseport(&socket, true).expect("reuseport");
        bind(&socket, &at).expect("a free port");
        let socket = UdpSocket::from(socket);
        socket.set_nonblocking(true).expect("non-blocking");
        at = socket.local_addr().expect("bound");
        sockets.push(socket);
    }
    sockets
}

pub fn copy(socket: &UdpSocket) -> OwnedFd {
    socket.as_fd().try_clone_to_owned().expect("a copy")
}

pub fn deployment(policy: Policy, sockets: &[UdpSocket]) -> Deployment {
    let new = Deployment::new(policy, Hook::SocketSelect);
    sockets.iter().fold(new, |deployment, socket| deployment.executor("a test's", copy(socket)))
}

pub fn shipped(name: &str) -> Policy {
    Policy { name: name.into(), parameters: Vec::new(), object: None }
}

pub fn attach(
    steering: &Steering,
    policy: &str,
    sockets: &[UdpSocket],
) -> Result<Attachment, Error> {
    steering.attach(deployment(shipped(policy), sockets))
}

/// A policy of a source.
pub fn compiled(source: &str) -> Policy {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("policy.c");
    fs::write(&file, format!("#include <heddle.h>\n{source}")).expect("written");
    heddle_steer::client::policy_of(&file.display().to_string()).expect("it compiles")
}

/// Sends `n` datagrams of one flow and returns how many each socket got.
pub fn traffic(sockets: &[UdpSocket], n: usize) -> Vec<usize> {
    let to = sockets[0].local_addr().expect("bound");
    let client = UdpSocket::bind((to.ip(), 0)).expect("a client");
    let mut counts = vec![0; sockets.len()];
    for _ in 0..n {
        client.send_to(b"x", to).expect("sent");
        received(sockets, &mut counts);
    }
    // On a busy machine the kernel delivers some after `send` has returned.
    until("all datagrams", || {
        received(sockets, &mut counts);
        counts.iter().sum::<usize>() == n
    });
    counts
}

/// Checks that another user's requests are served.
pub fn others_are_served(daemon: &Daemon) {
    let sockets = group(2, "127.0.0.1:0");
    let id = attach(&daemon.steering(), "round-robin", &sockets).expect("attached").id;
    assert!(daemon.steering().list().expect("listed").iter().any(|one| one.id == id));
    assert_eq!(traffic(&sockets, 10), [5, 5]);
    daemon.steering().detach(id, vec![copy(&sockets[0])]).expect("detached");
}

/// Adds what has arrived.
pub fn received(sockets: &[UdpSocket], counts: &mut [usize]) {
    for (socket, count) in sockets.iter().zip(counts) {
        *count += std::iter::from_fn(|| socket.recv(&mut [0; 64]).ok()).count();
    }
}

/// Runs the ignored test `name` of this program as user [`NOBODY`].
pub fn as_nobody(name: &str, socket: &Path, variables: &[(&str, String)]) -> Child {
    as_user(NOBODY, name, socket, variables)
}

/// The same, with `fd` as standard input.
pub fn as_nobody_with(name: &str, socket: &Path, fd: OwnedFd) -> Child {
    test_of(NOBODY, name, socket).stdin(fd).spawn().expect("started")
}

/// The same as another user.
pub fn as_user(uid: u32, name: &str, socket: &Path, variables: &[(&str, String)]) -> Child {
    test_of(uid, name, socket).envs(variables.iter().cloned()).spawn().expect("started")
}

fn test_of(uid: u32, name: &str, socket: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(SOCKET, socket).uid(uid).gid(uid).current_dir("/");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts an ignored test of this program as user [`NOBODY`], and waits until it prints "now".
pub fn start_as_nobody(name: &str, daemon: &Daemon, given: &[(&str, String)]) -> Child {
    let mut child = as_nobody(name, &daemon.socket(), given);
    let out = BufReader::new(child.stdout.take().expect("piped"));
    assert!(out.lines().map_while(Result::ok).any(|line| line == "now"), "{name} never began");
    child
}

/// Ends a process that runs on.
pub fn end(mut child: Child) {
    child.kill().expect("killed");
    child.wait().expect("ended");
}

/// Returns the output of the child test, which must have passed.
pub fn passed(child: Child) -> String {
    let Output { status, stdout, stderr } = child.wait_with_output().expect("ended");
    let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && text.contains("1 passed"), "{text}");
    text
}

/// Connects to the daemon, in a test that runs as user [`NOBODY`]. `None` if all ignored tests are run by hand.
pub fn steering_of_nobody() -> Option<Steering> {
    steering_of_user(NOBODY)
}

/// The same in one that runs as another user.
pub fn steering_of_user(uid: u32) -> Option<Steering> {
    let socket = std::env::var_os(SOCKET)?;
    assert_eq!(rustix::process::geteuid().as_raw(), uid);
    Some(Steering::at(PathBuf::from(socket)))
}
