//! Clients that take more time, places or descriptors than they should. Each limit ends the client that hits
//! it, names the reason, and leaves the others alone. Deadlines are short here, and tests wait for their
//! effects.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use heddle_server::{ClientLimits, Limit, Options, Protocol, Server, System};

use crate::harness::{Client, DESCRIPTORS, HASTY, Process, evented, systems, temp_dir, wait_until};

const SHORT: Duration = Duration::from_millis(200);

/// Runs `test` on each of `systems`, with `limits` for each client.
fn on(
    systems: impl IntoIterator<Item = System>,
    protocol: &Protocol,
    limits: ClientLimits,
    test: impl Fn(&Server),
) {
    for system in systems {
        let options = Options {
            system,
            protocol: protocol.clone(),
            udp: None,
            clients: limits,
            max_connections: 20,
            ..Options::on_free_ports()
        };
        let server = Server::start(&options).unwrap();
        test(&server);
        server.stop().request();
        server.wait().unwrap();
    }
}

pub fn on_all(limits: ClientLimits, test: impl Fn(&Server)) {
    on(systems(), &Protocol::Resp, limits, test);
}

pub fn on_site(limits: ClientLimits, test: impl Fn(&Server)) {
    let dir = temp_dir();
    std::fs::write(dir.path().join("page.html"), "<p>page</p>").unwrap();
    on(evented(), &Protocol::Http { root: dir.path().into() }, limits, test);
}

fn hasty() -> ClientLimits {
    ClientLimits { request: SHORT, ..ClientLimits::default() }
}

/// Waits until a client is served.
fn served(server: &Server, request: &str, reply: &str) {
    wait_until("a place for one more client", || {
        let Client(mut stream) = Client::to(server);
        let mut got = vec![0; reply.len()];
        let answered =
            stream.write_all(request.as_bytes()).and_then(|()| stream.read_exact(&mut got));
        answered.is_ok() && got == reply.as_bytes()
    });
}

/// `SET key VALUE` with a value of `bytes` bytes.
pub fn set(key: &str, bytes: usize) -> Vec<u8> {
    let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${bytes}\r\n", key.len());
    [head.as_bytes(), &vec![b'v'; bytes], b"\r\n"].concat()
}

#[test]
fn half_heads_free_their_places_and_get_a_408() {
    on_site(hasty(), |server| {
        let half = |_| {
            let mut client = Client::to(server);
            client.send(b"GET /page.html HTTP/1.1\r\nHost: ");
            client
        };
        let attackers: Vec<Client> = (0..20).map(half).collect();
        served(server, "GET /page.html HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\n");
        for mut attacker in attackers {
            assert!(attacker.rest().starts_with("HTTP/1.1 408 "));
        }
        assert_eq!(server.hits(Limit::Request), 20);
    });
}

#[test]
fn half_requests_free_their_places_and_get_an_error() {
    on_all(hasty(), |server| {
        let half = |_| {
            let mut client = Client::to(server);
            client.talk("PING\r\n", "+PONG\r\n");
            client.send(b"*2\r\n$3\r\nGET\r\n$10\r\nabc");
            client
        };
        let attackers: Vec<Client> = (0..20).map(half).collect();
        served(server, "PING\r\n", "+PONG\r\n");
        for mut attacker in attackers {
            let reply = "-ERR the request did not come whole within 200ms\r\n";
            assert_eq!(attacker.rest(), reply);
        }
        assert!(server.hits(Limit::Request) >= 20);
    });
}

/// A byte now and then does not extend the time: it is that of the whole request.
#[test]
fn a_trickle_does_not_lengthen_the_deadline() {
    on_all(hasty(), |server| {
        let Client(mut stream) = Client::to(server);
        stream.write_all(b"*2\r\n$3\r\nGET\r\n$100000\r\n").unwrap();
        wait_until("the server ends the trickle", || {
            (&stream).write_all(b"x").is_err() || server.hits(Limit::Request) > 0
        });
        let mut reply = String::new();
        // What was sent at the very end may have reset the connection.
        let read = stream.read_to_string(&mut reply);
        assert!(read.is_err() || reply.starts_with("-ERR the request did not come"), "{reply}");
    });
}

