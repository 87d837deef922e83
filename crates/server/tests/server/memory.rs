//! Clients that make the server hold more bytes than it may.

use std::io::{Read, Write};

use heddle_server::{ClientLimits, Limit};

use crate::harness::{Client, wait_until};
use crate::limits::{on_all, on_site, set};

#[test]
fn all_connections_together_hold_no_more_than_the_total() {
    let limits = ClientLimits { memory: 3 << 20, ..ClientLimits::default() };
    on_all(limits, |server| {
        // Each holds a megabyte of a request that does not end.
        let hold = |_| {
            let mut client = Client::to(server);
            let _ = client.0.write_all(&set("k", 4 << 20)[..1 << 20]);
            client
        };
        let mut attackers: Vec<Client> = (0..10).map(hold).collect();
        wait_until("the total is used up", || server.hits(Limit::Memory) > 0);
        // Short requests still have room.
        for _ in 0..10 {
            Client::to(server).talk("SET a 1\r\nGET a\r\n", "+OK\r\n$1\r\n1\r\n");
        }
        let is_explained = attackers.iter_mut().any(|attacker| {
            attacker.0.set_nonblocking(true).unwrap();
            let mut reply = Vec::new();
            let _ = attacker.0.read_to_end(&mut reply);
            reply.starts_with(b"-ERR the server holds as many bytes as it may")
        });
        assert!(is_explained, "some client gets the reason");
        // Their memory is returned with them.
        drop(attackers);
        wait_until("room for a long request", || {
            let Client(mut stream) = Client::to(server);
            let sent = stream.write_all(&set("k", 1 << 20));
            let mut got = [0; 5];
            sent.and_then(|()| stream.read_exact(&mut got)).is_ok() && got == *b"+OK\r\n"
        });
    });
}

#[test]
fn a_connection_holds_no_more_than_its_limit() {
    let limits = ClientLimits { connection_memory: 100_000, ..ClientLimits::default() };
    on_all(limits, |server| {
        let mut client = Client::to(server);
        // As much as it is allowed.
        client.talk(&String::from_utf8(set("k", 20_000)).unwrap(), "+OK\r\n");
        let _ = client.0.write_all(&set("k", 1 << 20)[..300_000]);
        wait_until("the connection is ended", || server.hits(Limit::ConnectionMemory) > 0);
        let mut reply = String::new();
        let read = client.0.read_to_string(&mut reply);
        assert!(read.is_err() || reply.starts_with("-ERR a connection may hold 100000"), "{reply}");
    });
}

/// A reply counts as well; the connection goes on.
#[test]
fn a_reply_for_which_there_is_no_room_is_refused() {
    let limits = ClientLimits { connection_memory: 500_000, ..ClientLimits::default() };
    on_all(limits, |server| {
        let mut client = Client::to(server);
        for key in 0..10 {
            let set = set(&format!("key{key}"), 100_000);
            client.talk(&String::from_utf8(set).unwrap(), "+OK\r\n");
        }
        client.send(b"RANGE key 10\r\n");
        let line = client.line();
        assert!(line.starts_with("-ERR no room for the reply: a connection may hold"), "{line}");
        client.talk("PING\r\n", "+PONG\r\n");
        client.send(b"RANGE key 2\r\n");
        assert_eq!(client.line(), "*4");
    });
}

/// So does every other reply, and each of many errors.
#[test]
fn whatever_the_reply_is_it_counts() {
    let limits = ClientLimits { connection_memory: 50_000, ..ClientLimits::default() };
    on_all(limits, |server| {
        for (request, count) in [("COMMAND\r\n", 100), ("nope\r\n", 2000)] {
            let before = server.hits(Limit::ConnectionMemory);
            let mut client = Client::to(server);
            client.send(format!("{}QUIT\r\n", request.repeat(count)).as_bytes());
            let reply = client.rest();
            let end = "-ERR a connection may hold 50000 bytes of requests and replies\r\n";
            assert!(reply.ends_with(end), "{request}: {} bytes", reply.len());
            assert_eq!(server.hits(Limit::ConnectionMemory), before + 1);
        }
    });
    on_site(limits, |server| {
        let mut client = Client::to(server);
        client.send("GET /none HTTP/1.1\r\nHost: x\r\n\r\n".repeat(300).as_bytes());
        client.send(b"GET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let reply = client.rest();
        assert!(reply.ends_with("413 Content Too Large\n"), "{} bytes", reply.len());
        assert_eq!(server.hits(Limit::ConnectionMemory), 1);
        // A client that asks for less is served.
        let mut client = Client::to(server);
        client.send(b"GET /page.html HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert!(client.rest().ends_with("<p>page</p>"));
    });
}

#[test]
fn the_store_holds_no_more_than_it_may() {
    let limits = ClientLimits { store_memory: 1 << 20, ..ClientLimits::default() };
    on_all(limits, |server| {
        let mut client = Client::to(server);
        let oom = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
        let set = |key: &str| String::from_utf8(set(key, 400_000)).unwrap();
        client.talk(&set("a"), "+OK\r\n");
        client.talk(&set("b"), "+OK\r\n");
        client.talk(&set("c"), oom);
        // Existing entries are served, can be overwritten, and free their room when deleted.
        client.talk("GET c\r\n", "$-1\r\n");
        client.talk(&set("a"), "+OK\r\n");
        client.talk("DEL b\r\n", ":1\r\n");
        client.talk(&set("c"), "+OK\r\n");
        assert_eq!(server.hits(Limit::StoreMemory), 1);
    });
}
