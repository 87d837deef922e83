//! Claims of lanes: the addresses that they mean, and the kernel's sockets that prove them.

#[path = "common/net.rs"]
mod common;
#[path = "common/lanes.rs"]
mod lanes;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;

use common::{Packet, SYN, until};
use heddle_netns::{NEAR4, NEAR6};
use heddle_steer::hook::xdp::Protocol::{Tcp, Udp};
use heddle_steer::lane::{ClaimError, MAX_PROOFS};
use lanes::{Lanes, PORT, To};
use rustix::net::{connect, connect_unspec, listen, sockopt};

const ANY4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const ANY6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

fn lanes() -> Option<Lanes> {
    Lanes::with_policy(1, "hash")
}

fn to(destination: impl Into<IpAddr>) -> Packet {
    let destination = destination.into();
    Packet { destination, ..Packet::new(destination.is_ipv6(), PORT, b"hello") }
}

#[test]
fn any_address_means_any_of_the_machines_own() {
    let Some(lanes) = lanes() else { return };
    let _sockets = [lanes.claim(Udp, ANY4), lanes.claim(Udp, ANY6)];
    assert_eq!([lanes.to(&to(NEAR4)), lanes.to(&to(NEAR6))], [To::Lane(0); 2]);
    let foreign: [IpAddr; 5] = [
        [10, 77, 0, 9].into(),
        [224, 0, 0, 251].into(),
        [10, 77, 0, 255].into(),
        "fd77::9".parse().unwrap(),
        "ff02::fb".parse().unwrap(),
    ];
    for address in foreign {
        assert_eq!(lanes.to(&to(address)), To::Kernel, "{address} is forwarded, or of many");
    }
    lanes.deployment.set_local(&[foreign[0], NEAR6.into(), Ipv4Addr::LOCALHOST.into()]).unwrap();
    assert_eq!([lanes.to(&to(foreign[0])), lanes.to(&to(NEAR6))], [To::Lane(0); 2]);
    assert_eq!(lanes.to(&to(NEAR4)), To::Kernel);
    assert_eq!(lanes.to(&to(Ipv4Addr::LOCALHOST)), To::Kernel);
}

#[test]
fn an_address_means_itself() {
    let Some(lanes) = lanes() else { return };
    lanes.net.near.ip(&format!("addr add 10.77.0.9/24 dev {}", heddle_netns::NEAR)).unwrap();
    let _sockets = [lanes.claim(Udp, NEAR4), lanes.claim(Udp, NEAR6)];
    assert_eq!([lanes.to(&to(NEAR4)), lanes.to(&to(NEAR6))], [To::Lane(0); 2]);
    assert_eq!(lanes.to(&to([10, 77, 0, 9])), To::Kernel);
    let mapped = SocketAddr::new(NEAR4.to_ipv6_mapped().into(), PORT);
    assert!(lanes.deployment.release(Udp, mapped).unwrap(), "written as an IPv6 address");
    assert_eq!(lanes.to(&to(NEAR4)), To::Kernel);
}

#[test]
fn a_claim_ends_with_the_last_of_its_sockets() {
    let Some(lanes) = lanes() else { return };
    for protocol in [Udp, Tcp] {
        let before = lanes.counts().unproven;
        let address = SocketAddr::new(ANY4, PORT);
        let first = lanes.claim(protocol, ANY4);
        let second = lanes.claim(protocol, ANY4);
        lanes.deployment.claim(protocol, address, &[first.as_fd(), second.as_fd()]).unwrap();
        let packet = match protocol {
            Udp => to(NEAR4),
            Tcp => Packet::tcp(false, PORT, 4000, SYN),
        };
        assert_eq!(lanes.to(&packet), To::Lane(0));
        drop(first);
        assert_eq!(lanes.to(&packet), To::Lane(0));
        drop(second);
        until("a claim without sockets", || lanes.to(&packet) == To::Kernel);
        assert_eq!(lanes.counts().unproven - before, 1, "and it is counted");
        // It can be proven again.
        let third = lanes.claim(protocol, ANY4);
        assert_eq!(lanes.to(&packet), To::Lane(0));
        assert!(lanes.deployment.release(protocol, address).unwrap());
        assert!(!lanes.deployment.release(protocol, address).unwrap());
        assert_eq!(lanes.to(&packet), To::Kernel);
        drop(third);
    }
}

#[test]
fn a_socket_that_lost_its_port_proves_nothing() {
    let Some(lanes) = lanes() else { return };
    let datagrams = lanes.claim(Udp, NEAR4);
    connect(&datagrams, &SocketAddr::new(heddle_netns::FAR4.into(), 9)).unwrap();
    assert_eq!(lanes.to(&to(NEAR4)), To::Kernel, "it has one peer");
    let listener = lanes.claim(Tcp, NEAR4);
    let syn = Packet::tcp(false, PORT, 4000, SYN);
    assert_eq!(lanes.to(&syn), To::Lane(0));
    connect_unspec(&listener).unwrap();
    assert_eq!(lanes.to(&syn), To::Kernel, "it no longer listens");
}

