//! Neighbours: what is known, what is asked for, and what remains.

use std::net::IpAddr;

use heddle_netns::{FAR, FAR_MAC, FAR4, FAR6, NEAR, Pair};
use heddle_netstack::control::{Control, Mac, Resolution};
use heddle_test_support::until;

use crate::{ip, kernel_neighbour, pair, snapshot_when, start};

/// Removes the permanent entries of a pair.
fn forget(net: &Pair) {
    for address in [IpAddr::from(FAR4), FAR6.into()] {
        net.near.ip(&format!("neigh del {address} dev {NEAR}")).unwrap();
    }
}

#[test]
fn permanent_entries_are_known_and_never_touched() {
    let Some(net) = pair() else { return };
    let control = start(&net);
    for address in [IpAddr::from(FAR4), FAR6.into()] {
        assert_eq!(control.snapshot().neighbour(address), Some(Mac(FAR_MAC)));
        assert!(control.snapshot().is_maintained(address));
        control.resolve(address);
    }
    until("both requests are answered", || control.counters().repeated == 2);
    assert_eq!(control.counters().resolutions, 0);
    assert!(kernel_neighbour(&net.near, "10.77.0.2").contains("PERMANENT"));
    drop(control);
    assert!(kernel_neighbour(&net.near, "10.77.0.2").contains("PERMANENT"));
}

#[test]
fn a_neighbour_is_resolved_kept_and_removed_at_the_end() {
    let Some(net) = pair() else { return };
    forget(&net);
    let control = start(&net);
    for address in [IpAddr::from(FAR4), FAR6.into()] {
        assert_eq!(control.snapshot().resolution(address), Resolution::Unknown);
        control.resolve(address);
        let snapshot =
            snapshot_when(&control, "an answer", |snapshot| snapshot.neighbour(address).is_some());
        assert_eq!(snapshot.neighbour(address), Some(Mac(FAR_MAC)));
        assert!(snapshot.is_maintained(address));
        let entry = kernel_neighbour(&net.near, &address.to_string());
        assert!(
            entry.contains("managed")
                && entry.contains("extern_learn")
                && entry.contains("proto 72"),
            "{entry}"
        );
    }
    assert_eq!(control.counters().resolutions, 2);
    drop(control);
    assert_eq!(kernel_neighbour(&net.near, "10.77.0.2"), "");
    assert_eq!(kernel_neighbour(&net.near, "fd77::2"), "");
}

#[test]
fn an_entry_that_the_kernel_has_learned_is_maintained_once_it_is_asked_for() {
    let Some(net) = pair() else { return };
    forget(&net);
    let command = format!("neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev {NEAR} nud stale");
    net.near.ip(&command).unwrap();
    let control = start(&net);
    let snapshot = control.snapshot();
    assert_eq!(snapshot.neighbour(FAR4.into()), Some(Mac(FAR_MAC)));
    assert!(!snapshot.is_maintained(FAR4.into()));
    control.resolve(FAR4.into());
    snapshot_when(&control, "it is maintained", |snapshot| snapshot.is_maintained(FAR4.into()));
}

#[test]
fn a_new_ethernet_address_is_noticed() {
    let Some(net) = pair() else { return };
    forget(&net);
    let control = start(&net);
    control.resolve(FAR4.into());
    snapshot_when(&control, "an answer", |snapshot| snapshot.neighbour(FAR4.into()).is_some());
    // The neighbour announces its new address, as after a failover.
    net.far.ip(&format!("link set {FAR} address 02:00:00:00:00:99")).unwrap();
    net.near.ip(&format!("neigh replace 10.77.0.2 lladdr 02:00:00:00:00:99 dev {NEAR}")).unwrap();
    let new = Mac([2, 0, 0, 0, 0, 0x99]);
    snapshot_when(&control, "the new address", |snapshot| {
        snapshot.neighbour(FAR4.into()) == Some(new)
    });
}

#[test]
fn a_neighbour_that_does_not_answer_is_unreachable() {
    let Some(net) = pair() else { return };
    let control = start(&net);
    control.resolve(ip("10.77.0.99"));
    snapshot_when(&control, "it is asked", |snapshot| {
        snapshot.resolution(ip("10.77.0.99")) != Resolution::Unknown
    });
    snapshot_when(&control, "it fails", |snapshot| {
        snapshot.resolution(ip("10.77.0.99")) == Resolution::Unreachable
    });
    assert_eq!(control.snapshot().neighbour(ip("10.77.0.99")), None);
}

#[test]
fn what_cannot_be_a_neighbour_is_refused() {
    let Some(net) = pair() else { return };
    let control = start(&net);
    let wrong = [
        "10.77.0.1",
        "10.77.0.255",
        "10.77.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "127.0.0.1",
        "0.0.0.0",
        "ff02::1",
        "::1",
        "fd77::1",
    ];
    for (k, address) in wrong.into_iter().enumerate() {
        control.resolve(ip(address));
        until(address, || control.counters().refused == k as u64 + 1);
    }
    assert_eq!(control.counters().resolutions, 0);
}

#[test]
fn a_deleted_entry_can_be_asked_for_again() {
    let Some(net) = pair() else { return };
    forget(&net);
    let control = start(&net);
    for _ in 0..2 {
        control.resolve(FAR4.into());
        snapshot_when(&control, "an answer", |snapshot| snapshot.neighbour(FAR4.into()).is_some());
        net.near.ip(&format!("neigh del 10.77.0.2 dev {NEAR}")).unwrap();
        snapshot_when(&control, "it is gone", |snapshot| snapshot.neighbour(FAR4.into()).is_none());
    }
    assert_eq!(control.counters().resolutions, 2);
}

#[test]
fn repeated_requests_are_cheap_and_a_flood_is_bounded() {
    let Some(net) = pair() else { return };
    net.near.ip(&format!("addr add 10.128.0.1/9 dev {NEAR}")).unwrap();
    let control = start(&net);
    for _ in 0..1000 {
        control.resolve(ip("10.77.0.99"));
    }
    flood(&control);
    until("the limit is reached", || {
        flood(&control);
        control.counters().limit_reached + control.counters().abandoned > 0
    });
    let counters = control.counters();
    assert!(counters.repeated > 0, "{counters:?}");
    // The kernel keeps an entry that was removed while it sent a request for it, and is told again.
    until("the number is within the limit", || {
        kernel_neighbours(&net) <= heddle_netstack::control::MAX_NEIGHBOURS
    });
    drop(control);
    assert_eq!(kernel_neighbours(&net), 0);
}

fn flood(control: &Control) {
    for k in 0..10_000_u32 {
        control.resolve(IpAddr::V4((0x0a80_0100 + k).into()));
    }
}

fn kernel_neighbours(net: &Pair) -> usize {
    let arguments = ["-n", net.near.name(), "neighbour", "show", "dev", NEAR];
    let output = std::process::Command::new("ip").args(arguments).output().unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter(|line| line.contains("proto 72"))
        .count()
}
