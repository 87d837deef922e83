//! Ownership of ports: false proofs by a malicious user, against root's server in the test's own network.

mod common;

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};

use common::{Daemon, able, as_nobody, compiled, passed, steering_of_nobody, until};
use heddle_netns::{FAR4, NEAR, NEAR4, Pair};
use heddle_steer::client::{Deployment, Steering};
use heddle_steer::hook::Hook;
use heddle_steer::request::{Attachment, Error, ErrorKind, PacketTarget, Policy, Role};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt::{set_ip_freebind, set_socket_reuseaddr};
use rustix::net::{AddressFamily, Protocol, SocketType, bind, ipproto, socket};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Drops whatever it sees.
const DROP: &str = "static u32 schedule(struct hd_in *in) { return HD_DROP; }";
/// The server's port.
const PORT: u16 = 53;

/// Two namespaces; heddled in the near one, with the interface open to all.
fn world(arguments: &[&str]) -> Option<(Pair, Daemon)> {
    if !able() {
        return None;
    }
    let net = Pair::new(1).expect("a network");
    let daemon =
        net.near.run(|| io::Result::Ok(Daemon::start(&[&["--everyone"], arguments].concat())));
    Some((net, daemon.expect("heddled")))
}

const OPEN: [&str; 2] = ["--interface", NEAR];

/// Returns how many of five datagrams to `server` arrive.
fn arrive(net: &Pair, server: &UdpSocket) -> usize {
    let client = net.far.run(|| UdpSocket::bind((FAR4, 0))).expect("a client");
    let to = server.local_addr().expect("bound").port();
    server.set_read_timeout(Some(std::time::Duration::from_millis(300))).expect("a limit");
    let sent = |n: u8| {
        client.send_to(&[n], (NEAR4, to)).expect("sent");
        server.recv(&mut [0; 8]).is_ok()
    };
    (0..5).filter(|n| sent(*n)).count()
}

fn server(net: &Pair, port: u16) -> UdpSocket {
    net.near.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))).expect("a server")
}

fn claim(steering: &Steering, policy: Policy, sockets: Vec<OwnedFd>) -> Result<Attachment, Error> {
    let below = PacketTarget { interface: NEAR.into(), cpus: vec![0] };
    let new = Deployment::new(policy, Hook::CpuRedirect).below(below);
    let with = |deployment: Deployment, socket| deployment.with(Role::Claim, socket);
    steering.attach(sockets.into_iter().fold(new, with))
}

fn refused(result: Result<Attachment, Error>, kind: ErrorKind, why: &str) {
    let error = result.expect_err("refused");
    assert!(error.kind == kind && error.text.contains(why), "{why}: {error}");
}

/// Runs an ignored test of this file as user 65534 in the near namespace.
fn nobody(net: &Pair, daemon: &Daemon, name: &str) -> Child {
    net.near.run(|| io::Result::Ok(as_nobody(name, &daemon.socket(), &[]))).expect("started")
}