#[test]
fn a_listener_claims_before_it_listens() {
    let Some(lanes) = lanes() else { return };
    let address = SocketAddr::new(NEAR4.into(), PORT);
    let syn = Packet::tcp(false, PORT, 4000, SYN);
    let listener = lanes.bound(Tcp, address);
    let refused = lanes.deployment.claim(Tcp, address, &[listener.as_fd()]).unwrap_err();
    assert!(refused.to_string().contains("does not listen"), "{refused}");
    assert_eq!(lanes.to(&syn), To::Kernel);
    lanes.deployment.claim(Tcp, address, &[]).unwrap();
    assert_eq!(lanes.to(&syn), To::Lane(0));
    listen(&listener, 16).unwrap();
    lanes.deployment.claim(Tcp, address, &[listener.as_fd()]).unwrap();
    assert_eq!(lanes.to(&syn), To::Lane(0));
    drop(listener);
    until("a claim without sockets", || lanes.to(&syn) == To::Kernel);
}

#[test]
fn a_socket_of_both_families_proves_both() {
    let Some(lanes) = lanes() else { return };
    for only in [false, true] {
        let at = |any| SocketAddr::new(any, PORT);
        let socket = lanes.net.near.run(|| {
            let (family, kind) =
                (rustix::net::AddressFamily::INET6, rustix::net::SocketType::DGRAM);
            let socket = rustix::net::socket(family, kind, None).unwrap();
            sockopt::set_ipv6_v6only(&socket, only).unwrap();
            rustix::net::bind(&socket, &at(ANY6)).unwrap();
            socket
        });
        lanes.deployment.claim(Udp, at(ANY6), &[socket.as_fd()]).unwrap();
        assert_eq!(lanes.to(&to(NEAR6)), To::Lane(0));
        assert_eq!(lanes.deployment.claim(Udp, at(ANY4), &[socket.as_fd()]).is_ok(), !only);
        assert_eq!(lanes.to(&to(NEAR4)), if only { To::Kernel } else { To::Lane(0) });
        for any in [ANY4, ANY6] {
            lanes.deployment.release(Udp, at(any)).unwrap();
        }
    }
}

#[test]
fn sockets_that_prove_nothing_are_refused() {
    let Some(lanes) = lanes() else { return };
    let address = SocketAddr::new(NEAR4.into(), PORT);
    let refused = |socket: std::os::fd::BorrowedFd<'_>| {
        let error = lanes.deployment.claim(Udp, address, &[socket]).unwrap_err();
        assert!(matches!(error, ClaimError::Proof { .. }), "{error}");
        error.to_string()
    };
    let other = lanes.kernel_socket(Udp, SocketAddr::new(NEAR4.into(), PORT + 1));
    assert!(refused(other.as_fd()).contains("another port"));
    let other = lanes.kernel_socket(Udp, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT));
    assert!(refused(other.as_fd()).contains("another address"));
    let other = lanes.kernel_socket(Udp, SocketAddr::new(ANY6, PORT + 2));
    assert!(refused(other.as_fd()).contains("another port"));
    let other = lanes.kernel_socket(Tcp, address);
    assert!(refused(other.as_fd()).contains("another protocol"));
    assert_eq!(lanes.to(&to(NEAR4)), To::Kernel);
    assert_eq!(lanes.deployment.claims(), []);
}

#[test]
fn there_is_room_for_thousands_of_claims_and_a_limit() {
    let Some(lanes) = lanes() else { return };
    let at = |port| SocketAddr::new(NEAR4.into(), port);
    for port in 1..=16384 {
        lanes.deployment.claim(Udp, at(port), &[]).unwrap();
    }
    let full = lanes.deployment.claim(Udp, at(16385), &[]).unwrap_err();
    assert!(matches!(full, ClaimError::Full(_)), "{full}");
    assert_eq!(lanes.deployment.claims().len(), 16384);
    lanes.deployment.release(Udp, at(1)).unwrap();
    lanes.deployment.claim(Udp, at(16385), &[]).unwrap();
    let sockets: Vec<_> = (0..=MAX_PROOFS).map(|_| lanes.kernel_socket(Udp, at(PORT))).collect();
    let fds: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
    let (last, most) = fds.split_last().unwrap();
    lanes.deployment.claim(Udp, at(PORT), most).unwrap();
    let full = lanes.deployment.claim(Udp, at(PORT), &[*last]).unwrap_err();
    assert!(matches!(full, ClaimError::Proofs(_)), "{full}");
}
