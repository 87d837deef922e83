//! The interface itself: state, MTU, names, addresses, and which are supported.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use heddle_netns::{FAR, FAR4, NEAR, NEAR_MAC, NEAR4, NEAR6, Namespace};
use heddle_netstack::control::{ControlError, Mac, Route};
use heddle_test_support::until;

use crate::{ip, pair, snapshot_when, start, start_on};

#[test]
fn the_first_snapshot_is_complete() {
    let Some(net) = pair() else { return };
    let control = start(&net);
    let snapshot = control.snapshot();
    assert_eq!((snapshot.generation(), control.generation()), (1, 1));
    assert_eq!((snapshot.name(), snapshot.mac(), snapshot.mtu()), (NEAR, Mac(NEAR_MAC), 1500));
    assert!(snapshot.is_up() && snapshot.is_veth() && snapshot.exists());
    assert!(snapshot.is_local(NEAR4.into()) && snapshot.is_local(NEAR6.into()));
    assert!(!snapshot.is_local(FAR4.into()));
    let mut found: Vec<_> =
        snapshot.addresses().iter().map(|own| own.network.to_string()).collect();
    found.sort();
    assert!(
        found.contains(&"10.77.0.0/24".into()) && found.contains(&"fd77::/64".into()),
        "{found:?}"
    );
}

#[test]
fn nothing_is_published_while_nothing_changes() {
    let Some(net) = pair() else { return };
    let control = start(&net);
    // The link-local address is tentative for a second or two.
    snapshot_when(&control, "the link-local address", |snapshot| {
        snapshot.addresses().iter().any(|own| own.ip.to_string().starts_with("fe80"))
    });
    net.near.ip("neigh add 10.77.0.9 lladdr 02:00:00:00:00:09 dev hd0 nud reachable").unwrap();
    let before = snapshot_when(&control, "a neighbour", |snapshot| {
        snapshot.neighbour(ip("10.77.0.9")).is_some()
    });
    let dumps = control.counters().dumps;
    // A notification of ours, after which senders would do the same.
    net.near.ip("neigh change 10.77.0.9 dev hd0 nud stale").unwrap();
    until("the notification is seen", || control.counters().dumps > dumps);
    assert_eq!(control.generation(), before.generation());
}

#[test]
fn a_link_that_goes_down_sends_all_to_the_kernel_and_calls_the_hooks() {
    let Some(net) = pair() else { return };
    let control = start(&net);
    let downs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&downs);
    control.on_change(Box::new(move |snapshot| {
        counted.fetch_add(usize::from(!snapshot.is_up()), Ordering::Relaxed);
    }));
    assert!(matches!(control.snapshot().next_hop(FAR4.into()), Route::Interface { .. }));

    // Without a carrier first, and then without anything.
    net.far.ip(&format!("link set {FAR} down")).unwrap();
    let snapshot = snapshot_when(&control, "no carrier", |snapshot| !snapshot.is_up());
    assert_eq!(snapshot.next_hop(FAR4.into()), Route::Kernel);
    until("the hook is called", || downs.load(Ordering::Relaxed) > 0);

    net.far.ip(&format!("link set {FAR} up")).unwrap();
    let back = |snapshot: &heddle_netstack::control::Snapshot| {
        snapshot.is_up() && matches!(snapshot.next_hop(FAR4.into()), Route::Interface { .. })
    };
    snapshot_when(&control, "the carrier is back", back);
    net.near.ip(&format!("link set {NEAR} down")).unwrap();
    snapshot_when(&control, "the interface is down", |snapshot| !snapshot.is_up());
    net.near.ip(&format!("link set {NEAR} up")).unwrap();
    snapshot_when(&control, "the interface is up", back);
}

#[test]
fn addresses_come_and_go() {
    let Some(net) = pair() else { return };
    let control = start(&net);
    for (address, length) in [("10.77.0.50", 32), ("fd77::50", 128), ("192.0.2.1", 30)] {
        net.near.ip(&format!("addr add {address}/{length} dev {NEAR} nodad")).unwrap();
        let what = format!("{address} is there");
        snapshot_when(&control, &what, |snapshot| snapshot.is_local(ip(address)));
        net.near.ip(&format!("addr del {address}/{length} dev {NEAR}")).unwrap();
        let what = format!("{address} is gone");
        snapshot_when(&control, &what, |snapshot| !snapshot.is_local(ip(address)));
    }
}

