//! Segments that leave as one and are cut on their way, as an interface with segmentation offload does.

mod common;

use common::peer::{Peer, all_options, few_options};
use heddle_core::Ns;
use heddle_tcp::wire::{Flags, OutgoingOptions};
use heddle_tcp::{Config, ConnectionId, Shutdown};

/// The payload of a segment under [`few_options`].
const MSS: usize = 1000;
const HEADER: usize = 20;

/// A connection whose output cuts segments of up to `largest` bytes.
fn accepted(largest: usize, options: OutgoingOptions) -> (Peer, ConnectionId) {
    let (mut peer, id) = Peer::accepted(Config::default(), options);
    peer.sent.largest = largest;
    (peer, id)
}

/// How many segments were cut, and the pieces of all.
fn cut(peer: &Peer) -> (u64, u64) {
    (peer.sent.cut, peer.sent.pieces)
}

#[test]
fn what_the_window_allows_leaves_as_one() {
    let (mut peer, id) = accepted(65_535, few_options());
    assert_eq!(peer.write(id, 30 * MSS), 30 * MSS);
    let expected: Vec<_> = (0..10).map(|number| (1 + number * 1000, MSS)).collect();
    assert_eq!(peer.numbers(), expected, "the initial window, RFC 6928");
    assert_eq!(cut(&peer), (1, 10));
    assert_eq!(peer.stack.counters().segments_out, 11, "each piece counts, and the SYN-ACK");
    peer.ack(1, 5001);
    assert_eq!(peer.numbers().len(), 10, "slow start: five arrived, so ten go");
    assert_eq!(cut(&peer), (2, 20));
}

#[test]
fn only_full_segments_and_an_end_that_need_not_wait_are_in_it() {
    let (mut peer, id) = accepted(65_535, few_options());
    peer.write(id, 3 * MSS + 10);
    let segments = peer.take();
    assert_eq!(cut(&peer), (1, 4), "the end as well: nothing small is in flight");
    let lengths: Vec<_> = segments.iter().map(|segment| segment.payload.len()).collect();
    assert_eq!(lengths, [MSS, MSS, MSS, 10]);
    let has_push = |segment: &common::peer::Segment| segment.header.is(Flags::PSH);
    assert_eq!(segments.iter().filter(|segment| has_push(segment)).count(), 1);
    assert!(has_push(&segments[3]));
    peer.write(id, 2 * MSS + 10);
    assert_eq!(peer.numbers(), [(3011, MSS), (4011, MSS)], "the end waits: Nagle's algorithm");
    peer.ack(1, 5011);
    assert_eq!(peer.numbers(), [(5011, 10)]);
    assert_eq!(cut(&peer), (2, 6));
}

#[test]
fn the_end_of_the_stream_goes_with_the_last_piece() {
    let (mut peer, id) = accepted(65_535, few_options());
    let options = peer.options();
    peer.window = 0;
    peer.send(common::peer::ACK, common::peer::IRS + 1, peer.iss + 1, &[], options);
    peer.write(id, 3 * MSS + 10);
    let now = peer.now;
    peer.stack.shutdown(now, id, Shutdown::Write, &mut peer.sent).unwrap();
    assert!(peer.take().is_empty());
    peer.window = 60_000;
    peer.ack(1, 1);
    let segments = peer.take();
    let flags: Vec<_> = segments.iter().map(|segment| segment.header.is(Flags::FIN)).collect();
    assert_eq!((flags.as_slice(), cut(&peer)), (&[false, false, false, true][..], (1, 4)));
    peer.segment(common::peer::FIN_ACK, 1, 3 * MSS as u32 + 12, &[]);
    assert_eq!(peer.one().header.ack.0, common::peer::IRS + 2);
}

