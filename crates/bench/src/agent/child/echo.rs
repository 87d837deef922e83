//! A packet-processing service: worker threads that sleep until a message comes, process it and send it back.

use heddle_sys::clock;
use serde::{Deserialize, Serialize};
use std::io::{self, Read as _, Write as _};
use std::net::UdpSocket;
use std::thread::Builder;

/// Parameters of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EchoSpec {
    /// Worker threads, called `worker-N`, each with a socket.
    pub workers: usize,
}

/// What the service prints when it is ready, before the ports of its workers.
const READY: &str = "ready";
/// Where a message carries when a worker read it, in nanoseconds of the monotonic clock; before it is the sender's.
pub const READ_AT: std::ops::Range<usize> = 8..16;
/// Long messages that wait for a worker take most of it.
const BUFFER: usize = 4 << 20;
/// The longest message: what fits into a datagram on the loopback interface.
pub const LONGEST: usize = 65_507;

/// The workers' ports, if `line` says that the service is ready.
#[must_use]
pub fn ports(line: &str) -> Option<Vec<u16>> {
    let mut words = line.split(' ');
    (words.next() == Some(READY)).then(|| words.map_while(|word| word.parse().ok()).collect())
}

/// Serves until standard input ends.
///
/// # Errors
/// System errors.
pub fn echo(spec: EchoSpec) -> io::Result<u8> {
    let sockets: Vec<UdpSocket> =
        (0..spec.workers).map(|_| UdpSocket::bind(("127.0.0.1", 0))).collect::<io::Result<_>>()?;
    let mut words = vec![READY.to_owned()];
    for (k, socket) in sockets.into_iter().enumerate() {
        // Capped by the kernel.
        socket2::SockRef::from(&socket).set_recv_buffer_size(BUFFER)?;
        words.push(socket.local_addr()?.port().to_string());
        Builder::new().name(format!("worker-{k}")).spawn(move || work(&socket))?;
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{}", words.join(" "))?;
    out.flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(0)
}

fn work(socket: &UdpSocket) {
    let mut message = vec![0; LONGEST];
    let mut copy = Vec::with_capacity(LONGEST);
    // An error is the sender's, which is gone.
    loop {
        let Ok((length, sender)) = socket.recv_from(&mut message) else { continue };
        let now = clock::now();
        if length < READ_AT.end {
            continue;
        }
        message[READ_AT].copy_from_slice(&now.0.to_ne_bytes());
        process(&message[..length], &mut copy);
        let _ = socket.send_to(&copy, sender);
    }
}

/// Copies the message and computes its checksum, as a transport does.
fn process(message: &[u8], copy: &mut Vec<u8>) {
    copy.clear();
    copy.extend_from_slice(message);
    let words = copy.chunks_exact(2).map(|word| u64::from(u16::from_ne_bytes([word[0], word[1]])));
    std::hint::black_box(words.sum::<u64>());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_says_ready_has_the_ports() {
        assert_eq!(ports("ready 4711 12"), Some(vec![4711, 12]));
        assert_eq!(ports("using rt 4711"), None);
    }

    #[test]
    fn a_message_comes_back_with_the_time_of_its_reading() {
        let (worker, client) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        client.connect(worker.local_addr().unwrap()).unwrap();
        std::thread::spawn(move || work(&worker));
        let before = clock::now();
        client.send(&[7; 4]).unwrap();
        client.send(&[7; 64]).unwrap();
        let mut answer = [0; 100];
        assert_eq!(client.recv(&mut answer).unwrap(), 64, "a short message gets no answer");
        let at = u64::from_ne_bytes(answer[READ_AT].try_into().unwrap());
        assert!(before.0 <= at && at <= clock::now().0);
        assert_eq!((answer[0], answer[20]), (7, 7));
    }
}
