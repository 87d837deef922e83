//! The engine below sockets: packets of a claimed port, in a network of the test's own. Needs root, BPF and namespaces.

#[path = "common/engine.rs"]
mod bench;
#[path = "common/net.rs"]
mod net;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::Duration;

use bench::{Bench, shipped};
use heddle_netns::{FAR4, NEAR, NEAR4, Namespace, Pair};
use heddle_steer::engine::Served;
use heddle_steer::hook::Hook;
use heddle_steer::request::{Answer, Attachment, Below, ErrorKind, Request, Role};
use heddle_sys::bpf::xdp_programs;

fn attach(bench: &Bench, hook: Hook, claim: &UdpSocket, below: Below) -> Served {
    let request = Request::Attach {
        policy: shipped("round-robin"),
        hook,
        below: Some(below),
        pid: std::process::id(),
        command: "test".into(),
        roles: vec![Role::Claim],
    };
    let claim = claim.as_fd().try_clone_to_owned().expect("a copy");
    bench.call(request, vec![claim])
}

fn attached(served: Served) -> Attachment {
    match served.expect("attached").0 {
        Answer::Attached(attachment) => attachment,
        other => panic!("{other:?}"),
    }
}

fn near(cpus: &[u32]) -> Below {
    Below { interface: NEAR.into(), cpus: cpus.into() }
}

/// Sends `n` datagrams across, one after the other, and waits for each.
fn ask(net: &Pair, server: &UdpSocket, n: u32) {
    let to: SocketAddr = server.local_addr().expect("bound");
    server.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
    let client = net.far.run(|| UdpSocket::bind((FAR4, 0))).expect("a client");
    for number in 0..n {
        client.send_to(&number.to_ne_bytes(), to).expect("sent");
        assert_eq!(server.recv(&mut [0; 16]).expect("received"), 4);
    }
}

fn on_interface(net: &Pair) -> bool {
    let near = net::near(net);
    let there = near.run(|| xdp_programs(near.index())).expect("asked");
    there.native.is_some() || there.generic.is_some()
}

#[test]
fn packets_of_a_claimed_port_go_to_cpus_until_it_is_detached() {
    let Some(net) = net::network(2) else { return };
    let Some(bench) = Bench::new("cpus") else { return };
    let server = net.near.run(|| UdpSocket::bind((NEAR4, 0))).expect("a server");
    let first = attached(attach(&bench, Hook::CpuRedirect, &server, near(&[0])));
    ask(&net, &server, 20);
    assert!(bench.stats(first.id).executors[0].selected >= 20);

    // Another port of the same interface shares its root; the same port is taken.
    let other = net.near.run(|| UdpSocket::bind((NEAR4, 0))).expect("another server");
    let second = attached(attach(&bench, Hook::CpuRedirect, &other, near(&[0])));
    let error = attach(&bench, Hook::CpuRedirect, &server, near(&[0])).expect_err("claimed");
    assert_eq!(error.kind, ErrorKind::Busy, "{error}");
    let error =
        attach(&bench, Hook::XdpSkb, &server, near(&[])).expect_err("another mode, no sockets");
    assert!(matches!(error.kind, ErrorKind::Busy | ErrorKind::Invalid), "{error}");

    let replace = Request::Replace { id: first.id, policy: shipped("hash") };
    bench.call(replace, Vec::new()).expect("replaced");
    ask(&net, &server, 20);
    assert!(bench.stats(first.id).executors[0].selected >= 40);

    bench.engine.evict(first.id, "to see").expect("evicted");
    ask(&net, &server, 5);

    for id in [first.id, second.id] {
        assert!(on_interface(&net));
        bench.call(Request::Detach { id }, Vec::new()).expect("detached");
    }
    assert!(!on_interface(&net), "with the last claim the program comes off");
    ask(&net, &server, 5);
}

#[test]
fn a_port_of_ones_own_network_is_no_claim_on_another() {
    let Some(net) = net::network(1) else { return };
    let Some(bench) = Bench::new("claims") else { return };
    let elsewhere = Namespace::new().expect("a namespace");
    elsewhere.ip("link set lo up").expect("lo");
    let stranger = elsewhere.run(|| UdpSocket::bind("127.0.0.1:0")).expect("bound");
    let error = attach(&bench, Hook::CpuRedirect, &stranger, near(&[0]))
        .expect_err("no such interface there");
    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    assert!(!on_interface(&net));
    drop(net);
}

#[test]
fn an_attachment_ends_with_its_interface() {
    let Some(net) = net::network(1) else { return };
    let Some(bench) = Bench::new("interface") else { return };
    let server = net.near.run(|| UdpSocket::bind((NEAR4, 0))).expect("a server");
    attached(attach(&bench, Hook::CpuRedirect, &server, near(&[0])));
    net.near.ip(&format!("link del {NEAR}")).expect("deleted");
    assert_eq!(bench.engine.collect().expect("collected").len(), 1);
    assert_eq!(bench.list(), []);
}
