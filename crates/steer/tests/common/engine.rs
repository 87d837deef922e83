//! An engine with temporary folders.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use heddle_steer::engine::{Caller, Engine, Served, State, read_here};
use heddle_steer::hook::Hook;
use heddle_steer::request::{Answer, Attachment, Error, Policy, Request, Role, Stats};
use heddle_test_support::until;
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt::set_socket_reuseport};

pub struct Bench {
    pub engine: Engine,
    pub run: PathBuf,
    pub pins: PathBuf,
}

pub fn shipped(name: &str) -> Policy {
    Policy { name: name.into(), parameters: Vec::new(), object: None }
}

impl Bench {
    /// Returns `None`, and prints a line about it, if this user may not attach.
    pub fn new(name: &str) -> Option<Bench> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: attaching takes root");
            return None;
        }
        let unique = format!("heddle-test-{}-{name}", std::process::id());
        let run = std::env::temp_dir().join(&unique);
        let pins = PathBuf::from("/sys/fs/bpf").join(&unique);
        match Engine::new(State::at(&run, &pins), Box::new(read_here)) {
            Ok(engine) => Some(Bench { engine, run, pins }),
            Err(error) => {
                eprintln!("skipped: no BPF file system here: {error}");
                None
            }
        }
    }

    /// Another engine over the same state: as in another process, or heddled after a restart.
    pub fn restart(&mut self) {
        let state = State::at(&self.run, &self.pins);
        self.engine = Engine::new(state, Box::new(read_here)).expect("an engine");
    }

    pub fn call(&self, request: Request, fds: Vec<OwnedFd>) -> Served {
        self.engine.serve(Caller { uid: 0 }, request, fds)
    }

    pub fn attach(&self, policy: &str, sockets: &[UdpSocket]) -> Result<Attachment, Error> {
        let copy = |s: &UdpSocket| s.as_fd().try_clone_to_owned().expect("a copy");
        let fds: Vec<OwnedFd> = sockets.iter().map(copy).collect();
        let role = |index| Role::Executor { index, label: format!("socket {index}") };
        let roles = (0..).take(fds.len()).map(role).collect();
        let request = Request::Attach {
            policy: shipped(policy),
            hook: Hook::SocketSelect,
            below: None,
            pid: std::process::id(),
            command: "test".into(),
            roles,
        };
        match self.call(request, fds)?.0 {
            Answer::Attached(attachment) => Ok(attachment),
            other => panic!("{other:?}"),
        }
    }

    pub fn list(&self) -> Vec<Attachment> {
        match self.call(Request::List { after: 0 }, Vec::new()).expect("listed").0 {
            Answer::List(list) => list,
            other => panic!("{other:?}"),
        }
    }

    pub fn stats(&self, id: u32) -> Stats {
        match self.call(Request::Stats { id, sample_ms: 0 }, Vec::new()).expect("stats").0 {
            Answer::Stats(stats) => stats,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for entry in fs::read_dir(&self.pins).into_iter().flatten().flatten() {
            for pin in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                let _ = fs::remove_file(pin.path());
            }
            let _ = fs::remove_dir(entry.path());
        }
        let _ = fs::remove_dir(&self.pins);
        let _ = fs::remove_dir_all(&self.run);
    }
}

/// Waits until `n` executors of an attachment have open sockets.
#[track_caller]
pub fn until_present(bench: &Bench, id: u32, n: usize) {
    let present = || bench.stats(id).executors.iter().filter(|executor| executor.present).count();
    until("the sockets are closed", || present() == n);
}

/// Sockets that share an address; for port 0, a free one.
pub fn group(n: usize, at: &str) -> Vec<UdpSocket> {
    let mut at: SocketAddr = at.parse().expect("an address");
    let mut sockets = Vec::new();
    for _ in 0..n {
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket(family, SocketType::DGRAM, None).expect("a socket");
        set_socket_reuseport(&socket, true).expect("reuseport");
        bind(&socket, &at).expect("a free port");
        let socket = UdpSocket::from(socket);
        socket.set_nonblocking(true).expect("non-blocking");
        at = socket.local_addr().expect("bound");
        sockets.push(socket);
    }
    sockets
}

/// Sends so many datagrams of one flow.
pub fn ask(sockets: &[UdpSocket], n: usize) {
    let to = sockets[0].local_addr().expect("bound");
    let client = UdpSocket::bind((to.ip(), 0)).expect("a client");
    for _ in 0..n {
        client.send_to(b"x", to).expect("sent");
    }
}

/// Waits until the sockets have got `n` datagrams since the last call, no more, and returns how many each got.
///
/// On a busy machine the kernel delivers some after `send` has returned.
#[track_caller]
pub fn received(sockets: &[UdpSocket], n: usize) -> Vec<usize> {
    let drain = |socket: &UdpSocket| std::iter::from_fn(|| socket.recv(&mut [0; 64]).ok()).count();
    let mut counts = vec![0; sockets.len()];
    until("all datagrams", || {
        counts.iter_mut().zip(sockets).for_each(|(count, socket)| *count += drain(socket));
        counts.iter().sum::<usize>() >= n
    });
    assert_eq!(counts.iter().sum::<usize>(), n, "{counts:?}");
    counts
}
