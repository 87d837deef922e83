//! memcached's protocol, by its own clients and by raw sockets; the same conversation with memcached itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};

use heddle_server::{Dataset, Limit, Options, Protocol, Server};
use heddle_test_support::{PATIENCE, Running, find_program};

use crate::harness::{Client, on_each_with, temp_dir, wait_until};

fn on_each(test: impl Fn(&Server)) {
    on_each_with(|options| options.protocol = Protocol::Memcached, test);
}

/// What `protocol.txt` promises, in one conversation that leaves no key. Pairs of requests and replies.
const CONVERSATION: [(&str, &str); 28] = [
    ("get a\r\n", "END\r\n"),
    ("set a 42 0 3\r\nxyz\r\n", "STORED\r\n"),
    ("get a\r\n", "VALUE a 42 3\r\nxyz\r\nEND\r\n"),
    ("get  none a none a\n", "VALUE a 42 3\r\nxyz\r\nVALUE a 42 3\r\nxyz\r\nEND\r\n"),
    ("set b 0 0 0\r\n\r\nset c 1 0 2 noreply\r\n\r\n\r\n", "STORED\r\n"),
    ("get a b c\r\n", "VALUE a 42 3\r\nxyz\r\nVALUE b 0 0\r\n\r\nVALUE c 1 2\r\n\r\n\r\nEND\r\n"),
    ("add a 0 0 1\r\nx\r\nreplace d 0 0 1\r\nx\r\n", "NOT_STORED\r\nNOT_STORED\r\n"),
    (
        "append a 7 0 1\r\n.\r\nprepend a 7 0 1\r\n.\r\nget a\r\n",
        "STORED\r\nSTORED\r\nVALUE a 42 5\r\n.xyz.\r\nEND\r\n",
    ),
    ("append d 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
    ("cas d 0 0 1 5\r\nx\r\ncas a 0 0 1 18446744073709551615\r\nx\r\n", "NOT_FOUND\r\nEXISTS\r\n"),
    (
        "set n 0 0 2\r\n98\r\nincr n 3\r\ndecr n 200\r\nincr d 1\r\n",
        "STORED\r\n101\r\n0\r\nNOT_FOUND\r\n",
    ),
    ("incr a 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
    ("incr n x\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"),
    ("set e 0 -1 1\r\nx\r\nget e\r\nadd e 0 -1 1\r\nx\r\n", "STORED\r\nEND\r\nSTORED\r\n"),
    ("touch a 100\r\ntouch d 100\r\ntouch a 0 noreply\r\n", "TOUCHED\r\nNOT_FOUND\r\n"),
    ("touch a x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
    ("gat 0 a d\r\n", "VALUE a 42 5\r\n.xyz.\r\nEND\r\n"),
    (
        "delete a\r\ndelete a\r\ndelete b 0\r\ndelete c noreply\r\n",
        "DELETED\r\nNOT_FOUND\r\nDELETED\r\n",
    ),
    ("delete n 5\r\n", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"),
    ("set a 0 0 x\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ("set a 0 0 -1\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ("set a 0 0 1\r\nxyz\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
    (
        "get\r\nset a 0 0\r\nincr a\r\nnope\r\n\r\nGET a\r\n",
        "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\n",
    ),
    ("verbosity 0\r\nverbosity 0 noreply\r\n", "OK\r\n"),
    ("set o 0 0 2000000 noreply\r\n", ""),
    ("flush_all noreply\r\nflush_all 0\r\n", "OK\r\n"),
    ("get a b c d e n o\r\n", "END\r\n"),
    ("quit\r\n", ""),
];

fn converse(addr: SocketAddr) {
    let mut client = Client::connect(addr);
    for (request, reply) in CONVERSATION {
        client.talk(request, reply);
        if request.contains(" 2000000 ") {
            client.send(format!("{}\r\n", "x".repeat(2_000_000)).as_bytes());
        }
    }
    assert_eq!(client.rest(), "");
    let long = "k".repeat(251);
    let mut client = Client::connect(addr);
    client.talk(&format!("get {long}\r\n"), "CLIENT_ERROR bad command line format\r\n");
    client.talk(&format!("get {}\r\n", &long[1..]), "END\r\n");
}

#[test]
fn each_system_answers_as_the_protocol_demands() {
    on_each(|server| converse(server.tcp().unwrap()));
}

/// The same conversation, so that its replies are memcached's and not only ours.
#[test]
fn memcached_answers_the_same() {
    let Some(program) = find_program("memcached", "apt install memcached") else { return };
    let folder = temp_dir();
    let ports = folder.path().join("ports");
    let mut command = Command::new(program);
    command.args(["-l", "127.0.0.1", "-p", "-1", "-U", "0", "-u", "root", "-t", "1"]);
    let _memcached = Running::start_quietly(command.env("MEMCACHED_PORT_FILENAME", &ports));
    let port = || {
        let text = std::fs::read_to_string(&ports).ok()?;
        text.lines().find_map(|line| line.strip_prefix("TCP INET: ")?.parse::<u16>().ok())
    };
    wait_until("memcached's port", || port().is_some());
    converse(SocketAddr::from(([127, 0, 0, 1], port().unwrap())));
}

#[test]
fn requests_can_be_split_anywhere_and_pipelined() {
    on_each(|server| {
        let mut client = Client::to(server);
        for byte in b"set k 1 0 2\r\nab\r\nget k\r\n" {
            client.send(&[*byte]);
        }
        client.talk("", "STORED\r\nVALUE k 1 2\r\nab\r\nEND\r\n");
        client.send("get k\r\n".repeat(10_000).as_bytes());
        let reply = "VALUE k 1 2\r\nab\r\nEND\r\n";
        (0..10_000).for_each(|_| client.talk("", reply));
    });
}

#[test]
fn values_of_a_megabyte_come_back_and_longer_ones_are_refused() {
    on_each(|server| {
        let mut client = Client::to(server);
        let value = "x".repeat(1 << 20);
        client.talk(&format!("set k 9 0 1048576\r\n{value}\r\n"), "STORED\r\n");
        client.talk(
            "get k k\r\n",
            &format!("{0}{0}END\r\n", format!("VALUE k 9 1048576\r\n{value}\r\n")),
        );
        client.talk(
            &format!("set k 9 0 1048577\r\n{value}x\r\n"),
            "SERVER_ERROR object too large for cache\r\n",
        );
        client.talk("get k\r\n", "END\r\n");
    });
}

#[test]
fn what_is_no_text_protocol_ends_the_connection_with_an_error() {
    on_each(|server| {
        let long = format!("set {}", "k".repeat(2048));
        let cases: [(&[u8], &str); 2] = [
            (
                &[0x80, 0x0a, 0, 0, 0, 0, 0, 0],
                "CLIENT_ERROR the binary protocol is not supported\r\n",
            ),
            (long.as_bytes(), "CLIENT_ERROR line too long\r\n"),
        ];
        for (bytes, reply) in cases {
            let mut client = Client::to(server);
            client.send(bytes);
            assert_eq!(client.rest(), reply);
        }
        Client::to(server).talk("get k\r\n", "END\r\n");
    });
}

#[test]
fn limits_are_reported_in_memcacheds_words() {
    let change = |options: &mut Options| {
        options.protocol = Protocol::Memcached;
        options.max_connections = 1;
        options.clients.store_memory = 1000;
    };
    on_each_with(change, |server| {
        let mut client = Client::to(server);
        client.talk("get k\r\n", "END\r\n");
        assert_eq!(Client::to(server).rest(), "ERROR Too many open connections\r\n");
        if server.ready_line().contains("store=memory") {
            let value = "x".repeat(1000);
            client.talk(
                &format!("set k 0 0 1000\r\n{value}\r\n"),
                "SERVER_ERROR out of memory storing object\r\n",
            );
            assert_eq!(server.hits(Limit::StoreMemory), 1);
        }
    });
}

#[test]
fn the_dataset_is_made_of_items() {
    let change = |options: &mut Options| {
        options.protocol = Protocol::Memcached;
        options.dataset = Some(Dataset { keys: 10, value_size: 2 });
    };
    on_each_with(change, |server| {
        let mut client = Client::to(server);
        client.send(b"get key:000000000009\r\n");
        assert_eq!(client.line(), "VALUE key:000000000009 0 2");
        let mut value = [0; 4];
        client.0.read_exact(&mut value).unwrap();
        assert_eq!(client.line(), "END");
        client.talk("get key:000000000010\r\n", "END\r\n");
    });
}

#[test]
fn datagrams_are_answered_behind_their_frame() {
    on_each(|server| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(server.udp().unwrap()).unwrap();
        let ask = |id: u8, request: &str| {
            socket.send(&[&[0, id, 0, 0, 0, 1, 0, 0], request.as_bytes()].concat()).unwrap();
            let mut reply = [0; 1500];
            let len = socket.recv(&mut reply).unwrap();
            assert_eq!(reply[..8], [0, id, 0, 0, 0, 1, 0, 0]);
            String::from_utf8_lossy(&reply[8..len]).into_owned()
        };
        assert_eq!(ask(1, "set k 3 0 1\r\nx\r\n"), "STORED\r\n");
        socket.send(b"short").unwrap();
        assert_eq!(ask(2, "get k\r\n"), "VALUE k 3 1\r\nx\r\nEND\r\n");
    });
}

const TOOLS: &str = "apt install libmemcached-tools";

/// Runs one of libmemcached's tools; `None` if it is not installed.
fn tool(server: &Server, name: &str, args: &[&str]) -> Option<String> {
    let program = find_program(name, TOOLS)?;
    let servers = format!("--servers={}", server.tcp().unwrap());
    let output = Command::new(program).arg(servers).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {args:?}: {text}{errors}");
    Some(text)
}

#[test]
fn the_tools_of_libmemcached_read_and_write() {
    let folder = temp_dir();
    let file = folder.path().join("document");
    std::fs::write(&file, "a value\nof two lines\n").unwrap();
    on_each(|server| {
        // Debian's name of memcp.
        if tool(server, "memccp", &["--flag=5", file.to_str().unwrap()]).is_none() {
            return;
        }
        let read = tool(server, "memccat", &["document"]).unwrap();
        assert_eq!(read.trim_end(), "a value\nof two lines");
        let mut client = Client::to(server);
        client
            .talk("get document\r\n", "VALUE document 5 21\r\na value\nof two lines\n\r\nEND\r\n");
        let stats = tool(server, "memcstat", &[]).unwrap();
        assert!(stats.contains("curr_items: 1") && stats.contains("get_hits: 2"), "{stats}");
        tool(server, "memcrm", &["document"]).unwrap();
        client.talk("get document\r\n", "END\r\n");
        tool(server, "memcslap", &["--concurrency=4", "--execute-number=500", "--test=get"])
            .unwrap();
        tool(server, "memcflush", &[]).unwrap();
        let stats = tool(server, "memcstat", &[]).unwrap();
        assert!(stats.contains("curr_items: 0"), "{stats}");
    });
}

const PYMEMCACHE: &str = "
import sys
from pymemcache.client.base import Client
c = Client(('127.0.0.1', int(sys.argv[1])), default_noreply=False)
assert c.set('k', b'v', flags=7) and c.get('k') == b'v'
assert c.add('k', b'x') is False and c.replace('k', b'1')
value, unique = c.gets('k')
assert c.cas('k', b'2', unique) is True and c.cas('k', b'3', unique) is False
assert c.incr('k', 5) == 7 and c.decr('k', 9) == 0 and c.touch('k', 100)
assert c.set_many({'a': b'1', 'b': b'2' * 100000}) == []
assert c.get_many(['a', 'b', 'none']) == {'a': b'1', 'b': b'2' * 100000}
assert c.append('a', b'0') and c.prepend('a', b'0') and c.get('a') == b'010'
c.set('quiet', b'x', noreply=True)
assert c.get('quiet') == b'x' and c.delete('quiet') and not c.delete('quiet')
assert b'curr_items' in c.stats() and c.version()
assert c.set('gone', b'x', expire=-1) and c.get('gone') is None
try:
    c.set('large', b'x' * 1048577)
    raise SystemExit('a large value was stored')
except Exception as error:
    assert 'object too large' in str(error), error
assert c.flush_all() and c.get('a') is None
c.quit()
";

#[test]
fn pymemcache_reads_and_writes() {
    let python = || Command::new("/usr/bin/python3");
    let has_it = python().args(["-c", "import pymemcache"]).stderr(Stdio::null()).status();
    if !has_it.is_ok_and(|status| status.success()) {
        eprintln!("skipped: pymemcache is not installed (apt install python3-pymemcache)");
        return;
    }
    on_each(|server| {
        let port = server.tcp().unwrap().port().to_string();
        let output = python().args(["-c", PYMEMCACHE, &port]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
}

/// A client that never reads what it asks for is bounded as with any protocol.
#[test]
fn a_client_that_does_not_read_does_not_stop_others() {
    on_each(|server| {
        let mut client = Client::to(server);
        let value = "x".repeat(1 << 20);
        client.talk(&format!("set k 0 0 1048576\r\n{value}\r\n"), "STORED\r\n");
        let slow = TcpStream::connect(server.tcp().unwrap()).unwrap();
        (&slow).write_all("get k k k k\r\n".repeat(100).as_bytes()).unwrap();
        (0..100).for_each(|_| client.talk("get none\r\n", "END\r\n"));
    });
}
