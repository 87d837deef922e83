//! Lanes: deployments, and real traffic.

#[path = "common/net.rs"]
mod common;
#[path = "common/lanes.rs"]
mod lanes;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{drain, near, network, until};
use heddle_bpf::xdp_programs;
use heddle_netns::{FAR4, NEAR, NEAR4, Pair};
use heddle_steer::hook::xdp::Protocol::{Tcp, Udp};
use heddle_steer::hook::xdp::{AttachError, Interface, Mode, Root};
use heddle_steer::lane::{Cidr, DeployError, Deployment, Options};
use heddle_steer::policy::{LinkError, LoadError, shipped_names, shipped_source};
use heddle_xsk::{Options as SocketOptions, XdpSocket};
use lanes::{Lanes, PORT};

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

const QUEUES: u32 = 2;

fn is_bare(net: &Pair) -> bool {
    let interface = near(net);
    let there = interface.run(|| xdp_programs(interface.index())).unwrap();
    there.native.is_none() && there.generic.is_none()
}

#[test]
fn datagrams_are_spread_over_the_lanes_of_every_queue() {
    const EACH: usize = 300;
    for mode in [Mode::Native, Mode::Generic] {
        let Some(net) = network(QUEUES) else { return };
        let options = Options { policy: "round-robin".into(), mode: Some(mode), ..Options::new(3) };
        let deployment = Deployment::attach(near(&net), &options).unwrap();
        assert_eq!((deployment.mode(), deployment.queues()), (mode, QUEUES));
        let index = deployment.interface().index();
        let bind = |queue| XdpSocket::bind_many(index, queue, 3, &SocketOptions::default());
        let mut queues: Vec<Vec<XdpSocket>> =
            (0..QUEUES).map(|queue| net.near.run(|| bind(queue)).unwrap()).collect();
        for (queue, sockets) in (0..).zip(&queues) {
            for (lane, socket) in (0..).zip(sockets) {
                deployment.put_socket(lane, queue, socket.as_fd()).unwrap();
            }
        }
        let address: SocketAddr = (Ipv4Addr::UNSPECIFIED, PORT).into();
        let server = net.near.run(|| UdpSocket::bind(address)).unwrap();
        deployment.claim(Udp, address, &[server.as_fd()]).unwrap();
        let clients = [(); 8].map(|()| net.far.run(|| UdpSocket::bind((FAR4, 0))).unwrap());
        for number in 0..3 * EACH {
            clients[number % 8].send_to(b"hello", (NEAR4, PORT)).unwrap();
        }
        let mut seen = vec![0; 3];
        until("all datagrams", || {
            for sockets in &mut queues {
                for (lane, socket) in sockets.iter_mut().enumerate() {
                    seen[lane] += drain(socket).len();
                }
            }
            seen.iter().sum::<usize>() >= 3 * EACH
        });
        // CPUs that read the policy's counter at the same time may choose the same lane.
        assert!(seen.iter().all(|count| *count > EACH / 2), "{mode}: {seen:?}");
        assert_eq!(deployment.counts().unwrap().failed, [0; 3], "{mode}");

        // A long one comes in fragments, which the kernel puts together for its own socket.
        server.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        clients[0].send_to(&[7; 3000], (NEAR4, PORT)).unwrap();
        assert_eq!(server.recv(&mut [0; 4096]).unwrap(), 3000, "{mode}");
    }
}

#[test]
fn a_connection_that_the_policy_leaves_to_the_kernel_works_there() {
    // Without a payload, this policy leaves the choice to the kernel.
    let Some(lanes) = Lanes::with_policy(2, "key-hash") else { return };
    let listener = lanes.net.near.run(|| TcpListener::bind((NEAR4, PORT))).unwrap();
    let address = listener.local_addr().unwrap();
    lanes.deployment.claim(Tcp, address, &[listener.as_fd()]).unwrap();
    for round in 1..=4 {
        let mut client = lanes.net.far.run(|| TcpStream::connect(address)).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        client.write_all(&[9; 100_000]).unwrap();
        drop(client);
        let mut all = Vec::new();
        accepted.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 100_000);
        assert_eq!(lanes.counts().passed, round, "the policy is asked about SYNs only");
    }
}

