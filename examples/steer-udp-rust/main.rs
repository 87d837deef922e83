//! A UDP server with one thread per socket that deploys `scan-avoid` on itself: a thread marks itself while it works
//! on a long request, and short requests go to the others.
//!
//! Requests are one byte: `G` takes no time, `S` takes the second argument in milliseconds. The answer is the byte and
//! the thread's number. Run as root, or as a user that heddled serves:
//! `cargo run --features steer --example steer-udp -- 8000`.

use std::error::Error;
use std::io::Read as _;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::thread;
use std::time::Duration;

use heddle::steer::client::{Deployment, Steering, policy_of};
use heddle::steer::executor::Executor;
use heddle::steer::hook::Hook;

const THREADS: u32 = 4;
/// The class that scan-avoid avoids by default (parameter `class`).
const SCAN: u32 = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().map_or(Ok(0), |port| port.parse())?;
    let scan = Duration::from_millis(arguments.next().map_or(Ok(50), |ms| ms.parse())?);
    let sockets = shared_sockets(port)?;

    let steering = Steering::open(std::env::var_os("HEDDLE_DIRECT").is_some())?;
    let mut deployment = Deployment::new(policy_of("scan-avoid")?, Hook::SocketSelect);
    for (k, socket) in sockets.iter().enumerate() {
        deployment =
            deployment.executor(format!("thread {k}"), socket.as_fd().try_clone_to_owned()?);
    }
    let attachment = steering.attach(deployment)?;

    for (k, socket) in (0..).zip(&sockets) {
        let (socket, executor) = (socket.try_clone()?, steering.executor(attachment.id, k)?);
        thread::spawn(move || serve(&socket, &executor, scan));
    }
    let port = sockets[0].local_addr()?.port();
    println!("port {port} attachment {}", attachment.id);
    // Runs until its input closes.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    steering.detach(attachment.id, vec![sockets[0].as_fd().try_clone_to_owned()?])?;
    Ok(())
}

fn shared_sockets(port: u16) -> Result<Vec<UdpSocket>, Box<dyn Error>> {
    let mut at = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let mut sockets = Vec::new();
    for _ in 0..THREADS {
        let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::DGRAM, None)?;
        socket.set_reuse_port(true)?;
        socket.bind(&at.into())?;
        let socket = UdpSocket::from(socket);
        at = socket.local_addr()?;
        sockets.push(socket);
    }
    Ok(sockets)
}

fn serve(socket: &UdpSocket, executor: &Executor, scan: Duration) {
    let mut request = [0; 2048];
    while let Ok((_, peer)) = socket.recv_from(&mut request) {
        if request[0] == b'S' {
            executor.busy(SCAN);
            thread::sleep(scan);
            executor.idle();
        }
        let thread = b'0' + u8::try_from(executor.index()).unwrap_or(0);
        // The client may be gone: no answer is needed then.
        let _ = socket.send_to(&[request[0], thread], peer);
    }
}
