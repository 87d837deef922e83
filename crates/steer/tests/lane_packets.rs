//! Lanes: where single packets go. Claims: `lane_claims.rs`; traffic: `lane_traffic.rs`.

#[path = "common/net.rs"]
mod common;
#[path = "common/lanes.rs"]
mod lanes;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use common::{ACK, Packet, SYN};
use heddle_netns::{FAR4, FAR6, NEAR4, NEAR6};
use heddle_steer::hook::xdp::Protocol::{Tcp, Udp};
use heddle_steer::lane::{Cidr, Options};
use lanes::{Lanes, PORT, To};

const FAMILIES: [(bool, IpAddr); 2] =
    [(false, IpAddr::V4(Ipv4Addr::UNSPECIFIED)), (true, IpAddr::V6(Ipv6Addr::UNSPECIFIED))];

#[test]
fn the_policy_places_each_datagram() {
    let Some(lanes) = Lanes::with_policy(3, "round-robin") else { return };
    let _socket = lanes.claim(Udp, Ipv4Addr::UNSPECIFIED);
    let packet = Packet::new(false, PORT, b"hello");
    let to: Vec<To> = (0..6).map(|_| lanes.to(&packet)).collect();
    assert_eq!(to, [0, 1, 2, 0, 1, 2].map(To::Lane));
    assert_eq!(lanes.to(&Packet::new(false, PORT + 1, b"hello")), To::Kernel);
    assert_eq!(lanes.to(&Packet::new(true, PORT, b"hello")), To::Kernel);
    assert_eq!(lanes.to(&Packet::tcp(false, PORT, 4000, SYN)), To::Kernel);
    assert_eq!(lanes.counts().selected, [2, 2, 2]);
}

#[test]
fn a_connection_stays_where_its_syn_went() {
    let Some(lanes) = Lanes::with_policy(4, "round-robin") else { return };
    let _socket = lanes.claim(Tcp, Ipv4Addr::UNSPECIFIED);
    for from in 4000..4008 {
        let there = lanes.to(&Packet::tcp(false, PORT, from, SYN));
        assert_eq!(there, To::Lane(usize::from(from) % 4), "in turn");
        for flags in [ACK, SYN, ACK | 1, SYN | ACK, 4, SYN] {
            assert_eq!(lanes.to(&Packet::tcp(false, PORT, from, flags)), there);
        }
    }
    assert_eq!((lanes.counts().flows, lanes.counts().flows_full), (8, 0));
}

#[test]
fn by_hash_connections_need_no_memory() {
    let Some(lanes) = Lanes::with_policy(4, "hash") else { return };
    let _socket = lanes.claim(Tcp, Ipv4Addr::UNSPECIFIED);
    let mut seen = BTreeSet::new();
    for from in 4000..4064 {
        let To::Lane(there) = lanes.to(&Packet::tcp(false, PORT, from, SYN)) else { panic!() };
        assert_eq!(lanes.to(&Packet::tcp(false, PORT, from, ACK)), To::Lane(there));
        assert_eq!(lanes.to(&error(false, 3, 6, PORT, from)), To::Lane(there));
        seen.insert(there);
    }
    assert_eq!((seen.len(), lanes.counts().flows), (4, 0));
}

/// By its source port, modulo 4: to the kernel, nowhere, to lane 1, to a lane that there is not.
const BY_PORT: &str = "#include <heddle.h>
static u32 schedule(struct hd_in *in)
{
	u32 answers[] = {HD_PASS, HD_DROP, 1, 77};
	return answers[in->source_port & 3];
}
";

#[test]
fn what_the_policy_says_about_a_syn_holds_for_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("by-port.c");
    std::fs::write(&file, BY_PORT).unwrap();
    let Some(lanes) = Lanes::with_policy(4, file.to_str().unwrap()) else { return };
    for (six, any) in FAMILIES {
        let _socket = lanes.claim(Tcp, any);
        let tcp = |from, flags| lanes.to(&Packet::tcp(six, PORT, from, flags));
        for from in (4000..4016).step_by(4) {
            assert_eq!([tcp(from, SYN), tcp(from, ACK), tcp(from, SYN)], [To::Kernel; 3]);
            assert_eq!(tcp(from + 1, SYN), To::Nowhere);
            assert!(matches!(tcp(from + 1, ACK), To::Lane(_)), "no connection: its lane resets it");
            assert_eq!([tcp(from + 2, SYN), tcp(from + 2, ACK)], [To::Lane(1); 2]);
            assert_eq!([tcp(from + 3, SYN), tcp(from + 3, ACK)], [To::Kernel; 2]);
        }
    }
    let counts = lanes.counts();
    assert_eq!((counts.passed, counts.dropped, counts.wrong_lane), (8, 8, 8));
}

