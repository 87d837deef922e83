//! Loss: RFC 6298, RFC 6675, RFC 8985, RFC 6582; undoing (RFC 3522, 3708, 4015); path MTU (RFC 1191, 4821).

mod common;

use common::link::{Faults, Path};
use common::pair;
use common::peer::{Peer, all_options, few_options};
use heddle_core::Ns;
use heddle_tcp::wire::OutgoingOptions;
use heddle_tcp::{Config, ConnectionId, Error, IcmpError};

const MSS: u32 = 1000;

fn fast() -> Config {
    Config { rto_min: Ns::from_ms(100), ..Config::default() }
}

/// A connection with a round-trip time of 10 ms that has sent `segments` full segments.
fn sending(config: Config, options: OutgoingOptions, segments: u32) -> (Peer, ConnectionId) {
    let (mut peer, id) = Peer::accepted_after(config, options, Ns::from_ms(10));
    let mss = u32::from(peer.stack.info(id).unwrap().mss);
    peer.write(id, mss as usize);
    peer.take();
    peer.pass(Ns::from_ms(10));
    peer.timestamp = peer.timestamp.map(|timestamp| timestamp + 10);
    peer.ack(1, 1 + mss);
    peer.iss += mss;
    peer.write(id, (segments * mss) as usize);
    assert_eq!(peer.take().len(), segments as usize);
    (peer, id)
}

/// Number `index` of segments of `MSS` bytes.
fn at(index: u32) -> u32 {
    1 + index * MSS
}

#[test]
fn three_later_segments_make_the_first_lost() {
    let (mut peer, id) = sending(fast(), few_options(), 10);
    peer.pass(Ns::from_ms(10));
    peer.sack(1, at(0), &[(at(1), at(2))]);
    peer.sack(1, at(0), &[(at(1), at(3))]);
    assert!(peer.take().is_empty(), "it may be reordering");
    peer.sack(1, at(0), &[(at(1), at(4))]);
    assert_eq!(peer.numbers()[0], (at(0), MSS as usize), "RFC 6675, RFC 8985, section 6.2, step 4");
    let info = peer.stack.info(id).unwrap();
    assert_eq!((info.ssthresh, info.retransmits), (10 * MSS * 7 / 10, 1));
    peer.sack(1, at(4), &[]);
    peer.sack(1, at(10), &[]);
    let counters = peer.stack.counters();
    assert_eq!((counters.fast_retransmits, counters.timeouts, counters.recoveries), (1, 0, 1));
}

#[test]
fn a_quarter_of_a_round_trip_makes_a_segment_lost() {
    let (mut peer, _) = sending(fast(), few_options(), 5);
    peer.pass(Ns::from_ms(10));
    peer.sack(1, at(0), &[(at(1), at(2))]);
    assert!(peer.take().is_empty());
    peer.pass(Ns::from_ms(2));
    assert!(peer.take().is_empty());
    peer.pass(Ns::from_ms(1));
    assert_eq!(peer.numbers(), [(at(0), 1000)], "RFC 8985, section 6.2, step 5: 2.5 ms");
}

#[test]
fn a_lost_retransmission_is_found_without_a_timeout() {
    let (mut peer, _) = sending(fast(), few_options(), 10);
    peer.pass(Ns::from_ms(10));
    peer.sack(1, at(0), &[(at(1), at(5))]);
    assert_eq!(peer.numbers()[0].0, at(0));
    peer.pass(Ns::from_ms(1));
    peer.sack(1, at(0), &[(at(1), at(6))]);
    peer.sack(1, at(0), &[(at(1), at(8))]);
    peer.take();
    // New data is sent after the retransmission, and arrives first.
    peer.pass(Ns::from_ms(12));
    peer.sack(1, at(0), &[(at(1), at(10))]);
    peer.pass(Ns::from_ms(4));
    assert_eq!(peer.stack.counters().timeouts, 0);
}

#[test]
fn only_gaps_are_sent_again() {
    let (mut peer, _) = sending(fast(), few_options(), 9);
    peer.pass(Ns::from_ms(10));
    peer.sack(1, at(0), &[(at(1), at(3)), (at(4), at(9))]);
    peer.pass(Ns::from_ms(3));
    let mut numbers = peer.numbers();
    numbers.dedup();
    assert_eq!(numbers, [(at(0), 1000), (at(3), 1000)], "RFC 2018, section 5.1");
}

