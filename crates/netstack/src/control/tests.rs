//! Lookups in snapshots, without a kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::address::select_source;
use super::prefix::PrefixMap;
use super::routes::{Hop, LOCAL, MAIN, RouteEntry, Routes, Rule, Selects, Target};
use super::{InterfaceAddress, Mac, Prefix, Resolution, Route, Snapshot, SnapshotBuilder};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> Prefix {
    let (address, length) = text.split_once('/').unwrap();
    Prefix::new(ip(address), length.parse().unwrap())
}

fn builder() -> SnapshotBuilder {
    SnapshotBuilder::new(2, Mac([2, 0, 0, 0, 0, 1]))
}

fn hop_of(snapshot: &Snapshot, destination: &str) -> Option<IpAddr> {
    match snapshot.next_hop(ip(destination)) {
        Route::Interface { next_hop, .. } => Some(next_hop),
        Route::Kernel => None,
    }
}

#[test]
fn a_prefix_has_no_bits_beyond_its_length() {
    assert_eq!(prefix("10.1.2.3/8").to_string(), "10.0.0.0/8");
    assert_eq!(prefix("10.1.2.3/32").to_string(), "10.1.2.3/32");
    assert_eq!(prefix("10.1.2.3/99").length(), 32);
    assert_eq!(prefix("fd00:1:2::3/20").to_string(), "fd00::/20");
    assert!(
        prefix("0.0.0.0/0").contains(ip("8.8.8.8")) && !prefix("0.0.0.0/0").contains(ip("::1"))
    );
}

#[test]
fn the_edges_of_an_ipv4_network_belong_to_no_host() {
    let network = prefix("10.0.0.0/24");
    assert!(network.is_edge(ip("10.0.0.0")) && network.is_edge(ip("10.0.0.255")));
    assert!(!network.is_edge(ip("10.0.0.1")) && !network.is_edge(ip("10.0.1.255")));
    for single in ["10.0.0.0/31", "10.0.0.0/32"] {
        assert!(!prefix(single).is_edge(ip("10.0.0.0")), "{single}");
    }
    assert!(!prefix("fd00::/64").is_edge(ip("fd00::")));
}

