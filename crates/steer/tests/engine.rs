//! The engine, end to end: real sockets, the real kernel. Needs root and BPF; says so where they are missing.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};

use heddle_steer::engine::{Caller, Engine, State, read_here};
use heddle_steer::hook::Hook;
use heddle_steer::request::{Answer, Attachment, Policy, Request, Role};
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt::set_socket_reuseport};

const ROOT: Caller = Caller { uid: 0 };

fn engine(name: &str) -> Engine {
    let pid = std::process::id();
    let run = std::env::temp_dir().join(format!("heddle-test-{pid}-{name}"));
    let pins = format!("/sys/fs/bpf/heddle-test-{pid}-{name}");
    Engine::new(State::at(run, pins), Box::new(read_here)).expect("root, and a BPF file system")
}

fn group(n: usize, at: SocketAddr) -> Vec<UdpSocket> {
    let mut at = at;
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

fn shipped(name: &str) -> Policy {
    Policy { name: name.into(), parameters: Vec::new(), object: None }
}

fn attach(engine: &Engine, policy: &str, sockets: &[UdpSocket]) -> Attachment {
    let fds: Vec<OwnedFd> =
        sockets.iter().map(|s| s.as_fd().try_clone_to_owned().expect("a copy")).collect();
    let roles = (0..)
        .take(fds.len())
        .map(|index| Role::Executor { index, label: format!("socket {index}") })
        .collect();
    let (pid, command) = (std::process::id(), "test".into());
    let request = Request::Attach {
        policy: shipped(policy),
        hook: Hook::SocketSelect,
        below: None,
        pid,
        command,
        roles,
    };
    match engine.serve(ROOT, request, fds).expect("attached").0 {
        Answer::Attached(attachment) => attachment,
        other => panic!("{other:?}"),
    }
}

fn received(sockets: &[UdpSocket]) -> Vec<usize> {
    let drain = |socket: &UdpSocket| std::iter::from_fn(|| socket.recv(&mut [0; 64]).ok()).count();
    sockets.iter().map(drain).collect()
}

#[test]
fn a_group_is_steered_until_it_is_detached() {
    let engine = engine("group");
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let sockets = group(3, at.parse().expect("an address"));
        let to = sockets[0].local_addr().expect("bound");
        let attachment = attach(&engine, "round-robin", &sockets);
        let client = UdpSocket::bind((to.ip(), 0)).expect("a client");
        for _ in 0..30 {
            client.send_to(b"x", to).expect("sent");
        }
        assert_eq!(received(&sockets), [10, 10, 10]);
        let id = attachment.id;
        let stats =
            engine.serve(ROOT, Request::Stats { id, sample_ms: 0 }, Vec::new()).expect("stats").0;
        let Answer::Stats(stats) = stats else { panic!("{stats:?}") };
        assert_eq!(stats.executors.iter().map(|e| e.selected).collect::<Vec<_>>(), [10, 10, 10]);
        assert_eq!((stats.failed(), stats.decisions()), (0, 30));

        engine
            .serve(ROOT, Request::Replace { id, policy: shipped("jiq") }, Vec::new())
            .expect("replaced");
        for _ in 0..30 {
            client.send_to(b"x", to).expect("sent");
        }
        assert_eq!(received(&sockets).iter().sum::<usize>(), 30);

        let one = sockets[0].as_fd().try_clone_to_owned().expect("a copy");
        engine.serve(ROOT, Request::Detach { id }, vec![one]).expect("detached");
        for _ in 0..30 {
            client.send_to(b"x", to).expect("sent");
        }
        // One flow: the kernel's hash gives it all to one socket.
        assert!(received(&sockets).contains(&30));
        let list = engine.serve(ROOT, Request::List, Vec::new()).expect("listed").0;
        assert_eq!(list, Answer::List(Vec::new()));
    }
}
