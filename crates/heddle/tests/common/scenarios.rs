//! What clients do with the server. They use the kernel's sockets, and check each byte.

use super::HANG;
use super::server::{ECHO, SINK, SOURCE};
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// How much each scenario does.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Bytes of a stream.
    pub bytes: usize,
    pub requests: usize,
    pub connections: usize,
}

/// Runs all at the same time, in the calling thread's network.
pub fn all(server: IpAddr, scale: Scale) {
    let scenarios: [&(dyn Fn() + Sync); 5] = [
        &|| stream(server, scale.bytes),
        &|| requests(server, scale.requests),
        &|| half_close(server, scale.bytes / 4),
        &|| slow_reader(server, scale.bytes / 4),
        &|| open_and_close(server, scale.connections, 32),
    ];
    thread::scope(|scope| {
        let running = scenarios.map(|scenario| scope.spawn(scenario));
        running.into_iter().for_each(|scenario| scenario.join().unwrap());
    });
}

/// Bytes that are different wherever they are cut.
pub fn pattern(length: usize) -> Vec<u8> {
    let word = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..length as u64).map(word).collect()
}

/// The length and a hash (FNV-1a) of bytes.
pub fn summary(bytes: &[u8]) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{} {:x}", bytes.len(), bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

#[track_caller]
pub fn connect(server: IpAddr, port: u16) -> TcpStream {
    with_limits(TcpStream::connect((server, port)).unwrap())
}

fn with_limits(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream.set_write_timeout(Some(HANG)).unwrap();
    stream
}

/// A stream goes both ways at the same time.
pub fn stream(server: IpAddr, length: usize) {
    let mut client = connect(server, ECHO);
    let mut sender = client.try_clone().unwrap();
    let text = pattern(length);
    let sent = text.clone();
    let sends = thread::spawn(move || {
        sender.write_all(&sent).unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    sends.join().unwrap();
    assert!(received == text, "{} of {length} bytes", received.len());
}

/// Sends `text` to an echo service in pieces, and expects each back.
pub fn both_ways<S: Read + Write>(stream: std::io::Result<S>, text: &[u8]) {
    let mut stream = stream.unwrap();
    for piece in text.chunks(50_000) {
        stream.write_all(piece).unwrap();
        let mut back = vec![0; piece.len()];
        stream.read_exact(&mut back).unwrap();
        assert!(back == piece);
    }
}

/// Requests of any length, each after the last one's answer.
pub fn requests(server: IpAddr, count: usize) {
    let mut client = connect(server, ECHO);
    client.set_nodelay(true).unwrap();
    for round in 0..count {
        let question = pattern(1 + round * 37 % 3_000);
        client.write_all(&question).unwrap();
        let mut answer = vec![0; question.len()];
        client.read_exact(&mut answer).unwrap();
        assert!(answer == question, "request {round}");
    }
}

/// The answer comes after the client has ended its side.
pub fn half_close(server: IpAddr, length: usize) {
    let mut client = connect(server, SINK);
    let text = pattern(length);
    client.write_all(&text).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, summary(&text));
}

/// A client with a small window that reads now and then, so that the window closes.
pub fn slow_reader(server: IpAddr, length: usize) {
    let address = SocketAddr::new(server, SOURCE);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut client = with_limits(socket.into());
    writeln!(client, "{length}").unwrap();
    let (mut received, mut buf) = (Vec::new(), vec![0; 16 << 10]);
    loop {
        thread::sleep(Duration::from_millis(2));
        match client.read(&mut buf).unwrap() {
            0 => break,
            count => received.extend_from_slice(&buf[..count]),
        }
    }
    assert!(received == pattern(length), "{} of {length} bytes", received.len());
}

/// Connections that are opened, used and closed: by the client, by the server, or by a reset.
pub fn open_and_close(server: IpAddr, count: usize, at_a_time: usize) {
    let next = AtomicUsize::new(0);
    let client = || {
        let numbers = std::iter::from_fn(|| Some(next.fetch_add(1, Relaxed)));
        let numbers = numbers.take_while(|number| *number < count);
        numbers.for_each(|number| one_connection(server, number));
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..at_a_time).map(|_| scope.spawn(client)).collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
}

fn one_connection(server: IpAddr, number: usize) {
    let text = number.to_be_bytes();
    match number % 3 {
        0 => {
            let mut client = connect(server, SOURCE);
            writeln!(client, "{}", 10 + number % 100).unwrap();
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            assert!(all == pattern(10 + number % 100), "connection {number}");
        }
        kind => {
            let mut client = connect(server, ECHO);
            client.write_all(&text).unwrap();
            let mut back = [0; 8];
            client.read_exact(&mut back).unwrap();
            assert_eq!(back, text, "connection {number}");
            if kind == 2 {
                SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
            }
        }
    }
}