#[test]
fn hosts_on_the_link_are_their_own_next_hop_and_others_are_behind_the_gateway() {
    let snapshot = builder().address(ip("10.0.0.1"), 24).gateway(ip("10.0.0.254")).build();
    assert_eq!(hop_of(&snapshot, "10.0.0.7"), Some(ip("10.0.0.7")));
    assert_eq!(hop_of(&snapshot, "192.0.2.1"), Some(ip("10.0.0.254")));
    assert_eq!(hop_of(&snapshot, "::ffff:192.0.2.1"), Some(ip("10.0.0.254")));
    for kernel in
        ["10.0.0.1", "127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "2001:db8::1", "::1"]
    {
        assert_eq!(hop_of(&snapshot, kernel), None, "{kernel}");
    }
}

#[test]
fn a_more_specific_route_of_the_kernel_hides_ours() {
    let snapshot = builder()
        .address(ip("10.0.0.1"), 24)
        .gateway(ip("10.0.0.254"))
        .kernel_route(prefix("192.0.2.0/24"))
        .route(prefix("192.0.2.128/25"), Some(ip("10.0.0.9")), Some(1200))
        .build();
    assert_eq!(hop_of(&snapshot, "192.0.2.1"), None);
    let source = ip("10.0.0.1");
    let route = Route::Interface { next_hop: ip("10.0.0.9"), source, mtu: 1200 };
    assert_eq!(snapshot.next_hop(ip("192.0.2.200")), route);
    assert_eq!(hop_of(&snapshot, "192.0.3.1"), Some(ip("10.0.0.254")));
}

#[test]
fn an_interface_that_is_down_or_has_no_address_of_the_family_sends_nothing() {
    let down = builder().address(ip("10.0.0.1"), 24).up(false).build();
    assert_eq!(hop_of(&down, "10.0.0.2"), None);
    let no_v6 =
        builder().address(ip("10.0.0.1"), 24).route(prefix("fd00::/64"), None, None).build();
    assert_eq!(hop_of(&no_v6, "fd00::2"), None);
    assert_eq!(hop_of(&no_v6, "fe80::2"), None);
}

#[test]
fn neighbours_are_found_by_either_form_of_their_address() {
    let mac = Mac([2, 0, 0, 0, 0, 9]);
    let snapshot = builder()
        .neighbour(ip("10.0.0.2"), mac)
        .resolution(ip("10.0.0.3"), Resolution::Unreachable)
        .build();
    assert_eq!(snapshot.neighbour(ip("10.0.0.2")), Some(mac));
    assert_eq!(snapshot.neighbour(ip("::ffff:10.0.0.2")), Some(mac));
    assert_eq!(snapshot.neighbour(ip("10.0.0.3")), None);
    assert_eq!(snapshot.resolution(ip("10.0.0.4")), Resolution::Unknown);
}

#[test]
fn the_source_is_in_the_next_hops_network() {
    let address = |text: &str, preferred| {
        let (own, _) = text.split_once('/').unwrap();
        InterfaceAddress { ip: ip(own), network: prefix(text), preferred }
    };
    let own = [
        address("10.0.0.1/24", true),
        address("10.1.0.1/24", true),
        address("10.1.0.2/24", false),
        address("fe80::1/64", true),
        address("2001:db8::1/64", false),
        address("2001:db8:1::1/64", true),
        address("fd00::1/64", true),
    ];
    for (destination, next_hop, source) in [
        ("10.1.0.9", "10.1.0.9", "10.1.0.1"),
        ("192.0.2.1", "10.1.0.254", "10.1.0.1"),
        ("192.0.2.1", "fe80::9", "10.0.0.1"),
        ("fe80::9", "fe80::9", "fe80::1"),
        ("2001:db8::9", "2001:db8::9", "2001:db8:1::1"),
        ("fd12::1", "fe80::9", "fd00::1"),
        ("2600::1", "fe80::9", "2001:db8:1::1"),
    ] {
        let chosen = select_source(&own, ip(destination), ip(next_hop));
        assert_eq!(chosen, Some(ip(source)), "{destination} by {next_hop}");
    }
    assert_eq!(select_source(&own[..3], ip("2600::1"), ip("fe80::9")), None);
}

fn rule(priority: u32, selects: Selects, table: Option<u32>) -> Rule {
    Rule { priority, selects, table, suppress: None }
}

fn entry(table: u32, text: &str, target: Target) -> RouteEntry {
    RouteEntry { table, prefix: prefix(text), metric: 0, target }
}

#[test]
fn rules_are_asked_in_order_until_one_decides() {
    let ours = Target::Interface(Hop::default());
    let entries = vec![
        entry(7, "10.0.0.0/8", ours),
        entry(7, "10.9.0.0/16", Target::Throw),
        entry(MAIN, "0.0.0.0/0", Target::Kernel),
    ];
    let inside = Selects::Destination { prefix: prefix("10.8.0.0/16"), inside: true };
    let rules = vec![
        rule(30, Selects::Always, Some(MAIN)),
        rule(20, Selects::Always, Some(7)),
        rule(10, inside, None),
    ];
    let routes = Routes::new(entries, rules, Vec::new());
    assert_eq!(routes.lookup(ip("10.1.0.1")), ours);
    assert_eq!(routes.lookup(ip("10.8.0.1")), Target::Kernel);
    assert_eq!(routes.lookup(ip("10.9.0.1")), Target::Kernel);
    assert_eq!(routes.lookup(ip("11.0.0.1")), Target::Kernel);
}

#[test]
fn a_suppressed_default_route_leaves_the_decision_to_the_next_rule() {
    let ours = Target::Interface(Hop::default());
    let entries = vec![
        entry(MAIN, "0.0.0.0/0", Target::Kernel),
        entry(MAIN, "10.0.0.0/8", Target::Kernel),
        entry(9, "0.0.0.0/0", ours),
    ];
    let suppressing = Rule { suppress: Some(0), ..rule(1, Selects::Always, Some(MAIN)) };
    let routes =
        Routes::new(entries, vec![suppressing, rule(2, Selects::Always, Some(9))], Vec::new());
    assert_eq!(routes.lookup(ip("10.0.0.1")), Target::Kernel);
    assert_eq!(routes.lookup(ip("192.0.2.1")), ours);
}

#[test]
fn the_local_table_comes_before_the_main_one_and_the_best_metric_counts() {
    let hop = |last| Target::Interface(Hop { gateway: Some(ip(last)), ..Hop::default() });
    let main =
        |metric, target| RouteEntry { table: MAIN, prefix: prefix("10.0.0.0/8"), metric, target };
    let entries = vec![
        main(20, hop("1.1.1.1")),
        main(10, hop("2.2.2.2")),
        main(10, hop("3.3.3.3")),
        entry(LOCAL, "10.0.0.1/32", Target::Kernel),
    ];
    let routes = Routes::new(entries, Vec::new(), Vec::new());
    assert_eq!(routes.lookup(ip("10.0.0.2")), hop("2.2.2.2"));
    assert_eq!(routes.lookup(ip("10.0.0.1")), Target::Kernel);
}

/// Addresses that often share prefixes.
fn addresses() -> impl Strategy<Value = IpAddr> {
    let v4 = (0..4_u32, 0..32_u32, any::<u32>()).prop_map(|(high, shift, low)| {
        IpAddr::V4(Ipv4Addr::from_bits(high << 30 | (low & 0xff) << (shift % 24)))
    });
    let v6 = (any::<u8>(), 0..120_u32)
        .prop_map(|(byte, shift)| IpAddr::V6(Ipv6Addr::from_bits(u128::from(byte) << shift)));
    prop_oneof![v4, v6]
}

proptest! {
    #[test]
    fn the_longest_match_is_that_of_a_linear_search(
        prefixes in proptest::collection::vec((addresses(), 0..=128_u8), 0..40),
        probes in proptest::collection::vec(addresses(), 1..40),
    ) {
        let prefixes: Vec<Prefix> = prefixes.iter().map(|(ip, length)| Prefix::new(*ip, *length)).collect();
        let (mut v4, mut v6) = (PrefixMap::default(), PrefixMap::default());
        for prefix in &prefixes {
            let map = if prefix.address().is_ipv4() { &mut v4 } else { &mut v6 };
            map.insert(*prefix, *prefix, |_, _| false);
        }
        for probe in probes {
            let map = if probe.is_ipv4() { &v4 } else { &v6 };
            let matching = prefixes.iter().filter(|prefix| prefix.contains(probe));
            let longest = matching.max_by_key(|prefix| prefix.length());
            prop_assert_eq!(map.longest_match(probe), longest.map(|prefix| (prefix.length(), prefix)));
        }
    }
}