#[test]
fn a_connection_can_outlive_its_listener() {
    let Some(lanes) = Lanes::with_policy(4, "round-robin") else { return };
    let _socket = lanes.claim(Tcp, NEAR4);
    let to = |flags| lanes.to(&Packet::tcp(false, PORT, 4000, flags));
    let To::Lane(lane) = to(SYN) else { panic!("not to a lane") };
    let (local, remote) = ((NEAR4, PORT).into(), (FAR4, 4000).into());
    lanes.deployment.add_outgoing(local, remote, lane as u32).unwrap();
    lanes.deployment.release(Tcp, local).unwrap();
    assert_eq!(to(ACK), To::Lane(lane));
    assert_eq!(lanes.to(&Packet::tcp(false, PORT, 4001, SYN)), To::Kernel);
}

#[test]
fn a_single_lane_has_a_policy_too() {
    let Some(lanes) = Lanes::with_policy(1, "key-hash") else { return };
    let _socket = lanes.claim(Tcp, NEAR4);
    let syn = Packet::tcp(false, PORT, 4000, SYN);
    assert_eq!(lanes.to(&syn), To::Kernel, "without a payload it leaves the choice to the kernel");
}

#[test]
fn connections_of_the_process_go_to_their_lanes() {
    let Some(lanes) = Lanes::with_policy(4, "hash") else { return };
    for (six, near, far) in [(false, NEAR4.into(), FAR4.into()), (true, NEAR6.into(), FAR6.into())]
    {
        let (near, far): (IpAddr, IpAddr) = (near, far);
        let (local, remote) = (SocketAddr::new(near, PORT), SocketAddr::new(far, 80));
        let other = SocketAddr::new(far, 81);
        let answer = |from| lanes.to(&Packet::tcp(six, PORT, from, SYN | ACK));
        assert_eq!(answer(80), To::Kernel);
        lanes.deployment.add_outgoing(local, remote, 2).unwrap();
        lanes.deployment.add_outgoing(local, other, 3).unwrap();
        assert_eq!([answer(80), answer(81), answer(82)], [To::Lane(2), To::Lane(3), To::Kernel]);
        assert_eq!(lanes.to(&Packet::new(six, PORT, b"UDP")), To::Kernel);
        let twice = lanes.deployment.add_outgoing(local, remote, 1).unwrap_err();
        assert_eq!(twice.kind(), std::io::ErrorKind::AlreadyExists, "{twice}");
        assert!(lanes.deployment.add_outgoing(local, remote, 4).is_err(), "no such lane");

        // The port may be claimed, too: then others' connections are the claim's.
        let socket = lanes.claim(Tcp, near);
        assert_eq!([answer(80), answer(81)], [To::Lane(2), To::Lane(3)]);
        assert!(matches!(answer(82), To::Lane(_)));
        lanes.deployment.release(Tcp, local).unwrap();
        drop(socket);

        assert!(lanes.deployment.remove_outgoing(local, remote).unwrap());
        assert!(!lanes.deployment.remove_outgoing(local, remote).unwrap());
        assert_eq!([answer(80), answer(81)], [To::Kernel, To::Lane(3)]);
        assert!(lanes.deployment.remove_outgoing(local, other).unwrap());
        assert_eq!(answer(81), To::Kernel);
    }
    assert_eq!(lanes.counts().outgoing, 10);
}

