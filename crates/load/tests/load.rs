//! The load generator over real sockets, against servers in this process.

use heddle_core::Ns;
use heddle_load::{LoadOptions, LoadRun, Op, Pace, Shape, Wire, measure, unloaded_service};
use heddle_proto::udp::{Request, Response, Status};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Answers every datagram except each `lose_every`th, until dropped.
struct EchoServer {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl EchoServer {
    fn start(lose_every: u64, status: Status) -> EchoServer {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let addr = socket.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || serve(&socket, &stopped, lose_every, status));
        EchoServer { addr, stop, thread: Some(thread) }
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(thread::JoinHandle::join);
    }
}

fn serve(socket: &UdpSocket, stop: &AtomicBool, lose_every: u64, status: Status) {
    let mut buffer = [0; 2048];
    let mut seen = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
        let request = Request::decode(&buffer[..len]).unwrap();
        seen += 1;
        if lose_every > 0 && seen % lose_every == 0 {
            continue;
        }
        let response = Response {
            op: request.op,
            status,
            id: request.id,
            sent: request.sent,
            count: request.count,
            service: Ns::from_us(3),
            queued: Ns::ZERO,
            bytes: 0,
            digest: 0,
        };
        socket.send_to(&response.encode(), from).unwrap();
    }
}

fn options(target: SocketAddr, wire: Wire) -> LoadOptions {
    LoadOptions {
        target,
        wire,
        mix: "get=80,scan=10,set=10".parse().unwrap(),
        shape: Shape::new(1000, 10, 8),
        duration: Ns::from_ms(300),
        warmup: Ns::from_ms(100),
        timeout: Ns::from_ms(500),
        seed: 7,
        pace: Pace::Sleep,
    }
}

#[test]
fn every_answer_of_an_echo_server_is_counted() {
    let server = EchoServer::start(0, Status::Ok);
    let options = options(server.addr, Wire::Udp);
    let unloaded = unloaded_service(&options).unwrap();
    assert_eq!(unloaded, [Some(Ns::from_us(3)); 3]);
    let run = measure(&options, 2_000.0, unloaded, |_| true).unwrap();
    let counts = run.tally.counts();
    assert!(counts.due > 400, "about 600 fell due: {}", run.summary());
    assert_eq!((counts.lost, counts.failed, run.tally.stray), (0, 0, 0));
    for op in Op::ALL {
        let of = run.tally.op(op);
        assert!(of.sent > 0);
        assert_eq!((of.latency.count(), of.slowdown.count()), (of.sent, of.sent));
        assert_eq!(of.service.max(), Ns::from_us(3));
    }
}

#[test]
fn lost_datagrams_make_the_run_invalid() {
    let server = EchoServer::start(5, Status::Ok);
    let run = measure(&options(server.addr, Wire::Udp), 1_000.0, [None; 3], |_| true).unwrap();
    assert!(run.tally.counts().lost > 0);
    assert!(run.invalid().unwrap().contains("got no answer"));
}

#[test]
fn errors_are_failures_and_never_latencies() {
    let server = EchoServer::start(0, Status::NotFound);
    let options = options(server.addr, Wire::Udp);
    assert!(unloaded_service(&options).unwrap_err().to_string().contains("--keys"));
    let run = measure(&options, 1_000.0, [None; 3], |_| true).unwrap();
    assert_eq!(run.tally.op(Op::Get).latency.count(), 0);
    assert!(run.invalid().unwrap().contains("answered with an error"));
}

#[test]
fn a_port_without_a_listener_is_named() {
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = unloaded_service(&options(free, Wire::Udp)).unwrap_err().to_string();
    assert!(error.contains(&free.to_string()) && error.contains("heddle kv serve"), "{error}");
}

#[test]
fn watching_can_end_a_run() {
    let server = EchoServer::start(0, Status::Ok);
    let options = LoadOptions { duration: Ns::from_secs(600), ..options(server.addr, Wire::Udp) };
    let run = measure(&options, 1_000.0, [None; 3], |m| m.now < Ns::from_ms(300)).unwrap();
    assert!(run.tally.interrupted_at.is_some());
    assert!(run.window < Ns::from_secs(600));
    assert_eq!(run.invalid().unwrap().rsplit("; ").next(), Some("interrupted"));
}

/// Commands of three or four bulk strings: counts lines, answers `+OK`.
fn serve_resp(listener: &TcpListener, connections: usize) {
    for stream in listener.incoming().take(connections) {
        let stream = stream.unwrap();
        thread::spawn(move || {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut stream = stream;
            while let Some(Ok(head)) = lines.next() {
                let parts: usize = head[1..].parse().unwrap();
                (0..2 * parts).for_each(|_| drop(lines.next()));
                if stream.write_all(b"$2\r\nok\r\n").is_err() {
                    return;
                }
            }
        });
    }
}

