//! Streams over links that lose, repeat, reorder, delay and damage segments.

mod common;

use common::apps::Stream;
use common::link::{Faults, Net, Path};
use common::{Pair, pair};
use heddle_core::Ns;
use heddle_tcp::{Config, Congestion, State};
use proptest::prelude::*;

const RTT: Ns = Ns::from_us(100);

fn loss(per_million: u32) -> Path {
    Path::fast(RTT).with(Faults { loss: per_million, ..Faults::default() })
}

/// Closes both ends and waits until nothing is left of them.
fn end(mut pair: Pair) -> Net {
    let (client, server) = (pair.client, pair.server);
    pair.net.on(0, |stack, now, out| stack.close(now, client, out));
    pair.net.on(1, |stack, now, out| stack.close(now, server, out));
    pair.net.pass(Ns::from_secs(3600));
    for host in &pair.net.hosts {
        assert_eq!((host.stack.connection_count(), host.stack.time_wait_count()), (0, 0));
        assert_eq!(host.stack.buffered_bytes(), 0, "I1: no block is left");
    }
    pair.net
}

/// The rate of a stream in Gbit/s.
fn rate(config: Config, path: Path, total: u64) -> f64 {
    let mut pair = pair(config, path, 1);
    let mut stream = Stream::new((0, pair.client), (1, pair.server), total);
    let took = stream.run(&mut pair.net, Ns::from_secs(600));
    assert!(stream.is_finished, "{} of {total} bytes, {:?}", stream.received, stream.error);
    assert_eq!(stream.received, total);
    end(pair);
    total as f64 * 8.0 / took.0 as f64
}

#[test]
fn a_stream_fills_a_clean_link() {
    for congestion in [Congestion::Cubic, Congestion::Bbr] {
        let rate = rate(Config { congestion, ..Config::default() }, loss(0), 64 << 20);
        assert!(rate > 8.0, "{rate} Gbit/s, {congestion:?}");
    }
}

#[test]
fn loss_slows_a_stream_down_and_does_not_stop_it() {
    for (per_million, least) in [(100, 6.0), (1_000, 2.0), (10_000, 0.3)] {
        let config = Config { rto_min: Ns::from_ms(5), ..Config::default() };
        let rate = rate(config, loss(per_million), 32 << 20);
        assert!(rate > least, "{rate} Gbit/s at {per_million} ppm");
    }
}

#[test]
fn by_a_model_loss_costs_little() {
    for (per_million, least) in [(100, 8.0), (1_000, 7.0), (10_000, 4.0)] {
        let (congestion, rto_min) = (Congestion::Bbr, Ns::from_ms(5));
        let rate =
            rate(Config { congestion, rto_min, ..Config::default() }, loss(per_million), 32 << 20);
        assert!(rate > least, "{rate} Gbit/s at {per_million} ppm");
    }
}

/// One loss is one of a piece: the same rates as with segments that leave one by one.
#[test]
fn large_segments_are_lost_piece_by_piece() {
    for (congestion, per_million, least) in [
        (Congestion::Cubic, 0, 8.0),
        (Congestion::Cubic, 1_000, 2.0),
        (Congestion::Cubic, 10_000, 0.3),
        (Congestion::Bbr, 0, 8.0),
        (Congestion::Bbr, 10_000, 3.0),
    ] {
        let config = Config { congestion, rto_min: Ns::from_ms(5), ..Config::default() };
        let mut pair = pair(config, loss(per_million), 1);
        pair.net.hosts[0].sent.largest = 65_535;
        let mut stream = Stream::new((0, pair.client), (1, pair.server), 32 << 20);
        let took = stream.run(&mut pair.net, Ns::from_secs(600));
        assert!(stream.is_finished && stream.received == 32 << 20, "{:?}", stream.error);
        let rate = (32_u64 << 20) as f64 * 8.0 / took.0 as f64;
        assert!(rate > least, "{rate} Gbit/s at {per_million} ppm");
        let sent = &pair.net.hosts[0].sent;
        assert!(sent.cut > 0 && sent.pieces > 2 * sent.cut, "{} of {}", sent.cut, sent.pieces);
        // Of some 23,000 segments: with a small window after a loss they leave one by one.
        let is_small = per_million == 10_000 && congestion == Congestion::Cubic;
        assert!(!is_small || sent.pieces < 5_000, "{}", sent.pieces);
        end(pair);
    }
}