#[test]
fn a_repeated_syn_comes_to_the_same_lane() {
    let Some(mut lanes) = Lanes::with_policy(2, "round-robin") else { return };
    let _listener = lanes.claim(Tcp, NEAR4);
    let connect = || heddle_sys::socket::connect(&(NEAR4, PORT).into());
    let _clients = [(); 2].map(|()| lanes.net.far.run(connect).unwrap());
    // No lane answers, so both SYNs are repeated after a second.
    let mut seen: [Vec<Vec<u8>>; 2] = Default::default();
    until("repeated SYNs", || {
        for (socket, seen) in lanes.sockets.iter_mut().zip(&mut seen) {
            let ports = drain(socket).into_iter().map(|frame| frame[34..36].to_vec());
            seen.extend(ports);
        }
        seen.iter().all(|seen| seen.len() >= 2)
    });
    for ports in &seen {
        assert!(ports.iter().all(|port| *port == ports[0]), "{seen:?}");
    }
    assert_ne!(seen[0][0], seen[1][0]);
}

#[test]
fn an_interface_takes_one_program() {
    let Some(net) = network(1) else { return };
    let attach = || Deployment::attach(near(&net), &Options::new(2));
    let first = attach().unwrap();
    for second in [
        attach().map(drop).unwrap_err().to_string(),
        Root::attach(&near(&net), None).map(drop).unwrap_err().to_string(),
    ] {
        assert!(second.contains("hd_lanes") && second.contains("ip link set"), "{second}");
    }
    drop(first);
    until("an interface without a program", || is_bare(&net));
    let root = Root::attach(&near(&net), None).unwrap();
    let refused = attach().map(drop).unwrap_err();
    assert!(matches!(refused, DeployError::Attach(AttachError::Taken { .. })), "{refused}");
    assert!(refused.to_string().contains("hd_root"), "{refused}");
    drop(root);
}

#[test]
fn lanes_end_with_their_interface() {
    let Some(net) = network(1) else { return };
    let deployment = Deployment::attach(near(&net), &Options::new(2)).unwrap();
    assert!(deployment.is_attached().unwrap());
    net.near.ip(&format!("link del {NEAR}")).unwrap();
    assert!(!deployment.is_attached().unwrap());
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let Some(net) = network(1) else { return };
    let refused = |options: &Options| {
        let error = Deployment::attach(near(&net), options).map(drop).unwrap_err();
        assert!(is_bare(&net));
        error.to_string()
    };
    assert!(refused(&Options::new(0)).contains("1 to 64"));
    assert!(refused(&Options::new(65)).contains("1 to 64"));
    let policy = |policy: &str| Options { policy: policy.into(), ..Options::new(2) };
    assert!(refused(&policy("hush")).contains("shipped are"));
    assert!(refused(&policy("sita:scam=2")).contains("scam"));
    assert!(refused(&policy("/missing.c")).contains("/missing.c"));
    let many = (0..=255).flat_map(|a| (0..5).map(move |b| [10, a, b, 0]));
    let allow = many.map(|ip| Cidr::new(ip.into(), 24).unwrap()).collect();
    assert!(refused(&Options { allow, ..Options::new(2) }).contains("1024"));
}

