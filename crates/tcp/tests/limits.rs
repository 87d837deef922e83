//! Limits of connections, half-open ones and backlogs; SYN cookies (RFC 4987).

mod common;

use common::peer::{IRS, Peer, RST, SYN, all_options, few_options};
use heddle_core::Ns;
use heddle_tcp::wire::OutgoingOptions;
use heddle_tcp::{Config, ConnectError};

fn flood(config: Config, count: u16) -> Peer {
    let mut peer = Peer::new(config);
    for port in 0..count {
        peer.remote_port = 50_000 + port;
        peer.send(SYN, IRS, 0, &[], few_options());
    }
    peer.take();
    peer.remote_port = 40_000;
    peer
}

#[test]
fn beyond_the_limit_of_half_open_connections_cookies_answer() {
    for options in [all_options(), few_options(), OutgoingOptions::default()] {
        let mut peer = flood(Config { max_half_open: 10, ..Config::default() }, 10);
        peer.open(options);
        assert_eq!(peer.stack.half_open_count(), 10);
        let counters = peer.stack.counters();
        assert_eq!((counters.cookies_sent, counters.cookies_valid), (1, 1));
    }
}

#[test]
fn a_cookie_brings_the_options_back() {
    let mut peer = flood(Config { max_half_open: 10, ..Config::default() }, 10);
    peer.send(SYN, IRS, 0, &[], all_options());
    let syn_ack = peer.one();
    (peer.iss, peer.timestamp) = (syn_ack.header.seq.0, Some(1001));
    peer.pass(Ns::from_secs(60));
    peer.data(1, 1, b"hello");
    let id = peer.stack.accept(peer.listener, peer.now).expect("a connection from a cookie");
    let info = peer.stack.info(id).unwrap();
    assert_eq!((info.mss, info.sack, info.timestamps), (1448, true, true));
    assert_eq!(info.send_window, 60_000 << 7);
    assert_eq!(peer.read(id).unwrap(), b"hello");
    assert_eq!(peer.stack.counters().cookies_valid, 1);
}

#[test]
fn a_cookie_without_timestamps_carries_the_mss() {
    let mut peer = flood(Config { max_half_open: 10, ..Config::default() }, 10);
    peer.send(SYN, IRS, 0, &[], few_options());
    let syn_ack = peer.one();
    assert!(!syn_ack.header.options.sack_permitted, "nothing would carry it back");
    peer.iss = syn_ack.header.seq.0;
    peer.ack(1, 1);
    let id = peer.stack.accept(peer.listener, peer.now).unwrap();
    assert_eq!(
        (peer.stack.info(id).unwrap().mss, peer.stack.info(id).unwrap().sack),
        (1000, false)
    );
}

#[test]
fn a_forged_cookie_is_reset() {
    let mut peer = flood(Config { max_half_open: 10, ..Config::default() }, 11);
    peer.iss = 12_345;
    peer.ack(1, 1);
    assert!(peer.one().is(RST));
    assert_eq!(peer.stack.counters().cookies_failed, 1);
}

#[test]
fn without_cookies_syns_beyond_the_limit_are_dropped() {
    let mut peer = flood(Config { max_half_open: 10, syn_cookies: false, ..Config::default() }, 10);
    peer.send(SYN, IRS, 0, &[], few_options());
    assert!(peer.take().is_empty());
    assert_eq!(peer.stack.counters().half_open_overflows, 1);
}

#[test]
fn a_full_backlog_keeps_the_handshake_waiting() {
    let mut peer = Peer::new(Config::default());
    let listener = peer.stack.listen("192.0.2.1:81".parse().unwrap(), 1);
    assert!(listener.is_ok());
    for port in 0..16 {
        peer.remote_port = 50_000 + port;
        peer.open(few_options());
    }
    peer.remote_port = 40_000;
    peer.send(SYN, IRS, 0, &[], few_options());
    assert!(peer.take().is_empty(), "a full backlog takes no SYN");
    assert_eq!(peer.stack.counters().backlog_overflows, 1);
    assert!(peer.stack.accept(peer.listener, peer.now).is_some());
    peer.open(few_options());
}

#[test]
fn connections_are_limited() {
    let mut peer = Peer::new(Config { max_connections: 2, ..Config::default() });
    for port in 0..2 {
        peer.remote_port = 50_000 + port;
        peer.open(few_options());
    }
    peer.remote_port = 40_000;
    peer.send(SYN, IRS, 0, &[], few_options());
    peer.iss = peer.one().header.seq.0;
    peer.ack(1, 1);
    assert!(peer.one().is(RST));
    let (local, remote) = ("192.0.2.1:1000".parse().unwrap(), peer.remote());
    let refused = peer.stack.connect(peer.now, local, remote, 1500, &mut peer.sent);
    assert_eq!(refused, Err(ConnectError::TooManyConnections));
    assert_eq!(peer.stack.counters().connection_overflows, 2);
}