#[test]
fn without_sack_three_duplicates_and_partial_acknowledgements_do() {
    let options = OutgoingOptions { mss: Some(1000), ..Default::default() };
    let (mut peer, _) = sending(fast(), options, 10);
    peer.pass(Ns::from_ms(10));
    (0..2).for_each(|_| peer.ack(1, at(0)));
    assert!(peer.take().is_empty());
    peer.ack(1, at(0));
    assert_eq!(peer.numbers(), [(at(0), 1000)], "RFC 5681, section 3.2");
    (0..3).for_each(|_| peer.ack(1, at(0)));
    peer.take();
    peer.ack(1, at(5));
    assert!(peer.numbers().contains(&(at(5), 1000)), "RFC 6582, section 3.2: a partial one");
    peer.ack(1, at(10));
    assert_eq!(peer.stack.counters().timeouts, 0);
}

#[test]
fn the_last_segment_is_probed_after_two_round_trips() {
    let (mut peer, _) = sending(Config::default(), few_options(), 4);
    peer.pass(Ns::from_ms(10));
    peer.ack(1, at(2));
    peer.pass(Ns::from_ms(19));
    assert!(peer.take().is_empty());
    peer.pass(Ns::from_ms(2));
    assert_eq!(peer.numbers(), [(at(3), 1000)], "RFC 8985, section 7.3");
    peer.pass(Ns::from_ms(10));
    peer.sack(1, at(2), &[(at(3), at(4))]);
    peer.pass(Ns::from_ms(4));
    assert_eq!(peer.numbers(), [(at(2), 1000)]);
    let counters = peer.stack.counters();
    assert_eq!((counters.tail_probes, counters.timeouts), (1, 0), "no timeout of 200 ms");
}

#[test]
fn a_probe_that_repaired_a_loss_reduces_the_window() {
    for (duplicate, is_reduced) in [(false, true), (true, false)] {
        let (mut peer, id) = sending(Config::default(), few_options(), 4);
        peer.pass(Ns::from_ms(25));
        assert_eq!(peer.numbers(), [(at(3), 1000)]);
        let ssthresh = |peer: &Peer| peer.stack.info(id).unwrap().ssthresh;
        let before = ssthresh(&peer);
        match duplicate {
            true => peer.sack(1, at(4), &[(at(3), at(4))]),
            false => {
                peer.write(id, 1000);
                peer.take();
                peer.ack(1, at(5));
            }
        }
        assert_eq!(ssthresh(&peer) < before, is_reduced, "RFC 8985, section 7.4");
    }
}

#[test]
fn the_timeout_doubles_and_gives_up() {
    let config = Config {
        user_timeout: Ns::from_secs(10),
        black_hole_detection: false,
        rto_min: Ns::from_ms(5),
        ..Config::default()
    };
    let (mut peer, id) =
        sending(config, OutgoingOptions { mss: Some(1000), ..Default::default() }, 3);
    peer.pass(Ns::from_ms(1));
    let rto = peer.stack.info(id).unwrap().rto;
    assert!((Ns::from_ms(20)..=Ns::from_ms(35)).contains(&rto), "{rto}");
    let mut times = Vec::new();
    let start = peer.now;
    while peer.stack.is_connected(id).unwrap() {
        peer.pass(Ns::from_ms(1));
        let again = peer.numbers();
        if !again.is_empty() {
            assert_eq!(again, [(at(0), 1000)], "RFC 6298, section 5.4");
            times.push((peer.now - start).0 / 1_000_000);
        }
    }
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.windows(2).all(|pair| pair[1].abs_diff(2 * pair[0]) <= 2), "{gaps:?}");
    assert_eq!(peer.read(id), Err(Error::TimedOut));
}

