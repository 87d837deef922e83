//! Lanes: which packets go to which lane, which stay the kernel's.

#[path = "common/net.rs"]
mod common;
#[path = "common/lanes.rs"]
mod lanes;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use common::{ACK, Packet, SYN};
use heddle_steer::hook::xdp::Protocol::{Tcp, Udp};
use lanes::{Lanes, PORT, To};

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
        seen.insert(there);
    }
    assert_eq!((seen.len(), lanes.counts().flows), (4, 0));
}
