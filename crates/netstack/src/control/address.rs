//! Addresses of the interface, and which of them a packet leaves with.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};

use super::prefix::{Prefix, common_bits};

/// An address of the interface that may be used: duplicate address detection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub ip: IpAddr,
    /// The addresses that it makes reachable on the link. With a peer address, the peer's.
    pub network: Prefix,
    /// Whether new connections may leave with it by default: it is not deprecated (IPv6), and it is the first of its
    /// network (IPv4).
    pub preferred: bool,
}

/// Selects the source of packets to `destination` by way of `next_hop`, as the kernel would.
pub(super) fn select_source(
    addresses: &[InterfaceAddress],
    destination: IpAddr,
    next_hop: IpAddr,
) -> Option<IpAddr> {
    match destination {
        IpAddr::V4(_) => select_v4(addresses, next_hop),
        IpAddr::V6(destination) => select_v6(addresses, destination),
    }
}

/// Selects the first address in the next hop's network, else the first one.
fn select_v4(addresses: &[InterfaceAddress], next_hop: IpAddr) -> Option<IpAddr> {
    let usable = || addresses.iter().filter(|address| address.ip.is_ipv4() && address.preferred);
    let near = usable().find(|address| address.network.contains(next_hop));
    near.or_else(|| usable().next()).map(|address| address.ip)
}

/// Selects by RFC 6724, section 5: scope, deprecation, label, and the longest common prefix. The first one in the
/// kernel's order wins a tie.
fn select_v6(addresses: &[InterfaceAddress], destination: Ipv6Addr) -> Option<IpAddr> {
    let rank = |address: &InterfaceAddress| {
        let IpAddr::V6(ip) = address.ip else { return None };
        let same_scope = ip.is_unicast_link_local() == destination.is_unicast_link_local();
        let same_label = label(ip) == label(destination);
        let common = common_bits(address.ip, destination.into());
        same_scope.then_some((address.preferred, same_label, common))
    };
    let ranked = addresses.iter().filter_map(|address| Some((rank(address)?, address.ip)));
    // `min_by_key` keeps the first of equals.
    ranked.min_by_key(|(rank, _)| Reverse(*rank)).map(|(_, ip)| ip)
}

/// Returns the label of an address in the policy table of RFC 6724, section 2.1, as far as it concerns unicast.
fn label(address: Ipv6Addr) -> u8 {
    const LABELS: [(Ipv6Addr, u8, u8); 4] = [
        (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, 5),
        (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, 2),
        (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, 13),
        (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16, 12),
    ];
    let address = IpAddr::V6(address);
    let found = LABELS
        .iter()
        .find(|(prefix, length, _)| Prefix::new((*prefix).into(), *length).contains(address));
    found.map_or(1, |(_, _, label)| *label)
}