#[test]
fn a_socket_in_another_namespace_proves_nothing() {
    let Some((net, daemon)) = world(&OPEN) else { return };
    let server = server(&net, PORT);
    passed(nobody(&net, &daemon, "nobody_mixes_namespaces"));
    assert_eq!(arrive(&net, &server), 5);
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_mixes_namespaces() {
    let Some(steering) = steering_of_nobody() else { return };
    let here: OwnedFd = UdpSocket::bind("0.0.0.0:9999").expect("a port of his").into();
    // Where it is root: in its own user and network namespaces.
    let exe = File::open("/proc/self/exe").expect("this program");
    fcntl_setfd(&exe, FdFlags::empty()).expect("for the child too");
    let mut child = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net"])
        .arg(format!("/proc/self/fd/{}", exe.as_raw_fd()))
        .arg("--exact")
        .args(["holds_the_port", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare");
    let said = BufReader::new(child.stdout.take().expect("piped"));
    let fd = said.lines().find_map(|line| line.ok()?.strip_prefix("fd ")?.parse::<i32>().ok());
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("a pidfd");
    let there = pidfd_getfd(&process, fd.expect("it is bound"), PidfdGetfdFlags::empty());
    let there = there.expect("his own process's");
    let result = claim(&steering, compiled(DROP), vec![here, there]);
    child.kill().expect("killed");
    child.wait().expect("ended");
    refused(result, ErrorKind::Denied, "several network namespaces");
}

#[test]
#[ignore = "a part of another test"]
fn holds_the_port() {
    let Ok(socket) = UdpSocket::bind(("0.0.0.0", PORT)) else { return };
    println!("\nfd {}", socket.as_raw_fd());
    std::thread::sleep(std::time::Duration::from_secs(30));
}

#[test]
fn only_a_socket_that_receives_the_ports_packets_proves_a_claim() {
    let Some((net, daemon)) = world(&OPEN) else { return };
    let server = server(&net, PORT);
    // As systemd sets it.
    let open = || std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
    net.near.run(open).expect("a setting of the namespace");
    passed(nobody(&net, &daemon, "nobody_has_other_sockets"));
    assert_eq!(arrive(&net, &server), 5);
}

/// An IPv4 socket that may be bound to any address.
fn bound(
    kind: SocketType,
    protocol: Option<Protocol>,
    address: SocketAddr,
) -> Result<OwnedFd, rustix::io::Errno> {
    let socket = socket(AddressFamily::INET, kind, protocol)?;
    set_ip_freebind(&socket, true)?;
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket)
}

/// A socket bound to an address that the machine does not have.
fn of_no_address_here() -> OwnedFd {
    let address = SocketAddr::from(([198, 51, 100, 7], 9999));
    bound(SocketType::DGRAM, None, address).expect("a free bind")
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_has_other_sockets() {
    let Some(steering) = steering_of_nobody() else { return };
    let any = SocketAddr::from(([0, 0, 0, 0], PORT));
    let try_it =
        |socket, kind, why| refused(claim(&steering, compiled(DROP), vec![socket]), kind, why);
    let neither = "neither a socket of TCP nor of UDP";
    let ping = bound(SocketType::DGRAM, Some(ipproto::ICMP), any).expect("a ping socket");
    try_it(ping, ErrorKind::Invalid, neither);
    let high = SocketAddr::from(([0, 0, 0, 0], 9999));
    for (kind, protocol) in
        [(SocketType::DGRAM, ipproto::UDPLITE), (SocketType::STREAM, ipproto::SCTP)]
    {
        // Not every kernel has them.
        match bound(kind, Some(protocol), high) {
            Ok(socket) => try_it(socket, ErrorKind::Invalid, neither),
            Err(error) => println!("no socket of {protocol:?} here: {error}"),
        }
    }
    try_it(of_no_address_here(), ErrorKind::Denied, "no address of this machine");
    let group = SocketAddr::from(([224, 0, 0, 251], 9999));
    let group = bound(SocketType::DGRAM, None, group).expect("a group's address");
    try_it(group, ErrorKind::Denied, "no address of this machine");
    let silent = bound(SocketType::STREAM, None, high).expect("bound");
    try_it(silent, ErrorKind::Invalid, "does not listen");
    let unix = socket(AddressFamily::UNIX, SocketType::DGRAM, None).expect("a socket");
    try_it(unix, ErrorKind::Invalid, "no socket of IPv4 or IPv6");
}

#[test]
fn a_claim_ends_with_its_socket_whether_or_not_heddled_checks() {
    // Checks practically never happen.
    let never = ["--watch-ms", "4000000000"];
    let Some((net, daemon)) = world(&[&OPEN[..], &never].concat()) else { return };
    passed(nobody(&net, &daemon, "nobody_claims_and_closes"));
    for port in [9998, 9999] {
        assert_eq!(arrive(&net, &server(&net, port)), 5, "{port}");
    }
    // The next check finds it ended, and the port is free for a claim of the new owner.
    let server = server(&net, 9999);
    let roots = claim(
        &daemon.steering(),
        compiled(DROP),
        vec![server.as_fd().try_clone_to_owned().expect("a copy")],
    );
    roots.expect("the port is root's now");
    assert_eq!(arrive(&net, &server), 0);
    let list = daemon.steering().list().expect("listed");
    assert_eq!(list.iter().map(|one| one.uid).collect::<Vec<_>>(), [0]);
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_claims_and_closes() {
    let Some(steering) = steering_of_nobody() else { return };
    let socket = || OwnedFd::from(UdpSocket::bind("0.0.0.0:9999").expect("a port of his"));
    // Without an owner, so that only the socket ends it.
    claim(&steering, compiled(DROP), vec![socket()]).expect("claimed");
    let both = vec![socket(), TcpListener::bind("0.0.0.0:9998").expect("a port").into()];
    claim(&steering, compiled(DROP), both).expect("the first is over");
}

#[test]
fn claims_and_interface_attachments_have_quotas() {
    let limits = ["--max-claims", "3", "--max-slots", "2", "--max-attachments", "9"];
    let Some((net, daemon)) = world(&[&OPEN[..], &limits].concat()) else { return };
    passed(nobody(&net, &daemon, "nobody_wants_all_ports"));
    let server = server(&net, PORT);
    let copy = server.as_fd().try_clone_to_owned().expect("a copy");
    claim(&daemon.steering(), compiled(DROP), vec![copy]).expect("root may");
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_wants_all_ports() {
    let Some(steering) = steering_of_nobody() else { return };
    let sockets = |n| (0..n).map(|_| UdpSocket::bind((NEAR4, 0)).expect("a port"));
    let fds = |n| sockets(n).map(OwnedFd::from).collect::<Vec<_>>();
    refused(claim(&steering, compiled(DROP), fds(4)), ErrorKind::Denied, "4 addresses and ports");
    let kept: Vec<UdpSocket> = sockets(3).collect();
    let copies = |n: usize| kept[..n].iter().map(common::copy).collect::<Vec<_>>();
    let one = claim(&steering, compiled(DROP), copies(1)).expect("one");
    claim(&steering, compiled(DROP), vec![common::copy(&kept[1])]).expect("two");
    let third = claim(&steering, compiled(DROP), vec![common::copy(&kept[2])]);
    refused(third, ErrorKind::Denied, "2 policies at");
    steering.detach(one.id, Vec::new()).expect("detached");
    claim(&steering, compiled(DROP), vec![common::copy(&kept[2])]).expect("two again");
}

#[test]
fn claims_stay_within_the_quota_however_many_addresses_there_are() {
    let Some((net, daemon)) = world(&[&OPEN[..], &["--max-claims", "3"]].concat()) else { return };
    let more = || -> io::Result<()> {
        for n in 1..=20 {
            let address = format!("198.51.100.{n}/32");
            let ip = Command::new("ip").args(["address", "add", &address, "dev", NEAR]).status()?;
            assert!(ip.success());
        }
        Ok(())
    };
    net.near.run(more).expect("addresses");
    passed(nobody(&net, &daemon, "nobody_claims_all_addresses"));
    assert!(
        !std::fs::read_dir(daemon.pins()).expect("pins").any(|pin| is_root(&pin.expect("read")))
    );
}

fn is_root(pin: &std::fs::DirEntry) -> bool {
    pin.file_name().to_string_lossy().starts_with("xdp-")
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_claims_all_addresses() {
    let Some(steering) = steering_of_nobody() else { return };
    let socket = UdpSocket::bind("0.0.0.0:9999").expect("a port of his");
    let result = claim(&steering, compiled(DROP), vec![socket.into()]);
    // Fewer than there would be.
    refused(result, ErrorKind::Denied, " 4 addresses and ports");
}

#[test]
fn interfaces_are_closed_unless_opened() {
    let Some((net, daemon)) = world(&[]) else { return };
    passed(nobody(&net, &daemon, "nobody_has_no_interface"));
    let server = server(&net, PORT);
    let copy = server.as_fd().try_clone_to_owned().expect("a copy");
    claim(&daemon.steering(), compiled(DROP), vec![copy]).expect("root may");
    // An interface of this name in the user's own namespace is a different one.
    let elsewhere = Daemon::start(&["--everyone", "--interface", NEAR]);
    passed(nobody(&net, &elsewhere, "nobody_is_elsewhere"));
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_has_no_interface() {
    let Some(steering) = steering_of_nobody() else { return };
    let socket = || OwnedFd::from(UdpSocket::bind("0.0.0.0:9999").expect("a port of his"));
    let result = claim(&steering, compiled(DROP), vec![socket()]);
    refused(result, ErrorKind::Denied, "`heddled --interface");
    let below = PacketTarget { interface: "lo".into(), cpus: Vec::new() };
    let lo = Deployment::new(compiled(DROP), Hook::XdpSkb).below(below).with(Role::Claim, socket());
    refused(steering.attach(lo), ErrorKind::Denied, "not open to user");
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_is_elsewhere() {
    let Some(steering) = steering_of_nobody() else { return };
    let socket = OwnedFd::from(UdpSocket::bind("0.0.0.0:9999").expect("a port of his"));
    let result = claim(&steering, compiled(DROP), vec![socket]);
    let elsewhere = "another network namespace than heddled's";
    refused(result, ErrorKind::Denied, elsewhere);
    // Its addresses are not even read: there may be any number.
    let result = claim(&steering, compiled(DROP), vec![of_no_address_here()]);
    refused(result, ErrorKind::Denied, elsewhere);
}

/// The kernel cannot watch a socket whose private data is used by the map of a reuseport group. Root does
/// without.
#[test]
fn an_already_steered_socket_proves_only_roots_claims() {
    let Some((net, daemon)) = world(&OPEN) else { return };
    passed(nobody(&net, &daemon, "nobody_claims_what_is_steered"));
    let group = net.near.run(|| io::Result::Ok(common::group(1, "0.0.0.0:9997"))).expect("a group");
    group[0].set_nonblocking(false).expect("set");
    common::attach(&daemon.steering(), "round-robin", &group).expect("attached");
    assert_eq!(arrive(&net, &group[0]), 5);
    let free = server(&net, 9996);
    let sockets = [&free, &group[0]].map(common::copy).into();
    let claimed = claim(&daemon.steering(), compiled(DROP), sockets).expect("root may");
    assert_eq!([arrive(&net, &free), arrive(&net, &group[0])], [0, 0]);
    daemon.steering().detach(claimed.id, Vec::new()).expect("detached");
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_claims_what_is_steered() {
    let Some(steering) = steering_of_nobody() else { return };
    let group = common::group(1, "0.0.0.0:9998");
    common::attach(&steering, "round-robin", &group).expect("attached");
    let free = UdpSocket::bind("0.0.0.0:9999").expect("a port of his");
    let sockets: Vec<OwnedFd> = vec![free.into(), common::copy(&group[0])];
    let result = claim(&steering, compiled(DROP), sockets);
    refused(result, ErrorKind::Busy, "steered at socket-select already");
}

/// With SO_REUSEADDR a user may listen where another's connections still exist.
#[test]
fn listening_on_a_port_cannot_claim_another_users_connections() {
    let Some((net, daemon)) = world(&OPEN) else { return };
    let address = SocketAddr::from((NEAR4, 7000));
    let (mut client, mut victim) = {
        let server = net.near.run(|| listener(address)).expect("a server");
        let client = net.far.run(|| TcpStream::connect(address)).expect("a client");
        (client, server.accept().expect("accepted").0)
    };
    passed(nobody(&net, &daemon, "nobody_listens_where_others_talk"));
    client.write_all(b"password").expect("sent");
    victim.set_read_timeout(Some(std::time::Duration::from_secs(30))).expect("a limit");
    victim.read_exact(&mut [0; 8]).expect("the packets are the victim's");
    // The user's own connections do not conflict, nor do closed ones that the kernel still has.
    drop(victim);
    drop(client);
    passed(nobody(&net, &daemon, "nobody_claims_what_he_serves"));
}

#[test]
fn sharing_a_port_cannot_claim_another_users_datagrams() {
    let Some((net, daemon)) = world(&OPEN) else { return };
    let server = net.near.run(|| Ok::<_, io::Error>(sharing_a_port())).expect("a server");
    passed(nobody(&net, &daemon, "nobody_shares_a_port"));
    drop(server);
    passed(nobody(&net, &daemon, "nobody_has_the_port_alone"));
}

/// A datagram socket whose port others may bind to as well.
fn sharing_a_port() -> OwnedFd {
    let address = SocketAddr::from(([0, 0, 0, 0], 7002));
    bound(SocketType::DGRAM, None, address).expect("a port")
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_shares_a_port() {
    let Some(steering) = steering_of_nobody() else { return };
    let own = OwnedFd::from(UdpSocket::bind("0.0.0.0:7003").expect("a port of his"));
    let result = claim(&steering, compiled(DROP), vec![own, sharing_a_port()]);
    refused(result, ErrorKind::Denied, "user 0 has a socket at udp");
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_has_the_port_alone() {
    let Some(steering) = steering_of_nobody() else { return };
    let mine = sharing_a_port();
    let claimed = || claim(&steering, compiled(DROP), vec![mine.try_clone().expect("a copy")]);
    // A child that another test has just forked may hold the other socket for a moment.
    until("the port is his", || claimed().is_ok());
}

/// A listener that shares its address with connections.
fn listener(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &at)?;
    rustix::net::listen(&socket, 8)?;
    Ok(socket.into())
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_listens_where_others_talk() {
    let Some(steering) = steering_of_nobody() else { return };
    let mine = listener(SocketAddr::from((NEAR4, 7000))).expect("he may listen");
    let result = claim(&steering, compiled(DROP), vec![mine.into()]);
    refused(result, ErrorKind::Denied, "user 0 has a socket at tcp");
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_claims_what_he_serves() {
    let Some(steering) = steering_of_nobody() else { return };
    let mine = listener(SocketAddr::from((NEAR4, 7001))).expect("a port of his");
    let client = TcpStream::connect((NEAR4, 7001)).expect("a client of his");
    let served = mine.accept().expect("accepted");
    claim(&steering, compiled(DROP), vec![mine.into()]).expect("his");
    drop((client, served));
    let left = listener(SocketAddr::from((NEAR4, 7000))).expect("he may listen");
    claim(&steering, compiled(DROP), vec![left.into()]).expect("the others are gone");
}
