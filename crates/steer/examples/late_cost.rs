//! What late binding and marks cost: a pull beside a plain receive, and a mark of an executor.
//!
//!     cargo run --release -p heddle-steer --example late_cost

use std::error::Error;
use std::net::UdpSocket;
use std::time::Instant;

use heddle_bpf::{Map, MapKind, MapSpec};
use heddle_steer::executor::{self, Lines};
use heddle_steer::late::ClassSockets;

/// Datagrams per round: fewer than the socket's buffer holds.
const ROUND: u32 = 100;
const ROUNDS: u32 = 2000;

/// Returns the median nanoseconds that `receive` takes, over rounds of datagrams that are already queued.
fn time(client: &UdpSocket, mut receive: impl FnMut(&mut [u8])) -> f64 {
    let mut buffer = [0; 64];
    let mut round = || {
        for _ in 0..ROUND {
            client.send(b"request").expect("sent");
        }
        let begin = Instant::now();
        (0..ROUND).for_each(|_| receive(&mut buffer));
        begin.elapsed()
    };
    let mut times: Vec<_> = (0..ROUNDS).map(|_| round()).collect();
    times.sort_unstable();
    times[times.len() / 2].as_nanos() as f64 / f64::from(ROUND)
}

fn main() -> Result<(), Box<dyn Error>> {
    let sockets = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    let client = UdpSocket::bind("127.0.0.1:0")?;
    let plain = sockets[0].try_clone()?;
    plain.set_nonblocking(true)?;
    for classes in 1..=3 {
        let of = sockets.iter().take(classes).map(|socket| Ok(socket.try_clone()?.into()));
        let sockets = of.collect::<std::io::Result<Vec<_>>>()?;
        let shared = ClassSockets::new(sockets)?.limit(classes - 1, 2);
        let mut puller = shared.puller();
        client.connect(plain.local_addr()?)?;
        let recv = time(&client, |buffer| {
            plain.recv_from(buffer).expect("one waits");
        });
        let pull = |buffer: &mut [u8]| {
            puller.receive(buffer).expect("one waits");
        };
        println!(
            "{classes} classes: plain receive {recv:.0} ns, pull {:.0} ns",
            time(&client, pull)
        );
    }
    let spec = MapSpec {
        name: "hd_lines".into(),
        kind: MapKind::Array,
        key_size: 4,
        value_size: 64,
        entries: 64,
        read_only: false,
    };
    let lines = Lines::new(&Map::create(&spec)?)?;
    println!("{:?}", executor::cost(&lines.executor(0)?, 10_000_000));
    Ok(())
}
