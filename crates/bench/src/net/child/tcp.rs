//! Requests and answers on many connections.

use super::epoll::Epoll;
use super::window::Window;
use super::{Client, Job, SIZE, announce_and_wait, server_runtime};
use crate::connections::raise_descriptors;
use crate::net::measured::Measured;
use crate::net::system::System;
use heddle_netns::NEAR4;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

/// Connections of a server at most.
const MOST: usize = 11_000;

/// Bytes of a task's stack.
const STACK: usize = 64 << 10;

/// Returns what it reads.
pub(super) fn serve(job: &Job) -> io::Result<()> {
    raise_descriptors(MOST)?;
    match job.system {
        System::Plain => serve_plain(),
        System::Kernel | System::Xdp => serve_by_runtime(job),
    }
}

fn serve_by_runtime(job: &Job) -> io::Result<()> {
    let runtime = server_runtime(job)?;
    let listener = runtime.run(|| heddle::net::TcpListener::bind((NEAR4, 0)))?;
    let port = listener.local_addr()?.port();
    drop(runtime.spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let task = heddle::Builder::new().stack_size(STACK);
            drop(task.spawn(move || echo(stream)).expect("memory for a task"));
        }
    }));
    announce_and_wait(port)
}

/// Ends with the connection.
fn echo(mut stream: heddle::net::TcpStream) {
    let mut word = [0; SIZE];
    if stream.set_nodelay(true).is_err() {
        return;
    }
    while stream.read_exact(&mut word).is_ok() && stream.write_all(&word).is_ok() {}
}

/// One thread and an epoll instance.
fn serve_plain() -> io::Result<()> {
    let listener = TcpListener::bind((NEAR4, 0))?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        let error = serve_events(&listener).unwrap_err();
        eprintln!("the TCP server: {error}");
    });
    announce_and_wait(port)
}

fn serve_events(listener: &TcpListener) -> io::Result<std::convert::Infallible> {
    let (mut epoll, mut streams) = (Epoll::new()?, Vec::<Option<TcpStream>>::new());
    listener.set_nonblocking(true)?;
    epoll.add(listener, usize::MAX)?;
    loop {
        let (mut accepted, mut word) = (false, [0; SIZE]);
        epoll.wait(|number| {
            if number == usize::MAX {
                accepted = true;
                return Ok(());
            }
            let Some(mut stream) = streams[number].as_ref() else { return Ok(()) };
            let is_over = match stream.read(&mut word) {
                Ok(0) => true,
                Ok(length) => stream.write_all(&word[..length]).is_err(),
                Err(error) => error.kind() != ErrorKind::WouldBlock,
            };
            if is_over {
                streams[number] = None;
            }
            Ok(())
        })?;
        while let Some(stream) = accept_next(listener).filter(|_| accepted) {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll.add(&stream, streams.len())?;
            streams.push(Some(stream));
        }
    }
}

fn accept_next(listener: &TcpListener) -> Option<TcpStream> {
    listener.accept().ok().map(|(stream, _)| stream)
}

/// Accepts connections without a task for each, and keeps them.
pub(super) fn keep(job: &Job) -> io::Result<()> {
    raise_descriptors(MOST)?;
    let runtime = server_runtime(job)?;
    let listener = runtime.run(|| heddle::net::TcpListener::bind((NEAR4, 0)))?;
    let port = listener.local_addr()?.port();
    drop(runtime.spawn(move || {
        // Before anything is measured: the vector must not grow.
        let mut kept = Vec::with_capacity(MOST);
        while let Ok((mut stream, _)) = listener.accept() {
            // The client's word, so that each connection has been used.
            let mut word = [0; SIZE];
            if stream.read_exact(&mut word).and_then(|()| stream.write_all(&word)).is_ok() {
                kept.push(stream);
            }
        }
    }));
    announce_and_wait(port)
}

struct Connection {
    stream: TcpStream,
    since: Instant,
    missing: usize,
}

/// Has a request in flight on each of `count` connections, from one thread.
pub(super) fn ask(client: &Client, count: usize) -> io::Result<Measured> {
    raise_descriptors(count)?;
    let mut epoll = Epoll::new()?;
    let mut connections = (0..count)
        .map(|number| {
            let stream = connect(client, number)?;
            stream.set_nonblocking(true)?;
            epoll.add(&stream, number)?;
            Ok(Connection { stream, since: Instant::now(), missing: 0 })
        })
        .collect::<io::Result<Vec<_>>>()?;
    let mut window = Window::open(client);
    connections.iter_mut().try_for_each(|connection| request(connection, Instant::now()))?;
    let mut now = Instant::now();
    while window.is_open(now)? {
        epoll.wait(|number| {
            let connection = &mut connections[number];
            if answer(connection)? {
                now = Instant::now();
                window.answered(connection.since, now);
                request(connection, now)?;
            }
            Ok(())
        })?;
        now = Instant::now();
    }
    window.close()
}

/// Opens connection `number`.
pub(in crate::net) fn connect(client: &Client, number: usize) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(client.target).map_err(|error| {
        let text = format!("connection {} to {}: {error}", number + 1, client.target);
        io::Error::new(error.kind(), text)
    })?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn request(connection: &mut Connection, now: Instant) -> io::Result<()> {
    (connection.since, connection.missing) = (now, SIZE);
    connection.stream.write_all(&[7; SIZE])
}

/// Reads what has arrived. True if the answer is whole.
fn answer(connection: &mut Connection) -> io::Result<bool> {
    let mut word = [0; SIZE];
    match connection.stream.read(&mut word[..connection.missing]) {
        Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed a connection")),
        Ok(length) => {
            connection.missing -= length;
            Ok(connection.missing == 0)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}
