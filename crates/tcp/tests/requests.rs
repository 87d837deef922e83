//! Requests and replies on many connections, and connections that come and go.

mod common;

use common::apps::Requests;
use common::link::{Net, Path};
use common::{connect, listen};
use heddle_core::Ns;
use heddle_tcp::{Config, Congestion, ConnectionId};

const RTT: Ns = Ns::from_us(100);

/// Runs requests of 64 bytes on 50 connections at a loss of `per_million` each way.
fn run(congestion: Congestion, per_million: u32, count: usize) -> (Requests, Net) {
    let config = Config { congestion, rto_min: Ns::from_ms(5), ..Config::default() };
    let mut net = Net::new([config.clone(), config], Path::fast(RTT), 7);
    let mut requests = Requests::on_connections(&mut net, 50, per_million, 64);
    requests.run(&mut net, count, Ns::from_secs(600));
    assert!(requests.times.len() >= count, "{} of {count}", requests.times.len());
    (requests, net)
}

#[test]
fn without_loss_a_request_takes_a_round_trip_and_two_segments() {
    for congestion in Congestion::ALL {
        let (requests, net) = run(congestion, 0, 20_000);
        assert!(requests.quantile(1.0) < RTT + Ns::from_us(20), "{}", requests.quantile(1.0));
        let counters = net.hosts[1].stack.counters();
        assert!(counters.pure_acks < 100, "they go with replies: {}", counters.pure_acks);
        assert_eq!((counters.retransmits, counters.duplicates), (0, 0));
    }
}

#[test]
fn one_percent_loss_costs_a_short_timeout() {
    for congestion in Congestion::ALL {
        let (requests, _) = run(congestion, 10_000, 50_000);
        let times = [0.5, 0.999].map(|share| requests.quantile(share));
        assert!(times[0] < RTT + Ns::from_us(20) && times[1] <= Ns::from_ms(20), "{times:?}");
    }
}

#[test]
fn connections_come_and_go_and_nothing_stays() {
    let config = Config { time_wait: Ns::from_ms(50), ..Config::default() };
    let mut net = Net::new([config.clone(), config], Path::fast(RTT), 3);
    let listener = listen(&mut net);
    for round in 0..200u16 {
        let ids: Vec<ConnectionId> =
            (0..20).map(|i| connect(&mut net, 1_000 + round * 20 + i)).collect();
        net.pass(Ns::from_us(200));
        for &id in &ids {
            net.on(0, |stack, now, out| stack.write(now, id, b"hello", out)).expect("room");
        }
        net.pass(Ns::from_us(200));
        while let Some(id) = net.on(1, |stack, now, _| stack.accept(listener, now)) {
            let mut bytes = [0; 16];
            assert_eq!(net.on(1, |stack, now, out| stack.read(now, id, &mut bytes, out)), Ok(5));
            net.on(1, |stack, now, out| stack.close(now, id, out));
        }
        net.pass(Ns::from_us(200));
        ids.iter().for_each(|&id| net.on(0, |stack, now, out| stack.close(now, id, out)));
    }
    net.pass(Ns::from_secs(1));
    for host in &mut net.hosts {
        while host.stack.poll_event().is_some() {}
        let left = (
            host.stack.connection_count(),
            host.stack.time_wait_count(),
            host.stack.buffered_bytes(),
        );
        assert_eq!((left, host.stack.next_deadline()), ((0, 0, 0), None));
    }
    assert_eq!(net.hosts[1].stack.counters().passive_opens, 4_000);
    assert_eq!(net.hosts[1].stack.counters().resets_out, 0);
}
