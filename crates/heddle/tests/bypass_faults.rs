//! A server under lanes behind networks that fail. Every byte is checked, and everything ends. Skipped without root.

mod common;

use common::scenarios::{self, Scale};
use common::server::{ECHO, SOURCE};
use common::{Server, pair};
use heddle_netns::faults::{Bottleneck, BottleneckOptions, Loss, LossOptions, Relay, RelayOptions};
use heddle_netns::{FAR, NEAR4, NEAR6, Pair, missing_privilege};
use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::time::Duration;

#[test]
#[ignore = "the server of the other tests"]
fn serve() {
    common::server::serve();
}

const MS: Duration = Duration::from_millis(1);
const SMALL: Scale = Scale { bytes: 1 << 20, requests: 100, connections: 150 };

/// How many connections are opened and closed where nothing is lost.
fn connections() -> usize {
    std::env::var("HEDDLE_TEST_CONNECTIONS").map_or(2_000, |text| text.parse().unwrap())
}

fn clients(net: &Pair, server: impl Into<IpAddr>, scale: Scale) {
    let server = server.into();
    net.far.run(|| scenarios::all(server, scale));
}

/// Begins losses at the client's end; `None`, having said why, if the kernel is too old for them.
fn lossy(net: &Pair, options: LossOptions) -> Option<Loss> {
    match Loss::new(&net.far, FAR, options) {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            eprintln!("skipped: {error}");
            None
        }
        loss => Some(loss.unwrap()),
    }
}

/// Runs the scenarios with losses and duplicates at the client's end. Returns the server's counters.
fn with_loss(options: LossOptions, scale: Scale) -> Option<std::collections::HashMap<String, u64>> {
    let net = pair()?;
    let mut server = Server::start(&net.near, "");
    let loss = lossy(&net, options)?;
    clients(&net, NEAR4, scale);
    let counts = (loss.incoming(), loss.outgoing());
    drop(loss);
    assert!(options.incoming_loss == 0.0 || counts.0.lost > 0, "{counts:?}");
    let counters = server.order("counters");
    assert!(counters["retransmits"] > 0 || options.incoming_loss == 0.0, "{counters:?}");
    assert_eq!(counters["lost_invalid"], 0);
    Some(counters)
}

#[test]
fn nothing_is_lost_without_losses() {
    let Some(net) = pair() else { return };
    let mut server = Server::start(&net.near, "");
    for address in [IpAddr::from(NEAR4), NEAR6.into()] {
        let scale = Scale { bytes: 16 << 20, requests: 500, connections: connections() / 2 };
        clients(&net, address, scale);
    }
    let counters = server.order("counters");
    assert!(counters["passive_opens"] >= connections() as u64, "{counters:?}");
    assert_eq!((counters["lost_invalid"], counters["bad_segments"]), (0, 0), "{counters:?}");
}

#[test]
fn thousands_of_connections_are_open_at_the_same_time() {
    const COUNT: usize = 3_000;
    let Some(net) = pair() else { return };
    let limit = rustix::process::Resource::Nofile;
    let most = rustix::process::getrlimit(limit).maximum;
    rustix::process::setrlimit(limit, rustix::process::Rlimit { current: most, maximum: most })
        .unwrap();
    if most.is_some_and(|most| most < COUNT as u64 + 100) {
        return eprintln!("skipped: {most:?} descriptors for the clients");
    }
    let mut server = Server::start(&net.near, "");
    let mut clients: Vec<_> =
        net.far.run(|| (0..COUNT).map(|_| scenarios::connect(NEAR4.into(), ECHO)).collect());
    for _ in 0..2 {
        clients.iter_mut().for_each(|client| client.write_all(b"all of them").unwrap());
        for client in &mut clients {
            let mut back = [0; 11];
            client.read_exact(&mut back).unwrap();
            assert_eq!(&back, b"all of them");
        }
    }
    assert_eq!(server.order("counters")["connections"], COUNT as u64);
    drop(clients);
    heddle_test_support::until("the end of all", || server.order("counters")["connections"] == 0);
}

#[test]
fn one_packet_in_a_thousand_is_lost_both_ways() {
    with_loss(LossOptions::both_ways(1, 0.001), Scale { bytes: 8 << 20, ..SMALL });
}

#[test]
fn one_packet_in_a_hundred_is_lost_both_ways() {
    with_loss(LossOptions::both_ways(2, 0.01), Scale { bytes: 4 << 20, ..SMALL });
}

