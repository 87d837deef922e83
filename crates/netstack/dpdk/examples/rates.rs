//! Packets per second through DPDK's virtual devices, one thread, frames of 64 bytes. Needs root.
//!
//! `cargo run --release --example rates -- [SECONDS]`, in crates/netstack/dpdk.

use heddle_dpdk::{DpdkWire, Eal, EalOptions, PortOptions};
use heddle_netns::{Namespace, Pair};
use heddle_netstack::wire::{Transmit, Wire};
use std::error::Error;
use std::time::{Duration, Instant};

const BURST: usize = 32;
const LENGTH: usize = 64;

/// Between the kernel's own addresses of Heddle's test networks, with a protocol number for experiments (IEEE 802).
const HEADER: [u8; 14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];

fn send_burst(wire: &mut DpdkWire) {
    for _ in 0..BURST {
        wire.transmit().send_with(LENGTH, |frame| {
            frame.fill(0);
            frame[..14].copy_from_slice(&HEADER);
        });
    }
    wire.publish();
}

/// Repeats `step`. Returns how much `counter` grows in a second.
fn rate(
    wire: &mut DpdkWire,
    time: Duration,
    mut step: impl FnMut(&mut DpdkWire),
    counter: impl Fn(&DpdkWire) -> Result<u64, Box<dyn Error>>,
) -> Result<f64, Box<dyn Error>> {
    let (before, start) = (counter(wire)?, Instant::now());
    while start.elapsed() < time {
        for _ in 0..64 {
            step(wire);
        }
    }
    Ok((counter(wire)? - before) as f64 / start.elapsed().as_secs_f64())
}

fn sent(wire: &mut DpdkWire, time: Duration) -> Result<f64, Box<dyn Error>> {
    rate(wire, time, send_burst, |wire| Ok(wire.stats()?.sent))
}

fn received(wire: &mut DpdkWire, time: Duration) -> Result<f64, Box<dyn Error>> {
    let step = |wire: &mut DpdkWire| {
        wire.exchange(BURST, |frame, _| _ = std::hint::black_box(frame));
    };
    rate(wire, time, step, |wire| Ok(wire.stats()?.received))
}

fn open(eal: &Eal, device: &str) -> Result<DpdkWire, heddle_dpdk::Error> {
    Ok(eal.open(device, &PortOptions::default())?.remove(0))
}

fn print(device: &str, direction: &str, rate: f64) {
    println!("{device:<12} {direction:<8} {:>8.2} M/s", rate / 1e6);
}

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(2), |text| text.parse())?;
    let time = Duration::from_secs(seconds);
    let eal = Eal::init(&EalOptions::default())?;

    let net = Pair::new(1)?;
    let mut wire = net.near.run(|| open(&eal, "net_af_packet0,iface=hd0"))?;
    print("af_packet", "sent", sent(&mut wire, time)?);

    let namespace = Namespace::new()?;
    let mut wire = namespace.run(|| open(&eal, "net_tap0,iface=hdtap"))?;
    namespace.ip("link set hdtap up")?;
    print("tap", "sent", sent(&mut wire, time)?);

    let mut wire = open(&eal, "net_ring0")?;
    let both = |wire: &mut DpdkWire| {
        send_burst(wire);
        wire.exchange(BURST, |_, _| ());
    };
    print("ring", "through", rate(&mut wire, time, both, |wire| Ok(wire.stats()?.received))?);

    let mut wire = open(&eal, "net_null0")?;
    print("null", "sent", sent(&mut wire, time)?);
    print("null", "received", received(&mut wire, time)?);
    Ok(())
}