#[test]
fn fragments_of_segments_are_dropped_and_those_of_datagrams_pass() {
    let Some(lanes) = Lanes::with_policy(2, "hash") else { return };
    for (six, any) in FAMILIES {
        let (first, later) = if six { (1, 8) } else { (0x2000, 1) };
        let dropped = lanes.counts().fragments;
        let _sockets = [lanes.claim(Tcp, any), lanes.claim(Udp, any)];
        let segment =
            |port, fragment| lanes.to(&Packet { fragment, ..Packet::tcp(six, port, 4000, ACK) });
        assert_eq!(segment(PORT, first), To::Nowhere);
        assert_eq!(segment(PORT, later), To::Kernel, "without ports, and useless");
        assert_eq!(segment(PORT + 1, first), To::Kernel, "not claimed");
        for fragment in [first, later] {
            let datagram = Packet { fragment, ..Packet::new(six, PORT, b"part") };
            assert_eq!(lanes.to(&datagram), To::Kernel);
        }
        let (near, far): (IpAddr, IpAddr) = match six {
            false => (NEAR4.into(), FAR4.into()),
            true => (NEAR6.into(), FAR6.into()),
        };
        let (local, remote) = (SocketAddr::new(near, 9000), SocketAddr::new(far, 4000));
        lanes.deployment.add_outgoing(local, remote, 0).unwrap();
        assert_eq!(segment(9000, first), To::Nowhere);
        assert_eq!(lanes.counts().fragments - dropped, 2);
    }
}

/// An error about a packet that the near end sent from port `from` to port `to`.
fn error(six: bool, kind: u8, protocol: u8, from: u16, to: u16) -> Packet {
    let (near, far): (IpAddr, IpAddr) = match six {
        false => (NEAR4.into(), FAR4.into()),
        true => (NEAR6.into(), FAR6.into()),
    };
    let sent =
        Packet { source: near, destination: far, protocol, ..Packet::new(six, to, b"hello") };
    let sent = Packet { from, ..sent }.frame();
    let quoted = if six { &sent[14..14 + 48] } else { &sent[14..14 + 28] };
    let raw = [&[kind, 0, 0, 0, 0, 0, 0, 0], quoted].concat();
    let protocol = if six { 58 } else { 1 };
    Packet { protocol, raw: Some(raw), ..Packet::new(six, 0, &[]) }
}

#[test]
fn errors_about_what_lanes_sent_go_to_the_lane_of_the_connection() {
    let Some(lanes) = Lanes::with_policy(4, "round-robin") else { return };
    let mut connections = Vec::new();
    for (six, any) in FAMILIES {
        let before = lanes.counts().errors;
        let _sockets = [lanes.claim(Tcp, any), lanes.claim(Udp, any)];
        let errors: &[u8] = if six { &[1, 2, 3, 4] } else { &[3, 11, 12] };
        let connection = lanes.to(&Packet::tcp(six, PORT, 80, SYN));
        connections.push(connection);
        for kind in errors {
            for (protocol, lane) in [(6, connection), (17, To::Lane(0))] {
                assert_eq!(lanes.to(&error(six, *kind, protocol, PORT, 80)), lane, "{kind}");
                assert_eq!(lanes.to(&error(six, *kind, protocol, PORT + 1, 80)), To::Kernel);
            }
        }
        for kind in [0, 8, 128, 129, 135] {
            assert_eq!(lanes.to(&error(six, kind, 6, PORT, 80)), To::Kernel, "{kind} is no error");
        }
        assert_eq!(lanes.counts().errors - before, 2 * errors.len() as u64);
        // Cut off before the ports.
        let mut short = error(six, errors[0], 6, PORT, 80);
        short.raw.as_mut().unwrap().truncate(if six { 8 + 40 } else { 8 + 20 });
        // A short frame is padded, so the ports are read as others.
        assert_eq!(lanes.to(&short), To::Kernel);
    }
    assert_ne!(connections[0], connections[1], "not all on the first");
    let (local, remote) = ((NEAR4, 9000).into(), (FAR4, 80).into());
    lanes.deployment.add_outgoing(local, remote, 3).unwrap();
    assert_eq!(
        lanes.to(&error(false, 3, 6, 9000, 80)),
        To::Lane(3),
        "of a connection that it opened"
    );
}

