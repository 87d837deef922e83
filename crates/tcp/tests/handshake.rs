//! Opening: RFC 9293, section 3.5.

mod common;

use common::link::{Net, Path};
use common::peer::{ACK, IRS, Peer, RST, SYN, SYN_ACK, all_options, few_options, local};
use common::{connect, listen};
use heddle_core::Ns;
use heddle_tcp::wire::{Flags, OutgoingOptions, Timestamps};
use heddle_tcp::{Config, ConnectError, Error, Event, IcmpError, ListenError, Seq, Stack, State};

#[test]
fn a_passive_open_agrees_on_options() {
    let mut peer = Peer::new(Config::default());
    peer.send(SYN, IRS, 0, &[], all_options());
    let syn_ack = peer.one();
    let options = syn_ack.header.options;
    assert!(syn_ack.is(SYN_ACK));
    assert_eq!(syn_ack.header.ack, Seq(IRS + 1));
    assert_eq!(
        (options.mss, options.window_scale, options.sack_permitted),
        (Some(1460), Some(3), true)
    );
    assert_eq!(options.timestamps.unwrap().echo, 1000, "RFC 7323, section 3.2");
    assert_eq!(
        (peer.stack.half_open_count(), peer.stack.connection_count()),
        (1, 0),
        "a small record"
    );

    peer.iss = syn_ack.header.seq.0;
    peer.timestamp = Some(1001);
    peer.ack(1, 1);
    assert_eq!(peer.stack.poll_event(), Some(Event::Accept(peer.listener)));
    let id = peer.stack.accept(peer.listener, peer.now).unwrap();
    let info = peer.stack.info(id).unwrap();
    assert_eq!((info.state, info.mss, info.send_window), (State::Established, 1448, 60_000 << 7));
    assert_eq!(peer.stack.accept(peer.listener, peer.now), None);
}

#[test]
fn options_that_the_other_end_does_not_offer_are_not_used() {
    let mut peer = Peer::new(Config::default());
    peer.send(SYN, IRS, 0, &[], OutgoingOptions::default());
    let options = peer.one().header.options;
    assert_eq!(
        (options.window_scale, options.sack_permitted, options.timestamps),
        (None, false, None)
    );
    let (peer, id) = Peer::accepted(Config::default(), OutgoingOptions::default());
    assert_eq!(peer.stack.info(id).unwrap().mss, 536, "RFC 9293, section 3.7.1");
}

#[test]
fn a_syn_ack_is_sent_again_with_backoff_and_given_up() {
    let mut peer = Peer::new(Config { syn_ack_retries: 2, ..Config::default() });
    peer.send(SYN, IRS, 0, &[], few_options());
    let first = peer.one();
    for seconds in [1, 2] {
        peer.pass(Ns::from_ms(seconds * 1000 - 10));
        assert!(peer.take().is_empty(), "RFC 6298, section 2.1");
        peer.pass(Ns::from_ms(20));
        assert_eq!(peer.one().header, first.header);
    }
    peer.pass(Ns::from_secs(5));
    assert_eq!((peer.stack.half_open_count(), peer.stack.counters().failed_opens), (0, 1));
}

#[test]
fn a_syn_that_comes_again_is_answered_again() {
    let mut peer = Peer::new(Config::default());
    peer.send(SYN, IRS, 0, &[], few_options());
    let first = peer.one();
    peer.send(SYN, IRS, 0, &[], few_options());
    assert_eq!(peer.one().header, first.header);
    peer.send(SYN, IRS + 7, 0, &[], few_options());
    assert!(peer.one().is(ACK), "RFC 5961, section 4.2: a challenge");
}

#[test]
fn a_half_open_connection_resets_wrong_acknowledgements_and_ends_by_the_exact_reset() {
    let mut peer = Peer::new(Config::default());
    peer.send(SYN, IRS, 0, &[], few_options());
    peer.iss = peer.one().header.seq.0;
    peer.ack(1, 2);
    let reset = peer.one();
    assert!(reset.is(RST) && reset.header.seq == Seq(peer.iss + 2), "RFC 9293, section 3.10.7.4");
    peer.segment(RST, 2, 0, &[]);
    assert_eq!(peer.stack.half_open_count(), 1, "not the exact number");
    peer.segment(RST, 1, 0, &[]);
    assert_eq!(peer.stack.half_open_count(), 0);
}