#[test]
fn resp_over_several_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = thread::spawn(move || serve_resp(&listener, 3));
    let run = measure(&options(addr, Wire::Resp { connections: 3 }), 1_000.0, [None; 3], |_| true);
    let run = run.unwrap();
    assert_eq!((run.tally.counts().lost, run.tally.counts().failed), (0, 0), "{}", run.summary());
    assert!(run.tally.op(Op::Get).latency.count() > 100);
    server.join().unwrap();
}

/// GETs find two bytes, SETs store.
fn serve_memcached(listener: &TcpListener, connections: usize) {
    for stream in listener.incoming().take(connections) {
        let mut stream = stream.unwrap();
        thread::spawn(move || {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while let Some(Ok(line)) = lines.next() {
                let answer = match line.strip_prefix("get ") {
                    Some(key) => format!("VALUE {key} 0 2\r\nok\r\nEND\r\n"),
                    None => {
                        assert!(line.starts_with("set key:") && line.ends_with(" 0 0 8"), "{line}");
                        lines.next();
                        "STORED\r\n".into()
                    }
                };
                if stream.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
        });
    }
}

#[test]
fn memcached_over_several_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = thread::spawn(move || serve_memcached(&listener, 3));
    let options = options(addr, Wire::Memcached { connections: 3 });
    assert!(options.check(1.0).unwrap_err().to_string().contains("no SCAN"));
    let options = LoadOptions { mix: "get=80,set=20".parse().unwrap(), ..options };
    let run = measure(&options, 1_000.0, [None; 3], |_| true).unwrap();
    assert_eq!((run.tally.counts().lost, run.tally.counts().failed), (0, 0), "{}", run.summary());
    assert!(run.tally.op(Op::Get).latency.count() > 50 && run.tally.op(Op::Set).sent > 0);
    server.join().unwrap();
}

/// GETs of even keys are found, of odd ones not; scans come in chunks. One request at a time on each connection.
fn serve_http(listener: &TcpListener, connections: usize, held: Duration) {
    thread::scope(|all| {
        for stream in listener.incoming().take(connections) {
            let mut stream = stream.unwrap();
            all.spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while let Some(Ok(first)) = lines.next() {
                    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {
                    }
                    thread::sleep(held);
                    if stream.write_all(http_answer(&first)).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

fn http_answer(request: &str) -> &'static [u8] {
    let target = request.strip_prefix("GET /").unwrap().strip_suffix(" HTTP/1.1").unwrap();
    match target.split_once('/').unwrap() {
        ("scan", rest) => {
            assert!(rest.ends_with("?count=10"), "{rest}");
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        }
        ("get", id) if id.parse::<u64>().unwrap().is_multiple_of(2) => {
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
        }
        _ => b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found",
    }
}

fn over_http(mix: &str, connections: usize, held: Duration) -> LoadRun {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = thread::spawn(move || serve_http(&listener, connections, held));
    let options = options(addr, Wire::Http { connections });
    let options = LoadOptions { mix: mix.parse().unwrap(), warmup: Ns::ZERO, ..options };
    let run = measure(&options, 1_000.0, [None; 3], |_| true).unwrap();
    server.join().unwrap();
    run
}

#[test]
fn http_over_several_connections() {
    let run = over_http("get=80,scan=20", 8, Duration::ZERO);
    let counts = run.tally.counts();
    assert_eq!((counts.lost, run.tally.stray), (0, 0), "{}", run.summary());
    let (get, scan) = (run.tally.op(Op::Get), run.tally.op(Op::Scan));
    assert!(scan.sent > 0 && (scan.latency.count(), scan.failed) == (scan.sent, 0));
    // Half of the keys are missing.
    assert!(get.failed > 0 && get.latency.count() > 0);
    assert_eq!(get.latency.count() + get.failed, get.sent);
}

/// One connection to a server that holds each request for 10 ms, and a thousand requests a second: nearly all
/// wait in the client, which is reported as such, and their latencies grow from their due times.
#[test]
fn too_few_connections_show_in_latency_and_in_the_verdict() {
    let run = over_http("scan=1", 1, Duration::from_millis(10));
    let scan = run.tally.op(Op::Scan);
    assert!(scan.sent <= 100, "the connection takes at most that many: {}", run.summary());
    assert!(scan.crowded > 100 && scan.crowded <= scan.late, "{}", run.summary());
    assert!(scan.latency.max() >= Ns::from_ms(50), "{}", scan.latency.max());
    assert!(run.invalid().unwrap().contains("waited for a free connection"));
}

#[test]
fn there_is_no_set_over_http() {
    let options = options("127.0.0.1:9".parse().unwrap(), Wire::Http { connections: 1 });
    assert!(options.check(1.0).unwrap_err().to_string().contains("no SET over HTTP"));
}
