//! One stream in one direction.

use super::tcp::connect;
use super::window::Window;
use super::{Client, Job, announce_and_wait, server_runtime};
use crate::net::measured::Measured;
use crate::net::system::System;
use heddle_netns::NEAR4;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Bytes of a call.
const CHUNK: usize = 64 << 10;
/// How long a call may wait, so that the end of a window is seen.
const WAIT: Duration = Duration::from_millis(20);

/// The first byte of a connection: the client sends.
const SENDS: u8 = b's';
/// The client receives.
const RECEIVES: u8 = b'r';

/// Receives or sends, as the client asks; the kernel's sockets by `congestion_control`, if not the default.
pub(super) fn serve(job: &Job, congestion_control: Option<&str>) -> io::Result<()> {
    if job.system == System::Plain {
        let listener = kernel_listener(congestion_control)?;
        let port = listener.local_addr()?.port();
        std::thread::spawn(move || {
            listener.incoming().for_each(|stream| drop(stream.map(carry)));
        });
        announce_and_wait(port);
    }
    let runtime = server_runtime(job)?;
    let kernel = (job.system == System::Kernel).then(|| kernel_listener(congestion_control));
    let kernel = kernel.transpose()?;
    let listener = runtime.run(|| match kernel {
        Some(listener) => heddle::net::TcpListener::from_std(listener),
        None => heddle::net::TcpListener::bind((NEAR4, 0)),
    })?;
    let port = listener.local_addr()?.port();
    drop(runtime.spawn(move || {
        listener.incoming().for_each(|stream| drop(stream.map(carry)));
    }));
    announce_and_wait(port)
}

/// A listener whose connections inherit `congestion_control`.
fn kernel_listener(congestion_control: Option<&str>) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((NEAR4, 0))?;
    if let Some(name) = congestion_control {
        rustix::net::sockopt::set_tcp_congestion(&listener, name).map_err(|error| {
            io::Error::other(format!("the kernel has no congestion control `{name}`: {error}"))
        })?;
    }
    Ok(listener)
}

/// Serves a connection until its end.
fn carry(mut stream: impl Read + Write) {
    let (mut direction, mut bytes) = ([0], vec![0; CHUNK]);
    if stream.read_exact(&mut direction).is_err() {
        return;
    }
    match direction[0] {
        SENDS => while stream.read(&mut bytes).is_ok_and(|count| count > 0) {},
        _ => while stream.write_all(&bytes).is_ok() {},
    }
}

/// Sends to the server. What fills buffers was sent before the window opens.
pub(super) fn send(client: &Client) -> io::Result<Measured> {
    let mut stream = connect(client, 0)?;
    stream.set_write_timeout(Some(WAIT))?;
    stream.write_all(&[SENDS])?;
    let bytes = vec![0; CHUNK];
    carried(client, || stream.write(&bytes))
}

/// Receives from the server.
pub(super) fn receive(client: &Client) -> io::Result<Measured> {
    let mut stream = connect(client, 0)?;
    stream.set_read_timeout(Some(WAIT))?;
    stream.write_all(&[RECEIVES])?;
    let mut bytes = vec![0; CHUNK];
    carried(client, || stream.read(&mut bytes))
}

fn carried(client: &Client, mut some: impl FnMut() -> io::Result<usize>) -> io::Result<Measured> {
    let mut window = Window::open(client);
    while window.is_open(Instant::now())? {
        match some() {
            Ok(0) => {
                return Err(io::Error::new(
                    ErrorKind::UnexpectedEof,
                    "the server closed the stream",
                ));
            }
            Ok(count) => window.carried(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    window.close()
}
