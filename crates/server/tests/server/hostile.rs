//! Clients that try to hold a thread, memory or a place forever, against event-driven servers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use heddle_server::{Options, Server};

use crate::harness::{Client, evented};

fn on_each_evented(test: impl Fn(&Server)) {
    for system in evented() {
        let server = Server::start(&Options { system, ..Options::on_free_ports() }).unwrap();
        test(&server);
        server.stop().request();
        server.wait().unwrap();
    }
}

fn set_big(client: &mut Client) {
    let value = "x".repeat(100_000);
    client.talk(&format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$100000\r\n{value}\r\n"), "+OK\r\n");
}

/// Writes until the server takes no more.
fn stuff(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_nonblocking(true).unwrap();
    let requests = "GET big\r\n".repeat(1000);
    while (&stream).write(requests.as_bytes()).is_ok() {}
    stream
}

/// Eight clients for four threads: each asks for gigabytes and reads nothing.
#[test]
fn clients_that_do_not_read_hold_no_thread() {
    on_each_evented(|server| {
        let mut client = Client::to(server);
        set_big(&mut client);
        let slow: Vec<TcpStream> = (0..8).map(|_| stuff(server.tcp().unwrap())).collect();
        for _ in 0..200 {
            client.talk("PING\r\n", "+PONG\r\n");
            Client::to(server).talk("GET none\r\n", "$-1\r\n");
        }
        // A client that reads after all gets what it asked for, in order.
        let mut reply = vec![0; "$100000\r\n\r\n".len() + 100_000];
        slow[0].set_nonblocking(false).unwrap();
        for _ in 0..50 {
            (&slow[0]).read_exact(&mut reply).unwrap();
            assert!(reply.starts_with(b"$100000\r\nxxx") && reply.ends_with(b"xxx\r\n"));
        }
    });
}

/// Every byte in its own packet, from many clients at a time.
#[test]
fn requests_that_come_byte_by_byte_are_answered() {
    on_each_evented(|server| {
        let mut clients: Vec<Client> = (0..30).map(|_| Client::to(server)).collect();
        for byte in b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n" {
            clients.iter_mut().for_each(|client| client.send(&[*byte]));
        }
        clients.iter_mut().for_each(|client| client.talk("", "$2\r\nhi\r\n"));
    });
}

/// What was sent before the half-close is answered, and then the connection ends.
#[test]
fn a_half_closed_connection_gets_all_its_answers() {
    on_each_evented(|server| {
        let mut client = Client::to(server);
        set_big(&mut client);
        client.send("GET big\r\n".repeat(100).as_bytes());
        client.0.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.rest().len(), 100 * ("$100000\r\n\r\n".len() + 100_000));
    });
}

/// The last reply reaches a client that had sent more: a reset would destroy it.
#[test]
fn the_last_reply_is_not_lost_when_the_client_still_sends() {
    on_each_evented(|server| {
        for _ in 0..20 {
            let mut client = Client::to(server);
            client.send(format!("QUIT\r\n{}", "PING\r\n".repeat(20_000)).as_bytes());
            assert_eq!(client.rest(), "+OK\r\n");
        }
    });
}

/// Places of ended connections are reused.
#[test]
fn places_of_those_who_left_are_taken_again() {
    for system in evented() {
        let options = Options { system, max_connections: 8, ..Options::on_free_ports() };
        let server = Server::start(&options).unwrap();
        for _ in 0..100 {
            let mut four: Vec<Client> = (0..4).map(|_| Client::to(&server)).collect();
            four.iter_mut().for_each(|client| client.talk("PING\r\n", "+PONG\r\n"));
            for mut client in four {
                client.send(b"QUIT\r\n");
                assert_eq!(client.rest(), "+OK\r\n");
            }
        }
        server.stop().request();
        server.wait().unwrap();
    }
}

/// After a while, a stop cuts clients that do not read their replies.
#[test]
fn a_client_that_never_reads_does_not_hold_up_the_end() {
    on_each_evented(|server| {
        let mut client = Client::to(server);
        set_big(&mut client);
        let slow = stuff(server.tcp().unwrap());
        client.talk("PING\r\n", "+PONG\r\n");
        // The server ends while the client is there.
        std::mem::forget(slow);
    });
}

/// Threads start in their own time; in the end INFO counts all of them.
#[test]
fn info_counts_the_servers_threads() {
    on_each_evented(|server| {
        let counted = (0..100_000).any(|_| {
            let mut client = Client::to(server);
            client.send(b"INFO\r\nQUIT\r\n");
            client.rest().contains("threads:4\r\n")
        });
        assert!(counted);
    });
}