#[test]
fn new_reno_recovers_as_well() {
    let config =
        Config { congestion: Congestion::NewReno, rto_min: Ns::from_ms(5), ..Config::default() };
    let rate = rate(config, loss(1_000), 32 << 20);
    assert!(rate > 1.0, "{rate} Gbit/s");
}

#[test]
fn without_sack_a_stream_recovers_as_well() {
    for congestion in Congestion::ALL {
        let (sack, timestamps, rto_min) = (false, false, Ns::from_ms(5));
        let config = Config { congestion, sack, timestamps, rto_min, ..Config::default() };
        let rate = rate(config, loss(1_000), 16 << 20);
        assert!(rate > 0.3, "{rate} Gbit/s, {congestion:?}");
    }
}

#[test]
fn a_bottleneck_with_a_short_queue_is_used() {
    // 100 Mbit/s, 20 ms, a queue of 100 KB.
    let path = Path {
        delay: Ns::from_ms(10),
        ns_per_kb: 80_000,
        queue: 100_000,
        faults: Faults::default(),
    };
    let rate = rate(Config::default(), path, 16 << 20);
    assert!(rate > 0.06, "{rate} Gbit/s");
}

fn faults() -> impl Strategy<Value = Faults> {
    let share = || prop_oneof![Just(0u32), 1u32..200_000];
    (share(), share(), share(), share(), 1u64..2_000_000).prop_map(
        |(loss, duplicate, corrupt, reorder, delay)| Faults {
            loss,
            duplicate,
            corrupt,
            reorder,
            delay: Ns(delay),
            mtu: 0,
        },
    )
}

/// The largest segment that the outputs cut; 0 if they cut none.
fn largest() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), Just(65_535), 0usize..10_000]
}

proptest! {
    /// I1 to I6 are asserted by the stacks on the way.
    #[test]
    fn any_interleaving_delivers_the_streams_once(
        faults in faults(),
        seed: u64,
        total in 0u64..300_000,
        back in 0u64..300_000,
        (small, sack, timestamps) in any::<(bool, bool, bool)>(),
        congestion in proptest::sample::select(&Congestion::ALL),
        initial_window in 1u8..=10,
        largest in largest(),
    ) {
        let buffer = if small { 8 << 10 } else { 256 << 10 };
        let config = Config {
            rto_min: Ns::from_ms(5),
            user_timeout: Ns::from_secs(100_000),
            receive_buffer: buffer,
            send_buffer: buffer,
            sack,
            timestamps,
            congestion,
            initial_window,
            ..Config::default()
        };
        let mut pair = pair(config, Path::fast(RTT).with(faults), seed);
        pair.net.hosts.iter_mut().for_each(|host| host.sent.largest = largest);
        let mut there = Stream::new((0, pair.client), (1, pair.server), total.max(1));
        let mut back = Stream::new((1, pair.server), (0, pair.client), back.max(1));
        let limit = pair.net.now + Ns::from_secs(20_000);
        while !(there.is_finished && back.is_finished) {
            there.pump(&mut pair.net);
            back.pump(&mut pair.net);
            prop_assert_eq!((there.error, back.error), (None, None));
            let received = (there.received, back.received);
            prop_assert!(pair.net.step(limit), "{:?} of {:?}", received, (there.total, back.total));
        }
        prop_assert_eq!((there.received, back.received), (there.total, back.total));
        let state = |host: usize, id| pair.net.hosts[host].stack.info(id).unwrap().state;
        let states = [state(0, pair.client), state(1, pair.server)];
        prop_assert!(states.iter().all(|&state| state != State::Established), "{:?}", states);
        pair.net.hosts.iter_mut().for_each(|host| host.path.faults = Faults::default());
        end(pair);
    }
}
