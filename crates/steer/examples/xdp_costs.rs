//! What a decision costs at XDP: the root and the policy, or the lanes' program, from the frame to the verdict, on a
//! synthetic packet. `cargo run --release -p heddle-steer --example xdp_costs`, as root.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd as _;

use heddle_bpf::Program;
use heddle_netns::{FAR4, NEAR, NEAR4, Pair};
use heddle_steer::hook::xdp::{
    Claim, Executors, Holders, Interface, Mode, Protocol, Root, load_policy, online_cpus,
    put_claim, put_cpu, put_policy,
};
use heddle_steer::lane::{Deployment, Options};
use heddle_steer::policy::{Maps, read, shipped, shipped_names};

const REPEAT: u32 = 1_000_000;
const ROUNDS: usize = 7;

/// Ethernet and IPv4, 56 bytes.
fn head(protocol: u8) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes.extend([8, 0, 0x45, 0, 0, 76, 0, 0, 0, 0, 64, protocol, 0, 0]);
    bytes.extend([10, 77, 0, 2, 10, 77, 0, 1]);
    bytes
}

/// UDP to port 8000, 48 bytes.
fn datagram() -> Vec<u8> {
    [&head(17), &[0x0f, 0xa0, 0x1f, 0x40, 0, 56, 0, 0][..], &[1; 48]].concat()
}

/// TCP to port 8000, 36 bytes.
fn segment(flags: u8) -> Vec<u8> {
    let ports = [0x0f, 0xa0, 0x1f, 0x40];
    [&head(6), &ports[..], &[0; 8], &[0x50, flags, 0, 0, 0, 0, 0, 0], &[1; 36]].concat()
}

fn main() -> Result<(), Box<dyn Error>> {
    let net = Pair::new(1)?;
    slots(&net)?;
    for policy in ["hash", "round-robin"] {
        lanes(&net, policy)?;
    }
    Ok(())
}

fn median(of: &str, program: &Program, packet: &[u8]) -> Result<(), Box<dyn Error>> {
    let mut runs = Vec::new();
    for _ in 0..ROUNDS {
        runs.push(program.test_run(packet, REPEAT)?.nanoseconds);
    }
    runs.sort_unstable();
    println!("{of:<36}{:>6} ns ({}..{})", runs[ROUNDS / 2], runs[0], runs[ROUNDS - 1]);
    Ok(())
}

/// Each policy in a slot of the root.
fn slots(net: &Pair) -> Result<(), Box<dyn Error>> {
    let interface = Interface::by_name(NEAR, Some(net.near.file()?))?;
    let root = Root::attach(&interface, Some(Mode::Native))?;
    let packet = datagram();
    median("an unclaimed packet", &root.program, &packet)?;
    let address = (Ipv4Addr::UNSPECIFIED, 8000).into();
    put_claim(&root.maps, &Claim { protocol: Protocol::Udp, address }, 0, Holders::default())?;
    for name in shipped_names() {
        let policy = read(shipped(name).unwrap_or_default())?;
        let mut maps = Maps::new();
        let kind = (Executors::Cpus, Mode::Native);
        let Ok(program) = load_policy(name, kind, &policy, &mut maps) else { continue };
        put_cpu(&maps, 0, online_cpus()?[0], 64)?;
        put_policy(&root.maps, 0, &program)?;
        median(name, &root.program, &packet)?;
    }
    Ok(())
}

/// The lanes' program, whose lanes have no sockets: the packets pass in the end.
fn lanes(net: &Pair, policy: &str) -> Result<(), Box<dyn Error>> {
    const ACK: u8 = 16;
    const SYN: u8 = 2;
    let interface = Interface::by_name(NEAR, Some(net.near.file()?))?;
    let options = Options { policy: policy.into(), ..Options::new(4) };
    let lanes = Deployment::attach(interface, &options)?;
    let of = |what: &str| format!("lanes, {policy}: {what}");
    median(&of("unclaimed"), lanes.program(), &datagram())?;
    let (local, remote) = (SocketAddr::from((NEAR4, 8000)), SocketAddr::from((FAR4, 4000)));
    lanes.add_outgoing(local, remote, 0)?;
    median(&of("outgoing"), lanes.program(), &segment(ACK))?;
    lanes.remove_outgoing(local, remote)?;
    let any = (Ipv4Addr::UNSPECIFIED, 8000);
    let datagrams = net.near.run(|| UdpSocket::bind(any))?;
    let listener = net.near.run(|| TcpListener::bind(any))?;
    lanes.claim(Protocol::Udp, any.into(), &[datagrams.as_fd()])?;
    lanes.claim(Protocol::Tcp, any.into(), &[listener.as_fd()])?;
    median(&of("UDP"), lanes.program(), &datagram())?;
    lanes.program().test_run(&segment(SYN), 1)?;
    median(&of("TCP"), lanes.program(), &segment(ACK))
}
