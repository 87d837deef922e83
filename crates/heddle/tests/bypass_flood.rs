//! A flood of SYNs against a server under lanes, and a long run of connections. Skipped without root.

mod common;

use common::scenarios::{self, connect, open_and_close, pattern};
use common::server::ECHO;
use common::{Server, pair};
use heddle_netns::{FAR, FAR_MAC, NEAR_MAC, NEAR4, Pair};
use rustix::net::SendFlags;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

#[test]
#[ignore = "the server of the other tests"]
fn serve() {
    common::server::serve();
}

/// Adds 16-bit words as checksums of the Internet do (RFC 1071).
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u32 =
        words.map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (!(((sum & 0xffff) + (sum >> 16)) as u16)).to_be_bytes()
}

/// The frame of a SYN number `number` to the echo service, from an address of the network that no machine has.
fn syn(number: u64) -> Vec<u8> {
    let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let source = [10, 77, 0, 100 + (random >> 40) as u8 % 100];
    let mut ip = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
    ip.extend([source, NEAR4.octets()].concat());
    let sum = checksum(&[&ip]);
    ip[10..12].copy_from_slice(&sum);
    let mut tcp = [(random as u16 | 1024).to_be_bytes(), ECHO.to_be_bytes()].concat();
    tcp.extend(((random >> 16) as u32).to_be_bytes());
    tcp.extend([0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
    let sum = checksum(&[&ip[12..], &[0, 6, 0, 20], &tcp]);
    tcp[16..18].copy_from_slice(&sum);
    [&NEAR_MAC[..], &FAR_MAC, &[8, 0], &ip, &tcp].concat()
}

/// Sends SYNs until `stop`. Returns how many.
fn flood(socket: &OwnedFd, stop: &AtomicBool) -> u64 {
    let mut number = 0;
    while !stop.load(Relaxed) {
        // What finds no room is lost.
        let _ = rustix::net::send(socket, &syn(number), SendFlags::empty());
        number += 1;
        if number % 64 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    number
}

fn raw(net: &Pair) -> OwnedFd {
    let index = net.far.index_of(FAR).unwrap();
    net.far.run(|| heddle_sys::packet::socket(index)).unwrap()
}

#[test]
fn clients_connect_and_connections_live_in_a_flood_of_syns() {
    let Some(net) = pair() else { return };
    let mut server = Server::start(&net.near, "");
    let old = net.far.run(|| connect(NEAR4.into(), ECHO));
    let (socket, stop) = (raw(&net), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let flooding = scope.spawn(|| flood(&socket, &stop));
        heddle_test_support::until("cookies", || server.order("counters")["cookies_sent"] > 2_000);
        net.far.run(|| open_and_close(NEAR4.into(), 100, 4));
        net.far.run(|| scenarios::stream(NEAR4.into(), 1 << 20));
        scenarios::both_ways(Ok(&old), &pattern(100_000));
        stop.store(true, Relaxed);
        assert!(flooding.join().unwrap() > 2_000);
    });
    let counters = server.order("counters");
    assert!(counters["cookies_valid"] > 0, "{counters:?}");
    assert_eq!((counters["half_open_overflows"], counters["lost_invalid"]), (0, 0), "{counters:?}");
}

/// Opens and closes `HEDDLE_SOAK_CONNECTIONS` connections (`scripts/test-net --soak`). Nothing may be left of them, and
/// the memory of a server that has met all kinds of connections does not grow.
#[test]
#[ignore = "takes up to ten minutes: scripts/test-net --soak"]
fn soak() {
    let Some(net) = pair() else { return };
    let count =
        std::env::var("HEDDLE_SOAK_CONNECTIONS").map_or(100_000, |text| text.parse().unwrap());
    // The client's ports are the limit otherwise: it uses those in TIME_WAIT again after a second.
    net.far.set("ipv4/tcp_tw_reuse", "1").unwrap();
    net.far.set("ipv4/ip_local_port_range", "1024 65535").unwrap();
    let mut server = Server::start(&net.near, "");
    let (begin, part) = (Instant::now(), (count / 10_usize).max(1));
    let mut memory = Vec::new();
    for done in (part..=count).step_by(part) {
        net.far.run(|| open_and_close(NEAR4.into(), part, 32));
        let counters = at_rest(&mut server);
        memory.push(counters["memory"]);
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "{done} connections in {seconds:.1} s, {} KiB, {}",
            counters["memory"],
            losses(&counters)
        );
    }
    let counters = server.order("counters");
    println!("{counters:#?}");
    assert!(counters["passive_opens"] >= (memory.len() * part) as u64);
    assert_eq!((counters["lost_invalid"], counters["connections"]), (0, 0));
    // At rest, half of the frames wait to be filled, and some are in reserve to be sent.
    let frames = |name: &str| counters[&format!("frames_{name}")];
    assert_eq!(frames("filling") + frames("sending") + frames("free"), frames("all"));
    assert_eq!((frames("filling") * 2, frames("sending")), (frames("all"), frames("reserved")));
    // What the server has for its busiest moment it has after a tenth of the connections.
    let grown = memory.last().unwrap().saturating_sub(memory[0]);
    assert!(grown < 16 << 10, "{memory:?} KiB");
}

/// Waits until the server has forgotten its connections. Returns its counters.
fn at_rest(server: &mut Server) -> HashMap<String, u64> {
    let counters = std::cell::RefCell::new(HashMap::new());
    heddle_test_support::until("a server without connections", || {
        counters.replace(server.order("counters"));
        counters.borrow()["connections"] == 0
    });
    counters.into_inner()
}

fn losses(counters: &HashMap<String, u64>) -> String {
    let mut lost: Vec<_> = counters.iter().filter(|(name, _)| name.starts_with("lost_")).collect();
    lost.sort();
    format!("{lost:?}")
}
