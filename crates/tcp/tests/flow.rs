//! Windows, acknowledgements and timers without loss: RFC 9293, section 3.8; RFC 5681, section 4.2.

mod common;

use common::link::Path;
use common::pair;
use common::peer::{ACK, FIN_ACK, IRS, Peer, all_options, few_options};
use heddle_core::Ns;
use heddle_tcp::{Config, Error, Event, KeepAlive, Shutdown};

const MSS: usize = 1000;

#[test]
fn an_acknowledgement_waits_for_data_to_go_with() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.data(1, 1, b"request");
    peer.pass(Ns::from_ms(39));
    assert!(peer.take().is_empty(), "RFC 9293, section 3.8.6.3");
    peer.write(id, 10);
    let reply = peer.one();
    assert_eq!((reply.payload.len(), reply.header.ack.0), (10, IRS + 8), "it goes with the reply");
    peer.pass(Ns::from_ms(39));
    assert!(peer.take().is_empty());
    peer.ack(8, 11);
    peer.data(8, 11, b"request");
    peer.pass(Ns::from_ms(41));
    assert_eq!(peer.acks(), [15]);
    assert_eq!(peer.stack.counters().delayed_acks, 1);
}

#[test]
fn every_second_full_segment_is_acknowledged_at_once() {
    let (mut peer, _) = Peer::accepted(Config::default(), few_options());
    for number in 0..8 {
        peer.data(number * 1000 + 1, 1, &[1; MSS]);
        assert_eq!(peer.acks(), [number * 1000 + 1001], "at the start each, as in Linux");
    }
    for round in 4..7 {
        peer.data(round * 2000 + 1, 1, &[1; MSS]);
        assert!(peer.take().is_empty());
        peer.data(round * 2000 + 1001, 1, &[1; MSS]);
        assert_eq!(peer.acks(), [round * 2000 + 2001], "RFC 5681, section 4.2");
    }
}

#[test]
fn small_segments_wait_while_one_is_in_flight() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.write(id, 10);
    peer.write(id, 20);
    peer.write(id, 30);
    assert_eq!(peer.numbers(), [(1, 10)], "Nagle's algorithm, RFC 9293, section 3.7.4");
    peer.write(id, 1000);
    assert_eq!(peer.numbers(), [(11, MSS)], "a full segment does not wait");
    peer.ack(1, 11);
    assert_eq!(peer.numbers(), [(1011, 50)]);
    peer.write(id, 5);
    assert!(peer.take().is_empty());
    let now = peer.now;
    peer.stack.set_nodelay(now, id, true, &mut peer.sent).unwrap();
    assert_eq!(peer.numbers(), [(1061, 5)]);
    peer.write(id, 5);
    assert_eq!((peer.numbers(), peer.stack.nodelay(id)), (vec![(1066, 5)], Ok(true)));
}

#[test]
fn the_last_small_segment_goes_with_the_fin() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.write(id, 10);
    peer.write(id, 20);
    peer.take();
    peer.stack.shutdown(peer.now, id, Shutdown::Write, &mut peer.sent).unwrap();
    let last = peer.one();
    assert!(last.header.is(FIN_ACK) && last.payload.len() == 20);
}

#[test]
fn nothing_is_sent_beyond_the_window() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.window = 2500;
    peer.ack(1, 1);
    peer.write(id, 5000);
    assert_eq!(peer.numbers(), [(1, MSS), (1001, MSS)], "I2; the rest of the window is too small");
    peer.ack(1, 1001);
    assert_eq!(peer.numbers(), [(2001, MSS)]);
    assert_eq!(peer.stack.info(id).unwrap().unsent, 2000);
}

#[test]
fn a_closed_window_is_probed_with_backoff() {
    let config = Config { rto_min: Ns::from_ms(100), ..Config::default() };
    let (mut peer, id) = Peer::accepted(config, few_options());
    peer.window = 0;
    peer.ack(1, 1);
    peer.write(id, 500);
    assert!(peer.take().is_empty());
    let mut probes = 0;
    for _ in 0..40 {
        peer.pass(Ns::from_ms(100));
        for probe in peer.take() {
            assert_eq!(
                (probe.header.seq.0, probe.payload.len()),
                (peer.iss, 0),
                "one before the window"
            );
            probes += 1;
            peer.ack(1, 1);
        }
    }
    assert!((3..8).contains(&probes), "RFC 9293, section 3.8.6.1: {probes}");
    assert_eq!(peer.stack.counters().window_probes, probes);
    peer.window = 60_000;
    peer.ack(1, 1);
    assert_eq!(peer.numbers(), [(1, 500)]);
    peer.ack(1, 501);
    peer.pass(Ns::from_secs(100));
    assert!(peer.take().is_empty(), "no probe when all is sent");
}

