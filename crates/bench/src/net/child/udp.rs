//! Datagrams, there and back.

use super::window::Window;
use super::{Client, Job, SIZE, announce_and_wait, client_runtime, server_runtime};
use crate::net::measured::Measured;
use crate::net::system::{System, Waiting};
use heddle_netns::NEAR4;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// A datagram without an answer for this long is lost.
const PATIENCE: Duration = Duration::from_millis(500);

/// Returns every datagram to its sender.
pub(super) fn serve(job: &Job) -> io::Result<()> {
    match job.system {
        System::Plain => serve_plain(job.waiting),
        System::Kernel | System::Xdp => serve_by_runtime(job),
    }
}

fn serve_plain(waiting: Waiting) -> io::Result<()> {
    let socket = UdpSocket::bind((NEAR4, 0))?;
    socket.set_nonblocking(waiting == Waiting::Spin)?;
    let port = socket.local_addr()?.port();
    // The other thread only waits for standard input.
    std::thread::spawn(move || {
        let receive = |buf: &mut [u8]| socket.recv_from(buf);
        echo(receive, |buf, to| socket.send_to(buf, to), std::hint::spin_loop);
    });
    announce_and_wait(port)
}

fn serve_by_runtime(job: &Job) -> io::Result<()> {
    let runtime = server_runtime(job)?;
    let socket = runtime.run(|| heddle::net::UdpSocket::bind((NEAR4, 0)))?;
    let port = socket.local_addr()?.port();
    // The kernel's sockets are looked at by the task; lanes, by the worker (`spin=forever`).
    if (job.system, job.waiting) == (System::Kernel, Waiting::Spin) {
        socket.set_nonblocking(true)?;
    }
    drop(runtime.spawn(move || {
        let receive = |buf: &mut [u8]| socket.recv_from(buf);
        echo(receive, |buf, to| socket.send_to(buf, to), heddle::yield_now);
    }));
    announce_and_wait(port)
}

/// Echoes until an error; pauses if `receive` has no datagram.
fn echo(
    receive: impl Fn(&mut [u8]) -> io::Result<(usize, SocketAddr)>,
    send: impl Fn(&[u8], SocketAddr) -> io::Result<usize>,
    pause: impl Fn(),
) {
    let mut buf = [0; SIZE];
    loop {
        match receive(&mut buf) {
            // A datagram that cannot be sent is lost, which the client counts.
            Ok((length, peer)) => drop(send(&buf[..length], peer)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => pause(),
            Err(error) => return eprintln!("the UDP server: {error}"),
        }
    }
}

/// Has `in_flight` datagrams on their way.
pub(super) fn ask(job: &Job, client: &Client, in_flight: usize) -> io::Result<Measured> {
    if job.system != System::Plain {
        let (runtime, client) = (client_runtime(job)?, client.clone());
        return runtime.run(move || ask_by_runtime(&client, in_flight));
    }
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(client.target)?;
    match job.waiting {
        Waiting::Spin => socket.set_nonblocking(true)?,
        Waiting::Sleep => socket.set_read_timeout(Some(PATIENCE))?,
    }
    closed_loop(client, in_flight, |buf| socket.send(buf), |buf| socket.recv(buf))
}

fn ask_by_runtime(client: &Client, in_flight: usize) -> io::Result<Measured> {
    let socket = heddle::net::UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(client.target)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    closed_loop(client, in_flight, |buf| socket.send(buf), |buf| socket.recv(buf))
}

/// A datagram on its way. Its first bytes are its number and its place among those in flight.
#[derive(Clone, Copy)]
struct Request {
    number: u64,
    since: Instant,
}

impl Request {
    fn bytes(self, place: usize) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&self.number.to_ne_bytes());
        bytes[8..16].copy_from_slice(&place.to_ne_bytes());
        bytes
    }
}

/// Returns the number and the place in an answer.
fn parse(answer: &[u8; SIZE]) -> (u64, usize) {
    let word = |at: usize| u64::from_ne_bytes(answer[at..at + 8].try_into().expect("eight bytes"));
    (word(0), word(8) as usize)
}

/// Measures round trips. `receive` returns `WouldBlock` at once, or when it has waited for too long.
fn closed_loop(
    client: &Client,
    in_flight: usize,
    send: impl Fn(&[u8]) -> io::Result<usize>,
    receive: impl Fn(&mut [u8]) -> io::Result<usize>,
) -> io::Result<Measured> {
    let mut window = Window::open(client);
    let (mut number, mut answer, mut now) = (0, [0; SIZE], Instant::now());
    let mut requests = vec![Request { number, since: now }; in_flight];
    let mut ask = |requests: &mut [Request], place: usize, now: Instant| {
        number += 1;
        requests[place] = Request { number, since: now };
        send(&requests[place].bytes(place)).map(drop)
    };
    (0..in_flight).try_for_each(|place| ask(&mut requests, place, now))?;
    while window.is_open(now)? {
        let received = receive(&mut answer);
        now = Instant::now();
        match received {
            Ok(SIZE) => {
                let (number, place) = parse(&answer);
                // What comes after its time is ignored.
                let asked = requests.get(place).filter(|request| request.number == number);
                if let Some(&Request { since, .. }) = asked {
                    window.answered(since, now);
                    ask(&mut requests, place, now)?;
                }
            }
            Ok(length) => return Err(io::Error::other(format!("an answer of {length} bytes"))),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let is_late = |place: &usize| now - requests[*place].since >= PATIENCE;
                for place in (0..in_flight).filter(is_late).collect::<Vec<_>>() {
                    window.lost();
                    ask(&mut requests, place, now)?;
                }
            }
            Err(error) => return Err(error),
        }
    }
    window.close()
}