#[test]
fn one_packet_in_twenty_is_lost_both_ways() {
    with_loss(LossOptions::both_ways(3, 0.05), SMALL);
}

/// Connections are placed by a policy, segments come to the wrong lane now and then, and workers look for frames.
#[test]
fn losses_are_repaired_under_other_options() {
    let Some(net) = pair() else { return };
    let Some(_loss) = lossy(&net, LossOptions::both_ways(7, 0.01)) else { return };
    for options in [",policy=round-robin,spin=50us", ",mode=generic,frames=64,rto-min=5ms"] {
        let mut server = Server::start(&net.near, options);
        for address in [IpAddr::from(NEAR4), NEAR6.into()] {
            clients(&net, address, SMALL);
        }
        let counters = server.order("counters");
        assert_eq!(counters["lost_invalid"], 0, "{options}: {counters:?}");
    }
}

#[test]
fn only_what_the_server_sends_is_lost() {
    let options = LossOptions { seed: 4, incoming_loss: 0.02, ..LossOptions::default() };
    with_loss(options, Scale { bytes: 2 << 20, ..SMALL });
}

#[test]
fn packets_are_duplicated_both_ways() {
    let options = LossOptions {
        seed: 5,
        incoming_duplicates: 0.05,
        outgoing_duplicates: 0.05,
        ..LossOptions::default()
    };
    let Some(counters) = with_loss(options, Scale { bytes: 4 << 20, ..SMALL }) else { return };
    assert!(counters["duplicates"] > 0, "{counters:?}");
}

#[test]
fn packets_are_delayed_reordered_and_corrupted() {
    if let Some(missing) = missing_privilege() {
        return eprintln!("skipped: {missing}");
    }
    let options = RelayOptions {
        seed: 6,
        delay: MS,
        jitter: MS / 2,
        reordering: 0.02,
        reordering_delay: 3 * MS,
        corruption: 0.002,
        duplicates: 0.01,
        loss: 0.002,
        ..RelayOptions::default()
    };
    let relay = Relay::new(2, options).unwrap();
    let mut server = Server::start(&relay.net.near, "");
    for address in [IpAddr::from(NEAR4), NEAR6.into()] {
        clients(&relay.net, address, SMALL);
    }
    let counters = server.order("counters");
    assert!(counters["out_of_order"] > 0, "{counters:?}");
    let (near, far) = (relay.to_near(), relay.to_far());
    assert!(near.corrupted > 0 && far.corrupted > 0, "{near:?} {far:?}");
}

/// The path becomes narrow without a word while data is under way, first for the server and then for the client.
#[test]
fn a_black_hole_for_long_packets_is_found() {
    if let Some(missing) = missing_privilege() {
        return eprintln!("skipped: {missing}");
    }
    let narrow = RelayOptions { mtu: Some(1_000), ..RelayOptions::default() };
    let relay = Relay::new(2, RelayOptions::default()).unwrap();
    relay.net.far.set("ipv4/tcp_mtu_probing", "1").unwrap();
    let mut server = Server::start(&relay.net.near, ",rto-min=10ms");
    relay.net.far.run(|| scenarios::stream(NEAR4.into(), 100_000));
    let length = 300_000;
    let mut client = relay.net.far.run(|| scenarios::connect(NEAR4.into(), SOURCE));
    relay.set_to_far(narrow);
    writeln!(client, "{length}").unwrap();
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    assert!(received == scenarios::pattern(length));
    assert!(relay.to_far().too_long > 0);
    assert!(server.order("counters")["mtu_reductions"] > 0);

    let client = relay.net.far.run(|| scenarios::connect(NEAR4.into(), ECHO));
    relay.set_to_near(narrow);
    scenarios::both_ways(Ok(client), &scenarios::pattern(length));
    assert!(relay.to_near().too_long > 0);
}

#[test]
fn a_narrow_link_with_a_short_queue_is_shared() {
    if let Some(missing) = missing_privilege() {
        return eprintln!("skipped: {missing}");
    }
    let options = BottleneckOptions { mtu: 1_300, ..BottleneckOptions::default() };
    let network = Bottleneck::new(2, options).unwrap();
    let mut server = Server::start(&network.net.near, "");
    for address in [IpAddr::from(NEAR4), NEAR6.into()] {
        clients(&network.net, address, Scale { bytes: 2 << 20, ..SMALL });
    }
    let counters = server.order("counters");
    assert!(counters["mtu_reductions"] > 0 && counters["icmp_valid"] > 0, "{counters:?}");
}
