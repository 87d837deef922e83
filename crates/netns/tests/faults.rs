//! Faults meet the traffic that they are meant for, and are the same for the same seed.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use heddle_netns::faults::{
    Bottleneck, BottleneckOptions, Loss, LossOptions, Relay, RelayCounts, RelayOptions,
};
use heddle_netns::{FAR, FAR4, NEAR4, NEAR6, Pair, missing_privilege};

macro_rules! privileged {
    () => {
        if let Some(reason) = missing_privilege() {
            eprintln!("skipped: {reason}");
            return;
        }
    };
}

/// Longer than anything takes, on a busy machine too.
const HANG: Duration = Duration::from_secs(90);

/// A datagram behind all others, which is sent until it arrives.
const LAST: u32 = u32::MAX;

/// Sends `count` numbered datagrams from the far end to the near one and returns the numbers that arrived, in order.
fn send(net: &Pair, near: IpAddr, count: u32, before_last: impl FnOnce()) -> Vec<u32> {
    let server = net.near.run(|| UdpSocket::bind((near, 0))).unwrap();
    let any: SocketAddr = if near.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
    let client = net.far.run(|| UdpSocket::bind(any)).unwrap();
    client.connect(server.local_addr().unwrap()).unwrap();
    let mut numbers = Vec::new();
    server.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let begin = Instant::now();
    for number in 0..count {
        client.send(&number.to_be_bytes()).unwrap();
    }
    before_last();
    loop {
        assert!(begin.elapsed() < HANG, "the last datagram never arrives");
        client.send(&LAST.to_be_bytes()).unwrap();
        let mut bytes = [0; 4];
        loop {
            match server.recv(&mut bytes) {
                Ok(_) if bytes == LAST.to_be_bytes() => return numbers,
                Ok(_) => numbers.push(u32::from_be_bytes(bytes)),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn packets_are_lost_and_duplicated_by_seed_in_both_directions() {
    privileged!();
    let lossy = LossOptions {
        outgoing_loss: 0.25,
        outgoing_duplicates: 0.25,
        incoming_loss: 1.0,
        ..LossOptions::default()
    };
    let net = Pair::new(1).unwrap();
    let run = |options, near: IpAddr| {
        let loss = match Loss::new(&net.far, FAR, options) {
            Ok(loss) => loss,
            Err(missing) if missing.kind() == std::io::ErrorKind::Unsupported => {
                eprintln!("skipped: {missing}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let arrived = send(&net, near, 200, || loss.set(LossOptions::default()));
        Some((arrived, loss.outgoing()))
    };
    let Some((first, counts)) = run(lossy, NEAR4.into()) else { return };
    // At least: the last datagram is sent until it arrives, and is counted too.
    assert!(counts.packets > 200 && counts.lost > 0 && counts.duplicated > 0, "{counts:?}");
    assert_eq!(first.len() as u64, 200 - counts.lost + counts.duplicated);
    let again = run(lossy, NEAR4.into()).unwrap().0;
    assert_eq!(first, again);
    assert_eq!(first, run(lossy, NEAR6.into()).unwrap().0);
    assert_ne!(first, run(LossOptions { seed: 1, ..lossy }, NEAR4.into()).unwrap().0);
}

#[test]
fn what_arrives_is_lost_too_and_all_passes_after_the_end() {
    privileged!();
    let net = Pair::new(1).unwrap();
    let options =
        LossOptions { incoming_loss: 0.5, incoming_duplicates: 0.5, ..LossOptions::default() };
    let Ok(loss) = Loss::new(&net.near, heddle_netns::NEAR, options) else { return };
    let arrived = send(&net, NEAR4.into(), 200, || loss.set(LossOptions::default()));
    let counts = loss.incoming();
    assert!(counts.lost > 0 && counts.duplicated > 0, "{counts:?}");
    assert_eq!(arrived.len() as u64, 200 - counts.lost + counts.duplicated);
    assert_eq!(loss.outgoing().packets, 0);
    drop(loss);
    assert!(send(&net, NEAR4.into(), 100, || ()).into_iter().eq(0..100));
}

/// Waits until the relay has decided on the datagrams to the near end.
fn until_decided(relay: &Relay, done: impl Fn(RelayCounts) -> bool) {
    let begin = Instant::now();
    while !done(relay.to_near()) {
        assert!(begin.elapsed() < HANG, "{:?}", relay.to_near());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_relay_passes_everything_on_and_then_what_its_options_say() {
    privileged!();
    let relay = Relay::new(2, RelayOptions::default()).unwrap();
    for near in [IpAddr::from(NEAR4), NEAR6.into()] {
        assert!(send(&relay.net, near, 100, || ()).into_iter().eq(0..100), "{near}");
    }
    let calm = RelayOptions::default();
    let faults = RelayOptions {
        loss: 0.1,
        duplicates: 0.1,
        reordering: 0.1,
        reordering_delay: Duration::from_millis(200),
        ..calm
    };
    relay.set_to_near(faults);
    let arrived = send(&relay.net, NEAR4.into(), 200, || {
        // All have been offered once they are counted.
        until_decided(&relay, |counts| counts.frames >= 100 + 100 + 200);
        relay.set_to_near(RelayOptions { delay: Duration::from_millis(400), ..calm });
    });
    let counts = relay.to_near();
    assert!(counts.lost > 0 && counts.duplicated > 0 && counts.reordered > 0, "{counts:?}");
    assert_eq!(arrived.len() as u64, 200 - counts.lost + counts.duplicated);
    assert!(!arrived.is_sorted());
    let lost: BTreeSet<u32> = (0..200).filter(|number| !arrived.contains(number)).collect();
    assert_eq!(lost.len() as u64, counts.lost);
}

#[test]
fn a_wrong_bit_is_noticed_by_the_checksum() {
    privileged!();
    let relay = Relay::new(1, RelayOptions::default()).unwrap();
    relay.set_to_near(RelayOptions { corruption: 1.0, ..RelayOptions::default() });
    let arrived = send(&relay.net, NEAR4.into(), 50, || {
        until_decided(&relay, |counts| counts.corrupted >= 50);
        relay.set_to_near(RelayOptions::default());
    });
    assert_eq!(arrived, [0; 0]);
    assert!(relay.to_near().corrupted >= 50);
}

#[test]
fn a_black_hole_takes_long_packets_only() {
    privileged!();
    let relay = Relay::new(1, RelayOptions { mtu: Some(500), ..RelayOptions::default() }).unwrap();
    let server = relay.net.near.run(|| UdpSocket::bind((NEAR4, 0))).unwrap();
    let client = relay.net.far.run(|| UdpSocket::bind((FAR4, 0))).unwrap();
    client.send_to(&[1; 1000], server.local_addr().unwrap()).unwrap();
    client.send_to(&[2; 100], server.local_addr().unwrap()).unwrap();
    let mut bytes = [0; 2000];
    assert_eq!((server.recv(&mut bytes).unwrap(), bytes[0]), (100, 2));
    assert_eq!(relay.to_near().too_long, 1);
}

/// Sends `bytes` from the far end to the near one by TCP, and checks them.
fn transfer(net: &Pair, bytes: usize) {
    let listener = net.near.run(|| TcpListener::bind((NEAR4, 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = net.far.run(|| TcpStream::connect(address)).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server.set_read_timeout(Some(HANG)).unwrap();
    let data: Vec<u8> = (0..bytes).map(|k| (k % 251) as u8).collect();
    let mut received = Vec::new();
    thread::scope(|scope| {
        let data = &data;
        scope.spawn(move || {
            client.write_all(data).unwrap();
            drop(client);
        });
        server.read_to_end(&mut received).unwrap();
    });
    assert!(received == data, "{} of {bytes} bytes", received.len());
}

#[test]
fn a_stream_survives_all_faults_of_a_relay() {
    privileged!();
    let options = RelayOptions {
        loss: 0.02,
        duplicates: 0.02,
        corruption: 0.01,
        reordering: 0.05,
        reordering_delay: Duration::from_millis(2),
        jitter: Duration::from_micros(200),
        ..RelayOptions::default()
    };
    let relay = Relay::new(1, options).unwrap();
    transfer(&relay.net, 200_000);
    assert!(relay.to_near().lost + relay.to_far().lost > 0);
}

#[test]
fn a_router_has_a_short_queue_and_reports_a_smaller_mtu() {
    privileged!();
    let options = BottleneckOptions { rate: 50_000_000, queue: 20_000, mtu: 1400 };
    let bottleneck = match Bottleneck::new(1, options) {
        Ok(bottleneck) => bottleneck,
        Err(missing) => {
            eprintln!("skipped: {missing}");
            return;
        }
    };
    transfer(&bottleneck.net, 2_000_000);
    // More than the link and its queue take at once.
    let arrived = send(&bottleneck.net, NEAR6.into(), 2_000, || ());
    assert!(arrived.len() < 2_000 && !arrived.is_empty(), "{} arrived", arrived.len());
    // From the near end, a packet of the usual length is too long for the second link.
    let client = bottleneck.net.near.run(|| UdpSocket::bind((NEAR4, 0))).unwrap();
    client.connect((FAR4, 9)).unwrap();
    client.send(&[0; 1472]).unwrap();
    let too_long = || client.send(&[0; 1472]).is_err_and(|error| error.raw_os_error() == Some(90));
    let mut tries = 0;
    while !too_long() {
        tries += 1;
        assert!(tries < 1000, "the router sends no ICMP error");
        thread::sleep(Duration::from_millis(10));
    }
}
