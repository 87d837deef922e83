//! The runtime's own network, with the kernel at the other end of a pair of interfaces. Skipped without root.

use heddle::Runtime;
use heddle::net::UdpSocket;
use heddle_netns::{FAR4, FAR6, NEAR, NEAR4, NEAR6, Pair};
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

/// Each runtime has two workers.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs `test` with a runtime whose lanes serve the near end, which the far end reaches.
fn with_lanes(options: &str, test: impl FnOnce(&Runtime, &Pair)) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let pair = match Pair::new(2) {
        Ok(pair) => pair,
        Err(error) => return eprintln!("skipped: no network namespaces ({error})"),
    };
    let network = format!("xdp:{NEAR}{options}").parse().unwrap();
    let build = || Runtime::builder().net(network).workers(2).build();
    let runtime = pair.near.run(build).unwrap();
    test(&runtime, &pair);
}

/// A socket of the kernel at the far end, connected to `server`.
fn client(pair: &Pair, server: SocketAddr) -> std::net::UdpSocket {
    let local: IpAddr = if server.is_ipv4() { FAR4.into() } else { FAR6.into() };
    let socket = pair.far.run(|| std::net::UdpSocket::bind((local, 0))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.connect(server).unwrap();
    socket
}

fn ask(client: &std::net::UdpSocket, text: &[u8]) -> Vec<u8> {
    client.send(text).unwrap();
    let mut buf = [0; 65_536];
    let length = client.recv(&mut buf).unwrap();
    buf[..length].to_vec()
}

fn echo(socket: &UdpSocket, times: usize) {
    let mut buf = [0; 65_536];
    for _ in 0..times {
        let (length, peer) = socket.recv_from(&mut buf).unwrap();
        socket.send_to(&buf[..length], peer).unwrap();
    }
}

#[test]
fn datagrams_are_served_by_lanes_over_both_families() {
    with_lanes("", |runtime, pair| {
        for ip in [IpAddr::from(NEAR4), IpAddr::from(NEAR6)] {
            let bind: SocketAddr =
                if ip.is_ipv4() { ([0, 0, 0, 0], 9000).into() } else { ([0; 8], 9001).into() };
            let socket = runtime.run(|| UdpSocket::bind(bind)).unwrap();
            let server = runtime.spawn(move || echo(&socket, 100));
            let client = client(pair, (ip, bind.port()).into());
            for round in 0..100_u8 {
                assert_eq!(ask(&client, &[round; 64]), [round; 64]);
            }
            server.join().unwrap();
        }
    });
}