#[test]
fn idle_connections_are_closed() {
    let limits = ClientLimits { idle: SHORT, ..ClientLimits::default() };
    on_all(limits, |server| {
        let mut silent = Client::to(server);
        let mut served = Client::to(server);
        served.talk("PING\r\n", "+PONG\r\n");
        assert_eq!((silent.rest(), served.rest()), (String::new(), String::new()));
        assert!(server.hits(Limit::Idle) >= 2);
    });
    on_site(limits, |server| {
        let mut client = Client::to(server);
        client.send(b"GET /page.html HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(client.rest().ends_with("<p>page</p>"));
    });
}

#[test]
fn clients_that_never_read_are_cut() {
    let limits = ClientLimits { idle: SHORT, ..ClientLimits::default() };
    on_all(limits, |server| {
        Client::to(server).talk(&String::from_utf8(set("big", 1 << 20)).unwrap(), "+OK\r\n");
        let mut client = Client::to(server);
        client.send("GET big\r\n".repeat(100).as_bytes());
        wait_until("the client is cut", || server.hits(Limit::Reply) > 0);
        let mut taken = Vec::new();
        let _ = client.0.read_to_end(&mut taken);
        assert!(taken.len() < 100 << 20);
    });
}

/// Nor does reading a little now and then. The memory is available to others again.
#[test]
fn clients_that_read_a_trickle_are_cut_and_their_memory_is_given_back() {
    let idle = Duration::from_secs(1);
    let rate = 1 << 30;
    let limits =
        ClientLimits { idle, reply_rate: rate, memory: 40 << 20, ..ClientLimits::default() };
    on_all(limits, |server| {
        for key in 0..8 {
            let set = set(&format!("big{key}"), 4 << 20);
            Client::to(server).talk(&String::from_utf8(set).unwrap(), "+OK\r\n");
        }
        let Client(mut slow) = Client::to(server);
        slow.write_all(b"RANGE big 8\r\n").unwrap();
        wait_until("the client is cut", || {
            // Enough for constant progress.
            let _ = (&slow).read(&mut [0; 64 << 10]);
            server.hits(Limit::ReplyRate) > 0
        });
        assert_eq!(server.hits(Limit::Reply), 0);
        wait_until("room for as long a reply", || {
            let Client(mut other) = Client::to(server);
            let (asked, mut got) = (other.write_all(b"RANGE big 8\r\n"), [0; 3]);
            asked.and_then(|()| other.read_exact(&mut got)).is_ok() && got == *b"*16"
        });
        // The kernel does not keep the rest either.
        let end = slow.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
        assert_eq!(end, Err(ErrorKind::ConnectionReset));
    });
}

/// The server has sent its last reply and waits for the client to close, which it never does.
#[test]
fn lingering_has_an_end() {
    let limits = ClientLimits { linger: SHORT, ..ClientLimits::default() };
    on_all(limits, |server| {
        let stay = |_| {
            let mut client = Client::to(server);
            client.talk("QUIT\r\n", "+OK\r\n");
            client
        };
        let attackers: Vec<Client> = (0..20).map(stay).collect();
        served(server, "PING\r\n", "+PONG\r\n");
        assert!(server.hits(Limit::Linger) > 0);
        drop(attackers);
    });
}

/// So does lingering that is fed a byte at a time.
#[test]
fn lingering_has_an_end_however_little_still_comes() {
    let limits = ClientLimits { linger: SHORT, ..ClientLimits::default() };
    on_all(limits, |server| {
        let mut client = Client::to(server);
        client.talk("QUIT\r\n", "+OK\r\n");
        wait_until("the server closes", || client.0.try_clone().unwrap().write_all(b"x").is_err());
        assert!(server.hits(Limit::Linger) > 0);
    });
}

#[test]
fn refused_connections_are_counted() {
    on_all(ClientLimits::default(), |server| {
        let all: Vec<Client> = (0..20)
            .map(|_| {
                let mut client = Client::to(server);
                client.talk("PING\r\n", "+PONG\r\n");
                client
            })
            .collect();
        assert_eq!(Client::to(server).rest(), "-ERR max number of clients reached\r\n");
        assert_eq!(server.hits(Limit::Connections), 1);
        drop(all);
    });
}

/// A client that connects when no descriptors are left gets an error at once instead of waiting.
#[test]
fn without_descriptors_new_clients_get_an_error_and_open_ones_are_served() {
    for system in systems() {
        let server = Process::start_with(system.name(), &[(DESCRIPTORS, "80")]);
        let mut first = Client::connect(server.tcp);
        first.talk("PING\r\n", "+PONG\r\n");
        let mut others = Vec::new();
        let refused = (0..200).any(|_| {
            let mut other = Client::connect(server.tcp);
            other.send(b"PING\r\n");
            let is_refused = other.line().starts_with("-ERR max number of clients");
            others.push(other);
            is_refused
        });
        assert!(refused, "{}", system.name());
        first.talk("PING\r\n", "+PONG\r\n");
        drop(others);
        wait_until("descriptors are there again", || {
            let Client(mut stream) = Client::connect(server.tcp);
            let mut got = [0; 7];
            let asked = stream.write_all(b"PING\r\n");
            asked.and_then(|()| stream.read_exact(&mut got)).is_ok() && got == *b"+PONG\r\n"
        });
        assert!(stderr_of(server).contains("without a descriptor (ulimit -n)"));
    }
}

/// Ends a server and returns its standard error.
fn stderr_of(mut server: Process) -> String {
    let mut stderr = server.child.stderr.take().unwrap();
    assert_eq!(server.end_by("TERM"), Some(0));
    let mut text = String::new();
    stderr.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn the_server_says_which_limits_were_hit() {
    for system in systems() {
        let server = Process::start_with(system.name(), &[(HASTY, "1")]);
        let mut client = Client::connect(server.tcp);
        client.send(b"*2\r\n$3\r\nGE");
        assert!(client.rest().starts_with("-ERR "));
        let text = stderr_of(server);
        let what = "1 requests not whole within 200ms (--request-timeout)";
        assert!(text.contains(&format!("limits hit: {what}")), "{text}");
        assert!(text.contains(&format!("limits hit in all: {what}")), "{text}");
    }
}

/// INFO has a line for each limit.
#[test]
fn info_counts_each_limit() {
    on_all(ClientLimits::default(), |server| {
        let mut client = Client::to(server);
        client.send(b"INFO\r\nQUIT\r\n");
        let text = client.rest();
        for limit in Limit::ALL {
            assert!(text.contains(&format!("limit_hit_{}:0\r\n", limit.name())), "{text}");
        }
    });
}

/// The server's work on a long request does not count against the client's time.
#[test]
fn the_servers_own_time_is_not_the_clients() {
    let limits =
        ClientLimits { request: Duration::from_millis(1), idle: SHORT, ..ClientLimits::default() };
    on_all(limits, |server| {
        let mut client = Client::to(server);
        for key in 0..300 {
            client.talk(&format!("SET key{key} 1\r\n"), "+OK\r\n");
        }
        // Pipelined: every request is answered, however long they take together.
        client.send("RANGE key 300\r\n".repeat(300).as_bytes());
        let keys: String = (0..300).map(|key| format!("key{key}")).collect();
        for _ in 0..300 {
            assert_eq!(client.line(), "*600");
            let mut body = vec![0; keys.len() + 300 * ("$4\r\n\r\n$1\r\n1\r\n".len())];
            client.0.read_exact(&mut body).unwrap();
        }
    });
}

#[test]
fn echo_frames_that_do_not_come_whole_end_without_a_word() {
    on(evented(), &Protocol::Echo, hasty(), |server| {
        let mut client = Client::to(server);
        client.send(b"\0\0\0\x01z\0\0\0\x09half");
        assert_eq!(client.rest().as_bytes(), b"\0\0\0\x01z");
        assert_eq!(server.hits(Limit::Request), 1);
    });
}
