//! Frames of strangers at a lane: it has a UDP socket and a listener, and answers into memory.
//!
//! The bytes are frames, each behind two bytes with its length. Frames get right checksums if their first byte is odd,
//! because no fuzzer guesses these.
#![no_main]

use heddle_core::Ns;
use heddle_netstack::control::{Mac, Snapshot, SnapshotBuilder};
use heddle_netstack::lane::{Lane, Token, Woken};
use heddle_netstack::packet;
use heddle_netstack::paths::Routes;
use heddle_netstack::tcp::TcpListener;
use heddle_netstack::udp::UdpSocket;
use heddle_netstack::wire::{Transmit, Wire, pair};
use heddle_tcp::checksum::{self, Sum};
use heddle_tcp::{Config, Secret, Stack};
use libfuzzer_sys::fuzz_target;
use std::net::IpAddr;
use std::sync::Arc;

struct Fixed(Arc<Snapshot>);

impl Routes for Fixed {
    fn generation(&self) -> u64 {
        1
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.0.clone()
    }

    fn resolve(&self, _: IpAddr) {}
}

/// Corrects the checksums of a frame that is a packet but for these.
fn correct(frame: &mut [u8]) {
    if frame.len() >= 34 && frame[12..14] == [8, 0] {
        let length = usize::from(frame[14] & 15) * 4;
        if length >= 20 && frame.len() >= 14 + length {
            frame[24..26].fill(0);
            let sum = checksum::checksum(&frame[14..14 + length]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
    }
    let Some(packet) = packet::parse(frame) else { return };
    let (source, destination, protocol) = (packet.source, packet.destination, packet.protocol);
    let (at, has_pseudo) = match protocol {
        packet::TCP => (16, true),
        packet::UDP => (6, true),
        packet::ICMP => (2, false),
        packet::ICMP6 => (2, true),
        _ => return,
    };
    let length = packet.transport.len();
    let start = packet.transport.as_ptr() as usize - frame.as_ptr() as usize;
    if length < at + 2 {
        return;
    }
    frame[start + at..start + at + 2].fill(0);
    let mut sum = match has_pseudo {
        true => Sum::pseudo_header(source, destination, protocol, length),
        false => Sum::new(),
    };
    sum.add(&frame[start..start + length]);
    frame[start + at..start + at + 2].copy_from_slice(&sum.finish().to_be_bytes());
}

fuzz_target!(|bytes: &[u8]| {
    let (mut far, near) = pair();
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let snapshot = SnapshotBuilder::new(1, Mac([2; 6]))
        .address(address("10.0.0.1"), 24)
        .address(address("fd00::1"), 64)
        .build();
    let stack = Stack::new(Config::default(), Secret::new([7; 64]));
    let lane = Lane::new(0, vec![near], Arc::new(Fixed(snapshot)), stack);
    let socket = Arc::new(UdpSocket::new("[::]:9".parse().expect("an address"), Token(1)));
    lane.add_udp(&socket);
    let listener = Arc::new(TcpListener::new("[::]:80".parse().expect("an address"), 1, Token(2)));
    let id = lane.listen(&listener, 4).expect("a free port");

    let (mut rest, mut now) = (bytes, Ns::from_secs(1));
    let (mut woken, mut buf) = (Woken::default(), [0; 2048]);
    while let Some((&[high, low], after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([high, low])).min(after.len()).min(2048);
        let mut frame = after[..length].to_vec();
        rest = &after[length..];
        if frame.first().is_some_and(|first| first % 2 == 1) {
            correct(&mut frame);
        }
        far.transmit().send_with(frame.len(), |room| room.copy_from_slice(&frame));
        now = now + Ns::from_us(u64::from(low) * 100);
        lane.poll(now, &mut woken);
        woken.drain(|_, _| {});
        while let Some((length, _)) = socket.receive(&mut buf, false) {
            assert!(length <= buf.len());
        }
        while let Some(accepted) = lane.accept(now, id) {
            let _ = lane.write(now, accepted.id, [&b"hello"[..]].into_iter(), false);
        }
        far.exchange(64, |answer, _| {
            let answer = packet::parse(answer).expect("what a lane sends is a packet");
            assert!(packet::is_checksum_right(&answer, false) || answer.protocol == packet::ICMP);
        });
    }
    let counted = lane.counters().packets;
    assert!(counted.malformed + counted.bad_checksum <= counted.frames);
});