#[test]
fn after_a_timeout_all_that_is_missing_is_sent_again_in_slow_start() {
    let (mut peer, id) = sending(fast(), few_options(), 6);
    peer.pass(Ns::from_ms(30));
    assert_eq!(peer.numbers(), [(at(5), 1000)], "the probe");
    peer.pass(Ns::from_ms(200));
    assert_eq!(peer.numbers(), [(at(0), 1000)]);
    assert_eq!(peer.stack.info(id).unwrap().cwnd, MSS, "RFC 5681, section 3.1");
    peer.ack(1, at(1));
    assert_eq!(peer.numbers(), [(at(1), 1000), (at(2), 1000)]);
    peer.ack(1, at(3));
    assert_eq!(peer.numbers(), [(at(3), 1000), (at(4), 1000), (at(5), 1000)]);
    peer.ack(1, at(6));
    assert_eq!((peer.stack.info(id).unwrap().unacked, peer.stack.counters().timeouts), (0, 1));
}

#[test]
fn a_spurious_timeout_is_undone() {
    let (mut peer, id) =
        sending(Config { delayed_ack: Ns::from_secs(1), ..fast() }, all_options(), 3);
    let before = peer.stack.info(id).unwrap();
    let echo = peer.echo;
    peer.pass(Ns::from_ms(300));
    assert!(peer.stack.counters().timeouts > 0);
    peer.take();
    peer.echo = echo;
    peer.ack(1, 1 + 1448);
    let after = peer.stack.info(id).unwrap();
    assert_eq!(
        peer.stack.counters().spurious_timeouts,
        1,
        "RFC 3522: the echo is older than the retransmission"
    );
    assert!(after.cwnd >= before.cwnd && after.ssthresh >= before.ssthresh, "RFC 4015");
    assert!(peer.take().is_empty(), "nothing more is sent again");
}

#[test]
fn d_sacks_of_all_retransmissions_undo_a_recovery() {
    let (mut peer, id) = sending(fast(), few_options(), 8);
    let before = peer.stack.info(id).unwrap();
    peer.pass(Ns::from_ms(10));
    peer.sack(1, at(0), &[(at(1), at(4))]);
    assert_eq!(peer.numbers()[0], (at(0), 1000));
    peer.ack(1, at(4));
    peer.sack(1, at(4), &[(at(0), at(1))]);
    let after = peer.stack.info(id).unwrap();
    assert_eq!(
        (peer.stack.counters().spurious_recoveries, after.ssthresh),
        (1, before.ssthresh),
        "RFC 3708"
    );
    assert!(after.cwnd >= before.cwnd);
}

#[test]
fn what_the_other_end_forgot_is_sent_again() {
    let (mut peer, _) = sending(fast(), few_options(), 4);
    peer.pass(Ns::from_ms(10));
    peer.sack(1, at(0), &[(at(1), at(4))]);
    peer.take();
    // It acknowledges the first and has dropped the rest: RFC 2018, section 8.
    peer.ack(1, at(1));
    let mut seen = Vec::new();
    for _ in 0..20 {
        peer.pass(Ns::from_ms(100));
        seen.extend(peer.numbers());
        let next = seen.last().map_or(at(1), |&(seq, length)| seq + length as u32);
        peer.ack(1, next);
    }
    assert!((1..4).all(|index| seen.contains(&(at(index), 1000))), "{seen:?}");
}

#[test]
fn sacks_in_a_late_acknowledgement_count() {
    let (mut peer, id) = sending(fast(), few_options(), 8);
    peer.pass(Ns::from_ms(10));
    peer.ack(1, at(2));
    peer.take();
    (5..8).for_each(|index| peer.sack(1, at(1), &[(at(index), at(index + 1))]));
    assert_eq!(peer.numbers().first(), Some(&(at(2), 1000)));
    assert_eq!(
        peer.stack.info(id).unwrap().retransmits,
        peer.stack.counters().fast_retransmits as u32
    );
}

#[test]
fn what_lay_beyond_a_gap_is_no_measurement() {
    let options = OutgoingOptions { mss: Some(1000), ..Default::default() };
    let (mut peer, id) = sending(fast(), options, 3);
    let srtt = peer.stack.info(id).unwrap().srtt;
    peer.pass(Ns::from_ms(500));
    assert!(peer.stack.counters().timeouts > 0);
    peer.ack(1, at(3));
    assert_eq!(peer.stack.info(id).unwrap().srtt, srtt, "Karn's algorithm, RFC 6298, section 3");
}

