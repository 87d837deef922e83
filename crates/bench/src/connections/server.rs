//! The server: a separate process with one worker, so that each run starts with fresh memory.

use super::System;
use super::client::WORD;
use super::limits;
use heddle::net::{TcpListener, TcpStream};
use std::io::{self, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::time::Duration;

/// No read waits this long in a successful run; each sets its time limit all the same.
const READ_LIMIT: Duration = Duration::from_secs(60);

/// Bytes of a task's stack.
const STACK: usize = 64 << 10;

/// Serves up to `connections` connections on this CPU until standard input ends. Prints `port N` when it is ready.
///
/// # Errors
/// System errors: no port, memory or descriptors.
pub fn serve(system: System, connections: usize, cpu: u32) -> io::Result<()> {
    limits::raise(connections)?;
    heddle_sys::thread::pin(&[cpu])?;
    match system {
        System::Heddle => heddle_server(),
        System::Tokio => tokio_server(),
    }
}

fn announce_and_wait(port: u16) -> io::Result<()> {
    println!("port {port}");
    io::copy(&mut io::stdin(), &mut io::sink())?;
    // The process exits without closing connections one by one.
    std::process::exit(0);
}

fn heddle_server() -> io::Result<()> {
    let runtime = heddle::Runtime::builder().workers(1).build().map_err(io::Error::other)?;
    let port = runtime.run(|| {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let port = listener.local_addr()?.port();
        heddle::spawn(move || accept_all(&listener));
        io::Result::Ok(port)
    })?;
    announce_and_wait(port)
}

fn accept_all(listener: &TcpListener) {
    while let Ok((stream, _)) = listener.accept() {
        let task = heddle::Builder::new().stack_size(STACK);
        drop(task.spawn(move || echo(stream)).expect("memory for a task"));
    }
}

/// Ends with the connection.
fn echo(mut stream: TcpStream) {
    let mut word = [0; WORD];
    if stream.set_read_timeout(Some(READ_LIMIT)).is_err() {
        return;
    }
    while stream.read_exact(&mut word).is_ok() && stream.write_all(&word).is_ok() {}
}

fn tokio_server() -> io::Result<()> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
    let port = listener.local_addr()?.port();
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(tokio_echo(stream));
        }
    });
    announce_and_wait(port)
}

async fn tokio_echo(mut stream: tokio::net::TcpStream) {
    // Here alone: Heddle's sockets may have these functions, too (its feature `tokio-io`).
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let mut word = [0; WORD];
    while let Ok(Ok(_)) = tokio::time::timeout(READ_LIMIT, stream.read_exact(&mut word)).await {
        if stream.write_all(&word).await.is_err() {
            break;
        }
    }
}
