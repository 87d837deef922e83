//! Large segments of a server under lanes, which the kernel cuts, or passes on whole. Skipped without root.

mod common;

use common::scenarios::{connect, pattern, stream};
use common::server::SOURCE;
use common::{Server, output, pair};
use heddle_netns::faults::{Loss, LossOptions};
use heddle_netns::{FAR, NEAR, NEAR4, NEAR6, Pair};
use heddle_test_support::{temp_dir, until};
use std::io::{Read as _, Write as _};
use std::net::IpAddr;

#[test]
#[ignore = "the server of the other tests"]
fn serve() {
    common::server::serve();
}

/// Bytes of a stream from the server.
fn length() -> usize {
    std::env::var("HEDDLE_TEST_MEGABYTES").map_or(16, |text| text.parse().unwrap()) << 20
}

/// A socket of the kernel at the far end reads `length` bytes of the pattern over each family.
fn download(net: &Pair, length: usize) {
    let text = pattern(length);
    for address in [IpAddr::from(NEAR4), NEAR6.into()] {
        let mut client = net.far.run(|| connect(address, SOURCE));
        writeln!(client, "{length}").unwrap();
        let mut received = Vec::with_capacity(length);
        client.read_to_end(&mut received).unwrap();
        assert!(received == text, "{address}: {} of {length} bytes", received.len());
    }
}

/// Leaves checksums and segmentation of what the near end sends to the interface, which passes both on.
fn with_offloads(net: &Pair) {
    output(net.near.command("ethtool").args(["-K", NEAR, "tx", "on", "tso", "on", "gso", "on"]));
}

#[test]
fn a_stream_leaves_in_large_segments() {
    let Some(net) = pair() else { return };
    let mut server = Server::start(&net.near, "");
    for round in 1..=2 {
        download(&net, length());
        let counters = server.order("counters");
        let large = counters["large"];
        assert!(large > round * length() as u64 / 65_535, "{large} large segments: {counters:?}");
        assert!(counters["segments_out"] > 4 * large, "they have many pieces: {counters:?}");
        let lost = (counters["lost_refused"], counters["lost_invalid"], counters["bad_segments"]);
        assert_eq!(lost, (0, 0, 0), "{counters:?}");
        with_offloads(&net);
    }
}

#[test]
fn streams_both_ways_and_many_at_a_time_are_intact() {
    let Some(net) = pair() else { return };
    let mut server = Server::start(&net.near, ",policy=round-robin");
    with_offloads(&net);
    std::thread::scope(|scope| {
        for address in [IpAddr::from(NEAR4), NEAR6.into()].repeat(4) {
            let net = &net;
            scope.spawn(move || net.far.run(|| stream(address, 2 << 20)));
        }
    });
    let counters = server.order("counters");
    assert!(counters["large"] > 0, "{counters:?}");
    assert_eq!((counters["lost_invalid"], counters["bad_segments"]), (0, 0), "{counters:?}");
}

/// A piece is lost alone, and sent again alone.
#[test]
fn lost_pieces_are_repaired() {
    let Some(net) = pair() else { return };
    let mut server = Server::start(&net.near, ",rto-min=5ms");
    let options = LossOptions { seed: 8, incoming_loss: 0.01, ..LossOptions::default() };
    let loss = match Loss::new(&net.far, FAR, options) {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            return eprintln!("skipped: {error}");
        }
        loss => loss.unwrap(),
    };
    download(&net, length() / 2);
    let (counters, lost) = (server.order("counters"), loss.incoming().lost);
    assert!(lost > 0 && counters["retransmits"] > 0 && counters["large"] > 0, "{counters:?}");
    // A loss of a whole large segment would be tens of pieces. What the other end had already was not lost: on a busy
    // machine acknowledgements are late, and pieces are repeated needlessly.
    let repaired = counters["retransmits"] - counters["dsacks_in"];
    assert!(repaired < 4 * lost, "{lost} lost: {counters:?}");
}

#[test]
fn they_can_be_turned_off() {
    let Some(net) = pair() else { return };
    let mut server = Server::start(&net.near, ",offload=off");
    download(&net, 1 << 20);
    assert_eq!(server.order("counters")["large"], 0);
}

#[test]
fn a_capture_has_them_as_they_are() {
    let Some(net) = pair() else { return };
    let folder = temp_dir();
    let path = folder.path().join("lanes.pcapng");
    let mut server = Server::start(&net.near, &format!(",pcap={}", path.display()));
    download(&net, 1 << 20);
    assert!(server.order("counters")["large"] > 0);
    // The length of a block is after its type, and that of a frame is 28 bytes behind.
    until("a frame larger than the interface takes is in the file", || {
        let (bytes, mut at, mut largest) = (std::fs::read(&path).unwrap(), 0, 0);
        let word = |at: usize| {
            bytes.get(at..at + 4).map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        };
        while let (Some(kind), Some(length @ 1..)) = (word(at), word(at + 4)) {
            if kind == 6 {
                largest = largest.max(word(at + 24).unwrap_or(0));
            }
            at += length as usize;
        }
        (1_515..=65_535).contains(&largest)
    });
}
