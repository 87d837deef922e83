//! A user who keeps the lock of a socket by having the kernel copy from a page that never arrives while it
//! holds the lock. Queries that take the socket's lock then never return, and no signal ends them.

mod common;

use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::process::Child;

use common::{
    Daemon, able, as_nobody_with, attach, copy, group, others_are_served, passed,
    steering_of_nobody,
};
use heddle_steer::client::Steering;
use heddle_steer::request::{Error, ErrorKind};
use heddle_sys::locked::Locked;

fn nobody_with(name: &str, daemon: &Daemon, socket: &UdpSocket) -> Child {
    as_nobody_with(name, &daemon.socket(), copy(socket))
}

fn given() -> UdpSocket {
    UdpSocket::from(std::io::stdin().as_fd().try_clone_to_owned().expect("a socket"))
}

fn all(steering: &Steering) -> Vec<u32> {
    steering.list().expect("listed").iter().map(|attachment| attachment.id).collect()
}

#[test]
fn a_locked_socket_delays_no_other_user() {
    if !able() {
        return;
    }
    let mut daemon = Daemon::start(&["--everyone", "--watch-ms", "20"]);
    let sockets = group(1, "127.0.0.1:0");
    passed(nobody_with("nobody_attaches", &daemon, &sockets[0]));
    let [id] = all(&daemon.steering())[..] else { panic!("one attachment") };
    let Ok(_locked) = Locked::new(copy(&sockets[0])) else {
        eprintln!("SKIPPED: needs userfaultfd");
        return;
    };
    let attack = nobody_with("nobody_asks_with_a_locked_socket", &daemon, &sockets[0]);
    for _ in 0..5 {
        others_are_served(&daemon);
    }
    passed(attack);
    // It is detached all the same.
    assert!(!all(&daemon.steering()).contains(&id));
    others_are_served(&daemon);
    // Neither its shutdown nor the next one's start waits for that user.
    daemon.stop();
    daemon.again();
    others_are_served(&daemon);
    passed(nobody_with("nobody_asks_with_a_locked_socket", &daemon, &sockets[0]));
    daemon.kill();
    daemon.again();
    others_are_served(&daemon);
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_attaches() {
    let Some(steering) = steering_of_nobody() else { return };
    attach(&steering, "round-robin", &[given()]).expect("attached");
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_asks_with_a_locked_socket() {
    let Some(steering) = steering_of_nobody() else { return };
    let socket = given();
    for id in all(&steering) {
        steering
            .detach(id, vec![copy(&socket)])
            .expect("the policy is gone, whatever the socket says");
    }
    let is_busy = |error: Error| {
        assert!(error.kind == ErrorKind::Busy && error.text.contains("keeps"), "{error}");
    };
    let other = group(1, "127.0.0.1:0");
    let id = attach(&steering, "round-robin", &other).expect("attached").id;
    is_busy(steering.add_executor(id, None, "locked".into(), copy(&socket)).expect_err("busy"));
    steering.detach(id, vec![copy(&other[0])]).expect("detached");
    let mut refused = 0;
    while refused < 5 {
        is_busy(attach(&steering, "round-robin", &[given()]).expect_err("busy"));
        refused += 1;
    }
    // The user has left the maximum behind, and is refused with any socket.
    is_busy(attach(&steering, "round-robin", &other).expect_err("busy"));
}
