//! Segments that are wrong, old, early or too many: RFC 5961, RFC 7323, RFC 9293, section 3.10.7.4.

mod common;

use common::peer::{ACK, FIN_ACK, IRS, Peer, RST, SYN, all_options, few_options};
use heddle_core::Ns;
use heddle_tcp::wire::OutgoingOptions;
use heddle_tcp::{Config, Error, State};

#[test]
fn only_the_exact_reset_ends_a_connection() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.segment(RST, 2, 0, &[]);
    let challenge = peer.one();
    assert!(challenge.is(ACK) && challenge.header.ack.0 == IRS + 1, "RFC 5961, section 3.2");
    peer.segment(RST, 100_000_000, 0, &[]);
    assert!(peer.take().is_empty(), "outside the window");
    assert_eq!(peer.stack.info(id).unwrap().state, State::Established);
    peer.segment(RST, 1, 0, &[]);
    assert_eq!(peer.read(id), Err(Error::Reset));
    assert_eq!(peer.stack.counters().resets_in, 1);
}

#[test]
fn a_syn_is_challenged() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    for seq in [1, 50, 100_000_000] {
        peer.segment(SYN, seq, 0, &[]);
        assert_eq!(peer.acks(), [1], "RFC 5961, section 4.2");
    }
    assert_eq!(peer.stack.info(id).unwrap().state, State::Established);
}

#[test]
fn acknowledgements_of_what_was_not_sent_are_challenged() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.data(1, 2, b"injected");
    assert_eq!(peer.acks(), [1], "RFC 5961, section 5.2");
    peer.data(1, 0u32.wrapping_sub(100_000_000), b"injected");
    assert_eq!(peer.acks(), [1]);
    assert_eq!(peer.read(id), Err(Error::WouldBlock));
    assert_eq!(peer.stack.counters().bad_acks, 2);
}

#[test]
fn challenges_are_limited() {
    let (mut peer, _) = Peer::accepted(Config::default(), few_options());
    (0..15).for_each(|_| peer.segment(SYN, 50, 0, &[]));
    assert_eq!(
        (peer.take().len(), peer.stack.counters().challenge_limits),
        (10, 5),
        "RFC 5961, section 7"
    );
    peer.pass(Ns::from_secs(1));
    peer.segment(SYN, 50, 0, &[]);
    assert_eq!(peer.take().len(), 1);
}

#[test]
fn segments_without_ack_are_dropped() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.segment(heddle_tcp::wire::Flags::PSH, 1, 0, b"x");
    assert_eq!((peer.take().len(), peer.read(id)), (0, Err(Error::WouldBlock)));
}

#[test]
fn old_timestamps_are_dropped_and_answered() {
    let (mut peer, id) = Peer::accepted(Config::default(), all_options());
    peer.timestamp = Some(999);
    peer.data(1, 1, b"old");
    assert_eq!((peer.acks(), peer.read(id)), (vec![1], Err(Error::WouldBlock)));
    peer.timestamp = None;
    peer.data(1, 1, b"none");
    assert_eq!(peer.read(id), Err(Error::WouldBlock), "RFC 7323, section 3.2");
    assert_eq!(peer.stack.counters().old_timestamps, 2);
    peer.timestamp = Some(1001);
    peer.data(1, 1, b"new");
    assert_eq!(peer.read(id).unwrap(), b"new");
    peer.timestamp = None;
    peer.segment(RST, 4, 0, &[]);
    assert_eq!(peer.read(id), Err(Error::Reset), "a reset needs no timestamp");
}

#[test]
fn timestamps_lose_their_meaning_after_24_days() {
    let (mut peer, id) = Peer::accepted(Config::default(), all_options());
    peer.timestamp = Some(999);
    peer.pass(Ns::from_secs(25 * 24 * 3600));
    peer.data(1, 1, b"idle");
    assert_eq!(peer.read(id).unwrap(), b"idle", "RFC 7323, section 5.5");
}

#[test]
fn the_echo_is_of_the_segment_that_advances_the_window() {
    let (mut peer, _) = Peer::accepted(Config::default(), all_options());
    peer.timestamp = Some(2000);
    peer.data(4, 1, b"beyond a gap");
    assert_eq!(
        peer.one().header.options.timestamps.unwrap().echo,
        1001,
        "RFC 7323, section 4.3, B"
    );
    peer.timestamp = Some(2001);
    peer.data(1, 1, b"abc");
    assert_eq!(peer.one().header.options.timestamps.unwrap().echo, 2001, "and C");
}

#[test]
fn a_wrong_acknowledgement_leaves_the_timestamp_alone() {
    let (mut peer, _) = Peer::accepted(Config::default(), all_options());
    peer.timestamp = Some(200_000);
    peer.data(1, 9999, b"injected");
    peer.take();
    peer.timestamp = Some(1002);
    peer.data(1, 1, &[1; 1000]);
    assert_eq!(peer.one().header.options.timestamps.unwrap().echo, 1002);
}

