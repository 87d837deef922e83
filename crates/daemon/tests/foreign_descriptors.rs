//! Users' descriptors that cannot be closed: on a file system whose server never answers, or watched by an
//! epoll whose lock its user holds. The last close must happen in a thread that can be spared.

mod common;

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use common::{Daemon, able, as_nobody_with, copy, group, others_are_served, passed, until};
use heddle_steer::client::wire::{self, Call, Reply};
use heddle_steer::hook::Hook;
use heddle_steer::request::{Answer, ErrorKind, Policy, Request, Role};
use heddle_sys::locked::Locked;
use rustix::process::Signal;

const SOON: Duration = Duration::from_secs(60);
/// A policy with a map of its user's.
const TABLE: &str = "HD_TABLE(t, u64, 8);\nstatic u32 schedule(struct hd_in *in) \
    { u64 *n = hd_at(t, 1); return n ? *n : 0; }";

/// Sends a request with a descriptor; returns the reply.
fn ask_with(daemon: &Daemon, fd: OwnedFd) -> Reply {
    let client = UnixStream::connect(daemon.socket()).expect("connected");
    wire::send(&client, &Call::Ask(Request::List { after: 0 }), &[fd], SOON).expect("sent");
    wire::receive(&client, SOON).expect("an answer").expect("one").0
}

/// The same with a descriptor that only heddled holds afterwards. The answer arrives once it is closed.
fn ask_with_the_last(daemon: &Daemon, request: Request, fd: OwnedFd) -> UnixStream {
    let client = UnixStream::connect(daemon.socket()).expect("connected");
    daemon.signal(Signal::STOP);
    wire::send(&client, &Call::Ask(request), &[fd], SOON).expect("sent");
    daemon.signal(Signal::CONT);
    client
}

#[test]
fn descriptors_other_than_sockets_pidfds_and_maps_are_refused() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&[]);
    let (reader, _writer) = io::pipe().expect("a pipe");
    for fd in [OwnedFd::from(reader), File::open("/").expect("a folder").into()] {
        let reply = ask_with(&daemon, fd);
        let Reply::Err(error) = reply else { panic!("{reply:?}") };
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.text.contains("no socket, no process and no map"), "{error}");
    }
    let reply = ask_with(&daemon, copy(&group(1, "127.0.0.1:0")[0]));
    assert!(matches!(reply, Reply::Ok(Answer::List(_))), "{reply:?}");
}

/// A request with one descriptor.
fn attaching(policy: Policy, role: Role) -> Request {
    Request::Attach {
        policy,
        hook: Hook::SocketSelect,
        below: None,
        pid: 0,
        command: String::new(),
        roles: vec![role],
    }
}

/// The last close of `file` waits as long as the result lives.
fn stuck(file: impl AsFd) -> Option<Locked> {
    let locked = Locked::epoll_of(file.as_fd()).ok();
    if locked.is_none() {
        eprintln!("SKIPPED: needs userfaultfd");
    }
    locked
}

/// Checks that heddled serves others, now and after `signal` and a restart, although part of it never ends.
fn goes_on(mut daemon: Daemon, signal: Signal) {
    for _ in 0..3 {
        others_are_served(&daemon);
    }
    daemon.leave(signal);
    daemon.again();
    others_are_served(&daemon);
}

#[test]
fn a_refused_client_with_unclosable_descriptors_delays_no_other_user() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--everyone"]);
    let (file, _peer) = UnixStream::pair().expect("a pair");
    let Some(_locked) = stuck(&file) else { return };
    daemon.signal(Signal::STOP);
    passed(as_nobody_with("nobody_sends_what_is_given", &daemon.socket(), file.into()));
    // Only heddled holds the message, and its sender has exited, so it is refused.
    daemon.signal(Signal::CONT);
    goes_on(daemon, Signal::TERM);
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_sends_what_is_given() {
    let Some(socket) = std::env::var_os(common::SOCKET) else { return };
    let file = io::stdin().as_fd().try_clone_to_owned().expect("a file");
    let client = UnixStream::connect(socket).expect("connected");
    wire::send(&client, &Call::Ask(Request::List { after: 0 }), &[file], SOON).expect("sent");
}

#[test]
fn a_map_that_cannot_be_closed_blocks_no_lock() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--everyone"]);
    let sockets = group(1, "127.0.0.1:0");
    let steering = daemon.steering();
    let table = common::compiled(TABLE);
    let id = steering.attach(common::deployment(table.clone(), &sockets)).expect("attached").id;
    let maps = steering.maps(id).expect("maps");
    let (_, map) = maps.into_iter().find(|(info, _)| info.name == "t").expect("the table");
    let Some(_locked) = stuck(&map) else { return };
    // Without an executor: the descriptors are released when attaching fails.
    let request = attaching(table, Role::Map { name: "t".into() });
    let _client = ask_with_the_last(&daemon, request, map);
    until("it is refused", || daemon.log().contains("no executor"));
    goes_on(daemon, Signal::KILL);
}

#[test]
fn an_executor_that_cannot_be_closed_blocks_no_lock() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--everyone"]);
    let sockets = group(1, "127.0.0.1:0");
    let Some(_locked) = stuck(&sockets[0]) else { return };
    let request =
        attaching(common::shipped("jiq"), Role::Executor { index: 0, label: String::new() });
    let [socket] = <[UdpSocket; 1]>::try_from(sockets).expect("one");
    let _client = ask_with_the_last(&daemon, request, socket.into());
    until("it is attached", || !daemon.steering().list().expect("listed").is_empty());
    goes_on(daemon, Signal::TERM);
}
