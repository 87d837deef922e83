//! Routes and rules, against what `ip route get` says.

use std::net::IpAddr;
use std::process::Command;

use heddle_netns::{FAR4, FAR6, NEAR, NEAR4, NEAR6, Pair};
use heddle_netstack::control::{Route, Snapshot};

use crate::{add_other_interface, ip, pair, snapshot_when, start};

/// Returns the kernel's decision in the form of ours.
fn kernel_route(net: &Pair, destination: IpAddr) -> Route {
    let arguments = ["-n", net.near.name(), "route", "get", &destination.to_string()];
    let output = Command::new("ip").args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().next().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |key| words.iter().position(|word| *word == key).map(|at| words[at + 1]);
    let unicast = words.first().is_some_and(|word| *word == destination.to_string());
    if !output.status.success() || !unicast || after("dev") != Some(NEAR) {
        return Route::Kernel;
    }
    // "via inet6 ADDRESS" has the family before the address.
    let gateway = match after("via") {
        Some("inet6") => after("inet6"),
        gateway => gateway,
    };
    let next_hop = gateway.map_or(destination, ip);
    Route::Interface { next_hop, source: ip(after("src").unwrap()), mtu: 1500 }
}

const PROBES: [&str; 24] = [
    "10.77.0.2",
    "10.77.0.1",
    "10.77.0.255",
    "10.77.0.0",
    "10.77.1.9",
    "10.88.0.1",
    "10.88.1.1",
    "10.88.1.7",
    "10.66.6.6",
    "127.0.0.1",
    "192.0.2.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.5",
    "255.255.255.255",
    "8.8.8.8",
    "fd77::2",
    "fd77::1",
    "fd88::1",
    "fd88:1::1",
    "2001:db8::1",
    "ff02::1",
    "::1",
    "fd99::9",
];

/// Compares every probe with the kernel.
fn compare(net: &Pair, snapshot: &Snapshot, step: &str) {
    for destination in PROBES.map(ip) {
        assert_eq!(
            snapshot.next_hop(destination),
            kernel_route(net, destination),
            "{step}: {destination}"
        );
    }
}

#[test]
fn the_decisions_are_the_kernels() {
    let Some(net) = pair() else { return };
    let control = start(&net);
    compare(&net, &control.snapshot(), "addresses only");
    add_other_interface(&net);
    net.near.ip("addr add 10.66.0.1/16 dev other0").unwrap();
    net.near.ip("addr add 10.77.0.20/24 dev hd0").unwrap();
    net.near.ip("addr add 203.0.113.1/24 dev hd0").unwrap();
    net.near.ip("addr add 2001:db8::5/64 dev hd0 nodad").unwrap();
    let steps: &[(&str, &[&str])] = &[
        ("a gateway", &["route add default via 10.77.0.2", "-6 route add default via fd77::2"]),
        (
            "longer prefixes",
            &[
                "route add 10.88.0.0/16 via 10.77.0.3",
                "route add 10.88.1.0/24 dev other0",
                "route add 10.88.1.7/32 via 10.77.0.4 src 10.77.0.20",
                "-6 route add fd88::/16 via fd77::3",
                "-6 route add fd88:1::/32 dev other0",
            ],
        ),
        (
            "refusals",
            &[
                "route add blackhole 192.0.2.0/24",
                "route add unreachable 198.51.100.0/24",
                "-6 route add prohibit fd99::/16",
            ],
        ),
        (
            "a better metric",
            &[
                "route add 10.77.1.0/24 via 10.77.0.9 metric 50",
                "route add 10.77.1.0/24 dev other0 metric 40",
            ],
        ),
        ("a gateway of the other family", &["route replace 10.88.0.0/16 via inet6 fd77::9"]),
        (
            "the gateway changes",
            &[
                "route replace default via 10.77.0.7",
                "-6 route replace default via fe80::7 dev hd0",
            ],
        ),
        (
            "rules",
            &[
                "rule add fwmark 7 lookup 100 priority 100",
                "rule add to 8.8.8.8 lookup 101 priority 101",
                "route add default via 10.77.0.66 table 100",
                "route add 8.0.0.0/8 via 10.77.0.77 table 101",
            ],
        ),
        (
            "a rule for all",
            &[
                "route add throw 10.88.0.0/16 table 102",
                "route add default dev other0 table 102",
                "rule add lookup 102 priority 102",
            ],
        ),
        (
            "an inverted rule",
            &[
                "rule add not fwmark 9 lookup 103 priority 99",
                "route add 10.66.6.0/24 via 10.77.0.5 table 103",
            ],
        ),
    ];
    for (step, commands) in steps {
        for command in *commands {
            net.near.ip(command).unwrap();
        }
        settle(&net, &control, step);
        compare(&net, &control.snapshot(), step);
    }
}