#[test]
fn data_that_was_received_is_answered_with_a_d_sack() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.data(1, 1, b"0123456789");
    peer.take();
    peer.data(1, 1, b"0123456789");
    let answer = peer.one();
    let blocks = answer.header.options.sack;
    let relative = |(first, end): &(heddle_tcp::Seq, heddle_tcp::Seq)| (first.0 - IRS, end.0 - IRS);
    assert_eq!(
        blocks.as_slice().iter().map(relative).collect::<Vec<_>>(),
        [(1, 11)],
        "RFC 2883, section 4"
    );
    peer.data(6, 1, b"56789abcde");
    assert_eq!(peer.read(id).unwrap(), b"0123456789abcde", "the new part counts");
}

#[test]
fn data_beyond_a_gap_is_reported_and_kept() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.data(11, 1, b"bbbbb");
    peer.data(21, 1, b"ddddd");
    peer.data(16, 1, b"ccccc");
    let last = peer.take().pop().unwrap().header;
    let blocks: Vec<_> =
        last.options.sack.as_slice().iter().map(|b| (b.0.0 - IRS, b.1.0 - IRS)).collect();
    assert_eq!((last.ack.0, &blocks[..]), (IRS + 1, &[(11, 26)][..]), "RFC 2018, section 4");
    assert_eq!(peer.stack.info(id).unwrap().out_of_order, 15);
    peer.data(1, 1, b"aaaaaaaaaa");
    assert_eq!(peer.acks(), [26]);
    assert_eq!(peer.read(id).unwrap(), b"aaaaaaaaaabbbbbcccccddddd");
    assert_eq!(peer.stack.buffered_bytes(), 0, "no block is kept");
}

#[test]
fn data_beyond_the_window_is_cut_off() {
    let config = Config { receive_buffer: 4096, ..Config::default() };
    let (mut peer, id) = Peer::accepted(config, few_options());
    peer.data(1, 1, &[1; 3000]);
    peer.data(3001, 1, &[2; 3000]);
    assert_eq!(peer.stack.info(id).unwrap().receive_queue, 4096);
    assert_eq!(peer.stack.counters().window_drops, 1);
    let last = peer.take().pop().unwrap().header;
    assert_eq!((last.ack.0, last.window), (IRS + 4097, 0));
    peer.data(4097, 1, &[2; 1]);
    assert_eq!(peer.acks(), [4097], "a probe of a closed window is answered");
}

#[test]
fn data_out_of_order_is_limited() {
    let config = Config { max_out_of_order: 1000, max_ranges: 3, ..Config::default() };
    let (mut peer, id) = Peer::accepted(config, few_options());
    for range in 1..6 {
        peer.data(range * 1000, 1, &[1; 10]);
    }
    assert_eq!(peer.stack.info(id).unwrap().out_of_order, 30);
    assert_eq!(peer.stack.counters().out_of_order_drops, 2);
    peer.data(1010, 1, &[1; 980]);
    assert_eq!(peer.stack.counters().out_of_order_drops, 3, "1,010 bytes");
    assert_eq!(peer.stack.connections().count(), 1);
}

#[test]
fn memory_is_limited() {
    let config = Config { max_buffered: 8192, ..Config::default() };
    let (mut peer, id) = Peer::accepted(config, few_options());
    peer.data(1, 1, &[1; 1000]);
    peer.data(1001, 1, &[1; 1000]);
    assert_eq!(peer.write(id, 5000), 4096);
    assert_eq!(peer.stack.write(peer.now, id, &[1], &mut peer.sent), Err(Error::WouldBlock));
    peer.data(5001, 1, &[1; 1000]);
    assert_eq!(peer.stack.counters().memory_drops, 1, "no block is left");
    assert_eq!(peer.read(id).unwrap().len(), 2000);
    let Some(heddle_tcp::Event::Connection(_, _)) = peer.stack.poll_event() else {
        panic!("no event")
    };
    assert!(peer.stack.write(peer.now, id, &[1], &mut peer.sent).is_ok(), "the writer was woken");
}

#[test]
fn a_fin_beyond_the_window_does_not_count() {
    let config = Config { receive_buffer: 4096, ..Config::default() };
    let (mut peer, id) = Peer::accepted(config, few_options());
    peer.segment(FIN_ACK, 1, 1, &[1; 5000]);
    assert_eq!(peer.stack.info(id).unwrap().state, State::Established);
    peer.read(id).unwrap();
    peer.segment(FIN_ACK, 4097, 1, &[1; 904]);
    assert_eq!(peer.stack.info(id).unwrap().state, State::CloseWait);
}

#[test]
fn a_segment_that_is_none_is_counted() {
    let (mut peer, _) = Peer::accepted(Config::default(), few_options());
    let (local, remote) = (common::peer::local().ip(), peer.remote().ip());
    for bytes in [&[0u8; 19][..], &[0; 20], &[]] {
        peer.stack.receive(peer.now, remote, local, bytes, 1500, &mut peer.sent);
    }
    assert_eq!(peer.stack.counters().bad_segments, 3);
    peer.send(ACK, 0, 0, &[], OutgoingOptions::default());
}
