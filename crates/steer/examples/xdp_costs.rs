//! What a decision costs at XDP: the root and the policy, from the frame to the verdict, on a synthetic
//! packet. `cargo run --release -p heddle-steer --example xdp_costs`, as root.

use std::error::Error;
use std::net::Ipv4Addr;

use heddle_netns::{NEAR, Pair};
use heddle_steer::hook::xdp::{
    Claim, Executors, Holders, Interface, Mode, Protocol, Root, load_policy, online_cpus,
    put_claim, put_cpu, put_policy,
};
use heddle_steer::policy::{Maps, read, shipped, shipped_names};

const REPEAT: u32 = 1_000_000;
const ROUNDS: usize = 7;

/// Ethernet, IPv4, UDP to port 8000, 48 bytes.
fn packet() -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes.extend([8, 0, 0x45, 0, 0, 76, 0, 0, 0, 0, 64, 17, 0, 0, 10, 77, 0, 2, 10, 77, 0, 1]);
    bytes.extend([0x0f, 0xa0, 0x1f, 0x40, 0, 56, 0, 0]);
    bytes.extend([1; 48]);
    bytes
}

fn main() -> Result<(), Box<dyn Error>> {
    let net = Pair::new(1)?;
    let interface = Interface::by_name(NEAR, Some(net.near.file()?))?;
    let root = Root::attach(&interface, Some(Mode::Native))?;
    let median = |of: &str, packet: &[u8]| -> Result<(), Box<dyn Error>> {
        let mut runs = Vec::new();
        for _ in 0..ROUNDS {
            runs.push(root.program.test_run(packet, REPEAT)?.nanoseconds);
        }
        runs.sort_unstable();
        println!("{of:<28}{:>6} ns ({}..{})", runs[ROUNDS / 2], runs[0], runs[ROUNDS - 1]);
        Ok(())
    };
    let packet = packet();
    median("an unclaimed packet", &packet)?;
    let address = (Ipv4Addr::UNSPECIFIED, 8000).into();
    put_claim(&root.maps, &Claim { protocol: Protocol::Udp, address }, 0, Holders::default())?;
    for name in shipped_names() {
        let policy = read(shipped(name).unwrap_or_default())?;
        let mut maps = Maps::new();
        let kind = (Executors::Cpus, Mode::Native);
        let Ok(program) = load_policy(name, kind, &policy, &mut maps) else { continue };
        put_cpu(&maps, 0, online_cpus()?[0], 64)?;
        put_policy(&root.maps, 0, &program)?;
        median(name, &packet)?;
    }
    Ok(())
}
