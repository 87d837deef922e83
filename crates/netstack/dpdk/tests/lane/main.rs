//! A lane over DPDK's devices that lead to the kernel, which is the other end: it sends datagrams and opens
//! connections, and both are echoed.

mod echo;

use echo::Echo;
use heddle_dpdk::{DpdkWire, Eal, EalOptions, PortOptions};
use heddle_netns::{FAR_MAC, FAR4, NEAR_MAC, NEAR4, Namespace, Pair, missing_privilege};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// How long the kernel waits for an answer: a hang detector.
const PATIENCE: Duration = Duration::from_secs(60);

/// The port of both echoes.
const PORT: u16 = 7;

/// DPDK is initialised once in this process (I1); `None` without root.
fn eal() -> Option<&'static Eal> {
    static EAL: OnceLock<Option<Eal>> = OnceLock::new();
    let init = || match missing_privilege() {
        None => Some(Eal::init(&EalOptions::default()).unwrap()),
        Some(reason) => {
            eprintln!("SKIPPED: {reason}");
            None
        }
    };
    EAL.get_or_init(init).as_ref()
}

fn open(eal: &Eal, device: &str) -> DpdkWire {
    eal.open(device, &PortOptions::default()).unwrap().pop().unwrap()
}

/// Datagrams of several lengths come back.
fn datagrams_are_answered() {
    let client = UdpSocket::bind((FAR4, 0)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.connect((NEAR4, PORT)).unwrap();
    for length in [0, 1, 64, 1000, 1472] {
        let datagram = vec![length as u8; length];
        client.send(&datagram).unwrap();
        let mut answer = vec![0; 2000];
        let count = client.recv(&mut answer).unwrap();
        assert_eq!(answer[..count], datagram);
    }
}

/// More bytes than a window come back, then the end.
fn a_stream_is_echoed() {
    let mut client = TcpStream::connect((NEAR4, PORT)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    let mut writer = client.try_clone().unwrap();
    let mut echoed = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&bytes).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        client.read_to_end(&mut echoed).unwrap();
    });
    assert!(echoed == bytes, "{} bytes of {}", echoed.len(), bytes.len());
}

/// Both, between the kernel in `far` and a lane over `wire`.
fn check(wire: DpdkWire, kernel_mac: [u8; 6], far: &Namespace) {
    let echo = Echo::start(wire, kernel_mac, PORT);
    far.run(datagrams_are_answered);
    far.run(a_stream_is_echoed);
    let counted = echo.stop();
    assert_eq!((counted.packets.udp_received, counted.packets.no_socket), (5, 0), "{counted:?}");
    assert_eq!(counted.losses, heddle_netstack::wire::Losses::default());
}

#[test]
fn the_kernel_is_answered_over_af_packet() {
    let Some(eal) = eal() else { return };
    let net = Pair::new(1).unwrap();
    // The socket gets copies of frames that the kernel gets too: without an address it drops them.
    net.near.ip("addr flush dev hd0").unwrap();
    let wire = net.near.run(|| open(eal, "net_af_packet0,iface=hd0"));
    assert_eq!(wire.mac().unwrap(), NEAR_MAC);
    check(wire, FAR_MAC, &net.far);
}

#[test]
fn the_kernel_is_answered_over_a_tap() {
    let Some(eal) = eal() else { return };
    if !Path::new("/dev/net/tun").exists() {
        eprintln!("SKIPPED: there is no /dev/net/tun");
        return;
    }
    let far = Namespace::new().unwrap();
    let wire = far.run(|| open(eal, "net_tap0,iface=hdtap"));
    // The port has the address of the kernel's interface, so the lane needs another.
    let near = NEAR_MAC.map(|byte| format!("{byte:02x}")).join(":");
    far.ip(&format!("addr add {FAR4}/24 dev hdtap")).unwrap();
    far.ip("link set hdtap up").unwrap();
    far.ip(&format!("neigh replace {NEAR4} lladdr {near} dev hdtap nud permanent")).unwrap();
    let kernel = wire.mac().unwrap();
    check(wire, kernel, &far);
}
