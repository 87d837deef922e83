//! Executors whose sockets close: the fate of inputs chosen for them, and of the attachment. Needs root and
//! BPF; otherwise skips, and says so.

#[path = "common/engine.rs"]
mod common;

use std::net::UdpSocket;
use std::os::fd::{AsFd as _, OwnedFd};

use common::{Bench, group, received, until_present};
use heddle_netns::Namespace;
use heddle_steer::request::{Answer, Ended, ErrorKind, Request};
use heddle_test_support::until;

/// A datagram from each of `n` flows.
fn ask(sockets: &[UdpSocket], n: usize) {
    let to = sockets[0].local_addr().expect("bound");
    for _ in 0..n {
        let client = UdpSocket::bind((to.ip(), 0)).expect("a client");
        client.send_to(b"x", to).expect("sent");
    }
}

fn copy(socket: &UdpSocket) -> OwnedFd {
    socket.as_fd().try_clone_to_owned().expect("a copy")
}

fn add(id: u32) -> Request {
    Request::AddExecutor { id, index: None, label: "another".into() }
}

fn ended(bench: &Bench) -> Vec<Ended> {
    match bench.call(Request::Ended, Vec::new()).expect("told").0 {
        Answer::Ended(ended) => ended,
        other => panic!("{other:?}"),
    }
}

#[test]
fn remaining_executors_get_the_inputs_of_closed_ones() {
    let Some(bench) = Bench::new("gone") else { return };
    for policy in ["round-robin", "hash", "jiq"] {
        let mut sockets = group(4, "127.0.0.1:0");
        let id = bench.attach(policy, &sockets).expect("attached").id;
        drop(sockets.drain(1..3));
        until_present(&bench, id, 2);
        ask(&sockets, 40);
        let (got, stats) = (received(&sockets, 40), bench.stats(id));
        assert_eq!((stats.failed(), stats.decisions()), (0, 40), "{policy}: {stats:?}");
        let selected: Vec<u64> = stats.executors.iter().map(|e| e.selected).collect();
        assert_eq!(selected, [got[0] as u64, 0, 0, got[1] as u64], "{policy}: as counted");
        if policy == "round-robin" {
            assert_eq!(stats.moved(), 20, "every second turn was theirs");
        }
        // Replacing the policy does not change that.
        let hash = common::shipped("hash");
        bench.call(Request::Replace { id, policy: hash }, Vec::new()).expect("replaced");
        ask(&sockets, 40);
        received(&sockets, 40);
        assert_eq!(bench.stats(id).failed(), 0);
    }
}

#[test]
fn a_flow_of_a_closed_executor_stays_with_one_remaining_executor() {
    let Some(bench) = Bench::new("gone-flow") else { return };
    let mut sockets = group(4, "127.0.0.1:0");
    let id = bench.attach("hash", &sockets).expect("attached").id;
    drop(sockets.drain(..2));
    until_present(&bench, id, 2);
    for _ in 0..20 {
        common::ask(&sockets, 10);
        let got = received(&sockets, 10);
        assert!(got == [10, 0] || got == [0, 10], "one flow, one executor: {got:?}");
    }
}

#[test]
fn a_socket_that_is_no_executor_is_left_to_the_kernel_until_it_is_added() {
    let Some(bench) = Bench::new("closed-foreign") else { return };
    let mut sockets = group(3, "127.0.0.1:0");
    let id = bench.attach("round-robin", &sockets).expect("attached").id;
    drop(sockets.pop());
    until_present(&bench, id, 2);
    let at = sockets[0].local_addr().expect("bound").to_string();
    sockets.extend(group(1, &at));
    ask(&sockets, 30);
    received(&sockets, 30);
    let stats = bench.stats(id);
    assert_eq!((stats.failed(), stats.moved()), (10, 0), "the kernel chose among all: {stats:?}");
    bench.call(add(id), vec![copy(&sockets[2])]).expect("added");
    ask(&sockets, 30);
    assert_eq!(received(&sockets, 30), [10, 10, 10]);
    assert_eq!(bench.stats(id).failed(), 10, "no more than before");
}

#[test]
fn the_same_address_in_another_network_namespace_is_another_group() {
    let Some(bench) = Bench::new("gone-namespace") else { return };
    if let Some(missing) = heddle_netns::missing_privilege() {
        eprintln!("skipped: {missing}");
        return;
    }
    let sockets = group(2, "127.0.0.1:0");
    let at = sockets[0].local_addr().expect("bound").to_string();
    let other = Namespace::new().expect("a network namespace");
    other.ip("link set lo up").expect("its loopback");
    let mut both = group(1, &at);
    both.extend(other.run(|| group(1, &at)));
    let error = bench.attach("round-robin", &both).expect_err("refused");
    assert!(error.text.contains("several network namespaces"), "{error}");
    let id = bench.attach("round-robin", &sockets).expect("attached").id;
    let error = bench.call(add(id), vec![copy(&both[1])]).expect_err("refused");
    assert!(error.text.contains("in another network namespace than the group"), "{error}");
    bench.call(add(id), vec![copy(&both[0])]).expect("this one is of the group");
}

#[test]
fn an_ended_attachment_is_reported_until_its_address_is_attached_again() {
    let Some(bench) = Bench::new("gone-ended") else { return };
    let sockets = group(2, "127.0.0.1:0");
    let at = sockets[0].local_addr().expect("bound").to_string();
    let id = bench.attach("round-robin", &sockets).expect("attached").id;
    assert_eq!(ended(&bench), []);
    drop(sockets);
    until("it is dead", || bench.list().is_empty());
    let ended_list = ended(&bench);
    assert_eq!(
        (ended_list.len(), ended_list[0].attachment.id, &ended_list[0].attachment.address),
        (1, id, &at)
    );
    assert!(ended_list[0].why.contains("its last socket was closed"), "{ended_list:?}");
    let dead = bench.engine.collect().expect("looked").dead;
    assert_eq!(dead.iter().map(|dead| dead.attachment.id).collect::<Vec<_>>(), [id]);
    assert!(bench.engine.collect().expect("looked").dead.is_empty(), "told once");

    let sockets = group(2, &at);
    let id = bench.attach("round-robin", &sockets).expect("attached").id;
    assert_eq!(ended(&bench), []);
    let one = vec![copy(&sockets[0])];
    bench.call(Request::Detach { id }, one).expect("detached");
    assert_eq!(ended(&bench), [], "that was no end by itself");
    let error = bench.call(Request::Detach { id }, Vec::new()).expect_err("refused");
    assert_eq!(error.kind, ErrorKind::NotFound);
}