#[test]
fn data_with_the_last_acknowledgement_is_taken() {
    let mut peer = Peer::new(Config::default());
    peer.send(SYN, IRS, 0, &[], few_options());
    peer.iss = peer.one().header.seq.0;
    peer.data(1, 1, b"hello");
    let id = peer.stack.accept(peer.listener, peer.now).unwrap();
    assert_eq!(peer.read(id).unwrap(), b"hello");
    let events: Vec<Event> = std::iter::from_fn(|| peer.stack.poll_event()).collect();
    assert!(matches!(events[..], [Event::Accept(_), Event::Connection(..)]), "{events:?}");
}

#[test]
fn a_segment_to_no_listener_is_reset() {
    let mut peer = Peer::new(Config::default());
    let listener = peer.listener;
    peer.stack.close_listener(listener, peer.now, &mut peer.sent);
    peer.send(SYN, IRS, 0, &[1, 2], few_options());
    let reset = peer.one();
    assert!(
        reset.is(Flags(0x14)) && reset.header.seq == Seq(0) && reset.header.ack == Seq(IRS + 3)
    );
    peer.send(ACK, IRS, 77, &[], few_options());
    let reset = peer.one();
    assert!(reset.is(RST) && reset.header.seq == Seq(77), "RFC 9293, section 3.5.2");
    peer.send(RST, IRS, 77, &[], few_options());
    assert!(peer.take().is_empty(), "a reset is not reset");
}

#[test]
fn resets_are_limited() {
    let mut peer = Peer::new(Config { resets: 3, ..Config::default() });
    (0..5).for_each(|_| peer.send(ACK, IRS, 77, &[], few_options()));
    assert_eq!((peer.take().len(), peer.stack.counters().reset_limits), (3, 2));
    peer.pass(Ns::from_secs(1));
    peer.send(ACK, IRS, 77, &[], few_options());
    assert_eq!(peer.take().len(), 1);
}

#[test]
fn nonsense_is_dropped() {
    let mut peer = Peer::new(Config::default());
    for flags in [Flags(0x03), Flags(0x00), Flags(0x01), Flags(0x08)] {
        peer.send(flags, IRS, 0, &[], few_options());
    }
    assert!(peer.take().is_empty());
    assert_eq!(peer.stack.counters().bad_segments, 4);
}

#[test]
fn closing_a_listener_resets_what_was_not_accepted() {
    let mut peer = Peer::new(Config::default());
    peer.open(few_options());
    peer.remote_port = 40_001;
    peer.send(SYN, IRS, 0, &[], few_options());
    peer.take();
    let listener = peer.listener;
    peer.stack.close_listener(listener, peer.now, &mut peer.sent);
    peer.remote_port = 40_000;
    assert!(peer.one().header.is(RST));
    assert_eq!((peer.stack.half_open_count(), peer.stack.connection_count()), (0, 0));
    assert_eq!(peer.stack.accept(listener, peer.now), None, "a stale id");
    let again = peer.stack.listen(local(), 1).unwrap();
    assert_ne!(again, listener);
}

#[test]
fn listeners_have_an_address_of_their_own() {
    let mut stack = Peer::new(Config::default()).stack;
    assert_eq!(stack.listen(local(), 1), Err(ListenError::AddressInUse));
    assert_eq!(stack.listen("0.0.0.0:0".parse().unwrap(), 1), Err(ListenError::NoPort));
    assert!(stack.listen("0.0.0.0:80".parse().unwrap(), 1).is_ok());
    assert!(stack.listen("[::]:80".parse().unwrap(), 1).is_ok());
    assert!(stack.has_listener("198.51.100.1:80".parse().unwrap()));
    assert!(stack.has_listener("[2001:db8::1]:80".parse().unwrap()));
    assert!(!stack.has_listener("198.51.100.1:81".parse().unwrap()));
    assert_eq!(stack.listeners().count(), 3);
}

