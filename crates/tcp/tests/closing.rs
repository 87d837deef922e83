//! Closing: RFC 9293, section 3.6; TIME_WAIT (RFC 1337, RFC 6191); unread data (RFC 2525).

mod common;

use common::apps::Stream;
use common::link::Path;
use common::pair;
use common::peer::{ACK, FIN_ACK, IRS, Peer, RST, SYN, SYN_ACK, all_options, few_options, local};
use heddle_core::Ns;
use heddle_tcp::{Config, ConnectError, ConnectionId, Error, Event, Shutdown, State};

fn state(peer: &Peer, id: ConnectionId) -> State {
    peer.stack.info(id).unwrap().state
}

fn events(peer: &mut Peer) -> Vec<Event> {
    std::iter::from_fn(|| peer.stack.poll_event()).collect()
}

#[test]
fn the_other_end_closes_first() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.segment(FIN_ACK, 1, 1, b"bye");
    assert_eq!(peer.acks(), [5], "a FIN is acknowledged at once");
    assert_eq!((peer.read(id).unwrap(), peer.read(id).unwrap()), (b"bye".to_vec(), vec![]));
    assert_eq!(state(&peer, id), State::CloseWait);
    peer.write(id, 10);
    assert_eq!(peer.numbers(), [(1, 10)], "half closed: our side still sends");
    peer.stack.close(peer.now, id, &mut peer.sent);
    assert!(peer.one().is(FIN_ACK));
    peer.ack(5, 12);
    assert_eq!(
        (peer.stack.connection_count(), peer.stack.time_wait_count()),
        (0, 0),
        "LAST_ACK ends at once"
    );
}

#[test]
fn this_end_closes_first() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.stack.shutdown(peer.now, id, Shutdown::Write, &mut peer.sent).unwrap();
    assert!(peer.one().is(FIN_ACK));
    assert_eq!(state(&peer, id), State::FinWait1);
    assert_eq!(peer.stack.write(peer.now, id, b"x", &mut peer.sent), Err(Error::WriteShutdown));
    peer.ack(1, 2);
    assert_eq!(state(&peer, id), State::FinWait2);
    peer.data(1, 2, b"late");
    assert_eq!(peer.read(id).unwrap(), b"late");
    events(&mut peer);
    peer.segment(FIN_ACK, 5, 2, &[]);
    assert_eq!((state(&peer, id), peer.stack.time_wait_count()), (State::TimeWait, 1));
    assert_eq!(peer.stack.info(id).unwrap().unsent, 0);
    let [Event::Connection(_, what)] = events(&mut peer)[..] else { panic!("one event") };
    assert!(what.is_readable() && what.is_closed());
    assert_eq!(peer.read(id).unwrap(), b"");
    peer.stack.close(peer.now, id, &mut peer.sent);
    assert_eq!((peer.stack.connection_count(), peer.stack.time_wait_count()), (0, 1));
    peer.pass(Ns::from_secs(61));
    assert_eq!(peer.stack.time_wait_count(), 0);
}

#[test]
fn both_ends_close_at_once() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.stack.close(peer.now, id, &mut peer.sent);
    peer.take();
    peer.segment(FIN_ACK, 1, 1, &[]);
    assert_eq!(peer.acks(), [2], "RFC 9293, figure 13");
    assert_eq!(peer.stack.connections().next().unwrap().state, State::Closing);
    peer.ack(2, 2);
    assert_eq!((peer.stack.connection_count(), peer.stack.time_wait_count()), (0, 1));
}

fn time_wait(options: heddle_tcp::wire::OutgoingOptions) -> Peer {
    let (mut peer, id) = Peer::accepted(Config::default(), options);
    peer.stack.close(peer.now, id, &mut peer.sent);
    peer.segment(FIN_ACK, 1, 2, &[]);
    peer.take();
    assert_eq!(peer.stack.time_wait_count(), 1);
    peer
}

