//! The program under test: services over `heddle::net`. It knows nothing of lanes, but for what it reports to the test.

use super::scenarios::{pattern, summary};
use heddle::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use heddle::{Runtime, spawn};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Sends back what comes, by TCP and UDP.
pub const ECHO: u16 = 7001;
/// Reads to the end, then answers with the summary of what came.
pub const SINK: u16 = 7002;
/// Reads a length on a line, sends so many bytes of the pattern, and closes.
pub const SOURCE: u16 = 7003;
/// Keeps files: PUT and GET of HTTP.
pub const FILES: u16 = 8080;
/// Answers some commands of Redis.
pub const REDIS: u16 = 6379;

type Io = std::io::Result<()>;

/// Serves in the network that the environment names, and obeys standard input until it ends.
pub fn serve() {
    let runtime: &Runtime = Box::leak(Box::new(Runtime::builder().build().unwrap()));
    runtime.run(|| {
        listen(ECHO, echo);
        listen(SINK, sink);
        listen(SOURCE, source);
        listen(FILES, files);
        listen(REDIS, redis);
        let socket = UdpSocket::bind(("::", ECHO)).unwrap();
        spawn(move || echo_datagrams(&socket));
    });
    println!("\nready");
    for order in std::io::stdin().lines() {
        obey(runtime, order.unwrap().split_whitespace().collect::<Vec<_>>().as_slice());
        println!("\ndone");
    }
}

fn listen(port: u16, service: fn(TcpStream) -> Io) {
    let listener = TcpListener::bind(("::", port)).unwrap();
    spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            // An error is a client's end.
            spawn(move || drop(service(stream)));
        }
    });
}

fn echo(stream: TcpStream) -> Io {
    std::io::copy(&mut &stream, &mut &stream)?;
    stream.shutdown(Shutdown::Write)
}

fn sink(mut stream: TcpStream) -> Io {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    stream.write_all(summary(&bytes).as_bytes())
}

fn source(mut stream: TcpStream) -> Io {
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    let length = line.trim().parse().map_err(std::io::Error::other)?;
    stream.write_all(&pattern(length))
}

fn echo_datagrams(socket: &UdpSocket) {
    let mut buf = vec![0; 65_536];
    while let Ok((length, peer)) = socket.recv_from(&mut buf) {
        // As the network does: what cannot be sent is lost.
        let _ = socket.send_to(&buf[..length], peer);
    }
}

static STORE: Mutex<Option<HashMap<String, Arc<Vec<u8>>>>> = Mutex::new(None);