#[test]
fn sources_that_are_not_allowed_reach_no_claim() {
    let cidr = |text: &str| text.parse::<Cidr>().unwrap();
    let allow = vec![cidr("10.77.0.0/24"), cidr("192.0.2.7"), cidr("fd77::2/128")];
    let Some(lanes) = Lanes::new(&Options { allow, ..Options::new(2) }) else { return };
    let _sockets = FAMILIES.map(|(_, any)| [lanes.claim(Tcp, any), lanes.claim(Udp, any)]);
    let from = |six, source: &str, port| {
        let source: IpAddr = source.parse().unwrap();
        let datagram = Packet { source, ..Packet::new(six, port, b"x") };
        let segment = Packet { source, ..Packet::tcp(six, port, 4000, SYN) };
        [lanes.to(&datagram), lanes.to(&segment)]
    };
    for (six, source) in [(false, "10.77.0.2"), (false, "192.0.2.7"), (true, "fd77::2")] {
        assert!(from(six, source, PORT).iter().all(|to| matches!(to, To::Lane(_))), "{source}");
    }
    for (six, source) in [(false, "10.77.1.2"), (false, "192.0.2.8"), (true, "fd77::3")] {
        assert_eq!(from(six, source, PORT), [To::Nowhere; 2], "{source}");
        assert_eq!(from(six, source, PORT + 1), [To::Kernel; 2], "others' ports are not filtered");
    }
    assert_eq!(lanes.counts().denied, 6);
}

#[test]
fn frames_with_tags_are_of_other_interfaces() {
    let Some(lanes) = Lanes::with_policy(1, "hash") else { return };
    let _socket = lanes.claim(Udp, NEAR4);
    let plain = Packet::new(false, PORT, b"hello");
    assert_eq!(lanes.to(&plain), To::Lane(0));
    assert_eq!(lanes.to(&Packet { tags: vec![(0x8100, 7)], ..plain.clone() }), To::Kernel);
    assert_eq!(lanes.to(&Packet { extras: 2, ..plain }), To::Lane(0), "options are skipped");
}

#[test]
fn a_lane_without_a_socket_leaves_its_packets_to_the_kernel() {
    let Some(mut lanes) = Lanes::with_policy(2, "round-robin") else { return };
    let _socket = lanes.claim(Udp, NEAR4);
    lanes.sockets.pop();
    let packet = Packet::new(false, PORT, b"hello");
    common::until("the kernel to have removed it", || {
        lanes.counts().failed[1] > 0 || {
            lanes.to(&packet);
            false
        }
    });
    let put = |lane, queue| {
        use std::os::fd::AsFd as _;
        lanes.deployment.put_socket(lane, queue, lanes.sockets[0].as_fd())
    };
    assert!(put(2, 0).is_err() && put(0, 128).is_err());
}

#[test]
fn a_flood_of_syns_evicts_no_connection_that_has_traffic() {
    const SYNS: u32 = 300_000;
    let Some(lanes) = Lanes::with_policy(4, "round-robin") else { return };
    let _socket = lanes.claim(Tcp, NEAR4);
    let ports = 1000..1100;
    let segments = |flags| -> Vec<To> {
        ports.clone().map(|from| lanes.to(&Packet::tcp(false, PORT, from, flags))).collect()
    };
    let before = segments(SYN);
    for number in 0..SYNS {
        if number % 10_000 == 0 {
            assert_eq!(segments(ACK), before, "after {number}");
        }
        let source = Ipv4Addr::from(0x0b00_0000 + number).into();
        let syn = Packet { source, ..Packet::tcp(false, PORT, 4000, SYN) };
        lanes.deployment.program().test_run(&syn.frame(), 1).unwrap();
    }
    assert_eq!(lanes.counts().flows, u64::from(SYNS) + 100);
}

#[test]
fn a_connection_can_be_recorded_again_or_in_another_lane() {
    let Some(lanes) = Lanes::with_policy(4, "round-robin") else { return };
    let _socket = lanes.claim(Tcp, NEAR4);
    let (local, remote) = ((NEAR4, PORT).into(), (FAR4, 4000).into());
    for lane in [3, 1] {
        lanes.deployment.record_flow(local, remote, lane).unwrap();
        assert_eq!(lanes.to(&Packet::tcp(false, PORT, 4000, ACK)), To::Lane(lane as usize));
    }
    assert!(lanes.deployment.record_flow(local, remote, 4).is_err(), "no such lane");
}