#[test]
fn a_fin_that_comes_again_restarts_time_wait() {
    let mut peer = time_wait(few_options());
    peer.pass(Ns::from_secs(50));
    peer.segment(FIN_ACK, 1, 2, &[]);
    assert_eq!(peer.acks(), [2]);
    peer.pass(Ns::from_secs(30));
    assert_eq!(peer.stack.time_wait_count(), 1);
    peer.pass(Ns::from_secs(31));
    assert_eq!((peer.stack.time_wait_count(), peer.stack.next_deadline()), (0, None));
}

#[test]
fn a_reset_does_not_end_time_wait() {
    let mut peer = time_wait(few_options());
    peer.segment(RST, 2, 2, &[]);
    peer.segment(ACK, 2, 2, &[]);
    assert!(peer.take().is_empty(), "RFC 1337");
    peer.data(1, 2, b"old");
    assert_eq!(peer.acks(), [2]);
    assert_eq!(peer.stack.time_wait_count(), 1);
}

#[test]
fn a_newer_syn_replaces_time_wait() {
    // By its number, without timestamps.
    let mut peer = time_wait(few_options());
    peer.send(SYN, IRS, 0, &[], few_options());
    assert!(peer.one().is(ACK), "an old SYN is answered as any old segment");
    peer.send(SYN, IRS + 1000, 0, &[], few_options());
    let syn_ack = peer.one();
    assert!(syn_ack.is(SYN_ACK));
    assert!(syn_ack.header.seq.0.wrapping_sub(peer.iss) > 0x1_0000, "RFC 6191");
    assert_eq!((peer.stack.time_wait_count(), peer.stack.counters().time_wait_reuses), (0, 1));
    // By its timestamp.
    let mut peer = time_wait(all_options());
    let mut options = all_options();
    peer.send(SYN, IRS + 1000, 0, &[], options);
    assert!(peer.one().is(ACK), "an old timestamp");
    options.timestamps.as_mut().unwrap().value = 2000;
    peer.send(SYN, IRS - 1000, 0, &[], options);
    assert!(peer.one().is(SYN_ACK));
}

#[test]
fn a_port_in_time_wait_cannot_connect() {
    let mut peer = time_wait(few_options());
    let remote = peer.remote();
    let again = peer.stack.connect(peer.now, local(), remote, 1500, &mut peer.sent);
    assert_eq!(again, Err(ConnectError::AddressInUse));
}

#[test]
fn records_of_time_wait_are_limited() {
    let mut peer = Peer::new(Config { max_time_wait: 3, ..Config::default() });
    for port in 0..5 {
        peer.remote_port = 50_000 + port;
        peer.open(few_options());
        let id = peer.stack.accept(peer.listener, peer.now).unwrap();
        peer.stack.close(peer.now, id, &mut peer.sent);
        peer.segment(FIN_ACK, 1, 2, &[]);
        peer.take();
    }
    assert_eq!((peer.stack.time_wait_count(), peer.stack.counters().time_wait_overflows), (3, 2));
    let oldest = peer.stack.connections().map(|info| info.remote.port()).min();
    assert_eq!(oldest, Some(50_002), "the oldest goes first");
}

#[test]
fn unread_data_makes_close_a_reset() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.data(1, 1, b"unread");
    peer.take();
    peer.stack.close(peer.now, id, &mut peer.sent);
    assert!(peer.one().header.is(RST), "RFC 2525, section 2.17");
    assert_eq!((peer.stack.connection_count(), peer.stack.buffered_bytes()), (0, 0));
}

#[test]
fn data_after_close_is_reset() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.stack.close(peer.now, id, &mut peer.sent);
    peer.take();
    peer.data(1, 2, b"too late");
    assert!(peer.take().iter().any(|segment| segment.header.is(RST)), "RFC 1122, section 4.2.2.13");
    assert_eq!(peer.stack.connection_count(), 0);
}

#[test]
fn a_closed_connection_does_not_wait_for_the_other_end_forever() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.stack.close(peer.now, id, &mut peer.sent);
    peer.ack(1, 2);
    peer.pass(Ns::from_secs(59));
    assert_eq!(peer.stack.connection_count(), 1);
    peer.pass(Ns::from_secs(2));
    assert_eq!(peer.stack.connection_count(), 0, "FIN_WAIT_2");

    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.window = 0;
    peer.ack(1, 1);
    peer.write(id, 100);
    peer.stack.close(peer.now, id, &mut peer.sent);
    for _ in 0..300 {
        peer.pass(Ns::from_secs(1));
        peer.ack(1, 1);
    }
    assert_eq!(peer.stack.connection_count(), 0, "a window that stays closed");
}

