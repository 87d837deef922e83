//! CPU Redirect: packets to the CPUs that process them in the network stack.

#[path = "common/net.rs"]
mod common;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use common::{counts, deploy, near, network, udp};
use heddle_netns::{FAR4, FAR6, NEAR4, NEAR6};
use heddle_steer::hook::xdp::{
    Claim, Executors, Holders, Mode, PolicyError, Protocol, Root, cpus, load_policy, online_cpus,
    put_claim, put_cpu, put_policy, take_cpu,
};
use heddle_steer::policy::Maps;

const PORT: u16 = 8000;

#[test]
fn datagrams_and_connections_reach_an_unaware_server() {
    let Some(net) = network(2) else { return };
    let root = Root::attach(&near(&net), Some(Mode::Native)).unwrap();
    let online = online_cpus().unwrap();
    let executors = online.len().min(2) as u32;
    let (program, maps) = deploy("round-robin", Executors::Cpus, executors);
    for (index, cpu) in (0..executors).zip(&online) {
        put_cpu(&maps, index, *cpu, 512).unwrap();
    }
    put_policy(&root.maps, 0, &program).unwrap();
    let families: [(IpAddr, IpAddr); 2] =
        [(NEAR4.into(), FAR4.into()), (NEAR6.into(), FAR6.into())];
    let mut sent = 0;
    for (near, far) in families {
        put_claim(&root.maps, &udp(near, PORT), 0, Holders::default()).unwrap();
        let tcp = Claim { protocol: Protocol::Tcp, address: (near, PORT).into() };
        put_claim(&root.maps, &tcp, 0, Holders::default()).unwrap();

        let server = net.near.run(|| UdpSocket::bind((near, PORT))).unwrap();
        let client = net.far.run(|| UdpSocket::bind((far, 0))).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        for number in 0..100_u32 {
            client.send_to(&number.to_ne_bytes(), (near, PORT)).unwrap();
            let mut bytes = [0; 16];
            assert_eq!(server.recv(&mut bytes).unwrap(), 4, "{near}");
            assert_eq!(bytes[..4], number.to_ne_bytes());
            sent += 1;
        }
        let listener = net.near.run(|| TcpListener::bind((near, PORT))).unwrap();
        let mut stream = net.far.run(|| TcpStream::connect((near, PORT))).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        stream.write_all(&[9; 100_000]).unwrap();
        drop(stream);
        let mut all = Vec::new();
        accepted.read_to_end(&mut all).unwrap();
        assert_eq!(all, vec![9; 100_000]);
    }
    let mut selected = 0;
    for index in 0..executors {
        let [chosen, failed, _] = counts(&maps, index);
        assert!(chosen >= sent / u64::from(executors), "executor {index}");
        assert_eq!(failed, 0);
        selected += chosen;
    }
    assert!(selected > sent, "the connections' segments too");
}

#[test]
fn in_generic_mode_packets_are_not_redirected_to_cpus() {
    let policy = common::policy("round-robin");
    let (kind, maps) = ((Executors::Cpus, Mode::Generic), &mut Maps::new());
    let refused = load_policy("rr", kind, &policy, maps).unwrap_err();
    assert!(matches!(refused, PolicyError::GenericCpus), "{refused}");
}

#[test]
fn an_executor_without_a_cpu_leaves_its_packets_in_place() {
    let Some(net) = network(1) else { return };
    let root = Root::attach(&near(&net), None).unwrap();
    let (program, maps) = deploy("round-robin", Executors::Cpus, 1);
    put_policy(&root.maps, 0, &program).unwrap();
    put_claim(&root.maps, &udp(NEAR4, PORT), 0, Holders::default()).unwrap();
    let server = net.near.run(|| UdpSocket::bind((NEAR4, PORT))).unwrap();
    let client = net.far.run(|| UdpSocket::bind((FAR4, 0))).unwrap();
    server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.send_to(b"hello", (NEAR4, PORT)).unwrap();
    assert_eq!(server.recv(&mut [0; 16]).unwrap(), 5);
    assert_eq!(counts(&maps, 0), [0, 1, 0]);
}

#[test]
fn only_online_cpus_are_executors_and_they_can_change() {
    if heddle_netns::missing_privilege().is_some() {
        eprintln!("SKIPPED: needs root");
        return;
    }
    let (_program, maps) = deploy("round-robin", Executors::Cpus, 1);
    let online = online_cpus().unwrap();
    let last = *online.last().unwrap();
    assert!(put_cpu(&maps, 0, last + 1, 64).unwrap_err().to_string().contains("not online"));
    assert!(put_cpu(&maps, 64, last, 64).is_err());
    put_cpu(&maps, 0, online[0], 64).unwrap();
    put_cpu(&maps, 1, last, 64).unwrap();
    put_cpu(&maps, 0, last, 64).unwrap();
    assert_eq!(cpus(&maps).unwrap(), [(0, last), (1, last)]);
    assert!(take_cpu(&maps, 0).unwrap() && !take_cpu(&maps, 0).unwrap());
    assert_eq!(cpus(&maps).unwrap(), [(1, last)]);
}
