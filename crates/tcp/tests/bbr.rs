//! BBR on links with a bottleneck, in virtual time.

mod common;

use common::apps::Stream;
use common::link::{Faults, Path};
use common::{Pair, connect, pair};
use heddle_core::Ns;
use heddle_tcp::{Config, Congestion};

/// 100 Mbit/s and 20 ms: 250 KB under way.
const RATE: f64 = 0.1;
const RTT: Ns = Ns::from_ms(20);

fn path(queue: u64, per_million: u32) -> Path {
    let faults = Faults { loss: per_million, ..Faults::default() };
    Path { delay: RTT / 2, ns_per_kb: 80_000, queue, faults }
}

fn config(congestion: Congestion) -> Config {
    let buffer = 4 << 20;
    Config {
        congestion,
        send_buffer: buffer,
        receive_buffer: buffer,
        max_out_of_order: buffer,
        ..Config::default()
    }
}

fn connected(congestion: Congestion, path: Path) -> Pair {
    let mut pair = pair(config(congestion), path, 1);
    // Acknowledgements arrive.
    pair.net.hosts[1].path.faults = Faults::default();
    pair
}

/// Lets the stream run for `time`. Returns how much arrived, as a share of what the bottleneck takes.
fn run(pair: &mut Pair, stream: &mut Stream, time: Ns) -> f64 {
    let (start, before) = (pair.net.now, stream.received);
    let end = start + time;
    stream.pump(&mut pair.net);
    while pair.net.now < end && pair.net.step(end) {
        stream.pump(&mut pair.net);
    }
    (stream.received - before) as f64 * 8.0 / time.0 as f64 / RATE
}

fn stream(pair: &Pair) -> Stream {
    Stream::new((0, pair.client), (1, pair.server), u64::MAX)
}

#[test]
fn random_losses_do_not_slow_it_down() {
    let share = |congestion| {
        let mut pair = connected(congestion, path(500_000, 10_000));
        let mut stream = stream(&pair);
        run(&mut pair, &mut stream, Ns::from_secs(10))
    };
    let shares = [share(Congestion::Bbr), share(Congestion::Cubic)];
    assert!(shares[0] > 0.9 && shares[1] < 0.3, "{shares:?}");
}

/// What the bottleneck's queue dropped in the last of the seconds, and the share of it that was used.
#[test]
fn a_short_queue_is_not_overfilled_for_long() {
    // A fifth of what is under way.
    let mut pair = connected(Congestion::Bbr, path(50_000, 0));
    let mut stream = stream(&pair);
    run(&mut pair, &mut stream, Ns::from_secs(3));
    let (lost, received) = (pair.net.lost, stream.received);
    let share = run(&mut pair, &mut stream, Ns::from_secs(6));
    let lost = (pair.net.lost - lost) as f64 * 1448.0 / (stream.received - received) as f64;
    assert!(lost < 0.05 && share > 0.9, "{lost} of what arrived, {share} of the rate");
}

#[test]
fn a_long_queue_is_not_filled() {
    let mut pair = connected(Congestion::Bbr, path(4 << 20, 0));
    let mut stream = stream(&pair);
    run(&mut pair, &mut stream, Ns::from_secs(2));
    let share = run(&mut pair, &mut stream, Ns::from_secs(6));
    let srtt = pair.net.hosts[0].stack.info(pair.client).unwrap().srtt;
    assert!(srtt < RTT * 2 && share > 0.93 && pair.net.lost == 0, "{srtt}, {share}");
}

#[test]
fn the_round_trip_is_looked_for_every_ten_seconds() {
    let mut pair = connected(Congestion::Bbr, path(500_000, 0));
    let mut stream = stream(&pair);
    let least = |pair: &Pair| {
        let info = pair.net.hosts[0].stack.info(pair.client).unwrap();
        info.cwnd == 4 * u32::from(info.mss)
    };
    let (mut probes, mut before) = (Vec::new(), false);
    for ms in 0..25_000 {
        run(&mut pair, &mut stream, Ns::from_ms(1));
        if least(&pair) != before {
            before = !before;
            probes.push(ms);
        }
    }
    let [begin, end, again, ..] = probes[..] else { panic!("{probes:?}") };
    assert!((9_000..11_000).contains(&begin) && (200..300).contains(&(end - begin)), "{probes:?}");
    assert!((10_000..11_000).contains(&(again - end)), "{probes:?}");
}

/// Lets `time` pass in which nothing more is written.
fn pass(pair: &mut Pair, stream: &mut Stream, time: Ns) {
    let end = pair.net.now + time;
    while pair.net.step(end) {
        stream.take(&mut pair.net);
    }
}

/// Many small writes, as fast as the application can: a tenth of the rate. Then it has all that it can send.
#[test]
fn little_to_send_and_silence_do_not_lower_the_estimate() {
    let mut pair = connected(Congestion::Bbr, path(500_000, 0));
    let mut stream = stream(&pair);
    run(&mut pair, &mut stream, Ns::from_secs(3));
    // 1.25 KB each millisecond, for longer than the filter of the bandwidth lasts; then a pause.
    pass(&mut pair, &mut stream, Ns::from_secs(1));
    for _ in 0..2_000 {
        stream.put(&mut pair.net, 1250);
        pass(&mut pair, &mut stream, Ns::from_ms(1));
    }
    pass(&mut pair, &mut stream, Ns::from_secs(2));
    let share = run(&mut pair, &mut stream, Ns::from_ms(500));
    assert!(share > 0.85, "{share}");
}

#[test]
fn two_flows_share_a_bottleneck() {
    let mut pair = connected(Congestion::Bbr, path(500_000, 0));
    let mut first = stream(&pair);
    run(&mut pair, &mut first, Ns::from_secs(2));
    let client = connect(&mut pair.net, 40_001);
    run(&mut pair, &mut first, Ns::from_ms(500));
    let listener = pair.listener;
    let server = pair.net.on(1, |stack, now, _| stack.accept(listener, now)).expect("accepted");
    let mut second = Stream::new((0, client), (1, server), u64::MAX);
    let mut received = [0; 2];
    // The first half of the time is for finding the shares.
    for _ in 0..2 {
        let end = pair.net.now + Ns::from_secs(20);
        received = [first.received, second.received];
        while pair.net.now < end && pair.net.step(end) {
            first.pump(&mut pair.net);
            second.pump(&mut pair.net);
        }
    }
    let share = |now: u64, before| (now - before) as f64 * 8.0 / 20e9 / RATE;
    let shares = [share(first.received, received[0]), share(second.received, received[1])];
    assert!(shares.iter().all(|&share| share > 0.25) && shares[0] + shares[1] > 0.9, "{shares:?}");
}