#[test]
fn the_output_and_the_window_limit_it() {
    let (mut peer, id) = accepted(HEADER + 3 * MSS + 1, few_options());
    peer.window = 5_500;
    peer.ack(1, 1);
    peer.write(id, 30 * MSS);
    assert_eq!(peer.numbers().len(), 5);
    assert_eq!(cut(&peer), (2, 5), "three, then two: a half does not go");
    let (mut peer, id) = accepted(HEADER + 2 * MSS - 1, few_options());
    peer.write(id, 30 * MSS);
    assert_eq!((peer.numbers().len(), cut(&peer)), (10, (0, 0)), "what takes one takes it plain");
}

#[test]
fn pieces_have_the_same_options() {
    let (mut peer, id) = accepted(65_535, all_options());
    peer.write(id, 5 * 1448);
    let segments = peer.take();
    assert_eq!(cut(&peer), (1, 5));
    let timestamps: Vec<_> = segments.iter().map(|one| one.header.options.timestamps).collect();
    assert!(timestamps[0].is_some() && timestamps.iter().all(|one| *one == timestamps[0]));
    assert!(segments.iter().all(|one| one.payload.len() == 1448), "RFC 6691");
}

#[test]
fn a_lost_piece_is_sent_again_alone() {
    let rtt = Ns::from_ms(10);
    let (mut peer, id) = Peer::accepted_after(Config::default(), few_options(), rtt);
    peer.sent.largest = 65_535;
    peer.write(id, 10 * MSS);
    assert_eq!(peer.numbers().len(), 10);
    peer.pass(rtt);
    peer.sack(1, 3001, &[(4001, 10_001)]);
    assert_eq!(peer.numbers(), [(3001, MSS)]);
    assert_eq!((cut(&peer), peer.stack.counters().retransmits), ((1, 10), 1));
    peer.ack(1, 10_001);
    assert!(peer.take().is_empty());
}

/// After silence the window is the initial one again, for a large segment too (RFC 5681, section 4.1).
#[test]
fn silence_makes_it_smaller() {
    let (mut peer, id) = accepted(65_535, few_options());
    for round in 0..4 {
        peer.write(id, 10 * MSS);
        peer.take();
        peer.ack(1, (round + 1) * 10_000 + 1);
    }
    peer.pass(Ns::from_secs(10));
    peer.write(id, 40 * MSS);
    assert_eq!(peer.numbers().len(), 10);
}

/// Acknowledgements that come together let one segment go.
#[test]
fn what_several_acknowledgements_allow_is_gathered() {
    let (mut peer, id) = accepted(65_535, few_options());
    peer.write(id, 40 * MSS);
    assert_eq!(peer.numbers().len(), 10);
    peer.stack.set_gathering(true);
    for segment in 1..=5 {
        peer.ack(1, segment * 2000 + 1);
        assert!(peer.take().is_empty());
    }
    peer.data(1, 10_001, b"an acknowledgement is due, too");
    peer.data(31, 10_001, b"at once");
    peer.stack.set_gathering(false);
    assert!(peer.stack.needs_flush());
    let now = peer.now;
    peer.stack.flush(now, &mut peer.sent);
    let segments = peer.take();
    assert_eq!((segments.len(), cut(&peer)), (20, (2, 30)), "slow start: twice the window");
    assert!(segments.iter().all(|one| one.header.ack.0 == common::peer::IRS + 38));
    assert!(!peer.stack.needs_flush());
    // Of less than a segment nothing is to be gained.
    peer.ack(38, 30_001);
    assert_eq!(peer.numbers().len(), 10);
    peer.ack(38, 40_001);
    peer.stack.set_gathering(true);
    peer.data(38, 40_001, b"a request");
    peer.write(id, 100);
    assert_eq!(peer.numbers(), [(40_001, 100)]);
}

#[test]
fn a_full_output_takes_none() {
    let (mut peer, id) = accepted(65_535, few_options());
    peer.sent.room = 0;
    peer.write(id, 5 * MSS);
    assert!(peer.take().is_empty() && peer.stack.needs_flush());
    peer.sent.room = 100;
    let now = peer.now;
    peer.stack.flush(now, &mut peer.sent);
    assert_eq!((peer.numbers().len(), cut(&peer)), (5, (1, 5)));
}