#[test]
fn every_policy_places_on_lanes_or_says_why_not() {
    let Some(net) = network(1) else { return };
    for name in shipped_names() {
        let options = Options { policy: name.into(), ..Options::new(4) };
        let source = shipped_source(name).unwrap();
        let asks_sockets = source.contains("hd_idle(") || source.contains("hd_qlen(");
        match Deployment::attach(near(&net), &options) {
            Ok(deployment) => {
                assert!(!asks_sockets, "{name}");
                let lines = deployment.lines().unwrap();
                assert_eq!(lines.is_some(), source.contains("hd_line("), "{name}");
                drop(deployment);
                until("an interface without a program", || is_bare(&net));
            }
            Err(DeployError::Load(LoadError::Link(LinkError::NoSockets(_)))) => {
                assert!(asks_sockets, "{name}");
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

/// The other half of the test below, in a separate process.
#[test]
#[ignore = "a part of another test"]
fn holds_lanes_until_killed() {
    let file = std::env::var_os("HEDDLE_TEST_NETNS").expect("the namespace's file");
    let namespace = || Interface::namespace(file.as_ref()).unwrap();
    let interface = Interface::by_name(NEAR, Some(namespace())).unwrap();
    let deployment = Deployment::attach(interface, &Options::new(1)).unwrap();
    deployment.claim(Udp, (NEAR4, PORT).into(), &[]).unwrap();
    let inside = Interface::by_name(NEAR, Some(namespace())).unwrap();
    let index = inside.index();
    let socket = inside.run(|| XdpSocket::bind(index, 0, &SocketOptions::default())).unwrap();
    deployment.put_socket(0, 0, socket.as_fd()).unwrap();
    println!("ready");
    loop {
        // It may return spuriously.
        std::thread::park();
    }
}

#[test]
fn a_killed_process_leaves_its_packets_to_the_kernel() {
    let Some(net) = network(1) else { return };
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", "holds_lanes_until_killed"])
        .env("HEDDLE_TEST_NETNS", net.near.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(holder.stdout.take().unwrap()));
    until("the other process", || lines.next().unwrap().unwrap().ends_with("ready"));
    let server = net.near.run(|| UdpSocket::bind((NEAR4, PORT))).unwrap();
    let client = net.far.run(|| UdpSocket::bind((FAR4, 0))).unwrap();
    let hello = || client.send_to(b"hello", (NEAR4, PORT)).unwrap();
    hello();
    assert!(!is_bare(&net));
    holder.kill().unwrap();
    holder.wait().unwrap();
    until("an interface without a program", || is_bare(&net));
    server.set_nonblocking(true).unwrap();
    assert!(server.recv(&mut [0; 16]).is_err(), "the other process had it");
    server.set_nonblocking(false).unwrap();
    server.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    hello();
    assert_eq!(server.recv(&mut [0; 16]).unwrap(), 5);
}

/// Has a thread of the near end attach with these capabilities alone.
fn attach_with(net: &Pair, held: CapabilitySet, policy: &str) -> Result<(), DeployError> {
    net.near.run(|| {
        let before = capabilities(None).unwrap();
        set_capabilities(None, CapabilitySets { effective: held, ..before }).unwrap();
        let interface = Interface::by_name(NEAR, None).unwrap();
        let options = Options { policy: policy.into(), ..Options::new(2) };
        Deployment::attach(interface, &options).map(drop)
    })
}

#[test]
fn a_lack_of_privilege_is_named() {
    let Some(net) = network(1) else { return };
    let needed = [CapabilitySet::BPF, CapabilitySet::NET_ADMIN, CapabilitySet::PERFMON];
    let all = needed.into_iter().collect::<CapabilitySet>();
    attach_with(&net, all, "round-robin").unwrap();
    until("an interface without a program", || is_bare(&net));
    for missing in needed {
        let error = attach_with(&net, all - missing, "round-robin").unwrap_err();
        assert!(matches!(error, DeployError::Denied { .. }), "{missing:?}: {error}");
        assert!(error.to_string().contains("CAP_PERFMON"), "{error}");
    }
}

#[test]
fn interfaces_made_of_others_are_refused() {
    let Some(net) = network(1) else { return };
    net.near.ip(&format!("link add link {NEAR} name upper type macvlan")).unwrap();
    net.near.ip("link add bridge0 type bridge").unwrap();
    for (name, what) in
        [("upper", "a macvlan"), ("bridge0", "a bridge"), ("lo", "no Ethernet frames")]
    {
        let interface = Interface::by_name(name, Some(net.near.file().unwrap())).unwrap();
        let refused = Deployment::attach(interface, &Options::new(1)).map(drop).unwrap_err();
        assert!(refused.to_string().contains(what), "{refused}");
    }
}