#[test]
fn what_was_written_is_delivered_after_close() {
    let mut pair = pair(Config::default(), Path::fast(Ns::from_ms(1)), 1);
    let bytes: Vec<u8> = (0..200_000).map(common::apps::byte).collect();
    let (client, server) = (pair.client, pair.server);
    pair.net.on(0, |stack, now, out| {
        assert_eq!(stack.write(now, client, &bytes, out), Ok(bytes.len()));
        stack.close(now, client, out);
        assert_eq!(stack.readable(client), Err(Error::Stale));
    });
    let mut stream = Stream::new((0, client), (1, server), 0);
    stream.run(&mut pair.net, Ns::from_secs(1));
    assert_eq!((stream.received, stream.is_finished), (200_000, true));
}

#[test]
fn an_abort_resets() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.write(id, 10);
    peer.take();
    peer.stack.abort(peer.now, id, &mut peer.sent);
    let reset = peer.one();
    assert!(reset.header.is(RST) && reset.header.seq.0 == peer.iss + 11);
    assert_eq!(peer.stack.connection_count(), 0);
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.stack.set_close_reset(id, true).unwrap();
    peer.stack.close(peer.now, id, &mut peer.sent);
    assert!(peer.one().header.is(RST), "SO_LINGER with 0");
}

#[test]
fn a_reset_ends_after_what_was_received() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.data(1, 1, b"last words");
    peer.segment(RST, 11, 1, &[]);
    let [Event::Connection(_, what)] = events(&mut peer)[..] else { panic!("I6: one event") };
    assert!(what.is_readable() && what.is_writable() && what.is_failed() && what.is_closed());
    assert_eq!(peer.read(id).unwrap(), b"last words");
    assert_eq!(peer.read(id), Err(Error::Reset));
    assert_eq!(peer.stack.write(peer.now, id, b"x", &mut peer.sent), Err(Error::Reset));
    assert!(!peer.stack.is_connected(id).unwrap());
}

#[test]
fn reading_can_be_shut_down() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.data(1, 1, b"early");
    peer.stack.shutdown(peer.now, id, Shutdown::Read, &mut peer.sent).unwrap();
    assert_eq!((peer.read(id).unwrap(), peer.read(id).unwrap()), (b"early".to_vec(), vec![]));
    peer.data(6, 1, b"late");
    assert_eq!(peer.read(id).unwrap(), b"late", "as in Linux: reads do not wait, and no more");
    assert_eq!(peer.read(id).unwrap(), b"");
    peer.write(id, 5);
    assert_eq!(peer.take().pop().unwrap().payload.len(), 5);
}

#[test]
fn a_fin_before_a_gap_is_filled_counts_afterwards() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.segment(FIN_ACK, 6, 1, b"world");
    assert_eq!(peer.acks(), [1]);
    assert_eq!(peer.read(id), Err(Error::WouldBlock));
    peer.data(1, 1, b"hello");
    assert_eq!(peer.acks(), [12], "the FIN was not lost");
    assert_eq!(
        (peer.read(id).unwrap(), state(&peer, id)),
        (b"helloworld".to_vec(), State::CloseWait)
    );
}

#[test]
fn ids_of_closed_connections_are_stale() {
    let (mut peer, id) = Peer::accepted(Config::default(), few_options());
    peer.stack.abort(peer.now, id, &mut peer.sent);
    peer.take();
    peer.open(few_options());
    let next = peer.stack.accept(peer.listener, peer.now).unwrap();
    assert_eq!((next.index(), next != id), (id.index(), true), "the slot is used again");
    assert_eq!(peer.read(id), Err(Error::Stale));
    assert_eq!(peer.stack.info(id).err(), Some(Error::Stale));
    peer.stack.close(peer.now, id, &mut peer.sent);
    assert_eq!(state(&peer, next), State::Established, "a stale id closes nothing");
    assert_eq!(ConnectionId::from_bits(next.to_bits()), next);
}