#[test]
fn a_small_window_is_used_after_a_while() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.window = 100;
    peer.ack(1, 1);
    peer.write(id, 5000);
    assert!(peer.take().is_empty(), "RFC 9293, section 3.8.6.2.1: it may grow");
    peer.pass(Ns::from_secs(2));
    assert_eq!(peer.numbers()[0], (1, 100));
}

#[test]
fn a_reader_opens_the_window_in_large_steps() {
    let config = Config { receive_buffer: 10_000, ..Config::default() };
    let (mut peer, id) = Peer::accepted(config, few_options());
    (0..10).for_each(|i| peer.data(i * 1000 + 1, 1, &[1; MSS]));
    assert_eq!(peer.take().pop().unwrap().header.window, 0);
    let read = |peer: &mut Peer, count| {
        let mut bytes = vec![0; count];
        peer.stack.read(peer.now, id, &mut bytes, &mut peer.sent).unwrap();
        peer.take()
    };
    assert!(
        read(&mut peer, 500).is_empty(),
        "RFC 9293, section 3.8.6.2.2: too small to be worth it"
    );
    peer.data(10_001, 1, &[1; 1]);
    assert_eq!(peer.one().header.window, 0, "nor in answer to a probe");
    let update = read(&mut peer, 2500).pop().expect("a window update");
    assert_eq!(update.header.window, 3000);
    assert!(read(&mut peer, 500).is_empty());
}

#[test]
fn a_writer_is_woken_when_a_third_is_free() {
    let config = Config { send_buffer: 9000, ..Config::default() };
    let (mut peer, id) = Peer::accepted(config, few_options());
    assert_eq!(peer.write(id, 10_000), 9000);
    assert_eq!(
        (peer.stack.writable(id), peer.stack.write(peer.now, id, b"x", &mut peer.sent)),
        (0, Err(Error::WouldBlock))
    );
    peer.ack(1, 2001);
    assert_eq!(peer.stack.poll_event(), None);
    peer.ack(1, 3001);
    let Some(Event::Connection(_, what)) = peer.stack.poll_event() else { panic!("no event") };
    assert!(what.is_writable() && !what.is_readable());
    assert_eq!(peer.stack.writable(id), 3000);
    peer.ack(1, 4001);
    assert_eq!(peer.stack.poll_event(), None, "once");
}

fn probed() -> KeepAlive {
    KeepAlive { idle: Ns::from_secs(10), interval: Ns::from_secs(2), probes: 3 }
}

#[test]
fn an_idle_connection_is_probed_and_fails() {
    let config = Config { keep_alive: Some(probed()), ..Config::default() };
    let (mut peer, id) = Peer::accepted(config, all_options());
    peer.pass(Ns::from_ms(9_900));
    assert!(peer.take().is_empty());
    peer.pass(Ns::from_ms(200));
    let probe = peer.one();
    assert_eq!((probe.header.seq.0, probe.payload.len()), (peer.iss, 0), "RFC 9293, section 3.8.4");
    peer.ack(1, 1);
    peer.pass(Ns::from_ms(9_800));
    assert!(peer.take().is_empty(), "an answer starts it anew");
    peer.pass(Ns::from_secs(5));
    assert_eq!(peer.take().len(), 3);
    assert!(peer.stack.is_connected(id).unwrap());
    peer.pass(Ns::from_secs(2));
    assert_eq!((peer.read(id), peer.stack.counters().timed_out), (Err(Error::TimedOut), 1));
}

#[test]
fn probes_can_be_switched_on_and_off() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    assert_eq!(peer.stack.keep_alive(id), Ok(None));
    let now = peer.now;
    peer.stack.set_keep_alive(now, id, Some(probed())).unwrap();
    peer.pass(Ns::from_secs(11));
    assert_eq!(peer.take().len(), 1);
    let now = peer.now;
    peer.stack.set_keep_alive(now, id, None).unwrap();
    peer.pass(Ns::from_secs(100));
    assert!(peer.take().is_empty());
}

