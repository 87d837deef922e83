//! Bad clients and a bad environment: the error goes to its cause, and the server lives.

use std::net::Shutdown;

use heddle_server::{Error, HeddleOptions, Options, Protocol, Server, System};
#[cfg(feature = "rocksdb")]
use heddle_store::{StoreConfig, StoreError};

use crate::harness::{Client, on_each, on_each_with};

fn alive(server: &Server) {
    Client::to(server).talk("PING\r\n", "+PONG\r\n");
}

#[test]
fn half_a_command_gets_an_error() {
    on_each(|server| {
        let mut client = Client::to(server);
        client.send(b"PING\r\n*2\r\n$3\r\nGET\r\n$10\r\nabc");
        client.0.shutdown(Shutdown::Write).unwrap();
        let reply = client.rest();
        assert!(reply.starts_with("+PONG\r\n-ERR Protocol error"), "{reply}");
        alive(server);
    });
}

#[test]
fn an_oversized_key_gets_an_error_and_the_connection_goes_on() {
    on_each(|server| {
        let mut client = Client::to(server);
        client.send(format!("*2\r\n$3\r\nGET\r\n$5000\r\n{}\r\n", "k".repeat(5000)).as_bytes());
        assert_eq!(client.line(), "-ERR the key of 5000 bytes is too long: at most 4096 bytes");
        client.talk("PING\r\n", "+PONG\r\n");
    });
}

#[test]
fn an_oversized_value_is_skipped_and_the_connection_goes_on() {
    let shrink = |options: &mut Options| options.limits.value = 10_000;
    on_each_with(shrink, |server| {
        let mut client = Client::to(server);
        let value = "v".repeat(1 << 20);
        client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048576\r\n");
        client.send(value.as_bytes());
        client.send(b"\r\n");
        assert!(client.line().starts_with("-ERR the argument of 1048576 bytes is too long"));
        client.talk("GET k\r\n", "$-1\r\n");
    });
}

#[test]
fn what_is_not_resp_ends_its_own_connection() {
    on_each(|server| {
        let mut other = Client::to(server);
        let mut client = Client::to(server);
        client.send(b"*zzz\r\n");
        assert_eq!(client.rest(), "-ERR Protocol error: invalid multibulk length\r\n");
        other.talk("PING\r\n", "+PONG\r\n");
    });
}

#[test]
fn clients_that_vanish_leave_no_trace() {
    on_each(|server| {
        for _ in 0..50 {
            let mut client = Client::to(server);
            // A reply that is never read, and half a request.
            client.send(b"SET v 1\r\nRANGE \"\" 1000\r\n*2\r\n$3\r\nG");
        }
        let mut client = Client::to(server);
        // The count falls when the server notices; each INFO asks anew.
        let gone = (0..100_000).any(|_| {
            client.send(b"INFO\r\n");
            let len: usize = client.line()[1..].parse().unwrap();
            let mut text = String::new();
            while text.len() < len {
                text.push_str(&client.line());
                text.push_str("\r\n");
            }
            assert!(client.line().is_empty());
            text.contains("connected_clients:1\r\n")
        });
        assert!(gone, "connections of vanished clients are closed");
    });
}

#[test]
fn one_connection_too_many_gets_an_error() {
    let few = |options: &mut Options| options.max_connections = 1;
    on_each_with(few, |server| {
        let mut first = Client::to(server);
        first.talk("PING\r\n", "+PONG\r\n");
        assert_eq!(Client::to(server).rest(), "-ERR max number of clients reached\r\n");
        first.talk("PING\r\n", "+PONG\r\n");
    });
}

#[test]
fn a_port_in_use_is_named() {
    let first = Server::start(&Options::on_free_ports()).unwrap();
    for (tcp, udp) in [(first.tcp(), None), (None, first.udp())] {
        let options = Options { tcp, udp, ..Options::default() };
        let error = Server::start(&options).err().unwrap();
        assert!(matches!(error, Error::PortInUse { .. }), "{error}");
        let port = tcp.or(udp).unwrap().port().to_string();
        assert!(error.to_string().contains(&port), "{error}");
    }
    first.stop().request();
    first.wait().unwrap();
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let nowhere = Options { tcp: None, udp: None, ..Options::default() };
    assert!(matches!(Server::start(&nowhere), Err(Error::NoAddress)));
    let no_handlers = System::Heddle(HeddleOptions { handlers: 0, ..HeddleOptions::default() });
    let zeros = [
        System::Tokio { workers: Some(0) },
        System::Threads { pool: Some(0) },
        System::Events { policy: None, threads: Some(0) },
        System::Epoll { threads: Some(0) },
        no_handlers,
    ];
    for system in zeros {
        let options = Options { system, ..Options::on_free_ports() };
        assert!(matches!(Server::start(&options), Err(Error::Zero { .. })));
    }
}

#[test]
fn a_runtime_that_cannot_be_is_refused_with_what_could_be() {
    let policy =
        |text: &str| HeddleOptions { policy: Some(text.into()), ..HeddleOptions::default() };
    let workers = |n| HeddleOptions { workers: Some(n), ..HeddleOptions::default() };
    let dispatcher = |cpu| HeddleOptions { dispatcher: Some(cpu), ..HeddleOptions::default() };
    for (heddle, expected) in [
        (policy("fastest"), "two-queue"),
        (policy("two-queue:speed=9"), "quantum"),
        (policy("two-queue:quantum=1ns"), "at least"),
        (workers(0), "at least one worker"),
        (workers(10_000), "10000 workers"),
        (dispatcher(4000), "CPU 4000 does not exist"),
    ] {
        let options = Options { system: System::Heddle(heddle), ..Options::on_free_ports() };
        let error = Server::start(&options).err().unwrap();
        assert!(matches!(error, Error::Runtime(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_queue_that_cannot_be_is_refused_with_what_could_be() {
    for (policy, expected) in
        [("fastest", "hybrid"), ("hybrid:speed=9", "speed"), ("two-queue:quantum=100us", "hybrid")]
    {
        let system = System::Events { policy: Some(policy.into()), threads: None };
        let error = Server::start(&Options { system, ..Options::on_free_ports() }).err().unwrap();
        assert!(matches!(error, Error::Events(_)), "{error}");
        assert!(error.to_string().contains(expected), "{policy}: {error}");
    }
}

#[test]
fn a_protocol_that_the_system_does_not_speak_and_a_root_that_is_not_there_are_named() {
    let options = Options { protocol: Protocol::Echo, ..Options::on_free_ports() };
    let error = Server::start(&options).err().unwrap();
    assert!(
        error
            .to_string()
            .contains("the system tokio does not speak echo; only events and epoll do"),
        "{error}"
    );
    let protocol = Protocol::Http { root: "/no/such/directory".into() };
    let system = System::Events { policy: None, threads: None };
    let error = Server::start(&Options { protocol, system, ..Options::on_free_ports() });
    assert!(matches!(error.err(), Some(Error::Root { .. })));
}

#[cfg(feature = "rocksdb")]
#[test]
fn an_unwritable_directory_is_named() {
    let dir = crate::harness::temp_dir();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let store = StoreConfig::RocksDb { dir: file.join("db"), sync: false };
    let error = Server::start(&Options { store, ..Options::on_free_ports() }).err().unwrap();
    assert!(matches!(error, Error::Store(StoreError::NotWritable { .. })), "{error}");
}