#[test]
fn a_tentative_address_is_not_ours_yet() {
    let Some(net) = pair() else { return };
    let control = start(&net);
    net.near.ip(&format!("addr add fd77::77/64 dev {NEAR}")).unwrap();
    snapshot_when(&control, "detection of duplicates is over", |snapshot| {
        snapshot.is_local(ip("fd77::77"))
    });
    // The other end has this address: detection finds it, and it never becomes ours.
    net.near.ip(&format!("addr add fd77::2/64 dev {NEAR}")).unwrap();
    net.near.ip(&format!("addr add 10.77.0.51/32 dev {NEAR}")).unwrap();
    let snapshot =
        snapshot_when(&control, "a later change", |snapshot| snapshot.is_local(ip("10.77.0.51")));
    assert!(!snapshot.is_local(ip("fd77::2")));
}

#[test]
fn a_new_name_and_mtu_are_followed_and_a_deleted_interface_is_gone() {
    let Some(net) = pair() else { return };
    let control = start(&net);
    net.near.ip(&format!("link set {NEAR} mtu 1400")).unwrap();
    let snapshot = snapshot_when(&control, "the MTU", |snapshot| snapshot.mtu() == 1400);
    for destination in [ip("10.77.0.2"), ip("fd77::2")] {
        assert!(
            matches!(snapshot.next_hop(destination), Route::Interface { mtu: 1400, .. }),
            "{destination}: {:?}",
            snapshot.next_hop(destination)
        );
    }
    net.near.ip(&format!("link set {NEAR} down")).unwrap();
    net.near.ip(&format!("link set {NEAR} name other0")).unwrap();
    let renamed = snapshot_when(&control, "the new name", |snapshot| snapshot.name() == "other0");
    assert_eq!(renamed.index(), snapshot.index());
    net.near.ip("link del other0").unwrap();
    let gone = snapshot_when(&control, "the end", |snapshot| !snapshot.exists());
    assert!(!gone.is_up());
    snapshot_when(&control, "no addresses", |snapshot| snapshot.addresses().is_empty());
}

#[test]
fn interfaces_over_others_are_refused_with_the_lower_device() {
    let Some(net) = pair() else { return };
    for (command, interface, lower) in [
        ("link add link hd0 name vlan5 type vlan id 5", "vlan5", NEAR),
        ("link add link hd0 name mv0 type macvlan mode bridge", "mv0", NEAR),
        ("link add link hd0 name iv0 type ipvlan mode l2", "iv0", NEAR),
        ("link add br0 type bridge", "br0", "no lower device"),
        ("link add bond0 type bond", "bond0", "no lower device"),
    ] {
        if let Err(missing) = net.near.ip(command) {
            eprintln!("skipped: {missing}");
            continue;
        }
        let error = start_on(&net.near, interface).unwrap_err();
        assert!(matches!(error, ControlError::Unsupported { .. }), "{interface}: {error:?}");
        assert!(error.to_string().contains(lower), "{error}");
        net.near.ip(&format!("link del {interface}")).unwrap();
    }
    net.near.ip("link add br1 type bridge").unwrap();
    net.near.ip("link set hd0 master br1").unwrap();
    assert!(start_on(&net.near, "br1").unwrap_err().to_string().contains("hd0"));
    assert!(start_on(&net.near, "hd0").unwrap_err().to_string().contains("bridge br1"));
}

#[test]
fn loopback_tun_and_missing_interfaces_are_refused() {
    if let Some(missing) = heddle_netns::missing_privilege() {
        eprintln!("skipped: {missing}");
        return;
    }
    let namespace = Namespace::new().unwrap();
    assert!(matches!(start_on(&namespace, "lo"), Err(ControlError::Unsupported { .. })));
    let missing = start_on(&namespace, "eth7").unwrap_err();
    assert_eq!(missing.to_string(), "there is no interface eth7; this network namespace has lo");
    if namespace.ip("tuntap add tun7 mode tun").is_ok() {
        assert!(matches!(start_on(&namespace, "tun7"), Err(ControlError::Unsupported { .. })));
    }
    if namespace.ip("tuntap add tap7 mode tap").is_ok() {
        assert!(!start_on(&namespace, "tap7").unwrap().snapshot().is_up());
    }
}
