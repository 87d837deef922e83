//! Connections to a server that the test drives step by step.

use super::super::http::Http;
use super::super::mix::Op;
use super::super::resp::Resp;
use super::*;
use std::net::{Shutdown, TcpListener};
use std::time::Instant;

fn get(key: u64) -> Arrival {
    Arrival { at: Ns::ZERO, op: Op::Get, key }
}

/// A client and the peers of its connections, in opening order.
fn pair<D: Dialect>(connections: usize) -> (Streams<D>, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    let client = Streams::connect(server, connections, Shape::new(1000, 10, 8)).unwrap();
    let accept = |_| listener.accept().unwrap().0;
    (client, (0..connections).map(accept).collect())
}

/// What the server received on a connection, up to an empty line.
fn request(end: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        end.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

fn receive<D: Dialect>(client: &mut Streams<D>) -> io::Result<Answer> {
    let begin = Instant::now();
    loop {
        if let Some(answer) = client.receive()? {
            return Ok(answer);
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "no answer came");
        std::thread::yield_now();
    }
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn is_full<T>(sent: io::Result<T>) -> bool {
    sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[test]
fn an_http_connection_has_one_request_in_flight_and_any_idle_one_takes_the_next() {
    let (mut client, mut ends) = pair::<Http>(2);
    client.send(0, &get(7)).unwrap();
    client.send(1, &Arrival { op: Op::Scan, ..get(8) }).unwrap();
    assert!(is_full(client.send(2, &get(9))), "both are busy");
    assert!(request(&mut ends[0]).starts_with("GET /get/7 HTTP/1.1\r\nHost: "));
    assert!(request(&mut ends[1]).starts_with("GET /scan/8?count=10 HTTP/1.1\r\n"));
    // Half an answer frees nothing.
    ends[1].write_all(&OK[..20]).unwrap();
    assert_eq!(client.receive().unwrap(), None);
    assert!(is_full(client.send(2, &get(9))));
    ends[1].write_all(&OK[20..]).unwrap();
    assert_eq!(receive(&mut client).unwrap(), Answer { id: 1, ok: true, service: None, at: None });
    client.send(2, &get(9)).unwrap();
    assert!(request(&mut ends[1]).starts_with("GET /get/9 "), "the first is still busy");
    ends[1].write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap();
    let answer = receive(&mut client).unwrap();
    assert_eq!((answer.id, answer.ok), (2, false));
}

#[test]
fn resp_is_pipelined_and_its_answers_come_in_order() {
    let (mut client, mut ends) = pair::<Resp>(1);
    (0..3).for_each(|id| client.send(id, &get(id)).unwrap());
    ends[0].write_all(b"$2\r\nok\r\n$-1\r\n$1").unwrap();
    let answers = [receive(&mut client).unwrap(), receive(&mut client).unwrap()];
    assert_eq!(answers.map(|answer| (answer.id, answer.ok)), [(0, true), (1, false)]);
    ends[0].write_all(b"\r\nx\r\n").unwrap();
    assert_eq!(receive(&mut client).unwrap().id, 2);
}

/// The peer reads nothing: first the kernel's buffers fill, then ours.
#[test]
fn a_peer_that_does_not_read_leaves_no_room_and_loses_nothing() {
    let (mut client, mut ends) = pair::<Resp>(1);
    let sent = (0..10_000_000).take_while(|&id| !is_full(client.send(id, &get(1)))).count();
    assert!(sent < 10_000_000, "it is never full");
    ends[0].set_nonblocking(true).unwrap();
    let (mut seen, mut chunk) = (0, vec![0; 1 << 20]);
    let one = {
        let mut one = Vec::new();
        Resp::encode(&mut one, &get(1), &client.shape);
        one.len()
    };
    let begin = Instant::now();
    while seen < sent * one {
        assert!(begin.elapsed() < Duration::from_secs(60), "{seen} bytes of {}", sent * one);
        seen += ends[0].read(&mut chunk).unwrap_or(0);
        // Receiving also sends what had no room earlier.
        assert_eq!(client.receive().unwrap(), None);
    }
    client.send(sent as u64, &get(1)).unwrap();
}

#[test]
fn a_server_that_closes_or_speaks_unasked_ends_the_run() {
    let (mut client, ends) = pair::<Http>(1);
    ends[0].shutdown(Shutdown::Write).unwrap();
    assert!(receive(&mut client).unwrap_err().to_string().contains("closed a connection"));
    let (mut client, mut ends) = pair::<Http>(1);
    ends[0].write_all(OK).unwrap();
    assert!(receive(&mut client).unwrap_err().to_string().contains("without a request"));
}
