//! One UDP socket, one receiver, four threads: a policy says which thread answers.
//!
//! `cargo run -p heddle-steer --example dispatcher [POLICY] [PORT]`, for example
//! `sita:type-offset=0,scan=76` (`L` is 76), `jiq`, or your own file, `./mine.c`. Datagrams that begin with
//! `L` take 100 ms, others none:
//! `for i in 1 2 3; do echo Long | nc -u -w1 127.0.0.1 PORT & echo short | nc -u -w1 127.0.0.1 PORT; done`

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use heddle_steer::native::{Dispatcher, NativePolicy, Sent, Worker, input};
use heddle_steer::policy::split_params;

type Request = (Vec<u8>, SocketAddr);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let policy = arguments.next().unwrap_or_else(|| "jiq".into());
    let port: u16 = arguments.next().map_or(Ok(0), |port| port.parse())?;
    let (name, params) = split_params(&policy);
    let policy = match name.contains('/') {
        true => NativePolicy::compile(Path::new(name), params)?,
        false => NativePolicy::shipped(name, params)?,
    };
    let socket = Arc::new(UdpSocket::bind(("127.0.0.1", port))?);
    println!("{} answers by {name}", socket.local_addr()?);
    let (dispatcher, workers) = Dispatcher::new(policy, 4, 256);
    for worker in workers {
        let socket = socket.clone();
        thread::spawn(move || serve(&worker, &socket));
    }
    receive(dispatcher, &socket)
}

fn receive(
    mut dispatcher: Dispatcher<Request>,
    socket: &UdpSocket,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut buffer = [0; 2048];
    loop {
        let (length, from) = socket.recv_from(&mut buffer)?;
        let payload = &buffer[..length];
        let mut input = input(payload);
        input.hash = u32::from(from.port());
        if let Sent::Full(worker, _) = dispatcher.send(&mut input, (payload.to_vec(), from)) {
            eprintln!("the ring of thread {worker} is full: {:?}", dispatcher.counts());
        }
    }
}

fn serve(worker: &Worker<Request>, socket: &UdpSocket) {
    while let Some((payload, from)) = worker.next() {
        worker.mark(1 + u32::from(payload.first() == Some(&b'L')));
        if payload.first() == Some(&b'L') {
            thread::sleep(Duration::from_millis(100));
        }
        worker.mark(0);
        let answer = format!("thread {}: {}", worker.index(), String::from_utf8_lossy(&payload));
        // The client may have gone.
        let _ = socket.send_to(answer.as_bytes(), from);
    }
}