fn connecting(config: Config) -> (Peer, heddle_tcp::ConnectionId) {
    let mut peer = Peer::new(config);
    let remote = peer.remote();
    let id = peer.stack.connect(peer.now, local(), remote, 1500, &mut peer.sent).unwrap();
    (peer, id)
}

#[test]
fn an_active_open_reports_that_it_is_connected() {
    let (mut peer, id) = connecting(Config::default());
    let syn = peer.one();
    assert!(syn.is(SYN) && syn.header.options.mss == Some(1460));
    assert_eq!(peer.stack.write(peer.now, id, b"early", &mut peer.sent), Err(Error::NotConnected));
    peer.now += Ns::from_ms(10);
    peer.send(SYN_ACK, IRS, syn.header.seq.0 + 1, &[], few_options());
    assert!(peer.one().is(ACK));
    let Some(Event::Connection(ready, what)) = peer.stack.poll_event() else { panic!("no event") };
    assert!(ready == id && what.is_connected() && what.is_writable() && !what.is_failed());
    assert_eq!(
        peer.stack.info(id).unwrap().srtt,
        Ns::from_ms(10),
        "RFC 6298: the handshake is a measurement"
    );
}

#[test]
fn a_refused_connection_fails() {
    let (mut peer, id) = connecting(Config::default());
    let iss = peer.one().header.seq.0;
    peer.send(RST, 0, 0, &[], OutgoingOptions::default());
    peer.send(Flags(0x14), 0, iss + 2, &[], OutgoingOptions::default());
    assert_eq!(peer.stack.poll_event(), None, "neither acknowledges the SYN");
    peer.send(Flags(0x14), 0, iss + 1, &[], OutgoingOptions::default());
    let Some(Event::Connection(_, what)) = peer.stack.poll_event() else { panic!("no event") };
    assert!(what.is_failed() && what.is_closed());
    assert_eq!(peer.read(id), Err(Error::Refused));
    assert_eq!(peer.stack.take_error(id), Ok(Some(Error::Refused)));
    assert_eq!(peer.stack.take_error(id), Ok(None));
    peer.stack.close(peer.now, id, &mut peer.sent);
    assert_eq!((peer.read(id), peer.stack.connection_count()), (Err(Error::Stale), 0));
}

#[test]
fn a_syn_is_sent_again_until_the_limit() {
    let (mut peer, id) =
        connecting(Config { connect_timeout: Ns::from_secs(10), ..Config::default() });
    peer.pass(Ns::from_ms(7_500));
    assert_eq!(peer.take().len(), 4, "at 0, 1, 3 and 7 s");
    peer.pass(Ns::from_secs(10));
    assert_eq!(peer.stack.take_error(id), Ok(Some(Error::TimedOut)));
}

#[test]
fn an_icmp_error_ends_a_handshake_only() {
    let hard = IcmpError::Unreachable { is_hard: true };
    let (mut peer, id) = connecting(Config::default());
    let iss = peer.one().header.seq.0;
    let remote = peer.remote();
    peer.stack.icmp_error(peer.now, local(), remote, iss + 5, hard, &mut peer.sent);
    assert_eq!(peer.stack.counters().icmp_ignored, 1, "RFC 5927, section 4.1: not in flight");
    peer.stack.icmp_error(peer.now, local(), remote, iss, hard, &mut peer.sent);
    assert_eq!(peer.stack.take_error(id), Ok(Some(Error::Unreachable)));

    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.write(id, 10);
    let (seq, remote) = (peer.iss + 1, peer.remote());
    peer.stack.icmp_error(peer.now, local(), remote, seq, hard, &mut peer.sent);
    assert_eq!(peer.stack.info(id).unwrap().state, State::Established, "RFC 5927, section 4.2");
}