#[test]
fn sacks_of_what_was_not_sent_are_ignored() {
    let (mut peer, id) = sending(fast(), few_options(), 4);
    for block in [(at(9), at(12)), (at(3), at(2)), (0u32.wrapping_sub(50_000), 0), (at(3), at(9))] {
        peer.sack(1, at(0), &[block]);
    }
    assert_eq!((peer.take().len(), peer.stack.info(id).unwrap().unacked), (0, 4));
}

#[test]
fn a_report_of_a_smaller_mtu_makes_segments_smaller() {
    let (mut peer, id) = sending(fast(), few_options(), 3);
    let (iss, remote) = (peer.iss, peer.remote());
    let report = |peer: &mut Peer, seq: u32, mtu| {
        let error = IcmpError::PacketTooBig { mtu };
        peer.stack.icmp_error(peer.now, common::peer::local(), remote, seq, error, &mut peer.sent);
    };
    report(&mut peer, iss + at(7), 600);
    assert_eq!(peer.stack.info(id).unwrap().mss, 1000, "RFC 5927: that number is not in flight");
    report(&mut peer, iss + at(1), 640);
    assert_eq!(peer.stack.info(id).unwrap().mss, 600);
    let numbers = peer.numbers();
    assert_eq!(numbers[..2], [(1, 600), (601, 400)], "RFC 1191: sent again in smaller ones");
    report(&mut peer, iss + at(0), 20);
    assert_eq!(peer.stack.info(id).unwrap().mss, 76, "never below the smallest");
}

#[test]
fn a_black_hole_is_found() {
    let path = Path::fast(Ns::from_ms(1)).with(Faults { mtu: 1400, ..Faults::default() });
    let mut pair = pair(fast(), path, 1);
    let mut stream = common::apps::Stream::new((0, pair.client), (1, pair.server), 1 << 20);
    stream.run(&mut pair.net, Ns::from_secs(60));
    assert_eq!((stream.received, stream.error), (1 << 20, None), "RFC 4821, section 7.7");
    assert_eq!(pair.net.hosts[0].stack.counters().mtu_reductions, 2, "tried again once");
}

#[test]
fn an_outage_does_not_make_segments_small() {
    let lossy = |loss| Path::fast(Ns::from_ms(1)).with(Faults { loss, ..Faults::default() });
    let mut pair = pair(fast(), lossy(1_000_000), 1);
    let client = pair.client;
    let mut stream = common::apps::Stream::new((0, client), (1, pair.server), 1 << 20);
    stream.run(&mut pair.net, Ns::from_secs(2));
    assert!(pair.net.hosts[0].stack.info(client).unwrap().mss < 1448);
    pair.net.hosts.iter_mut().for_each(|host| host.path = lossy(0));
    stream.run(&mut pair.net, Ns::from_secs(20));
    assert_eq!(
        (stream.received, pair.net.hosts[0].stack.info(client).unwrap().mss),
        (1 << 20, 1448)
    );
}

#[test]
fn reordering_alone_causes_few_retransmissions() {
    let faults = Faults { reorder: 50_000, delay: Ns::from_us(200), ..Faults::default() };
    let mut pair = pair(fast(), Path::fast(Ns::from_ms(1)).with(faults), 3);
    let mut stream = common::apps::Stream::new((0, pair.client), (1, pair.server), 16 << 20);
    stream.run(&mut pair.net, Ns::from_secs(60));
    assert!(stream.is_finished);
    let counters = pair.net.hosts[0].stack.counters();
    assert!(
        counters.retransmits < 200,
        "RFC 8985 adapts its window: {} of {}",
        counters.retransmits,
        counters.segments_out
    );
}

#[test]
fn the_tail_of_a_reply_does_not_wait_for_a_timeout() {
    // The last two of ten segments are lost.
    let (mut peer, _) = sending(Config::default(), few_options(), 10);
    peer.pass(Ns::from_ms(10));
    peer.ack(1, at(8));
    peer.pass(Ns::from_ms(25));
    peer.sack(1, at(8), &[(at(9), at(10))]);
    peer.pass(Ns::from_ms(3));
    peer.ack(1, at(10));
    assert_eq!(peer.stack.counters().timeouts, 0);
}