#[test]
fn a_keep_alive_probe_is_answered() {
    let (mut peer, _) = Peer::accepted(Config::default(), few_options());
    peer.segment(ACK, 0, 1, &[]);
    assert_eq!(peer.acks(), [1]);
    peer.segment(ACK, 0, 1, &[0]);
    assert_eq!(peer.acks(), [1], "with a byte, as old systems send it");
}

#[test]
fn after_silence_the_window_starts_again() {
    let config = Config {
        rto_min: Ns::from_ms(5),
        send_buffer: 1 << 20,
        receive_buffer: 1 << 20,
        ..Config::default()
    };
    let mut pair = pair(config, Path::fast(Ns::from_ms(1)), 1);
    let (client, server) = (pair.client, pair.server);
    let mut stream = common::apps::Stream::new((0, client), (1, server), 4 << 20);
    while stream.received < 1 << 20 {
        stream.pump(&mut pair.net);
        assert!(pair.net.step(Ns::MAX));
    }
    let cwnd = |pair: &common::Pair| pair.net.hosts[0].stack.info(client).unwrap().cwnd;
    assert!(cwnd(&pair) > 100_000);
    pair.net.pass(Ns::from_secs(1));
    stream.pump(&mut pair.net);
    assert_eq!(cwnd(&pair), 14_480, "RFC 5681, section 4.1; RFC 6928");
}

#[test]
fn the_first_window_has_ten_segments() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.write(id, 20_000);
    assert_eq!(peer.take().len(), 10, "RFC 6928");
    peer.ack(1, 2001);
    assert_eq!(peer.take().len(), 4, "slow start: two for two, and two more");
}

#[test]
fn refused_output_is_sent_later() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.sent.room = 2;
    peer.write(id, 5000);
    assert_eq!(peer.numbers(), [(1, MSS), (1001, MSS)]);
    assert!(peer.stack.needs_flush());
    for _ in 0..2 {
        peer.stack.flush(peer.now, &mut peer.sent);
    }
    assert_eq!(peer.numbers(), [(2001, MSS), (3001, MSS)]);
    peer.stack.flush(peer.now, &mut peer.sent);
    assert_eq!(peer.numbers(), [(4001, MSS)]);
    peer.stack.flush(peer.now, &mut peer.sent);
    assert!(!peer.stack.needs_flush() && peer.take().is_empty());
    assert!(peer.stack.counters().output_full >= 2);
}

#[test]
fn a_refused_acknowledgement_is_not_forgotten() {
    let (mut peer, _) = Peer::accepted(Config::default(), few_options());
    peer.sent.room = 0;
    peer.data(1, 1, &[1; MSS]);
    peer.data(1001, 1, &[1; MSS]);
    assert!(peer.take().is_empty());
    peer.sent.room = 10;
    peer.stack.flush(peer.now, &mut peer.sent);
    assert_eq!(peer.acks(), [2001]);
}

#[test]
fn events_are_reported_once() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.data(1, 1, b"a");
    peer.data(2, 1, b"b");
    let Some(Event::Connection(ready, what)) = peer.stack.poll_event() else { panic!("no event") };
    assert!(ready == id && what.is_readable() && !what.is_writable());
    assert_eq!((peer.stack.poll_event(), peer.stack.has_events()), (None, false), "I6");
    assert_eq!(peer.stack.peek(id, &mut [0; 9]), Ok(2));
    assert_eq!((peer.stack.readable(id), peer.stack.is_readable(id)), (Ok(2), true));
    assert_eq!(peer.read(id).unwrap(), b"ab");
    assert!(!peer.stack.is_readable(id));
}

#[test]
fn delivery_can_be_asked_for() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    assert_eq!(peer.stack.is_delivered(id), Ok(true));
    peer.write(id, 10);
    assert_eq!(peer.stack.is_delivered(id), Ok(false));
    peer.ack(1, 11);
    assert_eq!(peer.stack.is_delivered(id), Ok(true));
    peer.stack.shutdown(peer.now, id, Shutdown::Both, &mut peer.sent).unwrap();
    assert_eq!(peer.stack.is_delivered(id), Ok(false));
    peer.ack(1, 12);
    assert_eq!(peer.stack.is_delivered(id), Ok(true));
}