#[test]
fn a_wrong_acknowledgement_of_a_syn_is_reset() {
    let (mut peer, _) = connecting(Config::default());
    let iss = peer.one().header.seq.0;
    peer.send(SYN_ACK, IRS, iss + 100, &[], few_options());
    let reset = peer.one();
    assert!(reset.is(RST) && reset.header.seq == Seq(iss + 100), "RFC 9293, section 3.10.7.3");
}

#[test]
fn both_ends_can_open_at_once() {
    let mut net = Net::new([Config::default(), Config::default()], Path::fast(Ns::from_ms(1)), 1);
    let (one, other, mtu) = (net.hosts[0].at(1000), net.hosts[1].at(2000), net.mtu);
    let ids = [(one, other), (other, one)];
    let ids = [0, 1].map(|i| {
        net.on(i, |stack, now, out| stack.connect(now, ids[i].0, ids[i].1, mtu, out)).unwrap()
    });
    net.pass(Ns::from_ms(5));
    for (host, &id) in net.hosts.iter().zip(&ids) {
        let info = host.stack.info(id).unwrap();
        assert_eq!((info.state, info.sack, info.timestamps), (State::Established, true, true));
    }
    net.on(0, |stack, now, out| stack.write(now, ids[0], b"hello", out)).unwrap();
    net.pass(Ns::from_ms(5));
    assert_eq!(net.hosts[1].stack.readable(ids[1]), Ok(5));
    assert!(net.hosts.iter().all(|host| host.stack.counters().timeouts == 0), "RFC 9293, figure 7");
}

#[test]
fn a_port_that_is_taken_is_refused() {
    let mut net = Net::new([Config::default(), Config::default()], Path::fast(Ns::from_ms(1)), 1);
    listen(&mut net);
    connect(&mut net, 1000);
    let (local, remote) = (net.hosts[0].at(1000), net.hosts[1].at(80));
    let connect = |stack: &mut Stack, local, remote| {
        stack.connect(Ns::ZERO, local, remote, 1500, &mut common::link::Sent::default())
    };
    let stack = &mut net.hosts[0].stack;
    assert_eq!(connect(stack, local, remote), Err(ConnectError::AddressInUse));
    let wrong =
        ["0.0.0.0:1", "192.0.2.1:0", "224.0.0.1:1", "[::1]:1"].map(|text| text.parse().unwrap());
    for local in wrong {
        assert_eq!(connect(stack, local, remote), Err(ConnectError::InvalidAddress), "{local}");
    }
    assert!(stack.has_flow(local, remote));
}

#[test]
fn an_ipv6_connection_carries_data() {
    let configs = [Config::default(), Config::default()];
    let mut net = Net::with_family(configs, Path::fast(Ns::from_ms(1)), 1, true);
    let listener = listen(&mut net);
    let id = connect(&mut net, 1000);
    net.pass(Ns::from_ms(5));
    let server = net.on(1, |stack, now, _| stack.accept(listener, now)).unwrap();
    net.on(0, |stack, now, out| stack.write(now, id, &[7; 5000], out)).unwrap();
    net.pass(Ns::from_ms(5));
    assert_eq!(net.hosts[1].stack.readable(server), Ok(5000));
    assert_eq!(net.hosts[1].stack.info(server).unwrap().mss, 1428);
    assert_eq!(net.damaged, 0);
}

#[test]
fn sequence_numbers_of_one_flow_grow() {
    let (mut peer, id) = connecting(Config::default());
    let first = peer.one().header;
    peer.stack.abort(peer.now, id, &mut peer.sent);
    peer.pass(Ns::from_ms(41));
    let remote = peer.remote();
    peer.stack.connect(peer.now, local(), remote, 1500, &mut peer.sent).unwrap();
    let second = peer.one().header;
    let grown = second.seq - first.seq;
    assert!((9_000..11_000).contains(&grown), "RFC 6528: 4 us a step, {grown}");
    let timestamps = [first, second]
        .map(|header| header.options.timestamps.unwrap_or(Timestamps::default()).value);
    assert_eq!(timestamps[1] - timestamps[0], 41, "RFC 7323, section 5.4");
}
