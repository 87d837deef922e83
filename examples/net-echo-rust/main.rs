//! An echo server over TCP and UDP. Nothing in it knows which network serves it: the kernel's, or lanes (`HEDDLE_NET`).

use heddle::net::{TcpListener, TcpStream, UdpSocket};
use std::io::{self, Read as _, Write as _};

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "0.0.0.0:7000".to_owned());
    let listener = TcpListener::bind(&address)?;
    let socket = UdpSocket::bind(&address)?;
    println!("echoes TCP and UDP at {}", listener.local_addr()?);
    heddle::spawn(move || datagrams(&socket));
    loop {
        match listener.accept() {
            Ok((stream, _)) => drop(heddle::spawn(move || echo(stream))),
            Err(error) => eprintln!("accept: {error}"),
        }
    }
}

/// Sends back what comes, until the client has no more or goes away.
fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buf = [0; 16 << 10];
    loop {
        match stream.read(&mut buf)? {
            0 => return Ok(()),
            count => stream.write_all(&buf[..count])?,
        }
    }
}

fn datagrams(socket: &UdpSocket) -> io::Result<()> {
    let mut buf = [0; 64 << 10];
    loop {
        let (length, peer) = socket.recv_from(&mut buf)?;
        socket.send_to(&buf[..length], peer)?;
    }
}