/// Serves requests of HTTP/1.1 until the client closes.
fn files(stream: TcpStream) -> Io {
    let mut input = BufReader::new(&stream);
    while let Some((method, name, length, waits)) = head(&mut input)? {
        if waits {
            (&stream).write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let mut body = vec![0; length];
        input.read_exact(&mut body)?;
        let mut store = STORE.lock().unwrap_or_else(PoisonError::into_inner);
        let store = store.get_or_insert_default();
        let (status, file) = match (method.as_str(), store.get(&name)) {
            ("PUT", _) => ("201 Created", store.insert(name, Arc::new(body)).map(drop).and(None)),
            ("GET", Some(file)) => ("200 OK", Some(Arc::clone(file))),
            _ => ("404 Not Found", None),
        };
        let file = file.unwrap_or_default();
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", file.len());
        (&stream).write_all(head.as_bytes())?;
        (&stream).write_all(&file)?;
    }
    Ok(())
}

/// Reads a head: method, path, length of the body, and whether the client waits before it sends that.
fn head(
    input: &mut impl std::io::BufRead,
) -> std::io::Result<Option<(String, String, usize, bool)>> {
    let mut first = String::new();
    if input.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut words = first.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (mut length, mut waits) = (0, false);
    loop {
        let mut line = String::new();
        input.read_line(&mut line)?;
        let line = line.trim().to_ascii_lowercase();
        match line.split_once(':') {
            None if line.is_empty() => return Ok(Some((method, path, length, waits))),
            Some(("content-length", text)) => length = text.trim().parse().unwrap_or(0),
            Some(("expect", _)) => waits = true,
            _ => {}
        }
    }
}

/// Answers PING, SET and GET of RESP, several at a time.
fn redis(stream: TcpStream) -> Io {
    let (mut input, mut answers) = (BufReader::new(&stream), Vec::new());
    while let Some(command) = resp_command(&mut input)? {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let mut store = STORE.lock().unwrap_or_else(PoisonError::into_inner);
        let store = store.get_or_insert_default();
        match words.as_slice() {
            ["PING"] => answers.extend(b"+PONG\r\n"),
            ["SET", key, value] => {
                store.insert((*key).to_owned(), Arc::new(value.as_bytes().to_vec()));
                answers.extend(b"+OK\r\n");
            }
            ["GET", key] => match store.get(*key) {
                None => answers.extend(b"$-1\r\n"),
                Some(value) => {
                    answers.extend(format!("${}\r\n", value.len()).as_bytes());
                    answers.extend(value.iter().chain(b"\r\n"));
                }
            },
            _ => answers.extend(b"-ERR unknown command\r\n"),
        }
        if input.buffer().is_empty() {
            (&stream).write_all(&answers)?;
            answers.clear();
        }
    }
    Ok(())
}

/// Reads an array of strings; `None` at the end.
fn resp_command(input: &mut impl std::io::BufRead) -> std::io::Result<Option<Vec<String>>> {
    let number = |input: &mut dyn std::io::BufRead| {
        let mut line = String::new();
        input.read_line(&mut line)?;
        let number = line.trim().get(1..).unwrap_or_default().parse::<usize>();
        Ok::<_, std::io::Error>(number.ok())
    };
    let Some(count) = number(input)? else { return Ok(None) };
    let mut words = Vec::new();
    for _ in 0..count {
        let mut word = vec![0; number(input)?.unwrap_or(0) + 2];
        input.read_exact(&mut word)?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Ok(Some(words))
}

/// What the test may order. Answers are lines of a name and a number.
fn obey(runtime: &'static Runtime, order: &[&str]) {
    match order {
        ["counters"] => counters(runtime),
        // As a client: sends `length` bytes to an echo service, and gets them back.
        ["echo", to, length] => {
            let (to, length): (SocketAddr, _) = (to.parse().unwrap(), length.parse().unwrap());
            runtime
                .run(move || super::scenarios::both_ways(TcpStream::connect(to), &pattern(length)));
        }
        // As a client: opens, uses and closes connections to an echo service.
        ["connections", to, count] => {
            let (to, count): (SocketAddr, usize) = (to.parse().unwrap(), count.parse().unwrap());
            runtime.run(move || clients(to, count));
        }
        // A child that drops a listener and a connection, then ends.
        ["fork"] => runtime.run(super::fork::child_that_drops_its_sockets),
        _ => panic!("unknown order {order:?}"),
    }
}

/// Opens, uses and closes connections, some at a time.
fn clients(to: SocketAddr, count: usize) {
    let client = move || {
        for number in 0..count / 16 {
            super::scenarios::both_ways(TcpStream::connect(to), &pattern(1 + number % 100));
        }
    };
    let clients: Vec<_> = (0..16).map(|_| spawn(client)).collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
}

fn counters(runtime: &Runtime) {
    let net = runtime.network().unwrap();
    let (mut bad_checksum, mut strays) = (0, 0);
    let mut tcp = heddle::netstack::TcpCounters::default();
    let mut losses = heddle::netstack::wire::Losses::default();
    let (mut connections, mut records, mut unroutable, mut received) = (0, 0, 0, 0);
    let mut large = 0;
    let mut frames = heddle::netstack::wire::FrameCounts::default();
    for lane in net.lanes() {
        let snapshot = lane.counters();
        tcp.add(&snapshot.tcp);
        losses += snapshot.losses;
        unroutable += snapshot.packets.tcp_unroutable;
        received += snapshot.packets.frames;
        large += snapshot.packets.tcp_large;
        bad_checksum += snapshot.packets.bad_checksum;
        strays += snapshot.packets.strays_taken;
        frames += lane.frames();
        let known = lane.connections();
        // Those in TIME_WAIT are records.
        let open = known.iter().filter(|connection| connection.id.is_some()).count();
        connections += open as u64;
        records += (known.len() - open) as u64;
    }
    tcp.iter().for_each(|(name, count)| println!("{name}={count}"));
    let lost = [
        ("dropped", losses.dropped),
        ("receive_full", losses.receive_full),
        ("no_empty_frame", losses.no_empty_frame),
        ("send_full", losses.send_full),
        ("refused", losses.refused),
        ("invalid", losses.invalid),
    ];
    lost.iter().for_each(|(name, count)| println!("lost_{name}={count}"));
    println!("bad_checksum={bad_checksum}\nstrays={strays}");
    let rest = [
        ("connections", connections),
        ("records", records),
        ("unroutable", unroutable),
        ("received", received),
        ("large", large),
    ];
    rest.iter().for_each(|(name, count)| println!("{name}={count}"));
    let frames = [
        ("all", frames.all),
        ("filling", frames.filling),
        ("sending", frames.sending),
        ("free", frames.free),
        // Each lane counts all frames of its queues, but only its own reserve.
        ("reserved", frames.reserved * net.lanes().len() as u32),
    ];
    frames.iter().for_each(|(name, count)| println!("frames_{name}={count}"));
    for (name, count) in net.steering().counts().unwrap() {
        println!("steering_{name}={count}");
    }
    println!("memory={}", resident());
}

/// Returns the process's resident memory in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
