//! The engine below sockets: packets of a claimed port, in the test's own network. Needs root, BPF and
//! namespaces.

#[path = "common/engine.rs"]
mod bench;
#[path = "common/net.rs"]
mod net;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use bench::{Bench, shipped};
use heddle_bpf::xdp_programs;
use heddle_netns::{FAR4, NEAR, NEAR4, Namespace, Pair};
use heddle_steer::engine::{Caller, Engine, Quota, Served, State, read_here};
use heddle_steer::hook::Hook;
use heddle_steer::hook::xdp::{Root, claims};
use heddle_steer::request::{Answer, Attachment, ErrorKind, PacketTarget, Request, Role};

fn attach(bench: &Bench, hook: Hook, claim: &impl AsFd, below: PacketTarget) -> Served {
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

fn near(cpus: &[u32]) -> PacketTarget {
    PacketTarget { interface: NEAR.into(), cpus: cpus.into() }
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
fn packets_to_a_claimed_port_go_to_cpus_until_detached() {
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
fn a_port_in_a_private_network_claims_nothing_in_another() {
    let Some(net) = net::network(1) else { return };
    let Some(bench) = Bench::new("claims") else { return };
    let elsewhere = Namespace::new().expect("a namespace");
    elsewhere.ip("link set lo up").expect("lo");
    let foreign = elsewhere.run(|| UdpSocket::bind("127.0.0.1:0")).expect("bound");
    let error = attach(&bench, Hook::CpuRedirect, &foreign, near(&[0]))
        .expect_err("no such interface there");
    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    assert!(!on_interface(&net));
    drop(net);
}

#[test]
fn a_claim_holds_only_while_its_socket_has_the_port() {
    let Some(net) = net::network(1) else { return };
    let Some(bench) = Bench::new("holders") else { return };
    let selected = |id: u32| bench.stats(id).executors[0].selected;
    // A datagram socket connected to one peer: others may have the port at other addresses.
    let server = net.near.run(|| UdpSocket::bind(("0.0.0.0", 0))).expect("a server");
    let port = server.local_addr().expect("bound").port();
    let id = attached(attach(&bench, Hook::CpuRedirect, &server, near(&[0]))).id;
    let client = net.far.run(|| UdpSocket::bind((FAR4, 0))).expect("a client");
    let send = || client.send_to(b"x", (NEAR4, port)).expect("sent");
    server.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
    send();
    server.recv(&mut [0; 8]).expect("received");
    assert_eq!(selected(id), 1);
    server.connect((FAR4, 9)).expect("one peer");
    let other = net.near.run(|| UdpSocket::bind((NEAR4, 0))).expect("another server");
    send();
    ask(&net, &other, 1);
    assert_eq!(selected(id), 1, "what came before the other's datagram was not steered");

    // A TCP socket that no longer listens.
    let listener = net.near.run(|| TcpListener::bind((NEAR4, 0))).expect("a server");
    let address = listener.local_addr().expect("bound");
    let id = attached(attach(&bench, Hook::CpuRedirect, &listener, near(&[0]))).id;
    net.far.run(|| TcpStream::connect(address)).expect("connected");
    let before = selected(id);
    assert!(before > 0);
    rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).expect("silent");
    // The standard library's listeners share the address with others, unless those listen.
    let next = net.near.run(|| TcpListener::bind(address)).expect("the port is free");
    net.far.run(|| TcpStream::connect(address)).expect("connected");
    assert_eq!(selected(id), before);
    drop(next);
}

#[test]
fn users_share_an_interface_whatever_mode_they_request() {
    let Some(net) = net::network(1) else { return };
    let Some(bench) = Bench::new("modes") else { return };
    let mut xsk = net::bind(&net, true, 0);
    let quota = Quota { interfaces: vec![NEAR.into()], ..Quota::default() };
    let state = State::at(&bench.run, &bench.pins);
    let engine = Engine::new(state, Box::new(read_here)).expect("an engine").with_quota(quota);
    let server = net.near.run(|| UdpSocket::bind((NEAR4, 0))).expect("a server");
    let copy = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().expect("a copy");
    let request = |hook, below, roles| Request::Attach {
        policy: shipped("round-robin"),
        hook,
        below: Some(below),
        pid: 1,
        command: String::new(),
        roles,
    };
    let socket = Role::XdpSocket { index: 0, queue: 0, label: "his".into() };
    let behind = request(Hook::XdpSkb, near(&[]), vec![Role::Claim, socket]);
    let given = vec![copy(server.as_fd()), copy(xsk.as_fd())];
    let served = net.near.run(|| io::Result::Ok(engine.serve(Caller { uid: 1000 }, behind, given)));
    attached(served.expect("in the namespace"));
    // The user requested generic mode, and the next one needs the driver.
    let other = net.near.run(|| UdpSocket::bind((NEAR4, 0))).expect("a server");
    let cpus = request(Hook::CpuRedirect, near(&[0]), vec![Role::Claim]);
    let given = vec![copy(other.as_fd())];
    let served = net.near.run(|| io::Result::Ok(engine.serve(Caller { uid: 1001 }, cpus, given)));
    let second = attached(served.expect("in the namespace"));
    ask(&net, &other, 5);
    assert!(bench.stats(second.id).executors[0].selected >= 5);
    let client = net.far.run(|| UdpSocket::bind((FAR4, 0))).expect("a client");
    client.send_to(b"x", server.local_addr().expect("bound")).expect("sent");
    net::until("a frame", || !net::drain(&mut xsk).is_empty());
}

#[test]
fn for_users_any_address_means_the_machines_own() {
    let Some(net) = net::network(1) else { return };
    let Some(bench) = Bench::new("local") else { return };
    let quota = Quota { interfaces: vec![NEAR.into()], ..Quota::default() };
    let state = State::at(&bench.run, &bench.pins);
    let engine = Engine::new(state, Box::new(read_here)).expect("an engine").with_quota(quota);
    let server = net.near.run(|| UdpSocket::bind(("0.0.0.0", 7777))).expect("a server");
    let request = Request::Attach {
        policy: shipped("round-robin"),
        hook: Hook::CpuRedirect,
        below: Some(near(&[0])),
        pid: 1,
        command: String::new(),
        roles: vec![Role::Claim],
    };
    let given = vec![server.as_fd().try_clone_to_owned().expect("a copy")];
    let served =
        net.near.run(|| io::Result::Ok(engine.serve(Caller { uid: 1000 }, request, given)));
    let slot = attached(served.expect("in the namespace")).slot.expect("one");
    let root = Root::open(&bench.pins.join(slot.root)).expect("opened").expect("a root");
    let claimed = claims(&root.maps).expect("claims");
    let ips: Vec<IpAddr> = claimed.iter().map(|(claim, _)| claim.address.ip()).collect();
    assert!(ips.contains(&NEAR4.into()), "{ips:?}");
    assert!(ips.iter().all(|ip| ip.is_ipv4() && !ip.is_unspecified()), "{ips:?}");
    ask(&net, &net.near.run(|| UdpSocket::bind((NEAR4, 0))).expect("another"), 1);
}

#[test]
fn an_attachment_ends_with_its_interface() {
    let Some(net) = net::network(1) else { return };
    let Some(bench) = Bench::new("interface") else { return };
    let server = net.near.run(|| UdpSocket::bind((NEAR4, 0))).expect("a server");
    attached(attach(&bench, Hook::CpuRedirect, &server, near(&[0])));
    net.near.ip(&format!("link del {NEAR}")).expect("deleted");
    assert_eq!(bench.engine.collect().expect("collected").dead.len(), 1);
    assert_eq!(bench.list(), []);
}