/// Waits until a change that was made after the others has arrived.
fn settle(net: &Pair, control: &heddle_netstack::control::Control, step: &str) {
    net.near.ip(&format!("addr add 10.77.0.200/32 dev {NEAR}")).unwrap();
    snapshot_when(control, step, |snapshot| snapshot.is_local(ip("10.77.0.200")));
    net.near.ip(&format!("addr del 10.77.0.200/32 dev {NEAR}")).unwrap();
    snapshot_when(control, step, |snapshot| !snapshot.is_local(ip("10.77.0.200")));
}

#[test]
fn a_rule_that_depends_on_the_source_leaves_the_decision_to_the_kernel() {
    let Some(net) = pair() else { return };
    let control = start(&net);
    net.near.ip("route add default via 10.77.0.2 table 100").unwrap();
    net.near.ip("rule add from 10.77.0.1 lookup 100 priority 100").unwrap();
    snapshot_when(&control, "the rule", |snapshot| snapshot.next_hop(FAR4.into()) == Route::Kernel);
    // IPv6 has rules of its own.
    assert!(matches!(control.snapshot().next_hop(FAR6.into()), Route::Interface { .. }));
}

#[test]
fn the_mtu_of_a_route_limits_packets() {
    let Some(net) = pair() else { return };
    net.near.ip("route add 192.0.2.0/24 via 10.77.0.2 mtu 1300").unwrap();
    net.near.ip("route add 198.51.100.0/24 via 10.77.0.2 mtu 9000").unwrap();
    let snapshot = start(&net).snapshot();
    let mtu = |destination| match snapshot.next_hop(ip(destination)) {
        Route::Interface { mtu, .. } => mtu,
        Route::Kernel => 0,
    };
    assert_eq!((mtu("192.0.2.1"), mtu("198.51.100.1"), mtu("10.77.0.2")), (1300, 1500, 1500));
}

#[test]
fn of_several_equal_ways_one_by_our_interface_is_taken() {
    let Some(net) = pair() else { return };
    add_other_interface(&net);
    net.near.ip("addr add 10.66.0.1/16 dev other0").unwrap();
    let command =
        "route add 192.0.2.0/24 nexthop via 10.66.0.2 dev other0 nexthop via 10.77.0.2 dev hd0";
    net.near.ip(command).unwrap();
    let route = start(&net).snapshot().next_hop(ip("192.0.2.1"));
    assert_eq!(route, Route::Interface { next_hop: FAR4.into(), source: NEAR4.into(), mtu: 1500 });
}

#[test]
fn link_local_destinations_are_on_the_link() {
    let Some(net) = pair() else { return };
    let control = start(&net);
    let local = |snapshot: &Snapshot| {
        snapshot
            .addresses()
            .iter()
            .find(|own| own.ip.to_string().starts_with("fe80"))
            .map(|own| own.ip)
    };
    let snapshot =
        snapshot_when(&control, "a link-local address", |snapshot| local(snapshot).is_some());
    let source = local(&snapshot).unwrap();
    let route = Route::Interface { next_hop: ip("fe80::99"), source, mtu: 1500 };
    assert_eq!(snapshot.next_hop(ip("fe80::99")), route);
    assert_eq!(snapshot.source_for(FAR6.into()), Some(NEAR6.into()));
}

#[test]
fn many_routes_are_read_and_looked_up() {
    let Some(net) = pair() else { return };
    let control = start(&net);
    add_routes(&net, 20_000);
    let last = ip("100.78.31.1");
    let snapshot = snapshot_when(&control, "the last route", |snapshot| {
        snapshot.next_hop(last) != Route::Kernel
    });
    let expected =
        Route::Interface { next_hop: ip("10.77.0.202"), source: NEAR4.into(), mtu: 1500 };
    assert_eq!(snapshot.next_hop(last), expected);
}

#[test]
fn lost_notifications_are_made_up_for() {
    let Some(net) = pair() else { return };
    let control = start(&net);
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let (entered, waits) = std::sync::mpsc::channel();
    control.on_change(Box::new(move |_| {
        let _ = entered.send(());
        // Once the sender is gone, nothing waits.
        let _ = held.lock().unwrap().recv();
    }));
    net.near.ip("addr add 10.77.0.30/32 dev hd0").unwrap();
    waits.recv().unwrap();
    // The thread stays in the hook while more notifications come than its socket takes.
    add_routes(&net, 20_000);
    drop(release);
    let last = ip("100.78.31.1");
    snapshot_when(&control, "the last route", |snapshot| snapshot.next_hop(last) != Route::Kernel);
    assert!(control.counters().overruns > 0, "{:?}", control.counters());
}

/// Adds `count` routes, the last of 20,000 to 100.78.31.0/24.
fn add_routes(net: &Pair, count: u32) {
    let route =
        |k: u32| format!("route add 100.{}.{}.0/24 via 10.77.0.{}\n", k >> 8, k & 255, 3 + k % 200);
    let folder = heddle_test_support::temp_dir();
    let file = folder.path().join("routes");
    std::fs::write(&file, (0..count).map(route).collect::<String>()).unwrap();
    net.near.ip(&format!("-b {}", file.display())).unwrap();
}
